// Who may do what: the decisions alone, over all combinations where there are few.

#include "daemon/rights.h"

#include <gtest/gtest.h>

#include <set>

#include "store/memory_store.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

Permissions Only(std::initializer_list<Permission> list) {
  Permissions permissions;
  for (const Permission each : list) permissions.Add(each);
  return permissions;
}

Rights With(std::vector<Scope> scopes) { return {.key = "k", .scopes = std::move(scopes)}; }

TEST(MayDo, ExactlyWhatAScopeGivesAndNothingElse) {
  for (const Permission given : kAllPermissions) {
    for (const bool tls_required : {false, true}) {
      const Rights rights = With({{.permissions = Only({given}), .tls_required = tls_required}});
      for (const Permission asked : kAllPermissions) {
        for (const bool tls : {false, true}) {
          for (const ForKey key : {ForKey(), ForKey(""), ForKey("any")}) {
            EXPECT_EQ(MayDo(rights, asked, key, tls), asked == given && (tls || !tls_required))
                << NameOf(given) << " given, " << NameOf(asked) << " asked, TLS " << tls_required
                << tls;
          }
        }
      }
    }
  }
}

TEST(MayDo, WithoutAScopeNothing) {
  for (const Permission asked : kAllPermissions) {
    EXPECT_FALSE(MayDo(With({}), asked, std::nullopt, true));
    EXPECT_FALSE(MayDo(With({}), asked, "", true));
  }
}

TEST(MayDo, AKeyMustHoldTheValueAtTheOffset) {
  const auto covers = [](uint64_t offset, std::string value, std::string_view key) {
    return MayDo(With({{.offset = offset,
                        .value = std::move(value),
                        .permissions = Only({Permission::kRead})}}),
                 Permission::kRead, key, false);
  };
  EXPECT_TRUE(covers(0, "ab", "ab"));
  EXPECT_TRUE(covers(0, "ab", "abc"));
  EXPECT_FALSE(covers(0, "ab", "a"));
  EXPECT_FALSE(covers(0, "ab", ""));
  EXPECT_FALSE(covers(0, "ab", "aB"));
  EXPECT_FALSE(covers(0, "ab", "xab"));
  EXPECT_TRUE(covers(1, "ab", "xab"));
  EXPECT_TRUE(covers(1, "ab", "xabx"));
  EXPECT_FALSE(covers(1, "ab", "xa"));
  EXPECT_FALSE(covers(1, "ab", "ab"));
  EXPECT_FALSE(covers(UINT64_MAX, "ab", "ab"));
  EXPECT_FALSE(covers(UINT64_MAX - 1, "ab", "ab"));
  EXPECT_TRUE(covers(7, "", "x")) << "without a value the offset means nothing";
  EXPECT_TRUE(covers(0, std::string("\0\xff", 2), std::string("\0\xff\0", 3)));
}

TEST(MayDo, ScopesAddUpButDoNotMix) {
  const Rights rights = With({{.value = "a", .permissions = Only({Permission::kRead})},
                              {.value = "b", .permissions = Only({Permission::kWrite})},
                              {.value = "c",
                               .permissions = Only({Permission::kRead, Permission::kWrite}),
                               .tls_required = true}});
  EXPECT_TRUE(MayDo(rights, Permission::kRead, "a1", false));
  EXPECT_FALSE(MayDo(rights, Permission::kWrite, "a1", true));
  EXPECT_FALSE(MayDo(rights, Permission::kRead, "b1", true));
  EXPECT_TRUE(MayDo(rights, Permission::kWrite, "b1", false));
  EXPECT_FALSE(MayDo(rights, Permission::kRead, "c1", false));
  EXPECT_TRUE(MayDo(rights, Permission::kRead, "c1", true));
  EXPECT_FALSE(MayDo(rights, Permission::kDelete, "a1", true));
  EXPECT_TRUE(MayDo(rights, Permission::kRead, std::nullopt, false)) << "any scope will do";
}

// All keys of up to four letters of a small alphabet, and all scopes over it.
class SmallWorld : public testing::Test {
 protected:
  static constexpr std::string_view kLetters = std::string_view("\x00m\xff", 3);

  static std::vector<std::string> Words(size_t longest) {
    std::vector<std::string> words{""};
    for (size_t begin = 0, size = 1; size <= longest; ++size) {
      const size_t end = words.size();
      for (; begin < end; ++begin) {
        for (const char letter : kLetters) words.push_back(words[begin] + letter);
      }
    }
    return words;
  }
};

TEST_F(SmallWorld, MayDoAllIsTrueOnlyWhereMayDoIsForEveryKeyBetween) {
  const std::vector<std::string> keys = Words(4);
  int granted = 0;
  for (const uint64_t offset : {0, 1}) {
    for (const std::string& value : Words(2)) {
      const Rights rights =
          With({{.offset = offset, .value = value, .permissions = Only({Permission::kRange})}});
      for (const std::string& first : Words(3)) {
        for (const std::string& last : Words(3)) {
          if (!MayDoAll(rights, Permission::kRange, first, last, false)) continue;
          ++granted;
          EXPECT_FALSE(MayDoAll(rights, Permission::kRead, first, last, false));
          for (const std::string& key : keys) {
            if (key < first || (!last.empty() && key > last)) continue;
            ASSERT_TRUE(MayDo(rights, Permission::kRange, key, false))
                << Hex(AsBytes(key)) << " in " << Hex(AsBytes(first)) << ".." << Hex(AsBytes(last));
          }
        }
      }
    }
  }
  EXPECT_GT(granted, 100);
}

TEST_F(SmallWorld, PartsToListLeaveOutNothingThatIsAllowed) {
  const std::vector<std::string> keys = Words(4);
  MemoryStore store;
  for (const std::string& key : keys) ASSERT_OK(store.Put(key, {}));
  const std::vector<std::string> prefixes = {"m", "m\xff", "\xff", "\xff\xff",
                                             std::string(1, '\0')};
  for (size_t a = 0; a < prefixes.size(); ++a) {
    for (size_t b = 0; b < prefixes.size(); ++b) {
      const Rights rights =
          With({{.value = prefixes[a], .permissions = Only({Permission::kRange})},
                {.value = prefixes[b], .permissions = Only({Permission::kRange})}});
      for (const std::string& first : Words(2)) {
        for (const std::string& last : Words(2)) {
          for (int flags = 0; flags < 8; ++flags) {
            KeyRange range{.first = first, .first_included = (flags & 1) != 0};
            if (flags & 4) range.last = last;
            range.last_included = (flags & 2) != 0;
            std::vector<std::string> expected;
            const std::vector<std::string> in_range = *store.Keys(range, keys.size(), false);
            for (const std::string& key : in_range) {
              if (MayDo(rights, Permission::kRange, key, false)) expected.push_back(key);
            }
            std::vector<std::string> found;
            for (const KeyRange& part : PartsToList(rights, range, false)) {
              const std::vector<std::string> in_part = *store.Keys(part, keys.size(), false);
              found.insert(found.end(), in_part.begin(), in_part.end());
            }
            ASSERT_EQ(found, expected);
          }
        }
      }
    }
  }
}

TEST(PartsToList, OfAScopeInTheMiddleOfKeysIsTheWholeRangeAndOfNoScopeNothing) {
  const KeyRange range{.first = "a", .last = "z"};
  const Rights middle =
      With({{.offset = 2, .value = "x", .permissions = Only({Permission::kRange})}});
  EXPECT_EQ(PartsToList(middle, range, false).size(), 1u);
  const Rights tls = With({{.permissions = Only({Permission::kRange}), .tls_required = true}});
  EXPECT_TRUE(PartsToList(tls, range, false).empty());
  EXPECT_EQ(PartsToList(tls, range, true).size(), 1u);
  EXPECT_TRUE(PartsToList(With({{.permissions = Only({Permission::kRead})}}), range, true).empty());
}

TEST(CheckRights, RefusesWhatCannotBeMeant) {
  const Rights good = FullAccess("key");
  EXPECT_OK(CheckRights(1, good));
  EXPECT_OK(CheckRights(1, With({}))) << "an identity without rights is one that was taken them";
  const auto changed = [&](const std::function<void(Rights*)>& change) {
    Rights rights = good;
    change(&rights);
    return CheckRights(1, rights);
  };
  EXPECT_FAILS(changed([](Rights* rights) { rights->key.clear(); }), EINVAL);
  EXPECT_OK(changed([](Rights* rights) { rights->key.resize(kMaxHmacKeyBytes); }));
  EXPECT_FAILS(changed([](Rights* rights) { rights->key.resize(kMaxHmacKeyBytes + 1); }), EINVAL);
  EXPECT_FAILS(changed([](Rights* rights) { rights->max_priority = 0; }), EINVAL);
  EXPECT_FAILS(changed([](Rights* rights) { rights->max_priority = 10; }), EINVAL);
  EXPECT_FAILS(changed([](Rights* rights) { rights->scopes[0].permissions = {}; }), EINVAL);
  EXPECT_FAILS(changed([](Rights* rights) {
                 rights->scopes[0].permissions = Permissions::FromBits(1 << 6);
               }),
               EINVAL);
  EXPECT_OK(changed([](Rights* rights) { rights->scopes[0].value.resize(kMaxKeyBytes); }));
  EXPECT_FAILS(changed([](Rights* rights) { rights->scopes[0].value.resize(kMaxKeyBytes + 1); }),
               EINVAL);
  EXPECT_OK(changed([](Rights* rights) { rights->scopes[0].offset = kMaxKeyBytes; }));
  EXPECT_FAILS(changed([](Rights* rights) { rights->scopes[0].offset = kMaxKeyBytes + 1; }),
               EINVAL);
  EXPECT_FAILS(changed([](Rights* rights) { rights->scopes[0].offset = UINT64_MAX; }), EINVAL);
  EXPECT_OK(changed([](Rights* rights) { rights->scopes.resize(kMaxScopes, rights->scopes[0]); }));
  EXPECT_FAILS(
      changed([](Rights* rights) { rights->scopes.resize(kMaxScopes + 1, rights->scopes[0]); }),
      EINVAL);
}

TEST(Permissions, HaveTheNumbersAndNamesOfTheProtocol) {
  std::set<std::string_view> names;
  for (const Permission permission : kAllPermissions) {
    EXPECT_EQ(PermissionNumbered(static_cast<int64_t>(permission)), permission);
    EXPECT_EQ(PermissionNamed(NameOf(permission)), permission);
    names.insert(NameOf(permission));
  }
  EXPECT_EQ(names.size(), std::size(kAllPermissions));
  EXPECT_FALSE(PermissionNumbered(6));
  EXPECT_FALSE(PermissionNumbered(-1));
  EXPECT_FALSE(PermissionNumbered(10));
  EXPECT_FALSE(PermissionNamed("everything"));
  EXPECT_EQ(Permissions::All().bits(), 0b1110111111);
}

}  // namespace
}  // namespace pinstripe
