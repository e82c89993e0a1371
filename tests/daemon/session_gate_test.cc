// What the gate of a connection lets pass. Each rule has a test that shows it alone; the last tests
// go through all histories of three requests, of all kinds that matter, and ask of each whether
// what the protocol promises holds.

#include "daemon/session_gate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "store/workers.h"

namespace pinstripe {
namespace {

using kinetic::Header;
using kinetic::Status;
using Verdict = SessionGate::Verdict;

constexpr int64_t kThis = 0x1234;  // the connection
constexpr int64_t kOther = 0x5678;
constexpr uint64_t kErasures = 3;
constexpr int64_t kClusterVersion = 7;

// One connection to one device, with one identity.
struct Client {
  Client() {
    gate.Begin(kThis, kErasures);
    identity.erasures = kErasures;
    header.set_messagetype(Header::GET);
    header.set_clusterversion(kClusterVersion);
    header.set_connectionid(kThis);
    header.set_sequence(1);
    asked.header = &header;
    asked.authentication = kinetic::Message::HMACAUTH;
    asked.identity = &identity;
    asked.authentic = true;
  }
  Client(const Client&) = delete;

  Verdict Ask() { return gate.Judge(asked, device); }
  // A PIN has no identity and no signature.
  void UsePin(bool tls) {
    header.set_messagetype(Header::PINOP);
    asked.authentication = kinetic::Message::PINAUTH;
    asked.identity = nullptr;
    asked.authentic = false;
    asked.tls = tls;
  }

  SessionGate gate;
  DeviceSecurity::Identity identity{.id = 1, .key = HmacKey("key"), .rights = {}};
  Header header;
  SessionGate::Asked asked;
  SessionGate::Device device{kErasures, kClusterVersion, false};
};

testing::AssertionResult Passes(const Verdict& verdict) {
  if (verdict.kind == Verdict::kPass) return testing::AssertionSuccess();
  return testing::AssertionFailure() << verdict.why;
}

testing::AssertionResult IsRefused(const Verdict& verdict, Status::Code code) {
  if (verdict.kind == Verdict::kRefuse && verdict.code == code) return testing::AssertionSuccess();
  return testing::AssertionFailure() << verdict.kind << " with " << verdict.code << verdict.why;
}

TEST(SessionGate, ASignedRequestOfThisConnectionPasses) {
  Client client;
  EXPECT_TRUE(client.gate.is_stranger());
  EXPECT_TRUE(Passes(client.Ask()));
  EXPECT_FALSE(client.gate.is_stranger());
}

TEST(SessionGate, AnAuthenticationOfAnotherTypeEndsTheConnection) {
  for (const auto type :
       {kinetic::Message::UNSOLICITEDSTATUS, kinetic::Message::INVALID_AUTH_TYPE}) {
    Client client;
    client.asked.authentication = type;
    EXPECT_EQ(client.Ask().kind, Verdict::kEnd);
  }
}

TEST(SessionGate, WithoutAHeaderThereIsNothingToAnswerButThat) {
  Client client;
  client.asked.header = nullptr;
  client.asked.authentication.reset();
  EXPECT_TRUE(IsRefused(client.Ask(), Status::HEADER_REQUIRED));
}

TEST(SessionGate, SomebodyUnknownOrWithAWrongSignatureStaysAStranger) {
  Client client;
  client.asked.authentic = false;
  EXPECT_TRUE(IsRefused(client.Ask(), Status::HMAC_FAILURE));
  client.asked.identity = nullptr;
  EXPECT_TRUE(IsRefused(client.Ask(), Status::HMAC_FAILURE));
  EXPECT_TRUE(client.gate.is_stranger());
}

TEST(SessionGate, APinIsForPinOperationsOverTls) {
  Client client;
  client.UsePin(/*tls=*/false);
  EXPECT_TRUE(IsRefused(client.Ask(), Status::INVALID_REQUEST));
  client.asked.tls = true;
  EXPECT_TRUE(Passes(client.Ask()));
  EXPECT_TRUE(client.gate.is_stranger());
  client.header.set_messagetype(Header::GET);
  client.header.set_sequence(2);
  EXPECT_TRUE(IsRefused(client.Ask(), Status::INVALID_REQUEST));
}

// Nobody has signed it, and the workers know no other priorities.
TEST(SessionGate, APinOfAPriorityThatIsNoneIsRefused) {
  for (const int priority : {-1, 0, Workers::kHighest + 1, INT32_MAX}) {
    Client client;
    client.UsePin(/*tls=*/true);
    client.header.set_priority(priority);
    EXPECT_TRUE(IsRefused(client.Ask(), Status::INVALID_REQUEST)) << priority;
  }
}

TEST(SessionGate, SequencesRise) {
  Client client;
  client.header.set_sequence(5);
  EXPECT_TRUE(Passes(client.Ask()));
  EXPECT_TRUE(IsRefused(client.Ask(), Status::INVALID_REQUEST));
  client.header.set_sequence(6);
  EXPECT_TRUE(Passes(client.Ask()));
}

TEST(SessionGate, ABoundConnectionEndsWhenARequestComesAgain) {
  Client client;
  client.header.set_bound(true);
  EXPECT_TRUE(Passes(client.Ask()));
  EXPECT_EQ(client.Ask().kind, Verdict::kEnd);
}

TEST(SessionGate, ARequestOfAnotherConnectionEndsThisOne) {
  Client client;
  client.header.set_connectionid(kOther);
  EXPECT_EQ(client.Ask().kind, Verdict::kEnd);
}

TEST(SessionGate, WhatExpectsADeviceThatWasErasedSinceIsRefused) {
  Client client;
  client.header.set_unerased(true);
  EXPECT_TRUE(Passes(client.Ask()));
  client.identity.erasures = client.device.erasures = kErasures + 1;
  client.header.set_sequence(2);
  const Verdict verdict = client.Ask();
  EXPECT_TRUE(IsRefused(verdict, Status::CONNECTION_TERMINATED));
  EXPECT_TRUE(verdict.drop_batches);
}

TEST(SessionGate, AnEraseDropsTheBatchesOnceEvenIfNobodyHasSigned) {
  Client client;
  EXPECT_FALSE(client.Ask().drop_batches);
  client.device.erasures = kErasures + 1;
  client.asked.authentic = false;
  EXPECT_TRUE(client.Ask().drop_batches);
  EXPECT_FALSE(client.Ask().drop_batches);
}

TEST(SessionGate, TheClusterVersionComesBeforeTheLock) {
  Client client;
  client.device.locked = true;
  client.header.set_clusterversion(kClusterVersion + 1);
  EXPECT_TRUE(IsRefused(client.Ask(), Status::VERSION_FAILURE));
  client.header.set_clusterversion(kClusterVersion);
  client.header.set_sequence(2);
  const Verdict verdict = client.Ask();
  EXPECT_TRUE(IsRefused(verdict, Status::DEVICE_LOCKED));
  EXPECT_TRUE(verdict.drop_batches);
}

TEST(SessionGate, NobodyIsServedAboveTheHighestPriorityOfItsIdentity) {
  Client client;
  client.identity.rights.max_priority = Workers::kNormal;
  client.header.set_priority(Workers::kNormal);
  EXPECT_TRUE(Passes(client.Ask()));
  client.header.set_priority(Workers::kHighest);
  client.header.set_sequence(2);
  EXPECT_TRUE(IsRefused(client.Ask(), Status::NOT_AUTHORIZED));
}

// ---------------------------------------------------------------------------------------------
// All small histories

struct Step {
  enum Proof { kSigned, kForged, kPin };
  Proof proof;
  int64_t connection;
  bool bound;
  uint64_t sequence;
};

std::vector<Step> AllSteps() {
  std::vector<Step> steps;
  for (const Step::Proof proof : {Step::kSigned, Step::kForged, Step::kPin}) {
    for (const int64_t connection : {int64_t{0}, kThis, kOther}) {
      for (const bool bound : {false, true}) {
        for (const uint64_t sequence : {1, 2, 3}) {
          steps.push_back({proof, connection, bound, sequence});
        }
      }
    }
  }
  return steps;
}

// What the gate says to each, until the connection ends.
std::vector<Verdict> Play(const std::vector<Step>& history) {
  SessionGate gate;
  gate.Begin(kThis, kErasures);
  DeviceSecurity::Identity identity{.id = 1, .key = HmacKey("key"), .rights = {}};
  identity.erasures = kErasures;
  std::vector<Verdict> verdicts;
  for (const Step& step : history) {
    const bool pin = step.proof == Step::kPin;
    Header header;
    header.set_messagetype(pin ? Header::PINOP : Header::GET);
    header.set_clusterversion(kClusterVersion);
    header.set_connectionid(step.connection);
    header.set_bound(step.bound);
    header.set_sequence(step.sequence);
    SessionGate::Asked asked;
    asked.header = &header;
    asked.authentication = pin ? kinetic::Message::PINAUTH : kinetic::Message::HMACAUTH;
    asked.tls = true;
    asked.identity = pin ? nullptr : &identity;
    asked.authentic = step.proof == Step::kSigned;
    verdicts.push_back(gate.Judge(asked, {kErasures, kClusterVersion, false}));
    if (verdicts.back().kind == Verdict::kEnd) break;
  }
  return verdicts;
}

template <typename Visit>
void ForAllHistories(const Visit& visit) {
  const std::vector<Step> steps = AllSteps();
  for (const Step& first : steps) {
    for (const Step& second : steps) {
      for (const Step& third : steps) {
        const std::vector<Step> history = {first, second, third};
        visit(history, Play(history));
        if (testing::Test::HasFailure()) return;  // one is enough to see why
      }
    }
  }
}

TEST(SessionGateHistories, WhatPassesHasRisingSequences) {
  ForAllHistories([](const std::vector<Step>& history, const std::vector<Verdict>& verdicts) {
    uint64_t last = 0;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      if (verdicts[i].kind != Verdict::kPass) continue;
      EXPECT_GT(history[i].sequence, last);
      last = history[i].sequence;
    }
  });
}

TEST(SessionGateHistories, NothingPassesThatWasMadeForAnotherConnection) {
  ForAllHistories([](const std::vector<Step>& history, const std::vector<Verdict>& verdicts) {
    bool bound = false;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      const Step& step = history[i];
      if (verdicts[i].kind == Verdict::kPass) {
        EXPECT_NE(step.connection, kOther);
        EXPECT_NE(step.proof, Step::kForged);
        // Once it was bound, nothing passes that somebody may have recorded elsewhere.
        if (bound) {
          EXPECT_EQ(step.connection, kThis);
        }
        if (bound && step.proof == Step::kSigned) {
          EXPECT_TRUE(step.bound);
        }
        // What says that it is bound says to what.
        if (step.bound && step.proof == Step::kSigned) {
          EXPECT_EQ(step.connection, kThis);
        }
      }
      bound = bound ||
              (verdicts[i].kind == Verdict::kPass && step.proof == Step::kSigned && step.bound);
    }
  });
}

TEST(SessionGateHistories, AForgedRequestChangesNothing) {
  ForAllHistories([](const std::vector<Step>& history, const std::vector<Verdict>& verdicts) {
    std::vector<Step> without;
    std::vector<Verdict> others;
    for (size_t i = 0; i < history.size(); ++i) {
      const bool forged = history[i].proof == Step::kForged;
      if (!forged) without.push_back(history[i]);
      if (i >= verdicts.size()) continue;
      if (forged) {
        EXPECT_TRUE(IsRefused(verdicts[i], Status::HMAC_FAILURE));
      }
      if (!forged) others.push_back(verdicts[i]);
    }
    const std::vector<Verdict> expected = Play(without);
    ASSERT_EQ(others.size(), expected.size());
    for (size_t i = 0; i < others.size(); ++i) {
      EXPECT_EQ(others[i].kind, expected[i].kind);
      EXPECT_EQ(others[i].why, expected[i].why);
    }
  });
}

TEST(SessionGateHistories, WhoNamesThisConnectionInTurnAlwaysPasses) {
  ForAllHistories([](const std::vector<Step>& history, const std::vector<Verdict>& verdicts) {
    uint64_t last = 0;
    std::optional<bool> bound;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      const Step& step = history[i];
      const bool consistent = !bound || *bound == step.bound || (step.bound && !*bound);
      if (step.proof == Step::kSigned && step.connection == kThis && step.sequence > last &&
          consistent) {
        EXPECT_TRUE(Passes(verdicts[i]));
      }
      if (verdicts[i].kind != Verdict::kPass) continue;
      last = step.sequence;
      if (step.proof == Step::kSigned) bound = bound.value_or(false) || step.bound;
    }
  });
}

}  // namespace
}  // namespace pinstripe
