#include "base/toml_text.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <sstream>

namespace pinstripe {

void TomlText::Comment(std::string_view text) { text_ += fmt::format("# {}\n", text); }

void TomlText::Table(std::string_view name) { Head(fmt::format("[{}]", name)); }

void TomlText::NewTable(std::string_view name) { Head(fmt::format("[[{}]]", name)); }

void TomlText::Head(std::string_view line) {
  if (!text_.empty()) text_ += '\n';
  text_ += fmt::format("{}\n", line);
}

template <typename Value>
void TomlText::Line(std::string_view key, const Value& value) {
  std::ostringstream out;
  out << toml::toml_formatter(value, toml::format_flags::allow_unicode_strings);
  text_ += fmt::format("{} = {}\n", key, out.str());
}

void TomlText::Set(std::string_view key, std::string_view value) {
  Line(key, toml::value<std::string>(std::string(value)));
}

void TomlText::Set(std::string_view key, bool value) { Line(key, toml::value<bool>(value)); }

void TomlText::Set(std::string_view key, const std::vector<std::string>& values) {
  toml::array array;
  for (const std::string& value : values) array.push_back(value);
  Line(key, array);
}

void TomlText::SetNumber(std::string_view key, int64_t value) {
  Line(key, toml::value<int64_t>(value));
}

}  // namespace pinstripe
