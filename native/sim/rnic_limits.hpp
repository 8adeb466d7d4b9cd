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
#include <vector>

#include "../engine/units.hpp"

namespace softroce::sim {

struct RnicModel {
  std::uint32_t cached_contexts = 0;  // queue pairs whose contexts fit; 0: all do
  Time miss = 0;                      // until the context of another one is there
  Time host_latency = 0;              // of software and doorbells, each way
  Time pcie_latency = 0;              // of a packet's transfer over the bus, each way
  Time packet_time = 0;               // least from packet to packet, in each direction
};

// Which contexts are near: of so many, the one used longest ago makes room. QP numbers are the
// RNIC's own, given in order from a small one, so that a table finds them.
class ContextCache {
 public:
  explicit ContextCache(std::uint32_t contexts) : contexts_(contexts) {}

  // Uses the context of `qp`; false: it had to be fetched. The first use of all is a fetch.
  bool use(std::uint32_t qp) {
    if (contexts_ == 0 || (used_ != 0 && qp == newest_)) return true;
    if (qp >= places_.size()) places_.resize(std::size_t{qp} + 1);
    const bool near = places_[qp].near;
    if (near)
      unlink(qp);
    else if (used_ == contexts_)
      evict();
    else
      ++used_;
    link(qp);
    return near;
  }
  std::uint32_t size() const { return used_; }

 private:
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  struct Place {  // in the order of use
    std::uint32_t older = kNobody, newer = kNobody;
    bool near = false;
  };

  void evict() {
    const std::uint32_t oldest = oldest_;
    unlink(oldest);
    places_[oldest].near = false;
  }
  void unlink(std::uint32_t qp) {
    const Place& place = places_[qp];
    (place.older == kNobody ? oldest_ : places_[place.older].newer) = place.newer;
    (place.newer == kNobody ? newest_ : places_[place.newer].older) = place.older;
  }
  void link(std::uint32_t qp) {
    places_[qp] = {newest_, kNobody, true};
    (newest_ == kNobody ? oldest_ : places_[newest_].newer) = qp;
    newest_ = qp;
  }

  std::uint32_t contexts_, used_ = 0;
  std::uint32_t newest_ = kNobody, oldest_ = kNobody;
  std::vector<Place> places_;  // by QP number
};

class RnicPipeline {
 public:
  explicit RnicPipeline(const RnicModel& model) : model_(model), cache_(model.cached_contexts) {}

  // When a packet of `qp`, which the engine lets go at `now`, has been processed, and when one that
  // arrives at `now` has. Calls of each come in the order of time, and so do what they return.
  Time transmit(std::uint32_t qp, Time now) { return pass(transmit_free_, qp, now); }
  Time receive(std::uint32_t qp, Time now) { return pass(receive_free_, qp, now); }

  // What is added to each packet's way besides, before it leaves and after it came.
  Time latency() const { return model_.host_latency + model_.pcie_latency; }

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
