#include "redis/redis_drive.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <utility>

#include "base/checksum.h"
#include "base/try.h"
#include "drive/limits.h"
#include "kinetic/covering_tag.h"
#include "kinetic/drive_link.h"
#include "redis/address.h"
#include "redis/connection.h"
#include "redis/scripts.h"
#include "redis/server_check.h"
#include "redis/stored_record.h"

namespace pinstripe {
namespace {

using Kind = RedisOperation::Kind;
using OperationPtr = RedisConnection::OperationPtr;

constexpr size_t kStoreBytes = 16;
constexpr size_t kListBytes = 4 << 20;  // of a list's values; one more may go beyond
// What a channel is called on which Sentinels speak through a server that they watch.
constexpr std::string_view kSentinelChannel = "__sentinel__:hello";

constexpr DriveCapabilities kCapabilities{.range_get = true,
                                          .version_part = true,
                                          .range_records = true,
                                          .unerased = true,
                                          .guards = true};

std::string RecordKey(std::string_view key) { return fmt::format("{}{}", kRedisRecordPrefix, key); }

// As the scripts take it.
std::string ExpectedText(const Expected& expected) {
  return expected.version() ? "=" + *expected.version() : "*";
}

// A command that only asks.
OperationPtr NewCommand(std::vector<std::string> words, Time deadline, RedisOperation::Done done) {
  auto operation = std::make_shared<RedisOperation>(Kind::kRead, deadline, std::move(done));
  operation->words = std::move(words);
  return operation;
}

// Keys and arguments as scripts.cc has them, without the store and the fence.
OperationPtr NewScript(Kind kind, RedisScript script, std::vector<std::string> keys,
                       std::vector<std::string> arguments, const Terms& terms,
                       RedisOperation::Done done) {
  auto operation = std::make_shared<RedisOperation>(kind, terms.deadline, std::move(done));
  operation->script = script;
  operation->keys = std::move(keys);
  operation->keys.insert(operation->keys.begin(), std::string(kRedisDriveKey));
  operation->words = std::move(arguments);
  operation->words.insert(operation->words.begin(), FenceText(terms.cluster_version));
  return operation;
}

Failed Strange(std::string_view asked) {
  return Fail(EBADMSG, "its answer to {} cannot be understood", asked);
}

// --- What scripts answered

// Success where the script did what it was asked for.
Status StatusOf(const RedisReply& reply) {
  const SharedBytes* word = reply.TextAt(0);
  if (word == nullptr) return Strange("a script");
  const std::string_view text = word->text();
  if (text == "ok") return {};
  if (text == "none") return Fail(ENOENT, "no such key");
  if (text == "stale") return Fail(ESTALE, "the record has another version");
  if (text == "guard") return Fail(ECANCELED, "the guard has another version");
  if (text == "damaged") return Fail(EBADMSG, "the record is damaged, or is not one of ours");
  if (text == "later") {
    const SharedBytes* version = reply.TextAt(1);
    const auto has = ParseFence(version == nullptr ? std::string_view() : version->text());
    return Fail(EREMCHG, "it has cluster version {}", has.value_or(INT64_MAX));
  }
  return Strange("a script");
}

Result<Record> WholeRecord(const RedisReply& reply) {
  TRY(StatusOf(reply));
  const SharedBytes* stored = reply.TextAt(1);
  if (stored == nullptr) return Strange("a get");
  Record record = TRY(ParseStored(*stored));
  TRY(CheckSize("it sent a value", record.value.size(), 0, kMaxValueBytes));
  if (record.tag.size() == sizeof(uint32_t) && record.tag != CoveringTag(record.value)) {
    return Fail(EBADMSG, "its record does not match the checksum that it was stored with");
  }
  return record;
}

Result<Record> PartOfRecord(const RedisReply& reply, const ValueRange& range) {
  TRY(StatusOf(reply));
  const SharedBytes* value = reply.TextAt(1);
  const SharedBytes* version = reply.TextAt(2);
  const SharedBytes* tag = reply.TextAt(3);
  if (value == nullptr || version == nullptr || tag == nullptr) return Strange("a get");
  const bool fits = value->size() <= std::min<size_t>(range.length, kMaxValueBytes) &&
                    version->size() <= kMaxVersionBytes && tag->size() <= kMaxTagBytes;
  if (!fits) return Strange("a get");
  return Record{
      .version = std::string(version->text()), .tag = std::string(tag->text()), .value = *value};
}

// Keys of a range as it has to be: between its ends, and one after the other.
class KeyOrder {
 public:
  KeyOrder(std::string first, std::string last, bool reverse)
      : first_(std::move(first)), last_(std::move(last)), reverse_(reverse) {}

  bool Take(std::string_view key) {
    const bool inside = key >= first_ && key <= last_;
    const bool follows = !any_ || (reverse_ ? key < before_ : key > before_);
    before_ = key;
    any_ = true;
    return inside && follows;
  }

 private:
  const std::string first_;
  const std::string last_;
  const bool reverse_;
  bool any_ = false;
  std::string before_;
};

Failed WrongKeys() { return Fail(EBADMSG, "it answered with keys that were not asked for"); }

Result<std::vector<std::string>> KeysOf(const RedisReply& reply, KeyOrder order, uint32_t max) {
  TRY(StatusOf(reply));
  if (reply.list.size() != 2 || !reply.list[1]->IsList()) return Strange("a range");
  const RedisReply& found = *reply.list[1];
  if (found.list.size() > max) return WrongKeys();
  std::vector<std::string> keys;
  for (size_t i = 0; i < found.list.size(); ++i) {
    const SharedBytes* key = found.TextAt(i);
    if (key == nullptr || !order.Take(key->text())) return WrongKeys();
    keys.emplace_back(key->text());
  }
  return keys;
}

Result<RangeRecord> ListedRecord(std::string_view key, std::string_view kind,
                                 const SharedBytes& bytes) {
  RangeRecord listed;
  listed.key = key;
  listed.has_value = kind == "v";
  listed.damaged = kind == "d";
  if (listed.damaged) return listed;
  if (kind != "v" && kind != "e") return Strange("a list");
  Result<Record> record = ParseStored(bytes);
  if (!record || record->value.size() > kMaxValueBytes ||
      (!listed.has_value && !record->value.empty())) {
    return RangeRecord{.key = std::string(key), .record = {}, .damaged = true};
  }
  listed.record = *std::move(record);
  return listed;
}

Result<RangeRecords> RecordsOf(const RedisReply& reply, KeyOrder order, uint32_t max) {
  TRY(StatusOf(reply));
  const SharedBytes* more = reply.TextAt(1);
  if (more == nullptr || reply.list.size() != 3 || !reply.list[2]->IsList()) {
    return Strange("a list");
  }
  const RedisReply& found = *reply.list[2];
  if (found.list.size() % 3 != 0 || found.list.size() / 3 > max) return WrongKeys();
  RangeRecords records;
  records.more = more->text() == "1";
  for (size_t i = 0; i < found.list.size(); i += 3) {
    const SharedBytes* key = found.TextAt(i);
    const SharedBytes* kind = found.TextAt(i + 1);
    const SharedBytes* bytes = found.TextAt(i + 2);
    if (key == nullptr || kind == nullptr || bytes == nullptr) return Strange("a list");
    if (!order.Take(key->text())) return WrongKeys();
    records.records.push_back(TRY(ListedRecord(key->text(), kind->text(), *bytes)));
  }
  if (records.more && records.records.empty()) return Strange("a list");
  return records;
}

// Names and values, one after the other.
RedisFacts FactsOf(const RedisReply& reply) {
  RedisFacts facts;
  for (size_t i = 0; i + 1 < reply.list.size(); i += 2) {
    const SharedBytes* name = reply.TextAt(i);
    const SharedBytes* value = reply.TextAt(i + 1);
    if (name != nullptr && value != nullptr) facts.emplace(name->text(), value->text());
  }
  return facts;
}

// What `done` is told of a reply: what `interpret` makes of it.
template <typename T, typename Interpret>
RedisOperation::Done Answer(std::string_view drive, Callback<T> done, Interpret interpret) {
  return [drive = std::string(drive), interpret = std::move(interpret),
          done = std::move(done)](const Result<RedisReply>& reply) {
    if (!reply) return done(tl::unexpected(reply.error()));
    Result<T> answer = interpret(*reply);
    if (!answer) answer = tl::unexpected(answer.error().OfDrive(drive));
    done(std::move(answer));
  };
}

RedisOperation::Done AnswerStatus(std::string_view drive, StatusCallback done) {
  return [drive = std::string(drive), done = std::move(done)](const Result<RedisReply>& reply) {
    done(reply ? StatusOf(*reply).OfDrive(drive) : reply.error());
  };
}

// --- Several questions, sent one behind the other

// What a server told of itself.
struct Told {
  explicit Told(std::string_view drive_in) : drive(drive_in) {}

  const std::string drive;  // for messages
  size_t awaited = 0;
  RedisFacts info;
  RedisFacts settings;
  int64_t sentinels = 0;
  Status failure;  // the first one
  std::function<void(const Told&)> done;

  Status Check() const { return CheckRedisServer(info, settings, sentinels); }
};
using Take = std::function<Status(const RedisReply&)>;

// Who waits for one more reply before `told` is done.
RedisOperation::Done OneOf(const std::shared_ptr<Told>& told, Take take) {
  ++told->awaited;
  return [told, take = std::move(take)](const Result<RedisReply>& reply) {
    const Status status = reply ? take(*reply).OfDrive(told->drive) : reply.error();
    if (told->failure.ok()) told->failure = status;
    if (--told->awaited == 0) std::exchange(told->done, {})(*told);
  };
}

OperationPtr AskInfo(const std::shared_ptr<Told>& told, Time deadline) {
  return NewCommand({"INFO"}, deadline,
                    OneOf(told, [told = told.get()](const RedisReply& reply) -> Status {
                      if (!reply.IsText()) return Strange("INFO");
                      told->info = ParseRedisInfo(reply.text());
                      return {};
                    }));
}

OperationPtr AskSettings(const std::shared_ptr<Told>& told, std::vector<std::string> names,
                         Time deadline) {
  names.insert(names.begin(), {"CONFIG", "GET"});
  return NewCommand(std::move(names), deadline,
                    OneOf(told, [told = told.get()](const RedisReply& reply) {
                      told->settings = FactsOf(reply);
                      return Status();
                    }));
}

// All that Told::Check() needs.
std::vector<OperationPtr> AskServer(const std::shared_ptr<Told>& told, Time deadline) {
  std::vector<OperationPtr> questions;
  questions.push_back(AskInfo(told, deadline));
  questions.push_back(AskSettings(told, SettingsToCheck(), deadline));
  questions.push_back(
      NewCommand({"PUBSUB", "NUMSUB", std::string(kSentinelChannel)}, deadline,
                 OneOf(told, [told = told.get()](const RedisReply& reply) -> Status {
                   if (reply.list.size() != 2) return Strange("PUBSUB NUMSUB");
                   told->sentinels = reply.list[1]->integer;
                   return {};
                 })));
  return questions;
}

bool IsHex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace

// The drive's way to its store. Shakes hands in three steps: what the server is, and the scripts;
// which store it is; the identity of the drive.
class RedisDrive::Link final : public DriveLink<RedisConnection> {
 public:
  Link(KineticIo& io, Options options);

  const Options& options() const { return options_; }
  void SubmitInfo(const Terms& terms, Callback<DriveInfo> done);
  void SubmitFlush(const Terms& terms, StatusCallback done);
  // A script that changes something and tells no more than that. Where it has to be safe from power
  // loss, with a look whether the server still sees to that.
  OperationPtr NewChange(RedisScript script, std::vector<std::string> keys,
                         std::vector<std::string> arguments, Durability durability,
                         const Terms& terms, StatusCallback done);

  void OnGreeting() override;

 private:
  // What is known of the store of the connection that is tried or up.
  struct Store {
    std::string id;
    std::vector<std::string> starts;
    uint64_t start_count = 0;
  };

  Result<std::shared_ptr<RedisConnection>> NewConnection(const std::string& host,
                                                         const SocketAddress& address) override {
    return RedisConnection::Start(loop(), host, address, connection_options_, *this);
  }
  // Calls with an answer, if the connection that was asked is still the one that is tried. What is
  // on its way to it may come back when the link is gone.
  template <typename Answer>
  std::function<void(const Answer&)> WhileTrying(std::function<void(const Answer&)> go_on) {
    return [this, weak = weak_from_this(), asked = trying().get(),
            go_on = std::move(go_on)](const Answer& answer) {
      const auto self = weak.lock();
      if (self != nullptr && trying().get() == asked) go_on(answer);
    };
  }
  void OnTold(const Told& told);
  void OnStore(const Result<RedisReply>& reply, const RedisFacts& info);
  Status LearnStore(const RedisReply& reply);
  void CheckIdentity(const RedisFacts& info);
  DriveInfo InfoOf(const RedisFacts& info) const;
  std::string CurrentRun() const;  // empty: it is not known
  // Leaves a server that is not to be relied on any more.
  void GiveUp(const Status& why) {
    if (const auto lost = connection()) lost->GiveUp(why);
  }

  const Options options_;
  const int database_;
  const std::shared_ptr<const RedisConnection::Options> connection_options_;

  mutable Mutex mutex_;
  Store store_ GUARDED_BY(mutex_);
};

RedisDrive::Link::Link(KineticIo& io, Options options)
    : DriveLink(io, {.name = options.name,
                     .addresses = options.addresses,
                     .parse = ParseAnyDriveAddress,
                     .connect_timeout = options.connect_timeout,
                     .least_backoff = options.least_backoff,
                     .most_backoff = options.most_backoff,
                     .idle_timeout = options.idle_timeout}),
      options_(std::move(options)),
      database_(ParseRedisAddress(options_.addresses.front()).value_or(RedisAddress()).database),
      connection_options_(std::make_shared<RedisConnection::Options>(
          RedisConnection::Options{.drive = std::string(name()),
                                   .tls = options_.tls,
                                   .max_in_flight = options_.max_in_flight,
                                   .patience = options_.patience,
                                   .times = options_.times})) {}

// --- Shaking hands

// All of it at once: the answers come in this order.
void RedisDrive::Link::OnGreeting() {
  const Time deadline = try_deadline();
  const auto told = std::make_shared<Told>(name());
  told->done = WhileTrying<Told>([this](const Told& all) { OnTold(all); });
  const auto any = [](const RedisReply&) { return Status(); };
  std::vector<OperationPtr> questions;
  if (!options_.password.empty()) {
    std::vector<std::string> words = {"AUTH"};
    if (!options_.user.empty()) words.push_back(options_.user);
    words.push_back(options_.password);
    questions.push_back(NewCommand(std::move(words), deadline, OneOf(told, any)));
    questions.back()->is_secret = true;
  }
  if (database_ != 0) {
    questions.push_back(
        NewCommand({"SELECT", std::to_string(database_)}, deadline, OneOf(told, any)));
  }
  std::ranges::move(AskServer(told, deadline), std::back_inserter(questions));
  for (const RedisScript script : kRedisScripts) {
    const auto learn = [connection = trying().get(), script](const RedisReply& reply) -> Status {
      constexpr size_t kSumBytes = 40;
      if (!reply.IsText() || reply.text().size() != kSumBytes || !IsHex(reply.text())) {
        return Strange("SCRIPT LOAD");
      }
      connection->Know(script, std::string(reply.text()));
      return {};
    };
    questions.push_back(
        NewCommand({"SCRIPT", "LOAD", TextOf(script)}, deadline, OneOf(told, learn)));
  }
  const std::shared_ptr<RedisConnection> connection = trying();
  for (OperationPtr& each : questions) connection->Submit(std::move(each));
}

void RedisDrive::Link::OnTold(const Told& told) {
  // Where it told what it is, what it lacks says more than what failed because of that. Silence is
  // something else.
  const bool is_silent = told.failure.code() == ETIMEDOUT;
  Status server = told.info.empty() || is_silent ? told.failure : told.Check();
  if (server.ok()) server = told.failure;
  if (server.ok()) server = CheckRedisFile(told.info);
  if (!server.ok()) return Refuse(server);
  const auto run = told.info.find("run_id");
  constexpr size_t kMostRunBytes = 64;
  if (run == told.info.end() || run->second.size() > kMostRunBytes || !IsHex(run->second)) {
    return Refuse(Fail(EHOSTUNREACH, "it does not tell its run_id"));
  }
  std::string id(kStoreBytes, '\0');
  for (char& each : id) each = static_cast<char>(runtime().Random());
  auto operation = std::make_shared<RedisOperation>(
      Kind::kWrite, try_deadline(),
      WhileTrying<Result<RedisReply>>(
          [this, info = told.info](const auto& reply) { OnStore(reply, info); }));
  operation->script = RedisScript::kConnect;
  for (const std::string_view key :
       {kRedisDriveKey, kRedisStartsKey, kRedisKeysKey, kRedisProbeKey}) {
    operation->keys.emplace_back(key);
  }
  operation->words = {std::move(id), run->second};
  trying()->Submit(std::move(operation));
}

void RedisDrive::Link::OnStore(const Result<RedisReply>& reply, const RedisFacts& info) {
  const Status learned = reply ? LearnStore(*reply) : reply.error();
  if (!learned.ok()) return Refuse(learned);
  CheckIdentity(info);
}

Status RedisDrive::Link::LearnStore(const RedisReply& reply) {
  constexpr std::string_view kAsked = "the question which store it is";
  constexpr size_t kMostStartBytes = 100;
  TRY(StatusOf(reply));
  const SharedBytes* id = reply.TextAt(1);
  const SharedBytes* count = reply.TextAt(2);
  if (id == nullptr || id->size() != kStoreBytes || count == nullptr || reply.list.size() != 4) {
    return Strange(kAsked);
  }
  const RedisReply& runs = *reply.list[3];
  if (runs.list.empty() || runs.list.size() > kMaxDriveStarts) return Strange(kAsked);
  Store store{.id = std::string(id->text())};
  std::from_chars(count->text().data(), count->text().data() + count->size(), store.start_count);
  for (size_t i = 0; i < runs.list.size(); ++i) {
    const SharedBytes* run = runs.TextAt(i);
    if (run == nullptr || run->size() > kMostStartBytes) return Strange(kAsked);
    store.starts.emplace_back(run->text());
  }
  trying()->SetStore(store.id);
  const MutexLock lock(mutex_);
  store_ = std::move(store);
  return {};
}

void RedisDrive::Link::CheckIdentity(const RedisFacts& info) {
  if (!options_.check_identity) return Up(CurrentRun());
  DriveInfo told = InfoOf(info);
  told.goes_on = GoesOn(CurrentRun());
  const auto go_on = [this, info = std::move(told)](const Result<RedisReply>& reply) {
    const Result<Record> record = reply ? WholeRecord(*reply) : tl::unexpected(reply.error());
    if (!record && record.error().code() == ETIMEDOUT) return Refuse(record.error());
    const Status right = options_.check_identity(record, info);
    right.ok() ? Up(CurrentRun()) : Refuse(right);
  };
  trying()->Submit(NewScript(Kind::kRead, RedisScript::kGet, {RecordKey(options_.identity_key)},
                             {""}, try_deadline(), WhileTrying<Result<RedisReply>>(go_on)));
}

// --- What takes several questions

DriveInfo RedisDrive::Link::InfoOf(const RedisFacts& info) const {
  const MutexLock lock(mutex_);
  return InfoOfRedis(info, store_.id, store_.starts, store_.start_count);
}

std::string RedisDrive::Link::CurrentRun() const {
  const MutexLock lock(mutex_);
  return store_.starts.empty() ? "" : store_.id + store_.starts.front();  // erased, it is another
}

void RedisDrive::Link::SubmitInfo(const Terms& terms, Callback<DriveInfo> done) {
  const auto self = std::static_pointer_cast<Link>(shared_from_this());
  const auto told = std::make_shared<Told>(name());
  told->done = [self, done = std::move(done)](const Told& all) {
    if (!all.failure.ok()) return done(tl::unexpected(all.failure));
    done(self->InfoOf(all.info));
  };
  OperationPtr look =
      NewScript(Kind::kRead, RedisScript::kLook, {}, {}, terms, OneOf(told, StatusOf));
  look->followers.push_back(AskInfo(told, terms.deadline));
  Submit({}, std::move(look));
}

// Everything that was answered is on the server's disk, unless it is another store by now, or
// somebody has told the server to answer before. Then it is left, and refused from now on.
void RedisDrive::Link::SubmitFlush(const Terms& terms, StatusCallback done) {
  const auto self = std::static_pointer_cast<Link>(shared_from_this());
  const auto told = std::make_shared<Told>(name());
  told->done = [self, done = std::move(done)](const Told& all) {
    if (!all.failure.ok()) return done(all.failure);
    const Status status = all.Check();
    if (!status.ok()) self->GiveUp(status);
    done(status.OfDrive(self->name()));
  };
  OperationPtr look =
      NewScript(Kind::kRead, RedisScript::kLook, {}, {}, terms, OneOf(told, StatusOf));
  look->followers = AskServer(told, terms.deadline);
  Submit({}, std::move(look));
}

OperationPtr RedisDrive::Link::NewChange(RedisScript script, std::vector<std::string> keys,
                                         std::vector<std::string> arguments, Durability durability,
                                         const Terms& terms, StatusCallback done) {
  if (durability == Durability::kWriteBack) {
    return NewScript(Kind::kWrite, script, std::move(keys), std::move(arguments), terms,
                     AnswerStatus(name(), std::move(done)));
  }
  const auto self = std::static_pointer_cast<Link>(shared_from_this());
  const auto told = std::make_shared<Told>(name());
  told->done = [self, done = std::move(done)](const Told& all) {
    if (!all.failure.ok()) return done(all.failure);
    const Status syncs = CheckRedisSyncs(all.settings);
    if (!syncs.ok()) self->GiveUp(syncs);
    done(syncs.OfDrive(self->name()));
  };
  OperationPtr change = NewScript(Kind::kWrite, script, std::move(keys), std::move(arguments),
                                  terms, OneOf(told, StatusOf));
  change->followers.push_back(AskSettings(told, SyncSettings(), terms.deadline));
  return change;
}

// --- The drive

RedisDrive::RedisDrive(KineticIo& io, Options options)
    : io_(io),
      link_(std::make_unique<CurrentLink<Link>>(std::make_shared<Link>(io, std::move(options)))) {}

RedisDrive::~RedisDrive() = default;

void RedisDrive::Redirect(const Options& way) {
  link_->Replace([&](const Link& former) {
    Options options = former.options();
    options.addresses = way.addresses;
    options.user = way.user;
    options.password = way.password;
    options.tls = way.tls;
    return std::make_shared<Link>(io_, std::move(options));
  });
}

std::shared_ptr<RedisDrive::Link> RedisDrive::link() const { return link_->get(); }

std::string_view RedisDrive::name() const { return link()->name(); }
DriveCapabilities RedisDrive::capabilities() const { return kCapabilities; }
bool RedisDrive::IsUp() const { return link()->IsUp(); }
const DriveTimes* RedisDrive::times() const { return link()->options().times.get(); }

std::string RedisDrive::WhyAway() const {
  const std::string why = link()->WhyAway();
  return why.empty() ? Drive::WhyAway() : why;
}

uint64_t RedisDrive::CountLosses() const { return link_->CountLosses(); }

void RedisDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  Status valid = CheckKey(key);
  const bool whole = range.whole() && range.version.whole();
  std::vector<std::string> arguments = {""};
  if (!whole) {
    const VersionPart& version = range.version;
    arguments = {std::to_string(range.offset), std::to_string(range.length),
                 std::to_string(version.head), std::to_string(version.offset),
                 std::to_string(version.length)};
  }
  const std::shared_ptr<Link> link = this->link();
  const auto interpret = [whole, range](const RedisReply& reply) {
    return whole ? WholeRecord(reply) : PartOfRecord(reply, range);
  };
  link->Submit(std::move(valid),
               NewScript(Kind::kRead, RedisScript::kGet, {RecordKey(key)}, std::move(arguments),
                         terms, Answer<Record>(link->name(), std::move(done), interpret)));
}

void RedisDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  Get(std::move(key), {.length = 0}, terms, [done = std::move(done)](Result<Record> record) {
    if (!record) return done(tl::unexpected(record.error()));
    done(RecordHead{.version = std::move(record->version), .tag = std::move(record->tag)});
  });
}

void RedisDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  Status valid = CheckPut(request);
  if (request.tag.empty() && !request.value.empty()) request.tag = CoveringTag(request.value);
  std::vector<std::string> keys = {RecordKey(request.key), std::string(kRedisKeysKey)};
  if (request.guard) keys.push_back(RecordKey(request.guard->key));
  std::vector<std::string> arguments = {request.key, StoredEnd(request.version, request.tag),
                                        ExpectedText(request.expected)};
  if (request.guard) arguments.push_back(request.guard->expected.version().value_or(""));
  const std::shared_ptr<Link> link = this->link();
  OperationPtr operation = link->NewChange(RedisScript::kPut, std::move(keys), std::move(arguments),
                                           request.durability, terms, std::move(done));
  operation->value = std::move(request.value);
  operation->value_word = 2;  // before the end of the record, which follows the fence and the key
  link->Submit(std::move(valid), std::move(operation));
}

void RedisDrive::Delete(std::string key, Expected expected, Durability durability, Terms terms,
                        StatusCallback done) {
  Status valid = CheckKey(key);
  if (valid.ok()) valid = CheckExpected(expected);
  const std::shared_ptr<Link> link = this->link();
  link->Submit(std::move(valid),
               link->NewChange(RedisScript::kDelete, {RecordKey(key), std::string(kRedisKeysKey)},
                               {key, ExpectedText(expected)}, durability, terms, std::move(done)));
}

void RedisDrive::Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
                       Callback<std::vector<std::string>> done) {
  Status valid = CheckRange(first, last, "a range of keys", max, kMaxRangeKeys);
  const std::shared_ptr<Link> link = this->link();
  const auto interpret = [order = KeyOrder(first, last, reverse), max](const RedisReply& reply) {
    return KeysOf(reply, order, max);
  };
  link->Submit(
      std::move(valid),
      NewScript(Kind::kRead, RedisScript::kRange, {std::string(kRedisKeysKey)},
                {first, last, std::to_string(max), reverse ? "r" : ""}, terms,
                Answer<std::vector<std::string>>(link->name(), std::move(done), interpret)));
}

void RedisDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                             uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  Status valid = CheckRange(first, last, "a list of records", max, kMaxRangeRecords);
  const std::shared_ptr<Link> link = this->link();
  const auto interpret = [order = KeyOrder(first, last, reverse), max](const RedisReply& reply) {
    return RecordsOf(reply, order, max);
  };
  link->Submit(std::move(valid),
               NewScript(Kind::kRead, RedisScript::kList, {std::string(kRedisKeysKey)},
                         {first, last, std::to_string(max + 1), reverse ? "r" : "",
                          std::to_string(value_limit), std::to_string(kListBytes),
                          std::string(kRedisRecordPrefix)},
                         terms, Answer<RangeRecords>(link->name(), std::move(done), interpret)));
}

void RedisDrive::Flush(Terms terms, StatusCallback done) {
  link()->SubmitFlush(terms, std::move(done));
}

void RedisDrive::Info(Terms terms, Callback<DriveInfo> done) {
  link()->SubmitInfo(terms, std::move(done));
}

void RedisDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  const std::shared_ptr<Link> link = this->link();
  link->Submit({},
               link->NewChange(RedisScript::kSetVersion, {}, {FenceText(version)},
                               Durability::kWriteThrough, Terms(terms.deadline), std::move(done)));
}

}  // namespace pinstripe
