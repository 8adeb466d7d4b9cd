// SPDX-License-Identifier: GPL-2.0-or-later
// What an RNIC cannot do at once: keep the contexts of all its queue pairs near, process packets
// faster than its pipeline does, reach the host's memory in no time.
//
// A pure model between the engine and the wire; all limits are off by default. It holds packets
// back and never lets one overtake another: a context that has to be fetched holds up those behind
// it, too, so that misses cost rate as well as latency. An RNIC that fetches several contexts at
// once loses less; how many it does is not published.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "../engine/units.hpp"

namespace softroce::sim {

struct RnicModel {
  std::uint32_t cached_contexts = 0;  // queue pairs whose contexts fit; 0: all do
  Time miss = 0;                      // until the context of another one is there
  Time host_latency = 0;              // of software and doorbells, each way
  Time pcie_latency = 0;              // of a packet's transfer over the bus, each way
  Time packet_time = 0;               // least from packet to packet, in each direction
};

// Which contexts are near: of so many, the one used longest ago makes room.
class ContextCache {
 public:
  explicit ContextCache(std::uint32_t contexts) : contexts_(contexts) {}
  ContextCache(ContextCache&&) = default;  // a copy's places would be those of the original

  // Uses the context of `qp`; false: it had to be fetched. The first use of all is a fetch.
  bool use(std::uint32_t qp) {
    if (contexts_ == 0 || (!order_.empty() && qp == order_.front())) return true;
    if (const auto found = places_.find(qp); found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return true;
    }
    if (order_.size() == contexts_) {
      places_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(qp);
    places_.emplace(qp, order_.begin());
    return false;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(order_.size()); }

 private:
  std::uint32_t contexts_;
  std::list<std::uint32_t> order_;  // of use, the newest first
  std::unordered_map<std::uint32_t, std::list<std::uint32_t>::iterator> places_;
};

class RnicPipeline {
 public:
  explicit RnicPipeline(const RnicModel& model) : model_(model), cache_(model.cached_contexts) {}

  // When a packet of `qp`, which the engine releases at `now`, has been processed, and when one
  // that arrives at `now` has. Calls of each come in the order of time, and so do what they return.
  Time transmit(std::uint32_t qp, Time now) { return pass(transmit_free_, qp, now); }
  Time receive(std::uint32_t qp, Time now) { return pass(receive_free_, qp, now); }

  // What is added to each packet's way besides, before it leaves and after it came.
  Time latency() const { return model_.host_latency + model_.pcie_latency; }

  // When what has arrived has been processed.
  Time receive_free() const { return receive_free_; }

  // When the next packet may be taken from the engine, and how long before its link is free, lest
  // the link wait.
  Time transmit_free() const { return transmit_free_; }
  Time ahead() const {
    return model_.packet_time + (model_.cached_contexts != 0 ? model_.miss : 0);
  }

  std::uint64_t uses() const { return uses_; }  // of contexts
  std::uint64_t misses() const { return misses_; }

 private:
  Time pass(Time& free, std::uint32_t qp, Time now) {
    Time end = std::max(free, now) + model_.packet_time;
    ++uses_;
    if (!cache_.use(qp)) {
      ++misses_;
      end += model_.miss;
    }
    return free = end;
  }

  RnicModel model_;
  ContextCache cache_;  // one context serves both directions
  Time transmit_free_ = 0, receive_free_ = 0;
  std::uint64_t uses_ = 0, misses_ = 0;
};

}  // namespace softroce::sim
