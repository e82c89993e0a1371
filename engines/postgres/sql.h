// What PostgreSQL keeps of a cluster's names, and the SQL that asks for it.
//
// Each cluster has a schema of its own, `pinstripe_` and the name of the cluster, in which '_' is
// "__" and whatever is not a-z or 0-9 is '_' and two hexadecimal digits. In it:
//
//   store     one row: `id` (16 bytes by chance, made by whoever comes first), `version` (the
//             cluster version), `layout` (of these tables), `cluster` (its name)
//   records   a row for each record. A B-tree of PostgreSQL has no room for keys over 2700 bytes,
//             so `key` has the first kPgKeyBytes of them, `rest` the others, and `digest` SHA-256
//             of those, or nothing where there are none. In the order of (key, rest), records are
//             in the order of their keys. `crc` is CRC32C of version, tag and value, as
//             EncodeEngineRecord() takes it.
//   change_*  a function: all changes of a batch; after the sum of its text, so those of several
//             versions of ours stand side by side
//
// A batch is one transaction, under READ COMMITTED: each statement sees what was committed before
// it began. So everything is decided under locks, which are taken first and kept until the
// transaction has ended, and is on disk where it must be:
//
//   1. the fence, shared; whoever changes the cluster version has it for himself. So a batch that
//      has found its version to be right is done before the version is another one.
//   2. the keys, in the order of their locks: for itself what is changed; shared the guards and
//      what is read. Rows would do where there is one, but a key must also be locked while there
//      is none. Two keys may have one lock, and wait for each other without need.
//
// What only reads takes no lock. It is one statement, which sees one state of everything, the
// cluster version included; and what was answered to anybody is a part of that.
//
// Every statement answers with a word first (PgWord), and the store's cluster version.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pinstripe {

inline constexpr size_t kPgKeyBytes = 2000;
inline constexpr int kPgLayout = 1;
inline constexpr size_t kPgListBytes = 4 << 20;  // of a page; one more record may go beyond

enum class PgWord {
  kOk = 0,
  kGone = 1,     // the store is another one than was asked
  kLater = 2,    // its cluster version is a later one
  kEarlier = 3,  // or an earlier one, and it was not asked to raise that; nothing was done
  kUnsafe = 4,   // by now the server is set to lose what it confirms; nothing was done
};

enum class PgStatement { kChange, kRead, kList, kListReverse, kSetVersion, kLook };
inline constexpr std::array kPgStatements = {PgStatement::kChange,     PgStatement::kRead,
                                             PgStatement::kList,       PgStatement::kListReverse,
                                             PgStatement::kSetVersion, PgStatement::kLook};
const char* NameOf(PgStatement statement);

class PgSql {
 public:
  explicit PgSql(std::string cluster);

  const std::string& schema() const { return schema_; }
  const std::string& cluster() const { return cluster_; }

  // What a session begins with: its settings, and then one row of facts (server_facts.h).
  std::string Greeting() const;
  // Makes what is not there yet. Several may do so at once. `id` is for a store that has none.
  std::string Make(std::string_view id) const;
  // One row: id in hexadecimal, version, layout, cluster. None: there is no store yet.
  std::string Store() const;
  // Parameters stand beside each in sql.cc.
  std::string Text(PgStatement statement) const;

  int64_t LockOf(std::string_view key) const;

 private:
  std::string Fill(std::string_view text) const;

  const std::string cluster_;
  const std::string schema_;
  const int32_t lock_space_;
  const std::string function_body_;
  const std::string function_;
};

// What a cluster's schema is called.
std::string PgSchemaOf(std::string_view cluster);

}  // namespace pinstripe
