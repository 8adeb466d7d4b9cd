// SPDX-License-Identifier: GPL-2.0-or-later
// A directed link of the simulated fabric: the fault rules of the XDP programs, then the queue, the
// transmitter and the delay of the wire stage.
//
// Without trimming, a frame's turn is known when it arrives: frames leave in the order they came,
// each at the rate that held then. So its whole passage is computed at once, and costs one event.
// With trimming, a frame may yet be overtaken by trimmed ones: then the wire stage's own link
// decides step by step.
//
// A link that is always the same, has no rules and is not watched, is *straight*: a frame that
// finds it idle needs one cache line of it, one that waits two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "../../xdp/lab_name.h"
#include "../engine/units.hpp"
#include "../wire/link.hpp"
#include "../wire/queue.hpp"

namespace softroce::sim {

// Counted since the run began. entered + duplicated = taken on + dropped + dropped_down +
// dropped_limit; those taken on that are not on their way any more were delivered.
struct LinkTotals {
  std::uint64_t entered = 0;  // at its near end
  std::uint64_t taken = 0;    // by its transmitter or its queue
  std::uint64_t taken_bytes = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t dropped = 0;        // by rules
  std::uint64_t dropped_down = 0;   // by rules, for the link was down
  std::uint64_t dropped_limit = 0;  // by a full queue
  std::uint64_t corrupted = 0;
  std::uint64_t reordered = 0;  // chosen to leave out of turn
  std::uint64_t marked = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t most_waiting_packets = 0;
  std::uint64_t most_waiting_bytes = 0;
  std::uint64_t on_its_way = 0;  // this and the next: just now, waiting or under way
  std::uint64_t bytes_on_its_way = 0;
  std::uint64_t records_lost = 0;  // of what rules did
};

// Where nothing overtakes: when each frame that waits will begin to be sent.
class Turns {
 public:
  void forget_begun(Time now) {
    while (first_ != next_ && ring_[first_ & mask_].begins <= now)
      bytes_ -= ring_[first_++ & mask_].bytes;
  }
  void add(Time begins, std::uint32_t bytes) {
    if (ring_ == nullptr || next_ - first_ == mask_ + 1) grow();
    ring_[next_++ & mask_] = {begins, bytes};
    bytes_ += bytes;
  }
  void prefetch() const {  // what comes and what goes
    __builtin_prefetch(&ring_[next_ & mask_], 1);
    __builtin_prefetch(&ring_[first_ & mask_], 1);
  }
  std::uint64_t packets() const { return next_ - first_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Turn {
    Time begins;
    std::uint32_t bytes;
  };
  void grow();

  std::unique_ptr<Turn[]> ring_;
  std::uint32_t mask_ = 0;              // one less than its turns, a power of two
  std::uint32_t first_ = 0, next_ = 0;  // wrap around
  std::uint64_t bytes_ = 0;
};

struct Rules {  // of one directed link: struct lab_fault_set, and packets that are hit by name
  lab_fault_set set{};
  lab_fault_state state{};
  std::unordered_map<std::uint64_t, lab_named> named[LAB_NAME_TUPLES];  // as set.tuple has them
  std::uint64_t not_logged = 0;                                         // of what they did
};

class alignas(64) Link {
 public:
  bool is_straight() const { return delay_ >= 0; }

  // A frame arrives at `now`: when it comes to the far end; kNever: the queue was full. Of a
  // straight link.
  Time pass_straight(std::uint32_t length, bool ecn_capable, Time now, bool& marked) {
    Time begins = now;
    if (transmitter_.busy_until() > now) {
      begins = transmitter_.busy_until();
      turns_.forget_begun(now);
      if (turns_.bytes() + length > calm_bytes_ || turns_.packets() + 1 > calm_packets_) {
        const wire::Admission fate =
            wire::admit(shape_.queue[0], {turns_.bytes(), turns_.packets()}, length, ecn_capable);
        if (fate == wire::Admission::full) return kNever;
        marked = fate == wire::Admission::marked;
      }
      wait(begins, length);
    }
    take(length);
    return transmitter_.transmit(length, begins) + delay_;
  }

  // The same of any link that does not trim.
  Time pass(std::uint32_t length, bool ecn_capable, const lab_leg& leg, Time now, bool& marked);

  void enter() { ++entered_; }
  void take(std::uint32_t bytes) {
    ++taken_;
    taken_bytes_ += bytes;
  }
  std::uint64_t taken() const { return taken_; }
  LinkTotals totals() const;

  // What its length alone costs a packet of no bytes: the delay, without jitter.
  Time propagation(Time now) const;
  // When a packet of no bytes would come to the far end, behind all that waits.
  Time ghost_arrival(Time now) const;

  // When the transmitter has sent all that it was given: a host's port sends its next packet then.
  Time busy_until() const {
    return stepwise != nullptr ? stepwise->busy_until() : transmitter_.busy_until();
  }
  // What a frame takes at the rate that holds now.
  Time time_of(std::uint32_t length, Time now) const;
  std::uint64_t waiting_bytes(Time now);
  void shape(const lab_shape& shape);
  void set_rules(std::unique_ptr<Rules> rules);
  void watch();  // record what enters
  // Each frame comes so much later, besides.
  void lag(Time by);
  Time lag() const { return lag_; }

  void prefetch() const {
    __builtin_prefetch(this, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 64, 1);
  }
  void prefetch_turns() const { turns_.prefetch(); }  // when that is there

 private:
  static std::uint64_t in_ns(Time now) { return static_cast<std::uint64_t>(now / kNanosecond); }
  void wait(Time begins, std::uint32_t length) {
    turns_.add(begins, length);
    most_waiting_packets_ = std::max(most_waiting_packets_, turns_.packets());
    most_waiting_bytes_ = std::max(most_waiting_bytes_, turns_.bytes());
  }
  void look_whether_straight();

  // What every packet needs,
  wire::Transmitter transmitter_;
  Time delay_ = 0;  // of a straight link, `lag_` included; negative: it is not straight
  std::uint64_t entered_ = 0, taken_ = 0, taken_bytes_ = 0;
  // and those that wait: up to so many nothing happens to them.
  std::uint64_t calm_bytes_ = UINT64_MAX, calm_packets_ = UINT64_MAX;
  Turns turns_;
  std::uint64_t most_waiting_packets_ = 0, most_waiting_bytes_ = 0;

 public:
  LinkTotals rare;                             // of what is not counted above
  std::unique_ptr<Rules> rules;                // null: nothing happens to packets
  std::unique_ptr<wire::ShapedLink> stepwise;  // of a link whose queue trims; else null
  Time step_at = kNever;                       // next check of `stepwise`
  std::uint64_t near_mac = 0, far_mac = 0;

 private:
  bool watched_ = false;
  Time lag_ = 0;
  Time last_due_ = 0;  // of the frames that keep their order
  lab_shape shape_{};
};

}  // namespace softroce::sim
