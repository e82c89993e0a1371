// The whole console over a fake cluster, on a socket.

#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/real_runtime.h"
#include "console/api.h"
#include "tests/console/fake_cluster.h"
#include "tests/console/http_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {

inline constexpr std::string_view kToken = "0123456789abcdef0123456789abcdef";

class ConsoleFixture : public testing::Test {
 protected:
  ConsoleFixture() {
    SetLogLevel(LogLevel::kError);
    Write("tokens", fmt::format("# who\n\nanna {}\n", kToken), 0600);
    EXPECT_OK(operators_.Load(directory_ / "tokens"));
    auto page = PageFiles::Load(PINSTRIPE_SOURCE_DIR "/console/page");
    EXPECT_OK(page);
    page_ = *std::move(page);
    // Stands for `pinstripe`: says what it was asked, and waits where it is asked to repair.
    Write("program",
          "#!/bin/sh\n"
          "echo '{\"doing\": \"looking\", \"done\": 0.25, \"seconds_left\": 7}' >&2\n"
          "for word; do echo \"<$word>\"; done\n"
          "case $2 in\n"
          "  repair) tail -f /dev/null >/dev/null 2>&1 & tail=$!\n"
          "    trap 'kill $tail; echo interrupted; exit 130' INT; echo waiting; wait ;;\n"
          "  scrub) exit 3 ;;\n"
          "esac\n",
          0700);
  }

  void Write(const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(directory_ / name) << text;
    chmod((directory_ / name).c_str(), mode);
  }

  void Start(ApiOptions options = {}) {
    options.version = "test";
    watch_ = std::make_unique<Watch>(runtime_, cluster_, watch_options_);
    chores_ = std::make_unique<Chores>(
        runtime_, Chores::Options{.program = directory_ / "program", .config = "cluster.toml"});
    api_ = std::make_unique<Api>(Parts(), options);
    auto server = HttpServer::Start(
        runtime_, {}, [this](const HttpRequest& request) { return api_->Answer(request); },
        [this](const HttpRequest& request) { return api_->BeforeTheBody(request); });
    ASSERT_OK(server);
    server_ = *std::move(server);
    watch_->WaitForOther(0, std::chrono::seconds(10));
  }

  ApiParts Parts() { return {runtime_, cluster_, *watch_, *chores_, operators_, page_}; }

  ~ConsoleFixture() override {
    if (api_ != nullptr) api_->End();
    if (watch_ != nullptr) watch_->End();
    server_.reset();
  }

  std::string Ask(std::string_view request) { return AskOnce(server_->port(), request); }
  std::string Get(std::string_view path, std::string_view headers = "") {
    return Ask(GetText(path, headers));
  }
  std::string Post(std::string_view path, std::string_view body, std::string_view token = kToken) {
    return Ask(PostText(path, body,
                        token.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", token)));
  }

  RealRuntime runtime_;
  TemporaryDirectory directory_;
  FakeCluster cluster_{SurveyOfDrives(16)};
  Operators operators_{runtime_};
  PageFiles page_;
  WatchOptions watch_options_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Chores> chores_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace pinstripe
