#include "cluster/registers/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "cluster/map/drive_map.h"
#include "tests/support/gen.h"

namespace pinstripe {
namespace {

ProposalPtr Named(uint64_t nonce) {
  static std::map<uint64_t, ProposalPtr> all;
  ProposalPtr& proposal = all[nonce];
  if (proposal == nullptr)
    proposal = std::make_shared<const Proposal>(Proposal{.nonce = {nonce, 0}});
  return proposal;
}

ReplicaState Accepted(Ballot ballot, uint64_t nonce) { return {ballot, ballot, Named(nonce)}; }
ReplicaState Promised(Ballot promised, ReplicaState state) {
  state.promised = promised;
  return state;
}

TEST(RegisterRules, QuorumsMeetForEveryNumberOfReplicas) {
  for (size_t r = 1; r <= 63; ++r) {
    const Quorums quorums = QuorumsOf(r);
    EXPECT_EQ(quorums.replicas, r);
    EXPECT_GT(2 * quorums.majority, r);         // two majorities
    EXPECT_GE(quorums.fast, quorums.majority);  // what is chosen is on a majority
    EXPECT_LE(quorums.fast, r);
    EXPECT_GT(2 * quorums.fast + quorums.majority, 2 * r);  // two fast quorums and a majority
    EXPECT_LE(2 * (quorums.fast - 1) + quorums.majority, 2 * r)
        << "the smallest that do, r = " << r;
  }
}

// ---- The fast round, against all that the replicas nobody heard of may have done.

constexpr int kSilent = -1;  // not known
constexpr int kNothing = 0;  // accepted nothing in the slot

ReplicaStates FastVotes(const std::vector<int>& votes) {
  ReplicaStates states;
  for (const int vote : votes) {
    if (vote == kSilent) {
      states.emplace_back();
    } else if (vote == kNothing) {
      states.emplace_back(ReplicaState());
    } else {
      states.emplace_back(Accepted(Ballot::Fast(1), static_cast<uint64_t>(vote)));
    }
  }
  return states;
}

size_t Votes(const std::vector<int>& votes, int value) {
  return static_cast<size_t>(std::count(votes.begin(), votes.end(), value));
}

TEST(RegisterRules, OfFastVotesExactlyThatIsTakenWhichMayBeChosen) {
  for (const int r : {1, 3, 5, 7}) {
    const Quorums quorums = QuorumsOf(static_cast<size_t>(r));
    Gen gen;
    while (gen.Next()) {
      std::vector<int> votes;
      for (int i = 0; i < r; ++i) votes.push_back(gen.UpTo(3) - 1);
      const size_t silent = Votes(votes, kSilent);
      if (static_cast<size_t>(r) - silent < quorums.majority) continue;
      std::vector<int> possible;
      for (const int value : {1, 2}) {
        if (Votes(votes, value) + silent >= quorums.fast) possible.push_back(value);
      }
      ASSERT_LE(possible.size(), 1u);
      const ProposalPtr taken = MayBeChosen(quorums, FastVotes(votes), 1);
      // A value that nobody who answered has voted for cannot have been chosen.
      const bool somebody = !possible.empty() && Votes(votes, possible[0]) > 0;
      ASSERT_EQ(possible.empty(), !somebody);
      if (somebody) {
        ASSERT_EQ(taken, Named(static_cast<uint64_t>(possible[0])));
      } else {
        ASSERT_EQ(taken, nullptr);
      }
    }
  }
}

TEST(RegisterRules, FastVotesAreJudgedByWhatIsCertain) {
  for (const int r : {1, 3, 5, 7}) {
    const Quorums quorums = QuorumsOf(static_cast<size_t>(r));
    Gen gen;
    while (gen.Next()) {
      std::vector<int> votes;
      for (int i = 0; i < r; ++i) votes.push_back(gen.UpTo(3) - 1);
      const size_t silent = Votes(votes, kSilent);
      const Finding finding = Judge(quorums, FastVotes(votes));
      if (static_cast<size_t>(r) - silent < quorums.majority) {
        ASSERT_FALSE(finding.chosen.has_value());
        ASSERT_TRUE(finding.more_may_help);
        continue;
      }
      const size_t most = std::max(Votes(votes, 1), Votes(votes, 2));
      if (most == 0) {
        ASSERT_TRUE(finding.chosen.has_value());
        ASSERT_EQ(finding.chosen->slot, 0u);
      } else if (most >= quorums.fast) {
        ASSERT_TRUE(finding.chosen.has_value());
        ASSERT_EQ(finding.chosen->slot, 1u);
        ASSERT_EQ(finding.chosen->proposal, Named(Votes(votes, 1) == most ? 1 : 2));
      } else {
        ASSERT_FALSE(finding.chosen.has_value());
        ASSERT_EQ(finding.more_may_help, most + silent >= quorums.fast);
      }
      ASSERT_EQ(finding.quiet, most == static_cast<size_t>(r) - silent || most == 0);
    }
  }
}

// ---- The whole protocol on three replicas: every order of events there is.

// Two proposers each send their value to all in the fast round of slot 1 and run a classic round;
// when slot 1 is chosen, somebody asks for promises in slot 2. Messages arrive in any order or
// never.
constexpr int kReplicas = 3;
constexpr int kProposers = 2;

class World {
 public:
  struct Replica {
    Ballot promised;
    Ballot accepted;
    uint64_t nonce = 0;
    friend auto operator<=>(const Replica&, const Replica&) = default;
  };
  struct Proposer {
    std::array<std::optional<Replica>, kReplicas> promises;  // as they were when they were given
    uint64_t proposes = 0;                                   // in the classic round; 0: not yet
    friend auto operator<=>(const Proposer&, const Proposer&) = default;
  };
  using Vote = std::tuple<Ballot, uint64_t, int>;  // ballot, value, replica: ever accepted

  friend auto operator<=>(const World&, const World&) = default;

  // All worlds that one event leads to.
  std::vector<World> Next() const {
    std::vector<World> next;
    for (int p = 0; p < kProposers; ++p) {
      for (int i = 0; i < kReplicas; ++i) {
        Fast(p, i, next);
        Prepare(p, i, next);
        Accept(p, i, next);
      }
      Propose(p, next);
    }
    for (int i = 0; i < kReplicas; ++i) PrepareNextSlot(i, next);
    return next;
  }

  std::set<uint64_t> ChosenInSlotOne() const {
    std::map<std::pair<Ballot, uint64_t>, size_t> counts;
    for (const auto& [ballot, nonce, replica] : votes_) ++counts[{ballot, nonce}];
    std::set<uint64_t> chosen;
    const Quorums quorums = QuorumsOf(kReplicas);
    for (const auto& [vote, count] : counts) {
      if (count >= (vote.first.fast() ? quorums.fast : quorums.majority))
        chosen.insert(vote.second);
    }
    return chosen;
  }

  // What somebody sees who reads the replicas in `mask`.
  ReplicaStates Seen(int mask) const {
    ReplicaStates states(kReplicas);
    for (int i = 0; i < kReplicas; ++i) {
      if (mask & (1 << i)) states[i] = StateOf(replicas_[i]);
    }
    return states;
  }

 private:
  static Ballot Classic(int p) { return {1, 1, static_cast<uint64_t>(p) + 1}; }
  static constexpr Ballot kNextSlot{2, 1, 1};
  static uint64_t Value(int p) { return static_cast<uint64_t>(p) + 1; }
  static ReplicaState StateOf(const Replica& replica) {
    return {replica.promised, replica.accepted,
            replica.nonce == 0 ? NeverWritten() : Named(replica.nonce)};
  }

  void AddVote(int i, Ballot ballot, uint64_t nonce) {
    replicas_[i] = {ballot, ballot, nonce};
    votes_.insert({ballot, nonce, i});
  }

  // Only against exactly the state that every proposer started from.
  void Fast(int p, int i, std::vector<World>& next) const {
    if (replicas_[i] != Replica()) return;
    next.push_back(*this);
    next.back().AddVote(i, Ballot::Fast(1), Value(p));
  }

  void Prepare(int p, int i, std::vector<World>& next) const {
    if (proposers_[p].proposes != 0 || replicas_[i].promised >= Classic(p)) return;
    next.push_back(*this);
    next.back().replicas_[i].promised = Classic(p);
    next.back().proposers_[p].promises[i] = next.back().replicas_[i];
  }

  // As RegisterCall does, with the rules under test.
  void Propose(int p, std::vector<World>& next) const {
    if (proposers_[p].proposes != 0) return;
    ReplicaStates promised(kReplicas);
    for (int i = 0; i < kReplicas; ++i) {
      if (proposers_[p].promises[i]) promised[i] = StateOf(*proposers_[p].promises[i]);
    }
    const Quorums quorums = QuorumsOf(kReplicas);
    if (CountKnown(promised) < quorums.majority) return;
    const Finding finding = Judge(quorums, promised);
    ProposalPtr proposal;
    if (finding.chosen.has_value() && finding.chosen->slot == 1) {
      proposal = finding.chosen->proposal;
    } else if (!finding.chosen.has_value()) {
      proposal = MayBeChosen(quorums, promised, 1);
    }
    next.push_back(*this);
    next.back().proposers_[p].proposes = proposal == nullptr ? Value(p) : proposal->nonce.high;
  }

  void Accept(int p, int i, std::vector<World>& next) const {
    if (proposers_[p].proposes == 0 || replicas_[i].promised > Classic(p)) return;
    if (replicas_[i].accepted >= Classic(p)) return;
    next.push_back(*this);
    next.back().AddVote(i, Classic(p), proposers_[p].proposes);
  }

  void PrepareNextSlot(int i, std::vector<World>& next) const {
    if (replicas_[i].promised >= kNextSlot || ChosenInSlotOne().empty()) return;
    next.push_back(*this);
    next.back().replicas_[i].promised = kNextSlot;
  }

  std::array<Replica, kReplicas> replicas_;
  std::array<Proposer, kProposers> proposers_;
  std::set<Vote> votes_;
};

TEST(RegisterRules, InEveryOrderOfEventsOneValueIsChosenAndJudgedRightly) {
  const Quorums quorums = QuorumsOf(kReplicas);
  std::set<World> seen{World()};
  std::deque<World> open{World()};
  size_t with_a_choice = 0;
  for (; !open.empty(); open.pop_front()) {
    const std::set<uint64_t> chosen = open.front().ChosenInSlotOne();
    ASSERT_LE(chosen.size(), 1u);
    with_a_choice += chosen.size();
    for (const int mask : {3, 5, 6, 7}) {
      const Finding finding = Judge(quorums, open.front().Seen(mask));
      if (!finding.chosen.has_value()) continue;
      if (finding.chosen->slot == 0) {
        ASSERT_TRUE(chosen.empty());
      } else {
        ASSERT_EQ(chosen, std::set<uint64_t>{finding.chosen->proposal->nonce.high});
      }
    }
    for (World& world : open.front().Next()) {
      if (seen.insert(world).second) open.push_back(std::move(world));
    }
  }
  RecordProperty("worlds", static_cast<int>(seen.size()));
  EXPECT_GT(seen.size(), 10000u);
  EXPECT_GT(with_a_choice, 1000u);
}

// ---- Classic rounds and later slots, case by case.

const Quorums kThree = QuorumsOf(3);

TEST(RegisterRules, AMajorityInOneClassicBallotIsChosen) {
  const Ballot ballot{4, 1, 77};
  const Finding finding =
      Judge(kThree, {Accepted(ballot, 1), Accepted({3, 0, 0}, 9), Accepted(ballot, 1)});
  ASSERT_TRUE(finding.chosen.has_value());
  EXPECT_EQ(finding.chosen->slot, 4u);
  EXPECT_EQ(finding.chosen->ballot, ballot);
  EXPECT_EQ(finding.chosen->proposal, Named(1));
}

TEST(RegisterRules, AMajorityInDifferentBallotsIsNotYetChosen) {
  const Finding finding =
      Judge(kThree, {Accepted({4, 1, 77}, 1), Accepted({4, 2, 5}, 1), Accepted({3, 0, 0}, 9)});
  EXPECT_FALSE(finding.chosen.has_value());
  EXPECT_FALSE(finding.more_may_help);
  EXPECT_FALSE(finding.quiet);
}

TEST(RegisterRules, TheHighestClassicBallotComesBeforeFastVotes) {
  EXPECT_EQ(MayBeChosen(kThree, {Accepted({4, 0, 0}, 1), Accepted({4, 1, 5}, 2), {}}, 4), Named(2));
  EXPECT_EQ(MayBeChosen(kThree, {Accepted({4, 2, 1}, 1), Accepted({4, 1, 5}, 2), {}}, 4), Named(1));
}

TEST(RegisterRules, PromisesOfALaterSlotShowWhatWasChosen) {
  const ReplicaState behind = Promised({5, 1, 9}, Accepted({4, 0, 0}, 1));
  const Finding finding = Judge(kThree, {behind, behind, {}});
  ASSERT_TRUE(finding.chosen.has_value());
  EXPECT_EQ(finding.chosen->slot, 4u);
  EXPECT_EQ(finding.chosen->proposal, Named(1));
  EXPECT_FALSE(Judge(kThree, {behind, Accepted({4, 0, 0}, 1), {}}).chosen.has_value());
}

// Who asks for the first slot of an epoch need not know what was chosen in the one before.
TEST(RegisterRules, PromisesOfALaterEpochShowNothing) {
  const uint64_t floor = SlotFloor(ClusterVersionOf(2));
  EXPECT_EQ(floor, uint64_t{1} << 32);
  EXPECT_EQ(SlotFloor(ClusterVersionOf(1)), 0u);
  const ReplicaState of_slot = Promised({5, 1, 9}, Accepted({4, 0, 0}, 1));
  const ReplicaState of_epoch = Promised({floor + 1, 1, 9}, Accepted({4, 0, 0}, 1));
  EXPECT_TRUE(Judge(kThree, {of_slot, of_slot, {}}).chosen.has_value());
  EXPECT_FALSE(Judge(kThree, {of_slot, of_epoch, {}}).chosen.has_value());
  EXPECT_FALSE(Judge(kThree, {of_epoch, of_epoch, {}}).chosen.has_value());
  EXPECT_TRUE(Judge(kThree, {of_epoch, of_epoch, of_epoch}).chosen.has_value());
}

TEST(RegisterRules, AChangeIsFoundThatWasTakenOverIntoALaterEpoch) {
  const uint64_t first = SlotFloor(ClusterVersionOf(3)) + 1;
  const Proposal own{.nonce = {5, 5}, .earlier = {4, 3}};
  const auto chosen = [&](uint64_t nonce, std::vector<uint64_t> earlier) {
    return Chosen{first, Ballot::Fast(first),
                  std::make_shared<const Proposal>(
                      Proposal{.nonce = {nonce, 5}, .earlier = std::move(earlier)})};
  };
  EXPECT_EQ(WasChosen(chosen(5, {4, 3}), 7, own), true);
  EXPECT_EQ(WasChosen(chosen(6, {5, 4, 3}), 7, own), true);
  EXPECT_EQ(WasChosen(chosen(4, {3}), 7, own), false);  // what it would have replaced
  EXPECT_EQ(WasChosen(chosen(6, {4, 3}), 7, own), false);
  EXPECT_EQ(WasChosen(chosen(8, {6, 4, 3}), 7, own), false);
  EXPECT_EQ(WasChosen(chosen(8, {7, 6}), 7, own), std::nullopt);
  // The first of them may not be chosen itself.
  EXPECT_EQ(WasChosenBefore({.nonce = {6, 5}, .earlier = {4, 3}}, first, 7, own), std::nullopt);
  EXPECT_EQ(WasChosenBefore({.nonce = {5, 5}, .earlier = {4, 3}}, first, 7, own), std::nullopt);
  EXPECT_EQ(WasChosenBefore({.nonce = {8, 5}, .earlier = {6, 4}}, first, 7, own), false);
}

// Only a power loss of all replicas at once leaves this behind. The register must not be stuck.
TEST(RegisterRules, ReplicasThatForgotAgreeOnWhatMostOfThemKept) {
  const Ballot later{9, 1, 9};
  const Finding finding =
      Judge(QuorumsOf(5),
            {Promised(later, Accepted({4, 0, 0}, 1)), Promised(later, Accepted({4, 0, 0}, 2)),
             Promised(later, Accepted({4, 0, 0}, 2)), Promised(later, Accepted({3, 0, 0}, 3)),
             Promised(later, Accepted({3, 0, 0}, 3))});
  ASSERT_TRUE(finding.chosen.has_value());
  EXPECT_EQ(finding.chosen->slot, 4u);
  EXPECT_EQ(finding.chosen->proposal, Named(2));
}

TEST(RegisterRules, TheNextBallotIsAboveAllPromisesAndNotBelowTheSlotThatIsWanted) {
  const ReplicaStates states{
      Accepted({4, 0, 0}, 1), Promised({5, 3, 9}, Accepted({4, 0, 0}, 1)), {}};
  EXPECT_EQ(NextBallot(states, 0, 7), (Ballot{5, 4, 7}));
  EXPECT_EQ(NextBallot(states, 5, 7), (Ballot{5, 4, 7}));
  EXPECT_EQ(NextBallot(states, 6, 7), (Ballot{6, 1, 7}));
  EXPECT_EQ(NextBallot(ReplicaStates(3), 1, 7), (Ballot{1, 1, 7}));
}

TEST(RegisterRules, AValueNamesItsPredecessors) {
  std::vector<uint64_t> earlier;
  for (uint64_t slot = 1; slot <= 40; ++slot) {
    const Nonce nonce{1000 + slot, 5};
    auto proposal = std::make_shared<const Proposal>(Proposal{.nonce = nonce, .earlier = earlier});
    const Chosen chosen{slot, Ballot::Fast(slot), proposal};
    for (uint64_t asked = 1; asked <= slot; ++asked) {
      const auto known = WasChosen(chosen, asked, {.nonce = {1000 + asked, 5}});
      const auto other = WasChosen(chosen, asked, {.nonce = {7, 5}});
      if (slot - asked <= kRecentNonces || asked == 1) {
        EXPECT_EQ(known, true) << asked << " of " << slot;
        EXPECT_EQ(other, false) << asked << " of " << slot;
      } else {
        EXPECT_EQ(known, std::nullopt) << asked << " of " << slot;
      }
    }
    EXPECT_EQ(WasChosen(chosen, slot + 1, {.nonce = {7, 5}}), false);
    earlier = EarlierNonces(nonce, earlier);
    EXPECT_LE(earlier.size(), kEarlierNonces);
  }
}

}  // namespace
}  // namespace pinstripe
