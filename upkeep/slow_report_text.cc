// What SlowEntry is for people and for programs.

#include <nlohmann/json.hpp>

#include "base/time_text.h"
#include "kinetic/message.h"
#include "upkeep/slow_report.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// "4.1 s", and "20 ms" where that would be "0.0 s".
std::string SecondsText(Duration time) {
  const double seconds = Seconds(time);
  if (seconds < 0.05) return fmt::format("{:.0f} ms", seconds * 1000);
  return seconds < 100 ? fmt::format("{:.1f} s", seconds) : DurationText(seconds);
}

std::string ClientText(const DriveUser& client) {
  if (client.program.name.empty()) return fmt::format("a client at {}", client.address);
  std::string text = client.program.name;
  if (!client.host.empty()) text += fmt::format(" on {}", client.host);
  if (!client.program.detail.empty()) text += fmt::format(" ({})", client.program.detail);
  return text;
}

// "queue 0.1 s, disk 3.9 s"; what took next to nothing is left out.
std::string PartsText(const SlowRequest& request) {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view name, Duration took) {
    if (took >= request.took / 50) parts.push_back(fmt::format("{} {}", name, SecondsText(took)));
  };
  add("queue", request.queue);
  add("client did not take answers", request.held);
  add("disk", request.store);
  add("sync", request.sync);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// What the drive has to say of its request.
std::string AtDriveText(const SlowPart& part) {
  switch (part.tells) {
    case SlowPart::Drive::kTells: break;
    case SlowPart::Drive::kIsSilent: return "the drive does not tell why";
    case SlowPart::Drive::kWasQuick: return "";
    case SlowPart::Drive::kKnowsNothing:
      return "the drive noticed nothing: the network, or its process stood still";
  }
  std::string text = PartsText(*part.at_drive);
  const Duration rest = part.took() - part.at_drive->took;
  if (part.waited && rest >= part.took() / 50) {
    text += fmt::format(", on the way {}", SecondsText(rest));
  }
  return text;
}

std::string PartText(const SlowPart& part) {
  const int type = part.waited ? part.waited->type : part.at_drive->type;
  std::string text = fmt::format("drive {}", part.drive);
  if (!part.address.empty()) text += fmt::format(" ({})", part.address);
  text += fmt::format(", {}", RequestWord(type));
  if (part.at_drive && !part.at_drive->record.empty()) {
    text += fmt::format(" of {}", part.at_drive->record);
  }
  if (part.waited && !part.waited->answered) text += ", not answered yet then";
  const std::string why = AtDriveText(part);
  return why.empty() ? text : fmt::format("{}: {}", text, why);
}

// "4.1 s for drives, 0.3 s for memory"
std::string WaitsText(const SlowOperation& operation) {
  std::vector<std::string> waits;
  const auto add = [&](std::string_view what, Duration time) {
    if (time > Duration() && time >= operation.took / 50) {
      waits.push_back(fmt::format("{} for {}", SecondsText(time), what));
    }
  };
  add("drives", operation.drives);
  add("memory", operation.memory);
  add("another operation on the same file", operation.turn);
  if (waits.empty()) return "waited for nothing";
  return fmt::format("waited {}", fmt::join(waits, ", "));
}

std::string EntryText(const SlowEntry& entry) {
  std::string text = fmt::format("{}  {}  ", TimeText(entry.ended), SecondsText(entry.took));
  if (!entry.operation) {
    return text + fmt::format("{}\n    asked by {}\n", PartText(entry.parts.front()),
                              ClientText(entry.client));
  }
  const SlowOperation& operation = *entry.operation;
  text +=
      fmt::format("{} {}\n    {}, operation {:x}\n    {}\n", operation.operation, operation.subject,
                  ClientText(entry.client), operation.id, WaitsText(operation));
  for (const SlowPart& part : entry.parts) {
    text += fmt::format("    {:>7}  {}\n", SecondsText(part.took()), PartText(part));
  }
  return text;
}

Json JsonOf(const DriveUser& client) {
  return {{"program", client.program.name},  {"version", client.program.version},
          {"detail", client.program.detail}, {"host", client.host},
          {"process", client.process},       {"address", client.address}};
}

std::string_view NameOf(SlowPart::Drive tells) {
  switch (tells) {
    case SlowPart::Drive::kTells: return "told";
    case SlowPart::Drive::kIsSilent: return "silent";
    case SlowPart::Drive::kWasQuick: return "quick";
    case SlowPart::Drive::kKnowsNothing: break;
  }
  return "unknown";
}

Json JsonOf(const SlowPart& part) {
  const uint64_t connection = part.waited ? part.waited->connection : part.at_drive->connection;
  const uint64_t sequence = part.waited ? part.waited->sequence : part.at_drive->sequence;
  Json json{{"drive", part.drive},
            {"address", part.address},
            {"connection", fmt::format("{:016x}", connection)},
            {"sequence", fmt::format("{:016x}", sequence)},
            {"request", RequestWord(part.waited ? part.waited->type : part.at_drive->type)},
            {"seconds", Seconds(part.took())},
            {"answered", part.waited ? Json(part.waited->answered) : Json(true)},
            {"drive_says", NameOf(part.tells)},
            {"at_drive", nullptr}};
  if (part.at_drive) {
    const SlowRequest& request = *part.at_drive;
    json["at_drive"] = {{"seconds", Seconds(request.took)},
                        {"queue_seconds", Seconds(request.queue)},
                        {"held_seconds", Seconds(request.held)},
                        {"disk_seconds", Seconds(request.store)},
                        {"sync_seconds", Seconds(request.sync)},
                        {"record", request.record},
                        {"bytes", request.bytes},
                        {"status", StatusCodeName(request.status)}};
  }
  return json;
}

Json JsonOf(const SlowEntry& entry) {
  Json json{{"time", TimeText(entry.ended)},
            {"seconds", Seconds(entry.took)},
            {"client", JsonOf(entry.client)},
            {"operation", nullptr},
            {"requests", Json::array()}};
  if (entry.operation) {
    const SlowOperation& operation = *entry.operation;
    json["operation"] = {{"id", fmt::format("{:016x}", operation.id)},
                         {"name", operation.operation},
                         {"subject", operation.subject},
                         {"drives_seconds", Seconds(operation.drives)},
                         {"memory_seconds", Seconds(operation.memory)},
                         {"turn_seconds", Seconds(operation.turn)}};
  }
  for (const SlowPart& part : entry.parts) json["requests"].push_back(JsonOf(part));
  return json;
}

}  // namespace

std::string SlowText(const std::vector<SlowEntry>& entries, const ClusterSlow& slow,
                     const SlowFilter& filter) {
  std::string text;
  for (const SlowEntry& entry : entries) text += EntryText(entry);
  if (entries.empty()) text = fmt::format("nothing took long since {}\n", TimeText(filter.since));
  for (const ClusterSlow::OfDrive& drive : slow.drives) {
    if (drive.slow.has_value()) continue;
    text += fmt::format("drive {} ({}) does not tell: {}\n", drive.id,
                        drive.address.empty() ? "-" : drive.address,
                        drive.slow.error().WithoutDriveName());
  }
  return text;
}

std::string SlowJson(const std::vector<SlowEntry>& entries, const ClusterSlow& slow) {
  Json json{{"slow", Json::array()}, {"silent_drives", Json::array()}};
  for (const SlowEntry& entry : entries) json["slow"].push_back(JsonOf(entry));
  for (const ClusterSlow::OfDrive& drive : slow.drives) {
    if (drive.slow.has_value()) continue;
    json["silent_drives"].push_back(
        {{"drive", drive.id}, {"address", drive.address}, {"why", drive.slow.error().message()}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pinstripe
