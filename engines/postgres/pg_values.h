// Values as PostgreSQL takes and sends them in binary: numbers with the highest byte first, bytes
// as they are, and arrays of one dimension. And rows that it sent, which are not believed: a value
// that is not there, or has another size than its type, is null.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

struct pg_result;  // libpq's

namespace pinstripe {

using PgValue = std::optional<std::string>;  // null: NULL

std::string PgBoolean(bool value);
std::string PgBigint(int64_t value);

enum class PgType : uint32_t { kBoolean = 16, kBytea = 17, kBigint = 20, kInteger = 23 };

class PgArray {
 public:
  explicit PgArray(PgType type) : type_(type) {}

  PgArray& Add(std::string_view value);
  PgArray& AddNull();
  PgArray& AddBoolean(bool value) { return Add(PgBoolean(value)); }
  PgArray& AddBigint(int64_t value) { return Add(PgBigint(value)); }

  std::string Take() const;

 private:
  const PgType type_;
  uint32_t size_ = 0;
  bool has_null_ = false;
  std::string elements_;
};

// Keeps what libpq has of it.
class PgRow {
 public:
  PgRow(std::shared_ptr<const pg_result> result, int row) : result_(std::move(result)), row_(row) {}

  // Null, too, where there is no such column.
  std::optional<SharedBytes> Bytes(int column) const;
  std::optional<std::string> Text(int column) const;
  std::optional<int64_t> Bigint(int column) const;
  std::optional<int32_t> Integer(int column) const;
  bool IsTrue(int column) const;
  size_t size() const;  // bytes of all columns

 private:
  std::string_view View(int column) const;

  std::shared_ptr<const pg_result> result_;
  int row_;
};

using PgRows = std::vector<PgRow>;

}  // namespace pinstripe
