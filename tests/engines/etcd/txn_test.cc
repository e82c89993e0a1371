// What etcd is asked and answers, without any etcd: also answers that cannot be.

#include "engines/etcd/txn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engines/etcd/look.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;
using testing::ElementsAre;
using testing::HasSubstr;

const EtcdKeys kKeys("c");
const std::string kId(kEtcdStoreIdBytes, 'i');

std::string Value(std::string version, std::string value = "value") {
  return EncodeEngineRecord(
      {.version = std::move(version), .tag = "tag", .value = SharedBytes(std::move(value))});
}
void Answer(TxnResponse& answer, std::string key, std::string value, int64_t revision = 7) {
  auto& record = *answer.add_responses()->mutable_range()->add_records();
  record.set_key(std::move(key));
  record.set_value(std::move(value));
  record.set_mod_revision(revision);
}
void AnswerNothing(TxnResponse& answer) { answer.add_responses()->mutable_range(); }

// As etcd does it.
bool Holds(const Compare& compare, const std::string& value) {
  const int order = value.compare(compare.value());
  switch (compare.result()) {
    case Compare::EQUAL: return order == 0;
    case Compare::GREATER: return order > 0;
    case Compare::LESS: return order < 0;
    default: return order != 0;
  }
}
bool AllHold(const TxnRequest& request, const std::string& key, const std::string& value) {
  for (const Compare& compare : request.compare()) {
    if (compare.key() == key && !Holds(compare, value)) return false;
  }
  return true;
}

TEST(EtcdTxn, TellsStoresByIdAndVersion) {
  for (const int64_t version : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, INT64_MAX}) {
    const EtcdStore store{.id = kId, .version = version};
    EXPECT_EQ(DecodeEtcdStore(EncodeEtcdStore(store)), store);
    const TxnRequest any = AskPlan(kKeys, {.id = kId}, {}, {}, {}, {});
    EXPECT_TRUE(AllHold(any, "pinstripe/c/store", EncodeEtcdStore(store)));
    EtcdStore other = store;
    other.id.back() = 'j';
    EXPECT_FALSE(AllHold(any, "pinstripe/c/store", EncodeEtcdStore(other)));
    const TxnRequest that = AskPlan(kKeys, {.id = kId, .version = 1}, {}, {}, {}, {});
    EXPECT_EQ(AllHold(that, "pinstripe/c/store", EncodeEtcdStore(store)), version == 1);
  }
  EXPECT_LT(EncodeEtcdStore({.id = kId, .version = -1}), EncodeEtcdStore({.id = kId}));
  EXPECT_FAILS(DecodeEtcdStore("short"), EBADMSG);
  EXPECT_FAILS(DecodeEtcdStore(std::string(25, 'x')), EBADMSG);
}

// A version that is the beginning of another one is another one.
TEST(EtcdTxn, ComparesWholeVersions) {
  EtcdPlan plan;
  plan.conditions.push_back(
      {.kind = EtcdCondition::Kind::kVersion, .key = "k", .version = "abc", .revision = 0});
  const TxnRequest request = AskPlan(kKeys, {.id = kId}, plan, {}, {}, {});
  const auto holds = [&](const std::string& value) {
    return AllHold(request, "pinstripe/c/rk", value);
  };
  EXPECT_TRUE(holds(Value("abc")));
  EXPECT_TRUE(holds(Value("abc", "")));
  EXPECT_TRUE(holds(EncodeEngineRecord(
      {.version = "abc", .tag = std::string(kMaxTagBytes, '\xff'), .value = {}})));
  EXPECT_TRUE(holds(EncodeEngineRecord({.version = "abc", .tag = "", .value = {}})));
  for (const std::string version : {"", "ab", "abcd", "abd", "abb"}) {
    EXPECT_FALSE(holds(Value(version))) << version;
  }
  EXPECT_FALSE(holds(Value(std::string(2048, 'a'))));
}

TEST(EtcdTxn, UnderstandsWhatFailed) {
  const std::vector<EngineChange> changes = {
      {.key = "a", .put = {}, .guard = Guard{"b", Expected::Absent()}}, {.key = "c", .put = {}}};
  TxnResponse answer;
  Answer(answer, "pinstripe/c/store", EncodeEtcdStore({.id = kId, .version = 3}));
  Answer(answer, "pinstripe/c/ra", Value("1"), 9);
  AnswerNothing(answer);
  Answer(answer, "pinstripe/c/rc", "no record", 11);
  const auto store = StoreIn(kKeys, answer);
  ASSERT_OK(store);
  EXPECT_EQ((*store)->version, 3);
  const auto seen = SeenIn(kKeys, changes, answer);
  ASSERT_OK(seen);
  EXPECT_EQ(seen->at("a").version, "1");
  EXPECT_EQ(seen->at("a").revision, 9);
  EXPECT_FALSE(seen->at("b").exists);
  EXPECT_TRUE(seen->at("c").damaged);
}

TEST(EtcdTxn, RefusesAnswersThatCannotBe) {
  TxnResponse answer;
  EXPECT_FAILS(StoreIn(kKeys, answer), EBADMSG);
  answer.add_responses()->mutable_put();
  EXPECT_FAILS(StoreIn(kKeys, answer), EBADMSG);
  const std::vector<std::string> keys = {"a", "b", "c"};
  TxnResponse reads;
  Answer(reads, "pinstripe/c/rz", Value("1"));                // another key
  Answer(reads, "pinstripe/c/rb", Value("1").substr(0, 12));  // cut
  for (const auto& read : ReadsIn(kKeys, 0, keys, reads)) EXPECT_FAILS(read, EBADMSG);
  const EngineRange range{.first = "b", .last = "d", .max = 2, .value_limit = 100};
  const auto page = [&](const std::vector<std::string>& found, bool more) {
    TxnResponse listed;
    auto& records = *listed.add_responses()->mutable_range();
    records.set_more(more);
    for (const std::string& key : found) {
      auto& record = *records.add_records();
      record.set_key(key);
      record.set_value(Value("1"));
    }
    return PageIn(kKeys, range, range.max, listed).has_value();
  };
  EXPECT_TRUE(page({"pinstripe/c/rb", "pinstripe/c/rd"}, true));
  EXPECT_FALSE(page({"pinstripe/c/store"}, false));
  EXPECT_FALSE(page({"x"}, false));
  EXPECT_FALSE(page({"pinstripe/c/rb", "pinstripe/c/rc", "pinstripe/c/rd"}, false));
  EXPECT_FALSE(page({}, true));
}

// Whatever bytes come: each is understood or refused.
TEST(EtcdTxn, SurvivesAnyBytes) {
  TxnResponse right;
  Answer(right, "pinstripe/c/store", EncodeEtcdStore({.id = kId}));
  Answer(right, "pinstripe/c/ra", Value("1"));
  const std::string bytes = right.SerializeAsString();
  std::mt19937 random(1);
  const std::vector<EngineChange> changes = {{.key = "a", .put = {}}};
  for (int i = 0; i < 20000; ++i) {
    std::string wrong = bytes;
    for (int flips = 0; flips < 3; ++flips) {
      wrong[random() % wrong.size()] = static_cast<char>(random());
    }
    TxnResponse answer;
    if (!answer.ParseFromString(wrong)) continue;
    const EngineRange range{.first = "a", .last = "z", .max = 10};
    (void)StoreIn(kKeys, answer).has_value();
    TxnResponse again = answer;
    (void)SeenIn(kKeys, changes, again).has_value();
    again = answer;
    (void)ReadsIn(kKeys, 1, std::vector<std::string>{"a"}, again);
    (void)PageIn(kKeys, range, 10, answer).has_value();
  }
}

TEST(EtcdLook, SaysWhatShouldBeSetOtherwise) {
  EtcdFacts facts;
  etcdserverpb::StatusResponse status;
  status.mutable_header()->set_member_id(17);
  status.set_leader(17);
  status.set_version("3.4.23");
  status.set_db_size(int64_t{1} << 30);
  status.set_db_size_in_use(1 << 20);
  facts.looks.push_back({.url = "http://a:1", .answer = status});
  etcdserverpb::Member& member = facts.members.emplace_back();
  member.set_id(17);
  member.set_name("one\033");
  member.add_client_urls("http://a:1");
  facts.alarms.emplace_back().set_alarm(etcdserverpb::NOSPACE);
  facts.keeps_history = true;
  const EngineState state = StateOfEtcd(facts);
  EXPECT_EQ(state.software, "etcd 3.4.23");
  EXPECT_EQ(state.used_bytes, uint64_t{1} << 30);
  ASSERT_EQ(state.members.size(), 1u);
  EXPECT_EQ(state.members[0].name, "one?");
  EXPECT_TRUE(state.members[0].is_up && state.members[0].is_leader);
  EXPECT_THAT(state.alarms, ElementsAre(HasSubstr("alarm disarm")));
  EXPECT_THAT(state.warnings,
              ElementsAre(HasSubstr("one member"), HasSubstr("--auto-compaction-retention"),
                          HasSubstr("defragment")));
}

}  // namespace
}  // namespace pinstripe
