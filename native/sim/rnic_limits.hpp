// SPDX-License-Identifier: GPL-2.0-or-later
// What an RNIC cannot do at once: keep the state of all its connections near, process packets
// faster than its pipeline does, reach the host's memory in no time.
//
// A pure model between the engine and the wire; all limits are off by default. It holds packets
// back and never lets one overtake another: state that has to be fetched holds up those behind
// it, too, so that misses cost rate as well as latency. An RNIC that fetches several states at
// once loses less; how many it does is not published.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "../engine/codec/gid.hpp"
#include "../engine/units.hpp"

namespace softroce::sim {

struct RnicModel {
  std::uint32_t cached_bytes = 0;   // of states that fit; 0: all do
  std::uint32_t context_bytes = 0;  // of a queue pair
  std::uint32_t peer_bytes = 0;     // of a peer of striped messages; 0: the host's software has it
  Time miss = 0;                    // until a state that does not lie in the cache is there
  Time host_latency = 0;            // of software and doorbells, each way
  Time pcie_latency = 0;            // of a packet's transfer over the bus, each way
  Time packet_time = 0;             // least from packet to packet, in each direction
};

// Of what: of a queue pair, by its number, or of a peer, by its address.
struct StateKey {
  Gid peer;              // zero: of a queue pair
  std::uint32_t qp = 0;  // zero: of a peer

  bool operator==(const StateKey&) const = default;
  struct Hash {
    std::size_t operator()(const StateKey& key) const {
      constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
      return ((key.peer.high * kGolden ^ key.peer.low) + key.qp) * kGolden >> 16;
    }
  };
};

// Which states are near: those used longest ago make room, as many as it takes.
class StateCache {
 public:
  explicit StateCache(std::uint32_t bytes) : left_(bytes), limited_(bytes != 0) {}
  StateCache(StateCache&&) = default;  // a copy's places would be those of the original

  // Uses a state of so many bytes; false: it had to be fetched. The first use of all is a fetch.
  bool use(const StateKey& key, std::uint32_t bytes) {
    if (!limited_ || (!order_.empty() && key == order_.front().key)) return true;
    if (const auto found = places_.find(key); found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return true;
    }
    while (left_ < bytes && !order_.empty()) {
      left_ += order_.back().bytes;
      places_.erase(order_.back().key);
      order_.pop_back();
    }
    if (left_ < bytes) return false;  // larger than the cache: nothing of it stays
    left_ -= bytes;
    order_.push_front({key, bytes});
    places_.emplace(key, order_.begin());
    return false;
  }

 private:
  struct State {
    StateKey key;
    std::uint32_t bytes;
  };

  std::uint32_t left_;  // bytes
  bool limited_;
  std::list<State> order_;  // of use, the newest first
  std::unordered_map<StateKey, std::list<State>::iterator, StateKey::Hash> places_;
};

// Whose states a packet touches at one end.
struct Touched {
  std::uint32_t qp = 0;
  Gid peer;
  bool striped = false;  // of striped messages, or of their control
};

class RnicPipeline {
 public:
  explicit RnicPipeline(const RnicModel& model) : model_(model), cache_(model.cached_bytes) {}

  // When a packet, which the engine releases at `now`, has been processed, and when one that
  // arrives at `now` has. Calls of each come in the order of time, and so do what they return.
  Time transmit(const Touched& what, Time now) { return pass(transmit_free_, what, now); }
  Time receive(const Touched& what, Time now) { return pass(receive_free_, what, now); }

  // What is added to each packet's way besides, before it leaves and after it came.
  Time latency() const { return model_.host_latency + model_.pcie_latency; }

  // When what has arrived has been processed.
  Time receive_free() const { return receive_free_; }

  // When the next packet may be taken from the engine, and how long before its link is free, lest
  // the link wait.
  Time transmit_free() const { return transmit_free_; }
  Time ahead() const { return model_.packet_time + (model_.cached_bytes != 0 ? model_.miss : 0); }

  std::uint64_t uses() const { return uses_; }  // of states
  std::uint64_t misses() const { return misses_; }

 private:
  Time pass(Time& free, const Touched& what, Time now) {
    Time end = std::max(free, now) + model_.packet_time;
    end += fetched({{}, what.qp}, model_.context_bytes);
    if (what.striped && model_.peer_bytes != 0) end += fetched({what.peer, 0}, model_.peer_bytes);
    return free = end;
  }

  // One fetch after the other: the queue pair tells where its peers' states lie.
  Time fetched(const StateKey& key, std::uint32_t bytes) {
    ++uses_;
    if (cache_.use(key, bytes)) return 0;
    ++misses_;
    return model_.miss;
  }

  RnicModel model_;
  StateCache cache_;  // one state serves both directions
  Time transmit_free_ = 0, receive_free_ = 0;
  std::uint64_t uses_ = 0, misses_ = 0;
};

}  // namespace softroce::sim
