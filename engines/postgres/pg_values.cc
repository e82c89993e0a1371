#include "engines/postgres/pg_values.h"

#include <libpq-fe.h>

#include "base/coding.h"

namespace pinstripe {

std::string PgBoolean(bool value) { return std::string(1, value ? '\1' : '\0'); }

std::string PgBigint(int64_t value) { return Writer().U64(static_cast<uint64_t>(value)).Take(); }

PgArray& PgArray::Add(std::string_view value) {
  ++size_;
  elements_ += Writer().U32(static_cast<uint32_t>(value.size())).bytes();
  elements_ += value;
  return *this;
}

PgArray& PgArray::AddNull() {
  ++size_;
  has_null_ = true;
  elements_ += Writer().U32(UINT32_MAX).bytes();
  return *this;
}

// Dimensions, whether there is a null, the type; of each dimension its size and first index.
std::string PgArray::Take() const {
  Writer head;
  head.U32(size_ > 0 ? 1 : 0).U32(has_null_ ? 1 : 0).U32(static_cast<uint32_t>(type_));
  if (size_ > 0) head.U32(size_).U32(1);
  return head.Take() + elements_;
}

std::string_view PgRow::View(int column) const {
  const PGresult* const result = result_.get();
  if (column < 0 || column >= PQnfields(result) || row_ >= PQntuples(result) ||
      PQgetisnull(result, row_, column) != 0) {
    return {};
  }
  const int length = PQgetlength(result, row_, column);
  return {PQgetvalue(result, row_, column), static_cast<size_t>(length)};
}

std::optional<SharedBytes> PgRow::Bytes(int column) const {
  const std::string_view view = View(column);
  if (view.data() == nullptr) return std::nullopt;
  return SharedBytes(result_, AsBytes(view));
}

std::optional<std::string> PgRow::Text(int column) const {
  const std::string_view view = View(column);
  if (view.data() == nullptr) return std::nullopt;
  return std::string(view);
}

std::optional<int64_t> PgRow::Bigint(int column) const {
  Reader reader(View(column));
  const uint64_t value = reader.U64();
  if (!reader.ok() || reader.left() > 0) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<int32_t> PgRow::Integer(int column) const {
  Reader reader(View(column));
  const uint32_t value = reader.U32();
  if (!reader.ok() || reader.left() > 0) return std::nullopt;
  return static_cast<int32_t>(value);
}

bool PgRow::IsTrue(int column) const { return View(column) == std::string_view("\1", 1); }

size_t PgRow::size() const {
  size_t size = 0;
  for (int column = 0; column < PQnfields(result_.get()); ++column) size += View(column).size();
  return size;
}

}  // namespace pinstripe
