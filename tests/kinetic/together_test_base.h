// A fixture for what goes to a device in one message, on the client's side.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/real_runtime.h"
#include "base/send_together.h"
#include "kinetic/kinetic_drive.h"
#include "tests/kinetic/fake_device.h"

namespace pinstripe {

// A device that can take puts together, what it was asked, and what it answers to that.
class TogetherTest : public testing::Test {
 protected:
  using Connection = FakeDevice::Session;
  using Asked = FakeDevice::Request;
  using Script = std::function<void(Connection&, const Asked&)>;

  static constexpr std::string_view kCan = "guards 1\nrooms 1\nunerased 1\nputs 1\n";

  // `answer` is called for each request after the first ones.
  void Serve(Script answer, std::string_view can = kCan,
             const kinetic::GetLog::Limits& limits = {}) {
    device_ = std::make_unique<FakeDevice>([this, answer, can, limits](Connection& session) {
      session.Greet(limits);
      session.Answer(session.Next(), nullptr, can);
      for (;;) {
        const Asked request = session.Next();
        {
          const std::lock_guard lock(mutex_);
          asked_.push_back(request);
        }
        answer(session, request);
      }
    });
    drive_ = std::make_unique<KineticDrive>(
        io_, KineticDrive::Options{.name = "drive 3",
                                   .addresses = {device_->address()},
                                   .key = std::string(FakeDevice::kKey),
                                   .least_backoff = std::chrono::milliseconds(1),
                                   .most_backoff = std::chrono::milliseconds(10)});
    while (!drive_->IsUp()) std::this_thread::yield();
  }

  // To all of a request the same.
  static void AnswerAll(Connection& session, const Asked& request, kinetic::Status::Code code) {
    if (request.command.header().messagetype() != kinetic::Header::PUTS) {
      return session.Answer(request, code);
    }
    session.Answer(request, [&](kinetic::Body* body) {
      for (int i = 0; i < request.command.body().puts().records_size(); ++i) {
        body->mutable_puts()->add_records()->mutable_status()->set_code(code);
      }
    });
  }
  static Script Good() {
    return [](Connection& session, const Asked& request) {
      AnswerAll(session, request, kinetic::Status::SUCCESS);
    };
  }

  Time Soon() { return runtime_.Now() + std::chrono::seconds(20); }

  // The status of each put, once all are answered. A second answer throws, and ends the test.
  std::vector<Status> PutTogether(std::vector<Drive::PutRequest> puts,
                                  const std::function<Terms(size_t)>& terms) {
    std::vector<std::promise<Status>> answers(puts.size());
    {
      const SendTogether together;
      for (size_t i = 0; i < puts.size(); ++i) {
        drive_->Put(std::move(puts[i]), terms(i),
                    [&answers, i](Status status) { answers[i].set_value(std::move(status)); });
      }
    }
    std::vector<Status> statuses;
    statuses.reserve(answers.size());
    for (auto& answer : answers) statuses.push_back(answer.get_future().get());
    return statuses;
  }
  std::vector<Status> PutTogether(std::vector<Drive::PutRequest> puts) {
    const Time deadline = Soon();
    return PutTogether(std::move(puts), [&](size_t) { return Terms(deadline); });
  }
  static std::vector<int> CodesOf(const std::vector<Status>& statuses) {
    std::vector<int> codes;
    for (const Status& each : statuses) codes.push_back(each.code());
    return codes;
  }
  static std::vector<Drive::PutRequest> Small(size_t count) {
    std::vector<Drive::PutRequest> puts;
    for (size_t i = 0; i < count; ++i) {
      puts.push_back({.key = fmt::format("k{}", i), .value = SharedBytes(fmt::format("v{}", i))});
    }
    return puts;
  }

  // How many puts each message had, so far.
  std::vector<int> Messages() {
    const std::lock_guard lock(mutex_);
    std::vector<int> counts;
    for (const Asked& each : asked_) {
      const bool several = each.command.header().messagetype() == kinetic::Header::PUTS;
      counts.push_back(several ? each.command.body().puts().records_size() : 1);
    }
    return counts;
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
  std::mutex mutex_;
  std::vector<Asked> asked_;  // guarded by mutex_
  std::unique_ptr<FakeDevice> device_;
  std::unique_ptr<KineticDrive> drive_;
};

}  // namespace pinstripe
