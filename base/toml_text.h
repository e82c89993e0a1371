// TomlText: writes a file that ConfigFile (base/config.h) reads. The lines stand in the order in
// which they are given.
//
//   TomlText text;
//   text.Table("cluster");
//   text.Set("name", name);
//   return text.Take();

#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinstripe {

class TomlText {
 public:
  void Comment(std::string_view text);   // one line
  void Table(std::string_view name);     // [name]
  void NewTable(std::string_view name);  // [[name]]

  void Set(std::string_view key, std::string_view value);
  void Set(std::string_view key, const char* value) { Set(key, std::string_view(value)); }
  void Set(std::string_view key, bool value);
  void Set(std::string_view key, const std::vector<std::string>& values);
  // Up to 2^63 - 1, which is all that TOML knows.
  template <std::integral Number>
  void Set(std::string_view key, Number value) {
    SetNumber(key, static_cast<int64_t>(value));
  }

  std::string Take() { return std::move(text_); }

 private:
  void SetNumber(std::string_view key, int64_t value);
  void Head(std::string_view line);
  template <typename Value>
  void Line(std::string_view key, const Value& value);

  std::string text_;
};

}  // namespace pinstripe
