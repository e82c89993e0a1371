// Who may have a connection, and who gives way, when there are as many as there may be.

#include "daemon/places.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <set>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

class PlacesTest : public testing::Test {
 protected:
  void Bound(Places::Limits limits) { places_.emplace(limits); }

  // A connection with a name; false: there was no place for it. One that is told to end does so.
  bool Connect(const std::string& name, const std::string& address, const void* device = nullptr) {
    Result<std::unique_ptr<Places::Place>> place = places_->Take(device, address);
    if (!place.has_value()) {
      EXPECT_FAILS(place, EBUSY);
      return false;
    }
    connected_[name] = *std::move(place);
    connected_[name]->OnEnd([this, name] { ended_.push_back(name); });
    for (const std::string& each : ended_) connected_.erase(each);
    return true;
  }
  bool ConnectFriend(const std::string& name, const std::string& address,
                     const void* device = nullptr) {
    if (!Connect(name, address, device)) return false;
    connected_[name]->Welcome();
    return true;
  }
  // Who has given way since it was last asked, in this order.
  std::vector<std::string> Ended() { return std::exchange(ended_, {}); }
  using Names = std::vector<std::string>;

  std::optional<Places> places_;
  std::map<std::string, std::unique_ptr<Places::Place>> connected_;
  Names ended_;
};

TEST_F(PlacesTest, TheOldestStrangerGivesWay) {
  Bound({.connections = 2});
  EXPECT_TRUE(Connect("1", "a"));
  EXPECT_TRUE(Connect("2", "b"));
  EXPECT_EQ(Ended(), Names{});
  EXPECT_TRUE(Connect("3", "c"));
  EXPECT_EQ(Ended(), Names{"1"});
}

TEST_F(PlacesTest, OneWhoHasSignedGivesWayToNobody) {
  Bound({.connections = 2});
  EXPECT_TRUE(ConnectFriend("1", "a"));
  EXPECT_TRUE(Connect("2", "a"));
  EXPECT_TRUE(ConnectFriend("3", "a"));
  EXPECT_EQ(Ended(), Names{"2"});
  EXPECT_FALSE(Connect("4", "b"));
  EXPECT_EQ(Ended(), Names{});
  connected_.erase("1");
  EXPECT_TRUE(Connect("4", "b"));
}

// Somebody who opens one connection after the other takes his own places, not those of others.
TEST_F(PlacesTest, TheAddressWithMostStrangersGivesWayFirst) {
  Bound({.strangers = 4});
  EXPECT_TRUE(Connect("honest", "a"));
  for (const char* name : {"1", "2", "3", "4", "5"}) EXPECT_TRUE(Connect(name, "b"));
  EXPECT_EQ(Ended(), (Names{"1", "2"}));
  EXPECT_TRUE(Connect("another", "c"));
  EXPECT_EQ(Ended(), Names{"3"});
}

TEST_F(PlacesTest, AnAddressHasABoundOfItsOwn) {
  Bound({.per_address = 3, .strangers_per_address = 2});
  for (const char* name : {"1", "2", "3"}) EXPECT_TRUE(Connect(name, "a"));
  EXPECT_EQ(Ended(), Names{"1"}) << "two strangers of one address";
  EXPECT_TRUE(Connect("other", "b"));
  EXPECT_EQ(Ended(), Names{});
  for (const char* name : {"2", "3"}) connected_[name]->Welcome();
  EXPECT_TRUE(ConnectFriend("4", "a"));
  EXPECT_FALSE(Connect("5", "a")) << "three of one address, all known";
  EXPECT_TRUE(Connect("6", "b"));
}

TEST_F(PlacesTest, ADeviceThatIsFullTakesThePlaceOfItsOwnStrangers) {
  Bound({.per_device = 1});
  const int devices[2] = {};
  EXPECT_TRUE(Connect("1", "a", &devices[0]));
  EXPECT_TRUE(Connect("2", "b", &devices[1]));
  EXPECT_TRUE(ConnectFriend("3", "b", &devices[1]));
  EXPECT_EQ(Ended(), Names{"2"});
  EXPECT_FALSE(Connect("4", "a", &devices[1]));
  EXPECT_EQ(Ended(), Names{});
}

// It counts as open until it is closed, so that descriptors do not run out however slowly that is.
TEST_F(PlacesTest, ThoseThatAreToEndAreBoundedToo) {
  Bound({.connections = 1});
  std::vector<std::unique_ptr<Places::Place>> slow;
  for (size_t i = 0; i < 1 + Places::kMostLeaving; ++i) {
    auto place = places_->Take(nullptr, "a");
    ASSERT_OK(place);
    slow.push_back(*std::move(place));
  }
  EXPECT_FAILS(places_->Take(nullptr, "a"), EBUSY);
  slow.pop_back();
  EXPECT_OK(places_->Take(nullptr, "a"));
}

TEST_F(PlacesTest, OneThatWasToldToEndBeforeItListensHearsOfIt) {
  Bound({.connections = 1});
  auto first = places_->Take(nullptr, "a");
  auto second = places_->Take(nullptr, "a");
  ASSERT_OK(second);
  bool told = false;
  (*first)->OnEnd([&] { told = true; });
  EXPECT_TRUE(told);
}

TEST_F(PlacesTest, AHostIsItsAddressOrItsPartOfTheNetwork) {
  const auto address = [](const char* text) {
    sockaddr_storage peer{};
    if (auto* six = reinterpret_cast<sockaddr_in6*>(&peer);
        inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
      six->sin6_family = AF_INET6;
    } else {
      auto* four = reinterpret_cast<sockaddr_in*>(&peer);
      EXPECT_EQ(inet_pton(AF_INET, text, &four->sin_addr), 1);
      four->sin_family = AF_INET;
    }
    return Places::AddressOf(peer);
  };
  EXPECT_NE(address("192.0.2.1"), address("192.0.2.2"));
  EXPECT_EQ(address("192.0.2.1"), address("::ffff:192.0.2.1"));
  EXPECT_EQ(address("2001:db8::1"), address("2001:db8::ffff:1"));
  EXPECT_NE(address("2001:db8::1"), address("2001:db8:0:1::1"));
}

TEST_F(PlacesTest, StoresHaveDescriptorsWhateverIsConnected) {
  for (const uint64_t descriptors : {64u, 300u, 1024u, 4096u, 1048576u}) {
    for (const size_t drives : {1u, 36u}) {
      const Places::Limits limits = Places::LimitsFor(descriptors, 40, drives);
      EXPECT_LE(limits.connections, descriptors);
      EXPECT_LE(limits.per_address, limits.connections);
      EXPECT_LE(limits.strangers, limits.connections);
      EXPECT_LE(limits.strangers_per_address, limits.strangers);
      EXPECT_GE(limits.strangers_per_address, 1u);
      EXPECT_GE(limits.connections, descriptors / 4);
    }
  }
  EXPECT_LE(Places::LimitsFor(1024, 40, 1).connections, 1024u - 40 - 336);
  EXPECT_GT(Places::LimitsFor(1048576, 400, 36).connections, 1000000u);
}

// A connection that carries channels counts once, whatever it carries.
TEST(Places, ChannelsHaveNoDescriptors) {
  Places places({.connections = 2,
                 .per_device = 2,
                 .per_address = 1,
                 .strangers = 1,
                 .strangers_per_address = 1});
  int devices[3] = {};
  std::shared_ptr<Places::Place> carrier = *places.Take(&devices[0], "a");
  carrier->Carry();
  bool has_ended = false;
  carrier->OnEnd([&] { has_ended = true; });
  std::vector<std::unique_ptr<Places::Place>> channels;
  for (int& device : devices) channels.push_back(*places.Take(&device, "a", carrier));
  EXPECT_EQ(places.Open(), 1u);
  EXPECT_FALSE(has_ended) << "its channels do not push it out";
  auto stranger = places.Take(&devices[0], "b");
  ASSERT_OK(stranger);
  EXPECT_TRUE(has_ended) << "another stranger does: there may be one";
}

TEST(Places, AChannelThatHasSignedSpeaksForItsConnection) {
  Places places({.connections = 3, .per_device = 2, .strangers = 1});
  int devices[2] = {};
  std::shared_ptr<Places::Place> carrier = *places.Take(&devices[0], "a");
  carrier->Carry();
  bool has_ended = false;
  carrier->OnEnd([&] { has_ended = true; });
  const auto signed_one = *places.Take(&devices[0], "a", carrier);
  signed_one->Welcome();
  bool stranger_ended = false;
  auto stranger = *places.Take(&devices[0], "a", carrier);
  stranger->OnEnd([&] { stranger_ended = true; });
  // The device is full: the channel that has signed nothing gives way, and its connection stays.
  const auto other = places.Take(&devices[0], "b");
  ASSERT_OK(other);
  EXPECT_TRUE(stranger_ended);
  (*other)->Welcome();
  stranger.reset();
  EXPECT_FAILS(places.Take(&devices[0], "c"), EBUSY);
  EXPECT_OK(places.Take(&devices[1], "c")) << "only the one device is full";
  EXPECT_FALSE(has_ended);
}

}  // namespace
}  // namespace pinstripe
