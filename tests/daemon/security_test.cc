// What a device keeps about who may use it, what it survives, and that nobody gets around it: the
// service is asked here as the server asks it, without sockets.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/device_security.h"
#include "daemon/kinetic_service.h"
#include "kinetic/kinetic.pb.h"
#include "store/memory_store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;

const RightsById kConfigured{{1, FullAccess("asdfasdf")}};

Permissions Only(std::initializer_list<Permission> list) {
  Permissions permissions;
  for (const Permission each : list) permissions.Add(each);
  return permissions;
}

// --- The file

SecurityState Rich() {
  SecurityState state;
  state.identities = kConfigured;
  (*state.identities)[-2] = {.key = std::string("\0\xff", 2),
                             .max_priority = 3,
                             .scopes = {{.offset = 4096, .permissions = Only({Permission::kSetup})},
                                        {.offset = 5,
                                         .value = std::string("v\0", 2),
                                         .permissions = Permissions::All(),
                                         .tls_required = true}}};
  (*state.identities)[INT64_MIN] = {.key = "k"};
  state.erase_pin = "1234";
  state.lock_pin = std::string(kMaxPinBytes, '\0');
  state.cluster_version = -7;
  return state;
}

TEST(SecurityFile, ComesBackAsItWas) {
  for (const SecurityState& state : {SecurityState(), Rich()}) {
    const Result<SecurityState> read = DecodeSecurityState(EncodeSecurityState(state));
    ASSERT_OK(read);
    EXPECT_EQ(*read, state);
  }
}

// docs/format.md, "Security of a drive".
TEST(SecurityFile, HasTheseBytes) {
  SecurityState state;
  state.cluster_version = 2;
  state.erase_pin = "pin";
  state.identities = {{1,
                       {.key = "asdfasdf",
                        .scopes = {{.offset = 1,
                                    .value = "x",
                                    .permissions = Permissions::All(),
                                    .tls_required = true}}}}};
  EXPECT_EQ(Hex(AsBytes(EncodeSecurityState(state))),
            "70696e7374726970652073656375726974790a"  // "pinstripe security\n"
            "00000001"                                // format
            "0000000000000002"                        // cluster version
            "03"
            "70696e"
            "00"  // PINs
            "01"
            "01"  // one identity
            "0000000000000001"
            "08"
            "6173646661736466"
            "09"
            "01"
            "0001"
            "01"
            "78"
            "03bf"
            "01"  // its scope
            "79152823");
}

TEST(SecurityFile, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string good = EncodeSecurityState(Rich());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const Result<SecurityState> read = DecodeSecurityState(bad);
    ASSERT_FALSE(read.has_value()) << "bit " << bit;
    ASSERT_TRUE(read.error().code() == EBADMSG || read.error().code() == ENOTSUP);
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(DecodeSecurityState(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(DecodeSecurityState(good + '\0'), EBADMSG);
}

TEST(SecurityFile, ANewerFormatIsRefusedByName) {
  std::string newer = EncodeSecurityState({});
  newer[22] = 2;
  EXPECT_FAILS(DecodeSecurityState(newer), ENOTSUP);
}

// --- What is kept

class KeptSecurity : public testing::Test {
 protected:
  std::unique_ptr<DeviceSecurity> Open(const RightsById& configured = kConfigured) {
    Result<std::unique_ptr<DeviceSecurity>> security = DeviceSecurity::Open(configured, file_);
    EXPECT_OK(security);
    return security.has_value() ? *std::move(security) : nullptr;
  }

  TemporaryDirectory directory_;
  const std::string file_ = directory_ / "security";
};

TEST_F(KeptSecurity, WithoutAFileTheConfigurationDecides) {
  EXPECT_EQ(Open()->Find(1)->rights, FullAccess("asdfasdf"));
  EXPECT_EQ(Open({{5, FullAccess("other")}})->Find(1), nullptr);
  EXPECT_FALSE(std::filesystem::exists(file_)) << "to look changes nothing";
}

TEST_F(KeptSecurity, ChangesAreMergedKeptAndGoBeforeTheConfiguration) {
  {
    const auto security = Open();
    ASSERT_OK(security->MergeIdentities({{2, FullAccess("two")}}));
    ASSERT_OK(security->MergeIdentities({{3, {.key = "three"}}}));
    ASSERT_OK(security->SetClusterVersion(9));
    ASSERT_OK(security->ChangeErasePin("", "e"));
    EXPECT_EQ(security->Find(1)->rights.key, "asdfasdf") << "who is not named stays";
  }
  const auto security =
      Open({{1, FullAccess("changed in the configuration")}, {4, FullAccess("new")}});
  EXPECT_EQ(security->Find(1)->rights.key, "asdfasdf");
  EXPECT_EQ(security->Find(2)->rights, FullAccess("two"));
  EXPECT_EQ(security->Find(3)->rights, (Rights{.key = "three"}));
  EXPECT_EQ(security->Find(4), nullptr);
  EXPECT_EQ(security->cluster_version(), 9);
  EXPECT_FAILS(security->CheckErasePin("x"), EACCES);
  EXPECT_OK(security->CheckErasePin("e"));
  EXPECT_FALSE(security->locked());
}

TEST_F(KeptSecurity, PinsAndClusterVersionAloneLeaveTheIdentitiesToTheConfiguration) {
  ASSERT_OK(Open()->SetClusterVersion(9));
  const auto security = Open({{4, FullAccess("new")}});
  EXPECT_FALSE(security->has_own_identities());
  EXPECT_NE(security->Find(4), nullptr);
  EXPECT_EQ(security->cluster_version(), 9);
}

// Keys are rotated while clients work: the new one comes beside the old one, which goes when nobody
// uses it any more.
TEST_F(KeptSecurity, TheConfigurationCanGiveOthersWhileItRuns) {
  const auto security = Open({{1, FullAccess("old")}});
  const auto old = security->Find(1);
  security->Configure({{1, FullAccess("old")}, {2, FullAccess("new")}});
  EXPECT_EQ(security->Find(1), old) << "who stays keeps the prepared key";
  EXPECT_EQ(security->Find(2)->rights, FullAccess("new"));
  security->Configure({{2, FullAccess("new")}});
  EXPECT_EQ(security->Find(1), nullptr);
  EXPECT_FALSE(std::filesystem::exists(file_));

  ASSERT_OK(security->MergeIdentities({{3, FullAccess("its own")}}));
  security->Configure({{4, FullAccess("newer")}});
  EXPECT_EQ(security->Find(4), nullptr) << "the device has its own";
  EXPECT_EQ(security->Find(3)->rights, FullAccess("its own"));
}

TEST_F(KeptSecurity, OnlyItsOwnerCanReadIt) {
  ASSERT_OK(Open()->SetClusterVersion(1));
  struct stat about {};
  ASSERT_EQ(stat(file_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  chmod(file_.c_str(), 0644);
  EXPECT_FAILS(DeviceSecurity::Open(kConfigured, file_), EACCES);
}

TEST_F(KeptSecurity, ADamagedFileIsNamedWithTheWayOut) {
  ASSERT_OK(Open()->SetClusterVersion(1));
  std::ofstream(file_, std::ios::app) << "x";
  const auto security = DeviceSecurity::Open(kConfigured, file_);
  EXPECT_FAILS(security, EBADMSG);
  EXPECT_NE(security.error().message().find(file_), std::string_view::npos);
  EXPECT_NE(security.error().message().find("remove it"), std::string_view::npos);
}

// What a kill between any two steps of writing leaves: the temporary file, whole or torn, or
// nothing.
TEST_F(KeptSecurity, AKillWhileItIsWrittenLeavesTheStateFromBefore) {
  ASSERT_OK(Open()->SetClusterVersion(1));
  for (const std::string& torn :
       {std::string(), std::string("pinstripe sec"), std::string(5000, 'x')}) {
    std::ofstream(file_ + ".new") << torn;
    EXPECT_EQ(Open()->cluster_version(), 1);
  }
  ASSERT_OK(Open()->SetClusterVersion(2));
  EXPECT_EQ(Open()->cluster_version(), 2);
}

TEST_F(KeptSecurity, AChangeThatCannotBeKeptIsNotMade) {
  const auto security = Open();
  std::filesystem::create_directory(file_ + ".new");
  EXPECT_FAILS(security->SetClusterVersion(5), EEXIST);
  EXPECT_EQ(security->cluster_version(), 0);
}

TEST_F(KeptSecurity, WithALockPinItStartsLocked) {
  ASSERT_OK(Open()->ChangeLockPin("", "secret"));
  const auto security = Open();
  EXPECT_TRUE(security->locked());
  EXPECT_FAILS(security->Unlock("wrong"), EACCES);
  EXPECT_FAILS(security->Unlock(""), EINVAL);
  EXPECT_TRUE(security->locked());
  EXPECT_OK(security->Unlock("secret"));
  EXPECT_FALSE(security->locked());
  EXPECT_OK(security->Unlock("secret"));
  EXPECT_OK(security->Lock("secret"));
  EXPECT_TRUE(security->locked());
}

TEST_F(KeptSecurity, WithoutALockPinNothingLocks) {
  const auto security = Open();
  EXPECT_FAILS(security->Lock("guess"), EACCES);
  EXPECT_FAILS(security->Lock(""), EINVAL);
  EXPECT_FALSE(security->locked());
}

TEST_F(KeptSecurity, PinsHaveALimit) {
  const auto security = Open();
  EXPECT_FAILS(security->ChangeErasePin("", std::string(kMaxPinBytes + 1, 'p')), EINVAL);
  EXPECT_OK(security->CheckErasePin("anything"));
  EXPECT_OK(security->ChangeErasePin("", std::string(kMaxPinBytes, 'p')));
  EXPECT_FAILS(security->ChangeErasePin("wrong", "new"), EACCES);
  EXPECT_OK(security->ChangeErasePin(std::string(kMaxPinBytes, 'p'), ""));
  EXPECT_OK(security->CheckErasePin("anything"));
}

TEST_F(KeptSecurity, IdentitiesHaveALimitAndAreChangedAllOrNone) {
  const auto security = Open();
  RightsById many;
  for (int64_t id = 2; id <= static_cast<int64_t>(kMaxIdentities); ++id) many[id] = {.key = "k"};
  ASSERT_OK(security->MergeIdentities(many));
  EXPECT_FAILS(security->MergeIdentities({{1, {.key = "x"}}, {9999, {.key = "k"}}}), EINVAL);
  EXPECT_EQ(security->Find(1)->rights.key, "asdfasdf");
  EXPECT_OK(security->MergeIdentities({{1, {.key = "x"}}}));
  EXPECT_FAILS(security->MergeIdentities({{2, {.key = "y"}}, {3, {.key = ""}}}), EINVAL);
  EXPECT_EQ(security->Find(2)->rights.key, "k");
  EXPECT_EQ(Open()->Find(1000)->rights.key, "k");
}

TEST_F(KeptSecurity, AResetIsAsNewAndForgetsEveryHandedOutIdentity) {
  const auto security = Open();
  ASSERT_OK(security->MergeIdentities({{2, FullAccess("two")}}));
  ASSERT_OK(security->SetClusterVersion(4));
  ASSERT_OK(security->ChangeLockPin("", "l"));
  ASSERT_OK(security->Lock("l"));
  const auto before = security->Find(1);
  EXPECT_TRUE(security->IsCurrent(*before));
  security->Reset();
  EXPECT_FALSE(security->IsCurrent(*before));
  EXPECT_EQ(security->Find(2), nullptr);
  EXPECT_TRUE(security->IsCurrent(*security->Find(1)));
  EXPECT_EQ(security->cluster_version(), 0);
  EXPECT_FALSE(security->locked());
  EXPECT_FAILS(security->Lock("l"), EACCES);
}

// --- The service

class SecuredService : public testing::Test {
 protected:
  SecuredService() {
    for (const char* key : {"a", "m/1", "m/2", "m/3", "n", "z"}) {
      EXPECT_OK(engine_.Put(key, {.head = {.version = "v"}, .value = SharedBytes(std::string(key))},
                            Expected::Any()));
    }
  }

  void Give(int64_t identity, std::vector<Scope> scopes) {
    ASSERT_OK(security_.MergeIdentities({{identity, {.key = "k", .scopes = std::move(scopes)}}}));
  }
  // All that concerns keys, on those that begin with "m/", and nothing else.
  void GivePrefix() {
    Give(2, {{.value = "m/",
              .permissions = Only({Permission::kRead, Permission::kWrite, Permission::kDelete,
                                   Permission::kRange, Permission::kPeerToPeer})}});
  }

  struct Answer {
    Command command;
    std::string value;
    int code() const { return command.status().code(); }
    std::string key() const { return command.body().keyvalue().key(); }
  };
  Answer Ask(int64_t identity, Header::MessageType type,
             const std::function<void(kinetic::Body*)>& fill = nullptr, bool tls = false) {
    Command request;
    request.mutable_header()->set_messagetype(type);
    request.mutable_header()->set_clusterversion(security_.cluster_version());
    if (fill) fill(request.mutable_body());
    const KineticService::Caller caller{.identity = security_.Find(identity),
                                        .tls = tls,
                                        .cluster_version = security_.cluster_version()};
    Answer answer;
    answer.value =
        service_.Execute(caller, request, SharedBytes(std::string("new")), &answer.command)
            .value.text();
    return answer;
  }
  Answer AskKey(int64_t identity, Header::MessageType type, std::string_view key,
                bool tls = false) {
    return Ask(
        identity, type,
        [&](kinetic::Body* body) {
          body->mutable_keyvalue()->set_key(std::string(key));
          body->mutable_keyvalue()->set_force(true);
        },
        tls);
  }
  std::vector<std::string> List(int64_t identity, std::string_view first, std::string_view last,
                                uint32_t max = 200, bool reverse = false) {
    const Answer answer = Ask(identity, Header::GETKEYRANGE, [&](kinetic::Body* body) {
      kinetic::Range* range = body->mutable_range();
      range->set_startkey(std::string(first));
      range->set_endkey(std::string(last));
      range->set_startkeyinclusive(true);
      range->set_endkeyinclusive(true);
      range->set_maxreturned(max);
      range->set_reverse(reverse);
    });
    EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
    return {answer.command.body().range().keys().begin(),
            answer.command.body().range().keys().end()};
  }
  // Refused, in the words of the protocol, and with nothing else in the answer.
  static void ExpectDenied(const Answer& answer) {
    EXPECT_EQ(answer.code(), kinetic::Status::NOT_AUTHORIZED);
    EXPECT_EQ(answer.command.status().statusmessage(), "permission denied");
    EXPECT_EQ(answer.value, "");
    EXPECT_EQ(answer.command.body().keyvalue().ByteSizeLong(), 0u);
    EXPECT_EQ(answer.command.body().range().ByteSizeLong(), 0u);
    EXPECT_EQ(answer.command.body().getlog().ByteSizeLong(), 0u);
  }
  std::string Contents() {
    std::string all;
    const std::vector<std::string> keys = *engine_.Keys({}, 200, false);
    for (const std::string& key : keys) {
      all += key + "=" + std::string(engine_.Get(key)->value.text()) + " ";
    }
    return all;
  }

  static constexpr std::string_view kUntouched = "a=a m/1=m/1 m/2=m/2 m/3=m/3 n=n z=z ";
  Engine engine_{std::make_unique<MemoryStore>()};
  DeviceSecurity security_{kConfigured};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
};

// An answer about a guard tells its version: to nobody who could not have it otherwise.
TEST_F(SecuredService, AGuardIsOneThatTheIdentityMayReadOrWrite) {
  const auto put = [&](std::string_view guard) {
    return Ask(2, Header::PUT, [&](kinetic::Body* body) {
      body->mutable_keyvalue()->set_key("m/2");
      body->mutable_keyvalue()->set_force(true);
      body->mutable_keyvalue()->mutable_guard()->set_key(std::string(guard));
      body->mutable_keyvalue()->mutable_guard()->set_version("v");
    });
  };
  GivePrefix();
  EXPECT_EQ(put("m/1").code(), kinetic::Status::SUCCESS);
  ExpectDenied(put("n"));
  ExpectDenied(put("not there"));
  for (const Permission given : {Permission::kRead, Permission::kWrite, Permission::kDelete}) {
    Give(2, {{.value = "m/", .permissions = Only({Permission::kWrite})},
             {.value = "n", .permissions = Only({given})}});
    const bool may = given != Permission::kDelete;
    EXPECT_EQ(put("n").code(), may ? kinetic::Status::SUCCESS : kinetic::Status::NOT_AUTHORIZED);
  }
  Give(2, {{.value = "n", .permissions = Permissions::All()}});
  ExpectDenied(put("n"));
}

TEST_F(SecuredService, OfPutsInOneMessageThoseAreMadeThatTheIdentityMayMake) {
  GivePrefix();
  const Answer answer = Ask(2, Header::PUTS, [](kinetic::Body* body) {
    const auto add = [&](std::string_view key, std::string_view guard, uint32_t value_bytes) {
      kinetic::Puts::Record* record = body->mutable_puts()->add_records();
      record->set_valuebytes(value_bytes);
      record->mutable_keyvalue()->set_key(std::string(key));
      record->mutable_keyvalue()->set_force(true);
      if (guard.empty()) return;
      record->mutable_keyvalue()->mutable_guard()->set_key(std::string(guard));
      record->mutable_keyvalue()->mutable_guard()->set_version("v");
    };
    add("n", "", 1);  // all three of "new"
    add("m/2", "", 1);
    add("m/3", "n", 0);
    add("m/1", "m/3", 1);
  });
  EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
  std::vector<int> codes;
  for (const auto& record : answer.command.body().puts().records()) {
    codes.push_back(record.status().code());
    const bool denied = record.status().code() == kinetic::Status::NOT_AUTHORIZED;
    EXPECT_EQ(record.status().statusmessage(), denied ? "permission denied" : "");
  }
  EXPECT_EQ(codes, (std::vector<int>{kinetic::Status::NOT_AUTHORIZED, kinetic::Status::SUCCESS,
                                     kinetic::Status::NOT_AUTHORIZED, kinetic::Status::SUCCESS}));
  EXPECT_EQ(Contents(), "a=a m/1=w m/2=e m/3=m/3 n=n z=z ");
}

TEST_F(SecuredService, OfReadsAfterPutsThoseAreMadeThatTheIdentityMayMake) {
  GivePrefix();
  const Answer answer = Ask(2, Header::PUTS, [](kinetic::Body* body) {
    for (const std::string then_get : {"n", "m/1"}) {
      kinetic::Puts::Record* record = body->mutable_puts()->add_records();
      record->mutable_keyvalue()->set_key("m/2");
      record->mutable_keyvalue()->set_force(true);
      record->set_thenget(then_get);
    }
    body->mutable_puts()->mutable_records(0)->set_valuebytes(3);  // all of "new"
  });
  const kinetic::Puts& told = answer.command.body().puts();
  ASSERT_EQ(told.records_size(), 2);
  for (const auto& record : told.records()) {
    EXPECT_EQ(record.status().code(), kinetic::Status::SUCCESS);
  }
  const kinetic::Puts::Read& denied = told.records(0).read();
  EXPECT_EQ(denied.status().code(), kinetic::Status::NOT_AUTHORIZED);
  EXPECT_FALSE(denied.has_keyvalue());
  EXPECT_EQ(told.records(1).read().status().code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(told.records(1).read().keyvalue().key(), "m/1");
}

TEST_F(SecuredService, OfGetsInOneMessageThoseAreMadeThatTheIdentityMayMake) {
  GivePrefix();
  const Answer answer = Ask(2, Header::GETS, [](kinetic::Body* body) {
    for (const char* key : {"n", "m/1", "not there", "m/not there"}) {
      body->mutable_gets()->add_keys(key);
    }
  });
  EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
  std::vector<int> codes;
  for (const auto& read : answer.command.body().gets().reads()) {
    codes.push_back(read.status().code());
    const bool denied = read.status().code() == kinetic::Status::NOT_AUTHORIZED;
    EXPECT_EQ(read.has_keyvalue(), read.status().code() == kinetic::Status::SUCCESS);
    if (denied) {
      EXPECT_EQ(read.status().statusmessage(), "permission denied");
    }
  }
  EXPECT_EQ(codes, (std::vector<int>{kinetic::Status::NOT_AUTHORIZED, kinetic::Status::SUCCESS,
                                     kinetic::Status::NOT_AUTHORIZED, kinetic::Status::NOT_FOUND}));
}

// Each operation with each permission alone: it goes through with its own, and with no other.
TEST_F(SecuredService, EachOperationNeedsItsPermissionAndNoOther) {
  const struct {
    Header::MessageType type;
    std::optional<Permission> needs;  // none: everybody may
    bool tls = false;
  } kOperations[] = {
      {Header::GET, Permission::kRead},
      {Header::GETVERSION, Permission::kRead},
      {Header::GETNEXT, Permission::kRead},
      {Header::GETPREVIOUS, Permission::kRead},
      {Header::GETKEYRANGE, Permission::kRange},
      {Header::PUT, Permission::kWrite},
      {Header::DELETE, Permission::kDelete},
      {Header::GETLOG, Permission::kGetLog},
      {Header::SETUP, Permission::kSetup},
      {Header::SECURITY, Permission::kSecurity, true},
      {Header::NOOP, std::nullopt},
      {Header::FLUSHALLDATA, std::nullopt},
  };
  for (const auto& operation : kOperations) {
    for (const Permission given : kAllPermissions) {
      SCOPED_TRACE(fmt::format("type {} with {}", static_cast<int>(operation.type), NameOf(given)));
      Give(2, {{.permissions = Only({given})}});
      const std::string before = Contents();
      const Answer answer = Ask(
          2, operation.type,
          [](kinetic::Body* body) {
            body->mutable_keyvalue()->set_key("m/2");
            body->mutable_keyvalue()->set_force(true);
            body->mutable_range()->set_maxreturned(10);
            body->mutable_getlog()->add_types(kinetic::GetLog::CAPACITIES);
            body->mutable_setup()->set_newclusterversion(3);
            body->mutable_security()->set_newerasepin("x");
          },
          operation.tls);
      if (!operation.needs || *operation.needs == given) {
        EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
        ASSERT_OK(engine_.Put("m/2", {.value = SharedBytes(std::string("m/2"))}, Expected::Any()));
      } else {
        ExpectDenied(answer);
        EXPECT_EQ(Contents(), before);
      }
      EXPECT_EQ(security_.cluster_version() == 3,
                operation.type == Header::SETUP && given == Permission::kSetup);
      ASSERT_OK(security_.SetClusterVersion(0));
      ASSERT_OK(security_.ChangeErasePin("x", ""));
    }
  }
}

TEST_F(SecuredService, AnIdentityOfAPrefixReachesItsKeys) {
  GivePrefix();
  EXPECT_EQ(AskKey(2, Header::GET, "m/1").value, "m/1");
  EXPECT_EQ(AskKey(2, Header::GETVERSION, "m/1").command.body().keyvalue().dbversion(), "v");
  EXPECT_EQ(AskKey(2, Header::GETNEXT, "m/1").key(), "m/2");
  EXPECT_EQ(AskKey(2, Header::GETPREVIOUS, "m/2").key(), "m/1");
  EXPECT_EQ(AskKey(2, Header::PUT, "m/new").code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(AskKey(2, Header::DELETE, "m/new").code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(Contents(), kUntouched);
}

TEST_F(SecuredService, AnIdentityOfAPrefixGetsNothingFromOutside) {
  GivePrefix();
  for (const std::string& key :
       {std::string(), std::string("a"), std::string("m"), std::string("m."), std::string("m0"),
        std::string("n"), std::string("nothing there"), std::string("M/1"), std::string("\0m/1", 4),
        std::string(4096, 'm')}) {
    SCOPED_TRACE(key);
    for (const Header::MessageType type :
         {Header::GET, Header::GETVERSION, Header::PUT, Header::DELETE}) {
      ExpectDenied(AskKey(2, type, key));
    }
  }
  EXPECT_EQ(Contents(), kUntouched);
}

TEST_F(SecuredService, StepsOutOfAPrefixAreRefusedWithoutTheKeyThatWasFound) {
  GivePrefix();
  ExpectDenied(AskKey(2, Header::GETNEXT, "m/3"));
  ExpectDenied(AskKey(2, Header::GETPREVIOUS, "m/1"));
  ExpectDenied(AskKey(2, Header::GETNEXT, ""));
  ExpectDenied(AskKey(2, Header::GETPREVIOUS, "zz"));
  // From outside onto a key of ours is a key of ours.
  EXPECT_EQ(AskKey(2, Header::GETNEXT, "b").key(), "m/1");
  EXPECT_EQ(AskKey(2, Header::GETPREVIOUS, "m0").key(), "m/3");
  EXPECT_EQ(AskKey(2, Header::GETNEXT, "zz").code(), kinetic::Status::NOT_FOUND);
}

TEST_F(SecuredService, AListHasOnlyWhatItsReaderMayKnow) {
  using Keys = std::vector<std::string>;
  GivePrefix();
  EXPECT_EQ(List(1, "", ""), (Keys{"a", "m/1", "m/2", "m/3", "n", "z"}));
  EXPECT_EQ(List(2, "", ""), (Keys{"m/1", "m/2", "m/3"}));
  EXPECT_EQ(List(2, "", "", 200, true), (Keys{"m/3", "m/2", "m/1"}));
  EXPECT_EQ(List(2, "", "", 2), (Keys{"m/1", "m/2"}));
  EXPECT_EQ(List(2, "", "", 2, true), (Keys{"m/3", "m/2"}));
  EXPECT_EQ(List(2, "m/2", "zzz"), (Keys{"m/2", "m/3"}));
  EXPECT_EQ(List(2, "n", ""), Keys());
  EXPECT_EQ(List(2, "a", "b"), Keys());
}

TEST_F(SecuredService, AListPassesOverManyForbiddenKeys) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_OK(engine_.Put(fmt::format("{}-{:04}", i % 100 == 50 ? "yes" : "not", i), {},
                          Expected::Any()));
  }
  // In the middle of the keys, so that the device has to look at each.
  Give(2, {{.offset = 4, .value = "0", .permissions = Only({Permission::kRange})}});
  EXPECT_EQ(List(2, "", "").size(), 200u);
  Give(2, {{.offset = 6, .value = "50", .permissions = Only({Permission::kRange})}});
  for (const bool reverse : {false, true}) {
    EXPECT_EQ(List(2, "", "", 200, reverse).size(), 10u);
    EXPECT_EQ(List(2, "", "", 7, reverse).size(), 7u);
  }
  EXPECT_EQ(List(2, "", "", 7, true).front(), "yes-0950");
  EXPECT_EQ(List(2, "", "", 7, false).front(), "yes-0050");
}

// Our extension gives versions and values along with the keys: to those who may read them only.
TEST_F(SecuredService, AListOfRecordsHasOnlyWhatItsReaderMayListAndRead) {
  const auto list = [&](uint32_t max, bool reverse) {
    const Answer answer = Ask(2, Header::GETKEYRANGE, [&](kinetic::Body* body) {
      body->mutable_range()->set_maxreturned(max);
      body->mutable_range()->set_valuelimit(100);
      body->mutable_range()->set_reverse(reverse);
    });
    EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
    const kinetic::Range& found = answer.command.body().range();
    EXPECT_EQ(found.keys_size(), found.records_size());
    return answer.value + (found.more() ? "..." : "");  // the values are their keys
  };
  GivePrefix();
  EXPECT_EQ(list(200, false), "m/1m/2m/3");
  EXPECT_EQ(list(200, true), "m/3m/2m/1");
  EXPECT_EQ(list(2, false), "m/1m/2...");
  EXPECT_EQ(list(2, true), "m/3m/2...");
  Give(2, {{.value = "m/", .permissions = Only({Permission::kRange})},
           {.value = "m/2", .permissions = Only({Permission::kRead})},
           {.value = "z", .permissions = Only({Permission::kRead})}});
  EXPECT_EQ(list(200, false), "m/2");
  Give(2, {{.permissions = Only({Permission::kRead})}});
  ExpectDenied(Ask(2, Header::GETKEYRANGE, [&](kinetic::Body* body) {
    body->mutable_range()->set_maxreturned(1);
    body->mutable_range()->set_valuelimit(100);
  }));
}

TEST_F(SecuredService, AWrongQuestionIsWrongForEverybody) {
  GivePrefix();
  for (const uint32_t max : {0u, 201u}) {
    for (const char* first : {"", "x"}) {
      const Answer answer = Ask(2, Header::GETKEYRANGE, [&](kinetic::Body* body) {
        body->mutable_range()->set_startkey(first);
        body->mutable_range()->set_maxreturned(max);
      });
      EXPECT_EQ(answer.code(), kinetic::Status::INVALID_REQUEST);
    }
  }
}

TEST_F(SecuredService, AScopeForTlsIsOnlyForTls) {
  Give(2, {{.permissions = Only({Permission::kRead}), .tls_required = true}});
  ExpectDenied(AskKey(2, Header::GET, "a"));
  EXPECT_EQ(AskKey(2, Header::GET, "a", /*tls=*/true).value, "a");
}

// --- SECURITY and SETUP

class SecurityRequests : public SecuredService {
 protected:
  Answer Change(const std::function<void(kinetic::Security*)>& fill, bool tls = true) {
    return Ask(
        1, Header::SECURITY, [&](kinetic::Body* body) { fill(body->mutable_security()); }, tls);
  }
  static kinetic::Security::Acl* AddAcl(kinetic::Security* security, int64_t identity) {
    kinetic::Security::Acl* rights = security->add_acl();
    rights->set_identity(identity);
    rights->set_key("key");
    rights->set_hmacalgorithm(kinetic::Security::Acl::HmacSHA1);
    return rights;
  }
  int Setup(const std::function<void(kinetic::Setup*)>& fill) {
    return Ask(1, Header::SETUP, [&](kinetic::Body* body) { fill(body->mutable_setup()); }).code();
  }
};

TEST_F(SecurityRequests, GiveIdentitiesWhatTheySay) {
  const Answer answer = Change([](kinetic::Security* security) {
    kinetic::Security::Acl* rights = AddAcl(security, 7);
    rights->set_maxpriority(4);
    kinetic::Security::Acl::Scope* scope = rights->add_scope();
    scope->set_offset(2);
    scope->set_value("xy");
    scope->add_permission(0);
    scope->add_permission(3);
    scope->set_tlsrequired(true);
  });
  ASSERT_EQ(answer.code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(security_.Find(7)->rights,
            (Rights{.key = "key",
                    .max_priority = 4,
                    .scopes = {{.offset = 2,
                                .value = "xy",
                                .permissions = Only({Permission::kRead, Permission::kRange}),
                                .tls_required = true}}}));
  EXPECT_EQ(security_.Find(1)->rights, FullAccess("asdfasdf"));
}

TEST_F(SecurityRequests, ThatAreWrongChangeNothing) {
  const auto refused = [&](const std::function<void(kinetic::Security*)>& fill) {
    const int code = Change([&](kinetic::Security* security) {
                       AddAcl(security, 2);
                       fill(security);
                     }).code();
    EXPECT_EQ(security_.Find(2), nullptr);
    EXPECT_FALSE(security_.has_own_identities());
    return code;
  };
  using kinetic::Status;
  using Rights = kinetic::Security::Acl;
  EXPECT_EQ(refused([](auto* s) { s->mutable_acl(0)->add_scope(); }), Status::INVALID_REQUEST);
  for (const int permission : {-1, 6, 10, 1000}) {
    EXPECT_EQ(refused([&](auto* s) { s->mutable_acl(0)->add_scope()->add_permission(permission); }),
              Status::INVALID_REQUEST);
  }
  EXPECT_EQ(refused([](auto* s) {
              Rights::Scope* scope = s->mutable_acl(0)->add_scope();
              scope->add_permission(0);
              scope->set_offset(static_cast<uint64_t>(-1));
            }),
            Status::INVALID_REQUEST);
  EXPECT_EQ(refused([](auto* s) { s->mutable_acl(0)->clear_hmacalgorithm(); }),
            Status::NO_SUCH_HMAC_ALGORITHM);
  EXPECT_EQ(refused([](auto* s) {
              s->mutable_acl(0)->set_hmacalgorithm(Rights::INVALID_HMAC_ALGORITHM);
            }),
            Status::NO_SUCH_HMAC_ALGORITHM);
  EXPECT_EQ(refused([](auto* s) { s->mutable_acl(0)->clear_key(); }), Status::INVALID_REQUEST);
  EXPECT_EQ(refused([](auto* s) { s->mutable_acl(0)->set_maxpriority(10); }),
            Status::INVALID_REQUEST);
  EXPECT_EQ(refused([](auto* s) { AddAcl(s, 2); }), Status::INVALID_REQUEST) << "twice";
  EXPECT_EQ(refused([](auto* s) { AddAcl(s, 3)->clear_key(); }), Status::INVALID_REQUEST);
  EXPECT_EQ(refused([](auto* s) { s->set_newerasepin("p"); }), Status::INVALID_REQUEST);
  EXPECT_EQ(refused([](auto* s) { s->set_newlockpin("p"); }), Status::INVALID_REQUEST);
  EXPECT_EQ(refused([](auto* s) { s->set_securityoptype(kinetic::Security::LOCK_PIN_SECURITYOP); }),
            Status::INVALID_REQUEST);
  EXPECT_OK(security_.CheckErasePin("anything"));
}

TEST_F(SecurityRequests, ForBothPinsAtOnceAreRefused) {
  EXPECT_EQ(Change([](auto* security) {
              security->set_newerasepin("e");
              security->set_newlockpin("l");
            }).code(),
            kinetic::Status::INVALID_REQUEST);
  EXPECT_OK(security_.CheckErasePin("anything"));
}

TEST_F(SecurityRequests, ThatAreEmptyDoNothing) {
  EXPECT_EQ(Change([](auto*) {}).code(), kinetic::Status::SUCCESS);
  EXPECT_FALSE(security_.has_own_identities());
}

TEST_F(SecurityRequests, WithoutTlsAreRefused) {
  const Answer answer = Change([](auto* security) { AddAcl(security, 2); }, /*tls=*/false);
  EXPECT_EQ(answer.code(), kinetic::Status::INVALID_REQUEST);
  EXPECT_EQ(answer.command.status().statusmessage(),
            "TLS channel is required for Security operation");
  EXPECT_EQ(security_.Find(2), nullptr);
}

TEST_F(SecurityRequests, ChangePinsForWhoKnowsThem) {
  const auto change = [&](std::string_view old_pin, std::string_view new_pin) {
    return Change([&](auto* security) {
             security->set_olderasepin(std::string(old_pin));
             security->set_newerasepin(std::string(new_pin));
             security->set_securityoptype(kinetic::Security::ERASE_PIN_SECURITYOP);
           })
        .code();
  };
  EXPECT_EQ(change("whatever", "one"), kinetic::Status::SUCCESS);
  EXPECT_EQ(change("whatever", "two"), kinetic::Status::NOT_AUTHORIZED);
  EXPECT_EQ(change("", "two"), kinetic::Status::NOT_AUTHORIZED);
  EXPECT_OK(security_.CheckErasePin("one"));
  EXPECT_EQ(change("one", std::string(kMaxPinBytes + 1, 'x')), kinetic::Status::INVALID_REQUEST);
  EXPECT_EQ(change("one", ""), kinetic::Status::SUCCESS);
  EXPECT_OK(security_.CheckErasePin("anything"));
}

TEST_F(SecurityRequests, SetupSetsTheClusterVersionAndTakesNoFirmware) {
  using kinetic::Status;
  EXPECT_EQ(Setup([](auto* setup) { setup->set_newclusterversion(12); }), Status::SUCCESS);
  EXPECT_EQ(security_.cluster_version(), 12);
  EXPECT_EQ(Setup([](auto*) {}), Status::SUCCESS);
  EXPECT_EQ(Setup([](auto* setup) { setup->set_firmwaredownload(true); }), Status::INVALID_REQUEST);
  EXPECT_EQ(Setup([](auto* setup) { setup->set_setupoptype(kinetic::Setup::FIRMWARE_SETUPOP); }),
            Status::INVALID_REQUEST);
  EXPECT_EQ(Setup([](auto* setup) {
              setup->set_firmwaredownload(true);
              setup->set_newclusterversion(13);
            }),
            Status::INVALID_REQUEST);
  EXPECT_EQ(
      Setup([](auto* setup) { setup->set_setupoptype(kinetic::Setup::CLUSTER_VERSION_SETUPOP); }),
      Status::INVALID_REQUEST);
  EXPECT_EQ(security_.cluster_version(), 12);
}

}  // namespace
}  // namespace pinstripe
