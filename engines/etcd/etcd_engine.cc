#include "engines/etcd/etcd_engine.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "drive/limits.h"
#include "engines/engine_checks.h"
#include "engines/etcd/link.h"
#include "engines/etcd/look.h"
#include "engines/etcd/plan.h"
#include "engines/etcd/txn.h"

namespace pinstripe {
namespace {

using etcdserverpb::TxnResponse;

// How often others may change the same records in between before changes are made one by one, and
// how often at all: somebody who answers that often is no etcd.
constexpr int kTogetherTries = 3;
constexpr int kMostTries = 200;

constexpr size_t kPageBytes = 4 << 20;  // about what an answer has at most
constexpr uint32_t kFirstPage = 256;
constexpr uint32_t kLeastPage = 16;

}  // namespace

// How many records are asked for at once, as the last ones were.
class EtcdEngine::Link : public EtcdLink {
 public:
  using EtcdLink::EtcdLink;

  uint32_t page() const { return page_; }
  void LearnPage(size_t records, size_t bytes) {
    if (records == 0) return;
    const size_t fits = kPageBytes / std::max<size_t>(1, bytes / records);
    // Larger only bit by bit: others may be larger than these.
    page_ = static_cast<uint32_t>(std::clamp<size_t>(std::min<size_t>(fits, 2 * size_t{page_}),
                                                     kLeastPage, kMaxRangeRecords));
  }

 private:
  std::atomic<uint32_t> page_ = kFirstPage;
};

// A batch on its way: at first as one transaction, then in parts where it has to be.
class EtcdEngine::Batch : public std::enable_shared_from_this<Batch> {
 public:
  Batch(Link& link, EngineBatch batch, const Terms& terms, Callback<EngineAnswer> done)
      : link_(link), batch_(std::move(batch)), terms_(terms), done_(std::move(done)) {}

  void Start(std::string store) {
    fence_ = {.id = std::move(store), .version = terms_.cluster_version};
    std::vector<size_t> sizes;
    for (const EngineChange& change : batch_.changes) {
      encoded_.push_back(change.put ? EncodeEngineRecord(*change.put) : std::string());
      sizes.push_back(encoded_.back().size());
    }
    for (size_t first = 0; first < batch_.changes.size();) {
      const size_t count = CountTogether(std::span(batch_.changes).subspan(first),
                                         std::span<const size_t>(sizes).subspan(first));
      parts_.push_back({first, count});
      first += count;
    }
    if (parts_.empty() && !batch_.reads.empty()) parts_.push_back({0, 0});
    Next();
  }

 private:
  struct Part {
    size_t first = 0;
    size_t count = 0;
  };

  std::span<const EngineChange> Changes() const {
    return std::span(batch_.changes).subspan(parts_.front().first, parts_.front().count);
  }

  void Next() {
    if (parts_.empty()) {
      if (!is_made_) return link_.client().RunSoon([self = shared_from_this()] { self->Done(); });
      return Done();
    }
    const Part part = parts_.front();
    plan_ = PlanChanges(Changes(), seen_ ? &*seen_ : nullptr);
    if (seen_ && plan_.effects.empty() && part.count > 0) {
      // Nothing is to be done, and why was seen at one moment.
      return Made(nullptr);
    }
    is_last_ = parts_.size() == 1;
    link_.Ask({.request = AskPlan(link_.keys(), fence_, plan_, Changes(),
                                  std::span<const std::string>(encoded_).subspan(part.first),
                                  is_last_ ? batch_.reads : std::span<const std::string>()),
               .changes = !plan_.effects.empty(),
               .deadline = terms_.deadline,
               .store = fence_.id,
               .done = [self = shared_from_this()](const Status& status, TxnResponse& answer) {
                 self->OnAnswer(status, answer);
               }});
  }

  void OnAnswer(const Status& status, TxnResponse& answer) {
    if (status.code() == ENOSPC && parts_.front().count > 1) return Split();
    if (status.code() == EMSGSIZE) return Stop(Fail(EBADMSG, "{}", status.message()));
    if (!status.ok()) return Stop(status);
    if (answer.succeeded()) return Made(&answer);
    if (++tries_ > kMostTries) return Stop(Fail(EHOSTUNREACH, "etcd contradicts itself"));
    auto seen = SeenIn(link_.keys(), Changes(), answer);
    if (!seen) return Stop(seen.error());
    link_.MeetFence(answer, fence_, terms_.deadline,
                    [self = shared_from_this(), seen = *std::move(seen)](const Status& status) {
                      if (!status.ok()) return self->Stop(status);
                      self->seen_ = seen;
                      const bool is_single = self->parts_.front().count <= 1;
                      if (self->tries_ % kTogetherTries == 0 && !is_single) return self->Split();
                      self->Next();
                    });
  }

  // What the first part has was not done: its halves are next.
  void Split() {
    const Part part = parts_.front();
    const size_t half = part.count / 2;
    parts_.front() = {part.first + half, part.count - half};
    parts_.push_front({part.first, half});
    seen_.reset();
    Next();
  }

  // Null: nothing had to be done.
  void Made(TxnResponse* answer) {
    is_made_ = true;
    std::ranges::move(plan_.answers, std::back_inserter(answer_.changes));
    parts_.pop_front();
    seen_.reset();
    if (answer != nullptr && is_last_) {
      answer_.reads = ReadsIn(link_.keys(), plan_.effects.size(), batch_.reads, *answer);
    } else if (parts_.empty() && !batch_.reads.empty()) {
      parts_.push_back({batch_.changes.size(), 0});
    }
    Next();
  }

  // What was done before stays done: only the rest has failed.
  void Stop(const Status& why) {
    if (answer_.changes.empty()) {
      return std::exchange(done_, nullptr)(tl::unexpected(why));
    }
    answer_.changes.resize(batch_.changes.size(), why);
    answer_.reads.assign(batch_.reads.size(), tl::unexpected(why));
    Done();
  }
  void Done() { std::exchange(done_, nullptr)(std::move(answer_)); }

  Link& link_;
  const EngineBatch batch_;
  const Terms terms_;
  Callback<EngineAnswer> done_;
  EtcdFence fence_;
  std::vector<std::string> encoded_;
  std::deque<Part> parts_;  // that are left
  std::optional<EtcdSeenRecords> seen_;
  EtcdPlan plan_;
  EngineAnswer answer_;
  int tries_ = 0;
  bool is_last_ = false;  // the transaction that was sent has the reads
  bool is_made_ = false;  // some of it
};

// A page of a listing. It is what one transaction gives, so that it is how things were at one
// moment. From the end backwards etcd reads the whole range first, to sort it.
class EtcdEngine::Listing : public std::enable_shared_from_this<Listing> {
 public:
  Listing(Link& link, EngineRange range, const Terms& terms, Callback<RangeRecords> done)
      : link_(link), range_(std::move(range)), terms_(terms), done_(std::move(done)) {}

  void Start(std::string store) {
    fence_ = {.id = std::move(store), .version = terms_.cluster_version};
    max_ = std::min(range_.max, link_.page());
    Send();
  }

 private:
  void Send() {
    link_.Ask({.request = AskList(link_.keys(), fence_, range_, max_),
               .deadline = terms_.deadline,
               .store = fence_.id,
               .done = [self = shared_from_this()](const Status& status, TxnResponse& answer) {
                 self->OnAnswer(status, answer);
               }});
  }

  void OnAnswer(const Status& status, TxnResponse& answer) {
    if (status.code() == EMSGSIZE && max_ > 1) {
      max_ = std::max<uint32_t>(1, max_ / 4);
      return Send();
    }
    if (status.code() == EMSGSIZE) return done_(Fail(EBADMSG, "{}", status.message()));
    if (!status.ok()) return done_(tl::unexpected(status));
    if (answer.succeeded()) {
      Result<EtcdPage> page = PageIn(link_.keys(), range_, max_, answer);
      if (!page) return done_(tl::unexpected(page.error()));
      link_.LearnPage(page->records.records.size(), page->bytes);
      return done_(std::move(page->records));
    }
    if (++tries_ > kMostTries) return done_(Fail(EHOSTUNREACH, "etcd contradicts itself"));
    link_.MeetFence(answer, fence_, terms_.deadline,
                    [self = shared_from_this()](const Status& status) {
                      if (!status.ok()) return self->done_(tl::unexpected(status));
                      self->Send();
                    });
  }

  Link& link_;
  const EngineRange range_;
  const Terms terms_;
  const Callback<RangeRecords> done_;
  EtcdFence fence_;
  uint32_t max_ = 1;
  int tries_ = 0;
};

EtcdEngine::EtcdEngine(Runtime& runtime, EngineOptions options)
    : link_(std::make_unique<Link>(runtime, std::move(options))) {}

EtcdEngine::~EtcdEngine() {
  StopTelling();
  link_->End();
}

void EtcdEngine::Start(Listener& listener) { link_->Start(listener); }
void EtcdEngine::StopTelling() { link_->StopTelling(); }
uint64_t EtcdEngine::CountRequests() const { return link_->client().CountCalls(); }

void EtcdEngine::Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) {
  Status wrong = CheckBatch(batch);
  const Result<std::string> store = link_->Reached();
  if (wrong.ok() && !store) wrong = store.error();
  if (!wrong.ok()) {
    return link_->client().RunSoon(
        [wrong, done = std::move(done)] { done(tl::unexpected(wrong)); });
  }
  std::make_shared<Batch>(*link_, std::move(batch), terms, std::move(done))->Start(*store);
}

void EtcdEngine::List(EngineRange range, Terms terms, Callback<RangeRecords> done) {
  Status wrong =
      CheckRange(range.first, range.last, "a list of records", range.max, kMaxRangeRecords);
  const Result<std::string> store = link_->Reached();
  if (wrong.ok() && !store) wrong = store.error();
  if (!wrong.ok()) {
    return link_->client().RunSoon(
        [wrong, done = std::move(done)] { done(tl::unexpected(wrong)); });
  }
  if (range.first > range.last) {
    return link_->client().RunSoon([done = std::move(done)] { done(RangeRecords()); });
  }
  std::make_shared<Listing>(*link_, std::move(range), terms, std::move(done))->Start(*store);
}

void EtcdEngine::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  const Result<std::string> store = link_->Reached();
  if (!store) {
    return link_->client().RunSoon([why = store.error(), done = std::move(done)] { done(why); });
  }
  // Look, then set what was seen, until nobody has set it in between.
  struct Setting : std::enable_shared_from_this<Setting> {
    Link& link;
    const EtcdStore wanted;
    const Time deadline;
    const StatusCallback done;
    Setting(Link& link, EtcdStore wanted, Time deadline, StatusCallback done)
        : link(link), wanted(std::move(wanted)), deadline(deadline), done(std::move(done)) {}

    void Ask(etcdserverpb::TxnRequest request, bool changes) {
      link.Ask({.request = std::move(request),
                .changes = changes,
                .deadline = deadline,
                .store = wanted.id,
                .done = [self = shared_from_this()](const Status& status, TxnResponse& answer) {
                  if (!status.ok() || answer.succeeded()) return self->done(status);
                  self->OnSeen(answer);
                }});
    }
    void OnSeen(const TxnResponse& answer) {
      link.MeetFence(answer, {.id = wanted.id}, deadline,
                     [self = shared_from_this(), answer](const Status& status) {
                       const auto now = StoreIn(self->link.keys(), answer);
                       if (!status.ok() || !now || !*now) return self->done(status);
                       if (**now == self->wanted) return self->done({});
                       self->Ask(AskToSetStore(self->link.keys(), &**now, self->wanted), true);
                     });
    }
  };
  std::make_shared<Setting>(*link_, EtcdStore{.id = *store, .version = version}, terms.deadline,
                            std::move(done))
      ->Ask(AskStore(link_->keys()), false);
}

void EtcdEngine::LookAt(Terms terms, Callback<EngineState> done) {
  LookAtEtcd(link_->client(), link_->keys(), link_->token(), terms.deadline, std::move(done));
}

std::unique_ptr<NameEngine> NewEtcdEngine(Runtime& runtime, EngineOptions options) {
  return std::make_unique<EtcdEngine>(runtime, std::move(options));
}

}  // namespace pinstripe
