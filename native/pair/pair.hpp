// SPDX-License-Identifier: GPL-2.0-or-later
// Two RNICs joined by an imagined cable, with a clock that is moved by hand. What tests of the
// transports run on: real frames and ICRCs, any schedule of faults, in no real time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "../engine/codec/codec.hpp"
#include "../engine/rnic/rnic.hpp"

namespace softroce {

// A packet that matches all fields is dropped. Ranges are inclusive; -1 matches everything.
struct DropRule {
  std::int64_t kind = -1;
  std::int64_t message = -1;  // control and reports: their sequence number
  std::int64_t body = -1;     // of control: its first byte, the type of the message
  std::int64_t index_first = 0, index_last = INT64_MAX;
  std::int64_t attempt_first = 0, attempt_last = INT64_MAX;
  std::int64_t path = -1;
  std::int64_t limit = INT64_MAX;  // how many packets it may take
};

// One direction of the cable. Probabilities are 64-bit thresholds.
struct Cable {
  std::uint64_t loss = 0;
  std::uint64_t duplicate = 0;
  std::uint64_t corrupt = 0;  // one bit of the frame is flipped
  Time delay = 0;
  Time jitter = 0;                     // uniform in [0, jitter], so packets overtake each other
  Time packet_time = 0;                // serialisation: at most one packet in this time
  bool down = false;                   // everything is lost
  std::uint64_t carries = UINT64_MAX;  // so many packets, and then it is down
  std::vector<std::uint64_t> loses{};  // the packets of these numbers, from 0
  // A slower link behind it, with a queue: so long a packet takes there; 0: none. Packets that find
  // so many there are marked CE, or lost.
  Time service_time = 0;
  std::uint32_t mark_from = UINT32_MAX, lose_from = UINT32_MAX;
  std::vector<DropRule> rules{};
};

class Pair {
 public:
  static constexpr std::size_t kFrameBytes = kMostPathMtu + kMostOverheadBytes + kMostLabBytes;
  static constexpr int kBurst = 32;  // packets that leave before arrivals are processed

  Pair(const MessageConfig& a, const MessageConfig& b, std::uint64_t seed);

  Rnic& side(int which) { return *sides_.at(static_cast<std::size_t>(which)).rnic; }
  Cable& cable(int from) { return sides_.at(static_cast<std::size_t>(from)).cable; }
  Time now() const { return now_; }

  // Moves packets and time until a side has events for its policy, or completions of a transport
  // without one (true), or nothing is left to happen until then (false; the clock then stands at
  // `until`, if that is not kNever).
  bool run(Time until);

  // When `run` would move the clock to; kNever: nothing is left to happen.
  Time next_event() const;

  // Delivers a frame of the test's own making to a side, now.
  void inject(int to, const std::uint8_t* frame, std::size_t bytes);

  using Frame = std::vector<std::uint8_t>;
  struct Sent {
    Time at = 0;
    int from = 0;
    Frame frame{};  // as it was sent, whatever the cable does to it
  };
  // From now on keeps a copy of every frame that is sent, until it is taken.
  void keep_sent() { keeps_sent_ = true; }
  std::vector<Sent> take_sent() { return std::exchange(sent_, {}); }

  struct Totals {
    std::uint64_t sent = 0, lost = 0, duplicated = 0, corrupted = 0, marked = 0;
  };
  const Totals& totals(int from) const { return sides_.at(static_cast<std::size_t>(from)).totals; }

 private:
  struct Arrival {
    Arrival(Time at_, std::uint64_t sequence_, std::uint32_t frame_, std::uint32_t bytes_, int to_)
        : at(at_), sequence(sequence_), frame(frame_), bytes(bytes_), to(to_) {}
    Time at;
    std::uint64_t sequence;
    std::uint32_t frame;
    std::uint32_t bytes;
    int to;
    bool operator>(const Arrival& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };
  struct Side {
    std::unique_ptr<Rnic> rnic;
    std::uint64_t mac;
    Cable cable{};  // towards the other side
    Time free_at = 0;
    Time served_until = 0;
    Totals totals{};
  };

  std::uint64_t random();
  bool transmit(int from);
  void send(int from, const Packet& packet);
  bool queue(Side& side, Packet& packet, Time& leaves);
  void schedule(Time at, std::uint32_t frame, std::uint32_t bytes, int to);
  void deliver(const Arrival& arrival);
  bool deliver_due();
  void receive(int to, const std::uint8_t* frame, std::size_t bytes);
  std::uint32_t take_frame();

  std::array<Side, 2> sides_;
  Time now_ = 0;
  std::uint64_t random_state_;
  std::uint64_t sequence_ = 0;
  bool keeps_sent_ = false;
  std::vector<Sent> sent_;
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> free_frames_;
  // Arrivals in the order they were scheduled, and those that overtake.
  std::deque<Arrival> in_order_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> overtaking_;
};

// What a pair cannot do without: the copies and CRCs of its packets, and nothing else.
// Moves `bytes` in packets of `chunk_bytes`: each is copied behind room for its headers, the CRC
// of both is written, then checked, then the payload is copied out. Frames are used in bursts as
// the pair's. Returns the number of packets; throws std::runtime_error on a wrong CRC.
std::uint64_t bare_loop(const std::uint8_t* source, std::uint8_t* target, std::uint64_t bytes,
                        std::uint32_t chunk_bytes);

}  // namespace softroce
