// SPDX-License-Identifier: GPL-2.0-or-later
// State of one endpoint about another: an address handle, both directions' flow state, no QP.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "../codec/gid.hpp"
#include "../congestion/congestion.hpp"
#include "../prefetch.hpp"
#include "../units.hpp"
#include "arrivals.hpp"
#include "channels.hpp"
#include "control_paths.hpp"
#include "linked_list.hpp"
#include "message.hpp"
#include "message_names.hpp"
#include "path_loads.hpp"
#include "path_picker.hpp"
#include "paths.hpp"

namespace softroce {

struct PeerAddress {
  Gid gid;
  std::uint64_t mac = 0;  // of the next hop
  std::uint32_t data_qp = 0;
  std::uint32_t recovery_qp = 0;
  std::uint32_t qkey = 0;
  Gid source{};  // of the port here; zeros: the port's first
};

// When each packet in flight was sent, so that an echoed timestamp gives the number accounted for.
// Times are whole nanoseconds: old ones may be seconds past, where 32-bit stamps are ambiguous.
class FlightLog {
 public:
  static constexpr std::uint32_t kMostInFlight = 1 << 20;  // 25 ms at 800 Gbit/s in 4 KiB

  explicit FlightLog(std::uint32_t most) : sent_ns_(2 * std::size_t{std::bit_ceil(most)}) {}

  // From now on each packet has a code, by which reports may name it where it carries no stamp.
  void keep_codes() { codes_.resize(sent_ns_.size()); }

  std::uint32_t capacity() const { return static_cast<std::uint32_t>(sent_ns_.size() / 2); }
  std::uint64_t in_flight() const { return sent_ - accounted_ - gone_; }
  // Packets that have arrived or are lost, by echoes; from any thread.
  std::uint64_t echoed() const { return relaxed_load(unechoed_); }
  std::int64_t newest_ns() const { return newest_ns_; }  // -1: nothing was ever sent

  void sent(std::int64_t now_ns) {
    if (sent_ - accounted_ == sent_ns_.size()) forget_gone();
    newest_ns_ = now_ns;
    entry(sent_++) = now_ns;
    if (sent_ - unechoed_ > sent_ns_.size()) unechoed_ = sent_ - sent_ns_.size();
  }

  void sent(std::int64_t now_ns, std::uint32_t code) {
    codes_[place(sent_)] = code;
    sent(now_ns);
  }

  // When the newest packet that nothing echoed was sent that `is_named(code)`; -1: none is.
  template <typename F>
  std::int64_t newest_named(F is_named) const {
    for (std::uint64_t at = sent_; at-- != unechoed_;)
      if (is_named(codes_[place(at)])) return sent_at(at);
    return -1;
  }

  // All packets sent no later than the echoed one have arrived or are lost. Whether something is
  // news, and so a sample of the RTT: forgiven packets count.
  bool echo(std::int64_t sent_ns) {
    std::uint64_t next = unechoed_;
    while (next < sent_ && sent_at(next) <= sent_ns) ++next;
    const bool news = next != unechoed_;
    relaxed_store(unechoed_, next);
    account(next);
    return news;
  }

  // One packet that was sent then is in flight no longer. This tells nothing of those before it:
  // the header of a trimmed packet overtakes queues.
  void gone(std::int64_t sent_ns) {
    std::uint64_t at = unechoed_;
    for (std::uint64_t end = sent_; at < end;) {
      const std::uint64_t middle = at + (end - at) / 2;
      sent_at(middle) < sent_ns ? at = middle + 1 : end = middle;
    }
    while (at < sent_ && sent_at(at) == sent_ns && is_gone(at)) ++at;
    if (at == sent_ || sent_at(at) != sent_ns) return;  // it was echoed meanwhile
    entry(at) = ~sent_ns;
    gone_ += at >= accounted_;
  }

  // What is in flight is so no longer, though nothing was echoed: it may still arrive.
  void forgive() { account(sent_); }
  // The same of what was sent no later than then.
  void forgive(std::int64_t sent_ns) {
    while (accounted_ < sent_ && sent_at(accounted_) <= sent_ns) account(accounted_ + 1);
  }

 private:
  std::size_t place(std::uint64_t at) const { return at & (sent_ns_.size() - 1); }
  // The time of a packet that is `gone` is inverted.
  std::int64_t& entry(std::uint64_t at) { return sent_ns_[place(at)]; }
  std::int64_t entry(std::uint64_t at) const { return sent_ns_[place(at)]; }
  bool is_gone(std::uint64_t at) const { return entry(at) < 0; }
  std::int64_t sent_at(std::uint64_t at) const { return is_gone(at) ? ~entry(at) : entry(at); }

  void account(std::uint64_t end) {
    for (; gone_ != 0 && accounted_ < end; ++accounted_) gone_ -= is_gone(accounted_);
    accounted_ = std::max(accounted_, end);
  }

  // Those in flight move together: they are at most half of the entries.
  void forget_gone() {
    std::uint64_t to = sent_;
    for (std::uint64_t at = sent_; at-- != accounted_;)
      if (!is_gone(at)) entry(--to) = entry(at);
    accounted_ = to;
    gone_ = 0;
    relaxed_store(unechoed_, to);
  }

  std::uint64_t sent_ = 0;
  std::uint64_t accounted_ = 0;  // all before are in flight no longer,
  std::uint64_t gone_ = 0;       // nor are so many behind
  std::uint64_t unechoed_ = 0;   // the oldest that nothing echoed, of those that are remembered
  std::int64_t newest_ns_ = -1;
  std::vector<std::int64_t> sent_ns_;
  std::vector<std::uint32_t> codes_;
};

// What the newest message that began in this slot came to.
struct ReceiveSlot {
  enum class State : std::uint8_t { empty, open, complete, failed };
  State state = State::empty;
  std::uint32_t id = 0;
  Handle message = kNoHandle;
  std::uint32_t reported_id = 0;  // last packet without effect reported to the session, and when
  Time reported_at = -1;
};

// A table by slot whose parts are made when they are first used: most peers use few slots, and
// there are as many tables as pairs of communicating hosts.
template <typename T>
class SlotTable {
 public:
  explicit SlotTable(std::uint32_t slots) : parts_((slots + kPart - 1) / kPart) {}

  T& operator[](std::uint32_t slot) {
    auto& part = parts_[slot / kPart];
    if (part == nullptr) [[unlikely]]
      part = std::make_unique<std::array<T, kPart>>();
    return (*part)[slot % kPart];
  }

 private:
  static constexpr std::uint32_t kPart = 32;
  std::vector<std::unique_ptr<std::array<T, kPart>>> parts_;
};

// The newest of the stamps that a peer put on packets: what it sent before has left before.
struct NewestStamp {
  std::uint32_t stamp_ns = 0;
  Time at = -1;  // when it arrived; -1: none has

  void note(std::uint32_t other_ns, Time now) {
    if (at >= 0 && now - at <= kStampHorizon && stamp_distance(other_ns, stamp_ns) < 0) return;
    relaxed_store(stamp_ns, other_ns);
    relaxed_store(at, now);
  }
};

// How much earlier than the newest packet that is here others were sent that still come: paths
// differ, and each has its queues. Mean and mean deviation, as RFC 6298 smooths the RTT, but over
// several turns of the paths: a packet gives evidence of its own path only.
struct ReorderingExtent {
  Time mean = 0, deviation = 0;

  void sample(Time late) {
    const Time error = late - mean;
    relaxed_store(deviation, deviation + ((error < 0 ? -error : error) - deviation) / 32);
    relaxed_store(mean, mean + error / 64);
  }
  // Few come later. One path of eight that is late by x makes it x.
  Time usual() const { return relaxed_load(mean) + 4 * relaxed_load(deviation); }
};

// How far packets on a path have got, by the peer's reports.
struct PathProgress {
  std::uint32_t arrived = 0;
  Time at = 0;                 // when a report last showed more of them
  Time waits_since = kNever;   // when the first packet behind that was sent
  std::uint32_t moved_at = 0;  // numbers before it went over another source port

  void note(std::uint32_t arrived_by_now, Time now) {
    if (arrived_by_now == arrived) return;
    arrived = arrived_by_now;
    at = now;
    waits_since = kNever;
  }
};

// Classes of messages by the packets that they have left. Within a class the order is that of the
// posts, so that messages of nearly one length do not wait for each other (send_order.hpp).
struct LeftClass {
  static constexpr std::array<std::uint32_t, 3> kBounds = {64, 512, 4096};
  static constexpr std::size_t kClasses = kBounds.size() + 1;
  static std::uint8_t of(std::uint32_t left) {
    return static_cast<std::uint8_t>(std::ranges::lower_bound(kBounds, left) - kBounds.begin());
  }
};

// Messages to a peer with packets that may be sent for the first time, by class.
struct PeerSends {
  std::array<LinkedList<SendMessage>, LeftClass::kClasses> of;
  std::uint32_t entered = 0;  // classes in which it takes turns with other peers, by bits

  bool empty() const {
    return std::ranges::all_of(of, [](const auto& each) { return each.first() == nullptr; });
  }
};

struct PathCount {
  std::uint32_t packets = 0;
  std::uint64_t bytes = 0;
};

// What each packet touches lies together, for there may be thousands of peers.
struct Peer {
  Peer(PeerIndex index_, const PeerAddress& address_, std::uint32_t slots, std::uint32_t paths,
       std::uint32_t most_in_flight, std::unique_ptr<CongestionControl> control)
      : index(index_),
        address(address_),
        congestion(std::move(control)),
        schedule(paths),
        flight(most_in_flight),
        receive_slots(slots),
        send_slots(slots) {}

  // The code of a message to it, by the number of bits in its length; beyond all: none.
  std::uint32_t code_of(std::uint32_t length) const { return codes[std::bit_width(length)]; }

  // The path of the next control packet: of those on which no data is lost in a row, the one with
  // the fewest control packets of which nothing is known. Ties go round-robin.
  std::uint8_t control_path() {
    const auto cost = [this](std::uint8_t path) {
      return std::pair(loads.lost_in_row(path) != 0, controls.unshown(path));
    };
    std::uint8_t best = schedule.next();
    for (std::uint8_t path = 0; path < schedule.paths(); ++path)
      if (cost(path) < cost(best)) best = path;
    return best;
  }

  // What the next data packet to it, or from it, touches.
  void prefetch_sending() const { prefetch_lines(this, &last_received_at); }
  void prefetch_receiving() const { prefetch_lines(&last_received_at, &progress); }

  PeerIndex index;
  PeerAddress address;
  std::array<std::uint8_t, 33> codes{};
  std::unique_ptr<Channels> channels;  // of the framing uc_immediate

  // Of each data packet to it.
  bool in_retransmit_ring = false;
  bool stopped = false;              // of `Stops`
  bool is_held = false;              // the session lets no packet leave for the first time
  std::uint8_t last_path = 0;        // of data to it
  std::uint32_t credit_packets = 0;  // free frames it last reported
  std::unique_ptr<CongestionControl> congestion;
  RttEstimate rtt;
  Time persist_at = kNever;  // when packets in flight count as lost, if nothing arrives
  Time pace_at = kNever;     // next check of its rings, if congestion control permits
  PeerSends sends;
  PathSchedule schedule;
  PathPorts ports;
  PathLoads loads;
  std::unique_ptr<PathPicker> picker;  // of data packets; reads the three above
  FlightLog flight;
  std::array<std::uint32_t, kMaxPaths> sent_on{};      // data packets and probes, by path
  std::array<std::uint32_t, kMaxPaths> shares_from{};  // `sent_on` when paths were last compared
  std::uint32_t unprobed = 0;          // paths that carried data since a probe named them, by bits
  std::uint32_t unprobed_packets = 0;  // that they carried
  std::uint32_t probed = 0;            // paths that the next probe names, by bits; 0: there is none
  std::uint32_t parity_waiting = 0;    // messages whose parity leaves next
  Time probe_at = kNever;              // when a sender that may not send probes
  Time data_at = 0;                    // when the newest data packet was sent

  // Of each data packet from it.
  Time last_received_at = -1;          // any valid packet; -1: never
  NewestStamp newest;                  // of all its packets
  NewestStamp newest_data;             // what reports echo
  ReorderingExtent reordering_extent;  // of its data packets
  std::uint32_t remote_srtt_ns = 0;
  std::uint32_t remote_rttvar_ns = 0;
  std::uint32_t arrived_packets = 0;
  std::uint32_t ce_packets = 0;
  std::uint32_t marked_paths = 0;    // since the last report, by bits; with nscc
  std::uint32_t reported_marks = 0;  // of these, in the last report
  std::uint32_t unreported = 0;
  std::uint32_t report_due = 0;  // packets after which a report is due; 0: none was sent
  bool report_queued = false;
  bool cnp_queued = false;
  NotificationPoint notification;
  // Of Grants: packets of messages from it that have begun and are to arrive, their class, and the
  // neighbours in its list.
  std::uint32_t incoming = 0;
  std::uint8_t incoming_class = 0;
  Peer *before = nullptr, *behind = nullptr;
  std::int64_t active_epoch = -2;  // before the first two
  std::uint64_t bytes_since_rate = 0;
  Time rate_since = 0;
  SlotTable<ReceiveSlot> receive_slots;
  std::array<PathCount, kMaxPaths> arrived{};
  std::unique_ptr<Arrivals> arrivals;  // with path probes, from the first packet on

  // Of messages, reports and control messages.
  Time report_at = kNever;
  Time report_by = kNever;              // at the latest, although packets go on coming
  double receive_bytes_per_second = 0;  // only sessions read it
  std::int64_t echoed_ns = -1;          // the newest echo among its reports
  std::uint32_t reported_packets = 0;
  std::uint32_t reported_ce = 0;
  bool marked = false;  // the newest report shows congestion marks
  LossCount reported_lost;
  LossEstimate loss;  // of what is sent to it
  std::array<PathProgress, kMaxPaths> progress{};
  std::uint32_t next_id = 0;
  std::uint32_t sends_outstanding = 0;
  std::uint32_t control_sequence = 0;  // control messages and reports
  ControlPaths controls;               // if packets have numbers on paths
  NewestStamp newest_control;          // likewise
  std::uint32_t nack_sequence = 0;
  std::uint32_t probe_sequence = 0;
  Time timer_at = kNever;              // the session's timer for the peer
  Time connection_at = kNever;         // the timer of the transport's connection to the peer
  std::deque<Handle> retransmissions;  // messages with packets to retransmit
  SlotTable<Handle> send_slots;        // of what uses them, else kNoHandle
  IdEighths ids;                       // of the framing ud, of what is sent to it
  std::deque<Handle> held;             // sends whose ids may still name others
  Time held_at = kNever;               // when the first of these may be sent
  std::uint32_t unanswered = 0;        // those of probes that nothing has answered
  std::uint16_t probe_repeats = 0;     // since the newest data
  bool copies_probe = false;           // the probe that is queued is a copy of the one before
  std::uint32_t first_probe = 0;       // the first probe since the newest data
  Time repeat_at = kNever;             // when the probe is repeated
  Time trial_at = kNever;              // when a path that fell silent tries its first port
  std::uint32_t fell_silent = 0;       // paths that left it for that, by bits
};

}  // namespace softroce
