#include "upkeep/shards_in_order.h"

namespace pinstripe {

void ArchiveStripe(StateFile& file, StripeId& id) {
  file.Number(id.object);
  file.Number(id.block);
  file.Raw(id.write);
}

const ListedStripe* ShardsInOrder::Peek() {
  if (at_ == page_.size() && !all_listed_) {
    page_ = listing_.Next();
    at_ = 0;
    all_listed_ = page_.empty();
  }
  return page_.empty() ? nullptr : &page_[at_];
}

std::map<DriveId, std::string> ShardsInOrder::unlisted() const {
  std::map<DriveId, std::string> unlisted = unlisted_before_;
  for (const auto& [drive, why] : listing_.unlisted()) unlisted[drive] = why.message();
  return unlisted;
}

// Some that were seen before may be seen again.
std::set<std::pair<DriveId, std::string>> ShardsInOrder::strange_keys() const {
  std::set<std::pair<DriveId, std::string>> strange = strange_before_;
  for (const auto& [drive, key] : listing_.strange_keys()) strange.emplace(drive, key);
  return strange;
}

void ShardsInOrder::Archive(StateFile& file) {
  const ListedStripe* const next = file.reads() ? nullptr : Peek();
  bool ended = next == nullptr;
  file.Number(ended);
  StripeId first = next == nullptr ? StripeId{} : next->id;
  ArchiveStripe(file, first);
  std::map<DriveId, std::string> unlisted = this->unlisted();
  file.Items(unlisted, [&](DriveId& drive, std::string& why) {
    file.Number(drive);
    file.Text(why);
  });
  std::set<std::pair<DriveId, std::string>> strange = strange_keys();
  file.Items(strange, [&](std::pair<DriveId, std::string>& key) {
    file.Number(key.first);
    file.Text(key.second);
  });
  if (!file.reads()) return;
  unlisted_before_ = std::move(unlisted);
  strange_before_ = std::move(strange);
  all_listed_ = ended;
  if (!ended) listing_.StartAt(first);
}

}  // namespace pinstripe
