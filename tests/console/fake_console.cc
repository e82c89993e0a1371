// A console over a made-up cluster of so many drives, for browsers: fake_console DRIVES. Prints
// where it is, and ends with its standard input.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "base/real_runtime.h"
#include "console/api.h"
#include "tests/console/fake_cluster.h"

int main(int argc, char** argv) {
  using namespace pinstripe;
  SetLogLevel(LogLevel::kError);
  Survey survey = SurveyOfDrives(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 200);
  // One of each state.
  survey.drives[3].info->failure = "it could not sync";
  survey.drives[9].info->portion_full = 1;
  survey.drives[17].doubt = "it was started anew";
  survey.drives[25].drain = DrainReport{.left = DriveContents{.shards = 12, .registers = 3}};
  survey.drives[33].drain = DrainReport{.retired = true};
  LoseDrive(survey, 40);
  FakeCluster cluster(survey);
  for (int i = 0; i < 3000; ++i) {
    cluster.entries.push_back({.name = fmt::format("run{:05}.root", i),
                               .inode = 7,
                               .kind = FileKind::kRegular,
                               .attributes = Attributes{.size = 5'000'000}});
  }
  RealRuntime runtime;
  // More from second to second; one does not tell.
  cluster.SetUse([&runtime, survey]() -> Result<ClusterUse> {
    const auto seconds = static_cast<uint64_t>(runtime.WallClock() / 1'000'000'000);
    ClusterUse use = UseOfDrives(survey, runtime.Now(), 100 * seconds, 70 * seconds);
    use.drives[40].use = Fail(EHOSTUNREACH, "connection refused");
    return use;
  });
  const auto page = PageFiles::Load(PINSTRIPE_SOURCE_DIR "/console/page");
  if (!page.has_value()) return EXIT_FAILURE;
  Operators operators(runtime);
  Chores chores(runtime, {.program = "/bin/false", .config = "cluster.toml"});
  Watch watch(runtime, cluster);
  Api api({runtime, cluster, watch, chores, operators, *page}, {.version = "fake"});
  auto server = HttpServer::Start(
      runtime, {}, [&api](const HttpRequest& request) { return api.Answer(request); },
      [&api](const HttpRequest& request) { return api.BeforeTheBody(request); });
  if (!server.has_value()) return EXIT_FAILURE;
  std::printf("ready http://127.0.0.1:%u/\n", (*server)->port());
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  api.End();
  watch.End();
  server->reset();
  return EXIT_SUCCESS;
}
