// SPDX-License-Identifier: GPL-2.0-or-later
// One directed link: a queue, a transmitter, and the way to the far end. Callers pass the time;
// it holds no frames, only their metadata, so that the simulator runs it too.
//
// All times are exact: a link that is polled late reports what would have happened in time. Each
// frame keeps the rate and the delay that held when it arrived.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "../../xdp/lab_shape.h"
#include "../engine/units.hpp"
#include "figures.hpp"
#include "queue.hpp"

namespace softroce::wire {

struct Frame {
  std::uint32_t handle = 0;          // the caller's
  std::uint32_t length = 0;          // bytes from the Ethernet header on
  std::uint32_t trimmed_length = 0;  // what trimming would leave; 0: it cannot be trimmed
  bool ecn_capable = false;
  bool roce = false;
  bool copy = false;  // the second of a duplicated frame

  // Set by the link.
  bool marked = false;   // CE is to be set
  bool trimmed = false;  // the payload is to be cut
  bool chosen = false;   // to leave out of turn
  Time arrival = 0;
  std::uint64_t turn = 0;  // in order of transmission
};

struct Departure {
  Time at;
  Frame frame;
};

enum class Offered : std::uint8_t { taken, dropped };

class ShapedLink {
 public:
  // Frames that it holds keep their times.
  void shape(const lab_shape& shape);
  // The moment 0 of windows.
  void set_epoch(Time epoch) { epoch_ = epoch; }

  // A frame arrives at `now`; frames arrive in the order of time, or are taken as if they did. It
  // may be marked or trimmed if it is taken. Departures that are certain by now go to `out`.
  Offered offer(Frame& frame, const lab_leg& leg, Time now, std::vector<Departure>& out);
  // Runs the transmitter up to `now`.
  void advance(Time now, std::vector<Departure>& out);
  // When it must next be advanced; kNever: nothing waits.
  Time next() const { return waiting_packets() == 0 ? kNever : transmitter_.busy_until(); }

  // When what is being sent is out.
  Time busy_until() const { return transmitter_.busy_until(); }
  // In bits a second, of the frames that arrive at `now`; 0: no limit.
  std::uint64_t rate_bps(Time now) const {
    const lab_queue* queue = acting(shape_.queue, shape_.queues, on_timeline(now));
    return queue != nullptr ? queue->rate_bps : 0;
  }

  // The caller reports each frame that departed, in that order: released at `at` instead of `due`,
  // or lost on the way out.
  void released(const Frame& frame, Time due, Time at);
  enum class Loss : std::uint8_t { port_down, tx_failed };
  void lost(const Frame& frame, Loss why);
  // A frame that a rule took before it came here.
  void gone(const Frame& frame);
  // A rule cut the next frame that is offered.
  void cut() { ++figures_.trimmed; }
  // No memory was left for a second copy.
  void copy_missed() { ++figures_.copies_missed; }

  std::uint64_t waiting_bytes() const { return data_.bytes + trimmed_.bytes; }
  std::uint64_t waiting_packets() const { return data_.frames.size() + trimmed_.frames.size(); }
  LinkFigures figures() const;

 private:
  struct Held {
    Frame frame;
    std::uint64_t rate_bps;
    Passage passage;
    std::uint32_t trim_share;
  };
  struct Queue {
    std::deque<Held> frames;
    std::uint64_t bytes = 0;
    Waiting waiting() const { return {bytes, frames.size()}; }
    void push(const Held& held) {
      frames.push_back(held);
      bytes += held.frame.length;
    }
    Held pop() {
      const Held first = frames.front();
      frames.pop_front();
      bytes -= first.frame.length;
      return first;
    }
  };

  std::uint64_t on_timeline(Time now) const {
    return static_cast<std::uint64_t>((now - epoch_) / kNanosecond);
  }
  Held prepare(const Frame& frame, const lab_leg& leg, const lab_queue* queue, Time now) const;
  bool enqueue(Held& held, const lab_queue* queue);
  bool trim(Held& held, const lab_queue& queue);
  Held next_in_turn();
  void transmit(const Held& held, Time at, std::vector<Departure>& out);
  void leave(const Frame& frame);

  lab_shape shape_{};
  Time epoch_ = 0;
  Queue data_, trimmed_;
  TrimmedShare share_;
  Transmitter transmitter_;
  Time last_due_ = 0;             // of the frames that keep their order
  std::uint64_t turns_ = 0;       // frames transmitted
  std::uint64_t left_ = 0;        // of them, those released or lost
  std::uint64_t left_up_to_ = 0;  // the highest turn that left, plus one
  LinkFigures figures_{};
};

}  // namespace softroce::wire
