#include "base/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/read_file.h"
#include "base/try.h"

namespace pinstripe {
namespace {

struct Mistake {
  uint32_t line = 0;
  std::string reason;
  friend bool operator==(const Mistake&, const Mistake&) = default;
};

// What one file's tables share: its mistakes as they were met, and the parsed document that nodes
// point into.
struct Document {
  std::string file;
  toml::table table;
  std::vector<Mistake> mistakes;

  void Note(const toml::source_region& where, std::string_view reason) {
    mistakes.push_back({where.begin.line, std::string(reason)});
  }
  std::string Text(const Mistake& mistake) const {
    return fmt::format("{}:{}: {}", file, mistake.line, mistake.reason);
  }
};

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kByteUnits[] = {{"", 1},
                               {"B", 1},
                               {"KiB", 1024.0},
                               {"MiB", 1048576.0},
                               {"GiB", 1073741824.0},
                               {"TiB", 1099511627776.0},
                               {"kB", 1e3},
                               {"KB", 1e3},
                               {"MB", 1e6},
                               {"GB", 1e9},
                               {"TB", 1e12}};
constexpr Unit kTimeUnits[] = {{"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};

// "1.5 GB" by the table of units; null when it is not such a quantity.
template <size_t N>
std::optional<double> ParseQuantity(std::string_view text, const Unit (&units)[N]) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number < 0 || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(parsed.ptr, static_cast<size_t>(text.data() + text.size() - parsed.ptr));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (unit == known.name) return number * known.factor;
  }
  return std::nullopt;
}

// `value` as the integer type, when it lies within the limits.
template <typename T>
std::optional<T> Within(std::optional<double> value, T least, T most) {
  if (!value || !(*value >= static_cast<double>(least))) return std::nullopt;  // also not a number
  if (*value > static_cast<double>(most)) return std::nullopt;
  // As a double the highest limits round up to a number that the type does not hold.
  return *value == static_cast<double>(most) ? most : static_cast<T>(*value);
}

}  // namespace

std::optional<uint64_t> ParseByteCount(std::string_view text) {
  return Within<uint64_t>(ParseQuantity(text, kByteUnits), 0, uint64_t{1} << 63);
}

struct ConfigTable::Node {
  std::shared_ptr<Document> document;
  const toml::table* table = nullptr;  // null: the table is absent
  std::string name;                    // "drive" in messages; empty for the root
  std::set<std::string, std::less<>> read;
  std::map<std::string, std::vector<std::shared_ptr<Node>>, std::less<>> children;

  std::shared_ptr<Node> NewChild(std::string_view key, const toml::table* contents) const {
    auto child = std::make_shared<Node>();
    child->document = document;
    child->table = contents;
    child->name = name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
    return child;
  }
  const toml::node* Find(std::string_view key) {
    read.emplace(key);
    return table ? table->get(key) : nullptr;
  }
  std::string Name(std::string_view key) const {
    return name.empty() ? fmt::format("'{}'", key) : fmt::format("'{}' in [{}]", key, name);
  }
  toml::source_region Where() const { return table ? table->source() : document->table.source(); }
  template <typename T>
  T Missing(std::string_view key, std::optional<T> fallback) {
    if (fallback) return *std::move(fallback);
    document->Note(Where(), fmt::format("{} is required", Name(key)));
    return T();
  }
  void Wrong(const toml::node& node, std::string_view key, std::string_view must) {
    document->Note(node.source(), fmt::format("{} must be {}", Name(key), must));
  }
};

bool ConfigTable::Has(std::string_view key) const {
  return node_->table && node_->table->contains(key);
}

int64_t ConfigTable::Integer(std::string_view key, std::optional<int64_t> fallback, int64_t least,
                             int64_t most) {
  const toml::node* node = node_->Find(key);
  if (!node) return node_->Missing(key, fallback);
  const auto* value = node->as_integer();
  if (!value || value->get() < least || value->get() > most) {
    node_->Wrong(*node, key, fmt::format("a whole number from {} to {}", least, most));
    return fallback.value_or(least);
  }
  return value->get();
}

std::string ConfigTable::Text(std::string_view key, std::optional<std::string> fallback) {
  const toml::node* node = node_->Find(key);
  if (!node) return node_->Missing(key, std::move(fallback));
  const auto* value = node->as_string();
  if (!value) {
    node_->Wrong(*node, key, "text in quotes");
    return fallback.value_or("");
  }
  return value->get();
}

bool ConfigTable::Flag(std::string_view key, std::optional<bool> fallback) {
  const toml::node* node = node_->Find(key);
  if (!node) return node_->Missing(key, fallback);
  const auto* value = node->as_boolean();
  if (!value) {
    node_->Wrong(*node, key, "true or false");
    return fallback.value_or(false);
  }
  return value->get();
}

uint64_t ConfigTable::ByteCount(std::string_view key, std::optional<uint64_t> fallback,
                                uint64_t least, uint64_t most) {
  const toml::node* node = node_->Find(key);
  if (!node) return node_->Missing(key, fallback);
  std::optional<uint64_t> bytes;
  if (const auto* number = node->as_integer()) {
    const int64_t value = number->get();
    if (value >= 0 && static_cast<uint64_t>(value) >= least &&
        static_cast<uint64_t>(value) <= most) {
      bytes = value;
    }
  } else if (const auto* text = node->as_string()) {
    bytes = Within(ParseQuantity(text->get(), kByteUnits), least, most);
  }
  if (!bytes) {
    node_->Wrong(
        *node, key,
        fmt::format("a number of bytes from {} to {}, like 65536 or \"64 KiB\"", least, most));
  }
  return bytes.value_or(fallback.value_or(least));
}

Duration ConfigTable::Time(std::string_view key, std::optional<Duration> fallback, Duration least,
                           Duration most) {
  const toml::node* node = node_->Find(key);
  if (!node) return node_->Missing(key, fallback);
  std::optional<double> time;
  if (const auto* text = node->as_string()) {
    time = ParseQuantity(text->get(), kTimeUnits);
  }
  const std::optional<int64_t> nanoseconds = Within(time, least.count(), most.count());
  if (!nanoseconds) {
    node_->Wrong(
        *node, key,
        fmt::format("a time with its unit, from {} ms to {} ms, like \"250 ms\" or \"5 s\"",
                    least.count() / 1000000, most.count() / 1000000));
    return fallback.value_or(least);
  }
  return Duration(*nanoseconds);
}

std::vector<std::string> ConfigTable::Texts(std::string_view key) {
  const toml::node* node = node_->Find(key);
  if (!node) return {};
  if (const auto* text = node->as_string()) return {text->get()};
  std::vector<std::string> texts;
  const auto* array = node->as_array();
  if (array) {
    for (const toml::node& element : *array) {
      if (const auto* text = element.as_string()) texts.push_back(text->get());
    }
  }
  if (!array || texts.size() != array->size()) node_->Wrong(*node, key, "a list of texts");
  return texts;
}

ConfigTable ConfigTable::Table(std::string_view key) {
  const toml::node* node = node_->Find(key);
  if (node && !node->is_table()) node_->Wrong(*node, key, fmt::format("a table, [{}]", key));
  auto& children = node_->children[std::string(key)];
  if (children.empty()) children.push_back(node_->NewChild(key, node ? node->as_table() : nullptr));
  return ConfigTable(children.front());
}

std::vector<ConfigTable> ConfigTable::Tables(std::string_view key) {
  const toml::node* node = node_->Find(key);
  if (!node) return {};
  if (!node->is_array_of_tables()) {
    node_->Wrong(*node, key, fmt::format("a list of tables, [[{}]]", key));
    return {};
  }
  auto& children = node_->children[std::string(key)];
  if (children.empty()) {
    for (const toml::node& element : *node->as_array()) {
      children.push_back(node_->NewChild(key, element.as_table()));
    }
  }
  std::vector<ConfigTable> tables;
  for (const auto& child : children) tables.push_back(ConfigTable(child));
  return tables;
}

void ConfigTable::Refuse(std::string_view key, std::string_view reason) {
  const toml::node* node = node_->Find(key);
  node_->document->Note(node ? node->source() : node_->Where(), reason);
}

Result<ConfigFile> ConfigFile::Load(const std::string& path) {
  return Parse(TRY(ReadFile(path)), path);
}

Result<ConfigFile> ConfigFile::Parse(std::string_view text, const std::string& name) {
  auto document = std::make_shared<Document>();
  document->file = name;
  try {
    document->table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Fail(EINVAL, "{}:{}: not valid TOML: {}", name, error.source().begin.line,
                error.description());
  }
  auto node = std::make_shared<ConfigTable::Node>();
  node->document = document;
  node->table = &document->table;
  return ConfigFile(ConfigTable(std::move(node)));
}

namespace {

// The keys that nobody has read.
template <typename Node>
std::vector<Mistake> UnknownKeys(const Node& root) {
  std::vector<Mistake> unknown;
  std::vector<const Node*> todo = {&root};
  while (!todo.empty()) {
    const Node* node = todo.back();
    todo.pop_back();
    if (!node->table) continue;
    for (const auto& [key, value] : *node->table) {
      if (node->read.contains(key.str())) continue;
      unknown.push_back({key.source().begin.line,
                         fmt::format("{} is not an option known here", node->Name(key.str()))});
    }
    for (const auto& [key, children] : node->children) {
      for (const auto& child : children) todo.push_back(child.get());
    }
  }
  return unknown;
}

}  // namespace

Status ConfigFile::Finish() const {
  const Document& document = *root_.node_->document;
  if (!document.mistakes.empty()) {
    return Fail(EINVAL, "{}", document.Text(document.mistakes.front()));
  }
  const std::vector<Mistake> unknown = UnknownKeys(*root_.node_);
  if (!unknown.empty()) return Fail(EINVAL, "{}", document.Text(unknown.front()));
  return {};
}

std::vector<std::string> ConfigFile::Mistakes() const {
  const Document& document = *root_.node_->document;
  std::vector<Mistake> all = document.mistakes;
  for (Mistake& unknown : UnknownKeys(*root_.node_)) all.push_back(std::move(unknown));
  std::ranges::stable_sort(all, {}, &Mistake::line);
  // Clang 14 does not understand libstdc++'s ranges of this.
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<std::string> texts;
  for (const Mistake& mistake : all) texts.push_back(document.Text(mistake));
  return texts;
}

}  // namespace pinstripe
