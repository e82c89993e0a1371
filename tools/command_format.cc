// pinstripe format: a new, empty cluster on the drives of a configuration.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "tools/commands.h"
#include "tools/format_cluster.h"

namespace pinstripe {
namespace {

struct FormatOptions {
  std::string config;
  std::string owner;
  std::string mode = "0755";
  bool force = false;
  bool json = false;
};

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text, int base) {
  Number number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Owner> ParseOwner(const std::string& text) {
  if (text.empty()) return Owner{.user = geteuid(), .group = getegid()};
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto user = ParseNumber<uint32_t>(std::string_view(text).substr(0, colon), 10);
    const auto group = ParseNumber<uint32_t>(std::string_view(text).substr(colon + 1), 10);
    if (user && group) return Owner{.user = *user, .group = *group};
  }
  return Fail(EINVAL, "--owner {}: write two numbers, uid:gid", text);
}

Result<uint32_t> ParseMode(const std::string& text) {
  const auto mode = ParseNumber<uint32_t>(text, 8);
  if (mode && *mode <= 07777) return *mode;
  return Fail(EINVAL, "--mode {}: write permission bits in octal, such as 0755", text);
}

Result<int> Format(Runtime& runtime, const FormatOptions& options) {
  FormatRequest request{.force = options.force};
  request.owner = TRY(ParseOwner(options.owner));
  request.mode = TRY(ParseMode(options.mode));
  const FormatAnswer made = TRY(FormatCluster(runtime, options.config, request));
  if (options.json) {
    nlohmann::json json{{"name", made.name}, {"uuid", made.uuid}, {"drives", made.drives}};
    json["names"] = made.names_on.empty() ? "drives" : made.names_on;
    if (made.names_room > 0) json["names_room"] = made.names_room;
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  fmt::print(
      "Cluster {} ({}) now is on {} drives: superblocks and the first drive map are written.\n"
      "Its root directory is empty and belongs to {}:{} with mode {:04o}.\n",
      made.name, made.uuid, made.drives, request.owner.user, request.owner.group, request.mode);
  if (!made.names_on.empty()) {
    fmt::print(
        "Its names are on {}{}.\n", made.names_on,
        made.names_room == 0
            ? ""
            : fmt::format(": with its usual quota of 2 GiB it has room for those of about {} "
                          "files, and with more for more",
                          made.names_room));
  }
  return 0;
}

}  // namespace

void AddFormatCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<FormatOptions>();
  CLI::App* command = app.add_subcommand("format", "Make a new, empty cluster on the drives");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_flag("--force", options->force,
                    "Take over drives that belong to a cluster; all its files are lost");
  command->add_option("--owner", options->owner, "uid:gid of the root directory (the caller's)");
  command->add_option("--mode", options->mode, "Permission bits of the root directory")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print what was made as JSON");
  command->footer(
      "Every drive must answer. A drive that already belongs to a cluster is refused, and named,\n"
      "unless --force is given. Asks no questions.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Format(runtime, *options); };
  });
}

}  // namespace pinstripe
