// Progress, in each of its forms: what somebody at a terminal, a log and a program read.

#include "tools/progress.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/real_runtime.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

// A stream whose text can be read.
class Memory {
 public:
  Memory() : file_(open_memstream(&text_, &size_)) {}
  ~Memory() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string Text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

// Half of 10 GB within two minutes, told each second.
std::string HalfOfTheWork(ProgressForm form) {
  SimRuntime sim(1);
  Memory out;
  Progress progress(sim, {.form = form, .out = out.file()});
  for (int second = 0; second <= 120; ++second) {
    progress.Show("repairing", second / 240.0, static_cast<uint64_t>(second) * 5'000'000'000 / 120);
    sim.Sleep(1s);
  }
  return out.Text();
}

TEST(ProgressTest, ATerminalHasOneLineThatIsDrawnAgain) {
  const std::string text = HalfOfTheWork(ProgressForm::kRedrawn);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_TRUE(text.starts_with("\r\033[Krepairing 0 %\r\033[K")) << text.substr(0, 60);
  EXPECT_NE(text.find("repairing 50 %, 41.7 MB/s, 2 min left"), std::string::npos)
      << text.substr(text.size() - 60);
}

TEST(ProgressTest, ALogHasALineAMinuteAndNoneOfShortWork) {
  EXPECT_EQ(HalfOfTheWork(ProgressForm::kLines),
            "repairing 25 %, 41.7 MB/s, 3 min left\nrepairing 50 %, 41.7 MB/s, 2 min left\n");
}

TEST(ProgressTest, AProgramHasAnObjectALine) {
  std::istringstream lines(HalfOfTheWork(ProgressForm::kJson));
  size_t count = 0;
  nlohmann::json last;
  for (std::string line; std::getline(lines, line); ++count) last = nlohmann::json::parse(line);
  EXPECT_EQ(count, 121u);
  EXPECT_EQ(last["doing"], "repairing");
  EXPECT_EQ(last["done"], 0.5);
  EXPECT_EQ(last["bytes"], 5'000'000'000);
  EXPECT_NEAR(last["seconds_left"].get<double>(), 120, 0.1);
}

TEST(ProgressTest, WhereNobodyKnowsHowMuchThereIsNoPartIsTold) {
  const auto shown = [](ProgressForm form) {
    SimRuntime sim(1);
    Memory out;
    Progress progress(sim, {.when_interrupted = "Go on.", .form = form, .out = out.file()});
    progress.Show("removing, 7 names so far", kProgressUnknown);
    return out.Text() + progress.InterruptedText();
  };
  EXPECT_EQ(shown(ProgressForm::kRedrawn),
            "\r\033[Kremoving, 7 names so far"
            "interrupted while removing, 7 names so far. Go on.\n");
  EXPECT_EQ(shown(ProgressForm::kJson),
            R"({"doing":"removing, 7 names so far","done":null})"
            "\n"
            R"({"interrupted":"Go on.","doing":"removing, 7 names so far","done":null})"
            "\n");
}

TEST(ProgressTest, NoneIsNone) { EXPECT_EQ(HalfOfTheWork(ProgressForm::kNone), ""); }

TEST(ProgressTest, FormsHaveNames) {
  EXPECT_TRUE(ChooseProgress("json"));
  EXPECT_EQ(ChosenProgress(), ProgressForm::kJson);
  EXPECT_FALSE(ChooseProgress("xml"));
  EXPECT_EQ(ChosenProgress(), ProgressForm::kJson);
  EXPECT_TRUE(ChooseProgress("auto"));
}

// A process that is interrupted says what is left, and ends by the signal all the same.
std::string Interrupted(int signal, int* how) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::FILE* out = fdopen(ends[1], "w");
    RealRuntime runtime;
    Progress progress(runtime, {.when_interrupted = "Run it again.",
                                .on_interrupt =
                                    [out] {
                                      std::fputs("and others were told\n", out);
                                      std::fflush(out);
                                    },
                                .form = ProgressForm::kLines,
                                .out = out});
    progress.Show("looking at inodes", 0.25);
    kill(getpid(), signal);
    for (;;) pause();
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  EXPECT_EQ(waitpid(child, how, 0), child);
  return text;
}

TEST(ProgressTest, WhoInterruptsItHearsWhatIsLeft) {
  for (const int signal : {SIGINT, SIGTERM}) {
    int how = 0;
    EXPECT_EQ(Interrupted(signal, &how),
              "pinstripe: interrupted while looking at inodes, at 25 %. Run it again.\n"
              "and others were told\n");
    EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == signal);
  }
}

}  // namespace
}  // namespace pinstripe
