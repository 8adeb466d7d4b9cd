// SPDX-License-Identifier: GPL-2.0-or-later
// The common part of the transports that number packets by connection. All messages to a peer share
// one connection. A packet gets the connection's next PSN when it is first sent, and keeps the PSN
// when it is retransmitted. Receiver and feedback are those of packet_session.hpp. Feedback names a
// packet by message and index, and this class finds the PSN. A subclass decides which PSNs are
// lost, and when.
//
// Each packet has its own timer, which starts at each transmission. When the timer ends, the packet
// is retransmitted. A subclass must override the first two hooks, and overrides others if its rules
// differ:
//
//   rto_ns(peer)                         the retransmission timeout
//   acknowledged(connection, ack)        feedback arrived, and was applied to the connection
//   wait_ns(record, rto_ns, timeouts)    the timeout of a packet, with backoff
//   timed_out(connection, psn)           a packet's timer has ended
//   payload_cut(connection, psn,         a switch trimmed the newest transmission of a packet;
//               at_last_hop)             `at_last_hop`: it was the last switch of the path
//   packet_left(connection, psn)         a packet was sent, for the first time or again
//   time_passed(connection)              called at the time given to `wake_at`, or earlier
//
// A subclass calls `retransmit` and `wake_at`. It may keep its own state for each peer, indexed by
// Connection::peer. `packet_left` and `time_passed` run the timers of packets; a subclass with one
// timer for each connection replaces both.
//
// The receiver may coalesce feedback (struct Coalescing). It answers when it has `packets`
// unanswered packets, or `time_ns` after the first unanswered one. It answers at once when a
// message is complete, and after a packet for which the subclass requires it (`answers_at_once`).
//
// These rules are this project's:
//
// - Coalesced feedback is one control message for each block of 64 packets of a message in which a
//   packet has arrived. Each control message echoes the newest packet. So the measured RTT may
//   include the time that the receiver waited.
// - First transmissions wait while the window of PSNs, which begins at `base`, is full.
//   Retransmissions do not wait.
// - A message whose receive is not posted (RNR NAK, IBA 9.7.5.2.8) gives up its PSNs, so that it
//   does not close the window for other messages. Its packets get new PSNs when it continues.
// - The session limits the attempts of a packet, and decides when to give up.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../engine/ring.hpp"
#include "packet_session.hpp"
#include "transports.hpp"

namespace softroce {

class ConnectionSession : public PacketSession {
 public:
  struct Coalescing {
    std::uint32_t packets = 1;  // answered together; 1: each packet is answered at once
    Nanoseconds time_ns = 0;    // longest wait of an unanswered packet
  };
  // From the options `acknowledged_bytes` and `coalescing_time`.
  static Coalescing coalescing_by_bytes(const MessageEngine& engine);

  // `window`: how many PSNs may be in use, counted from the oldest PSN that is not acknowledged.
  ConnectionSession(MessageEngine& engine, std::size_t window, const Coalescing& coalescing)
      : PacketSession(engine), window_(window), coalescing_(coalescing) {}

  void packet_arrived(ReceiveMessage& message, const Packet& packet, Time now) final;
  void posted(SendMessage& message) final;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) final;
  void connection_timer_ended(PeerIndex peer, Time now) final;

 protected:
  using Psn = std::uint64_t;  // 64 bits never wrap; packets do not carry it

  struct Record {  // the state of one PSN
    Handle message = kNoHandle;
    Nanoseconds sent_ns = 0;  // the last transmission
    std::uint32_t packet = 0;
    std::uint16_t transmissions = 0;  // at most 65535
    std::uint16_t early = 0;          // retransmissions by `retransmit_early`
    std::uint16_t timeouts = 0;       // for the subclass: timeouts in a row
    bool is_done = false;             // acknowledged, or of a message that is over or paused
    bool is_queued = false;           // its retransmission has not left yet

    bool is_out() const { return !is_done && !is_queued; }
  };
  // The packets that have arrived from a peer since the last feedback to this peer.
  struct Unanswered {
    struct Word {
      Handle message;
      std::uint32_t packet;  // the last one of its 64
    };
    std::vector<Word> words;
    std::uint32_t packets = 0;
    Echo echo;  // of the last packet
    Nanoseconds due_ns = kNeverNs;
  };
  struct Connection {
    PeerIndex peer = 0;
    Psn base = 0;                                 // all PSNs below are done
    Psn acknowledged_end = 0;                     // the highest acknowledged PSN + 1
    std::uint32_t timeouts_without_progress = 0;  // in a row
    Ring<Record> records;                         // of [base, end)
    bool is_held = false;                         // the window is full
    Nanoseconds timer_ns = kNeverNs;
    Nanoseconds timeout_due_ns = kNeverNs;  // no packet's timer ends earlier
    Unanswered unanswered;

    Psn end() const { return base + records.size(); }
    Record& at(Psn psn) { return records[psn - base]; }
    // Whether a PSN above `base` is acknowledged: then the receiver's bitmap is not zero.
    bool has_gap() const { return acknowledged_end > base; }
  };
  struct Acknowledgement {
    Nanoseconds sent_ns;      // T1: when the packet that caused the feedback was sent
    std::uint32_t cancelled;  // queued retransmissions of packets that have arrived
  };

  // ---- hooks. The message of a record may be over; `retransmit` checks this.
  virtual Nanoseconds rto_ns(PeerIndex peer) const = 0;
  virtual void acknowledged(Connection& connection, const Acknowledgement& ack) = 0;
  // `timeouts`: of the connection, in a row without progress.
  virtual Nanoseconds wait_ns(const Record&, Nanoseconds rto_ns, std::uint32_t timeouts) const {
    return backed_off_ns(rto_ns, timeouts);
  }
  virtual void timed_out(Connection& connection, Psn psn) {
    retransmit(connection, psn, RetransmitReason::timeout);
  }
  virtual void packet_left(Connection& connection, Psn psn) { expect_timeout(connection, psn); }
  virtual void time_passed(Connection& connection);
  virtual void payload_cut(Connection& connection, Psn psn, bool /*at_last_hop*/) {
    retransmit(connection, psn, RetransmitReason::trimmed);
  }
  // For receivers that drop packets that arrive out of order. The receiver dropped a packet that
  // was sent at `sent_ns`, because it expects PSN `expected`, of the same message.
  virtual void dropped_out_of_order(Connection&, Psn /*expected*/, Nanoseconds /*sent_ns*/) {}
  // Whether the receiver answers this packet without coalescing.
  virtual bool answers_at_once(const Packet&) const { return false; }

  // Called each time the connection's timer ends, before `time_passed`, even if no PSN is in use.
  virtual void timer_ended(Connection&) {}

  Connection& connection_of(PeerIndex peer) {
    for (auto next = static_cast<PeerIndex>(connections_.size()); next <= peer; ++next)
      connections_.emplace_back(std::make_unique<Connection>())->peer = next;
    return *connections_[peer];
  }

  // ---- actions
  // If the session does not allow the retransmission yet, the packet counts as sent now, so that
  // its timers start again. Neither `base` nor the order of the records changes.
  void retransmit(Connection& connection, Psn psn, RetransmitReason why);
  void retransmit_early(Connection& connection, Psn psn, RetransmitReason why) {
    ++connection.at(psn).early;
    retransmit(connection, psn, why);
  }
  // To be called when a packet's timer starts, and when the RTO may have become shorter.
  void expect_timeout(Connection& connection, Psn psn);
  // `time_passed` will be called at `at_ns` or earlier, but not while no PSN is in use.
  void wake_at(Connection& connection, Nanoseconds at_ns);

 private:
  static constexpr Psn kDelivered = UINT64_MAX - 1, kNoPsn = UINT64_MAX;

  struct Flow {  // the send state of one message
    PeerIndex peer = 0;
    std::uint32_t cumulative = 0;  // packets [0, cumulative) have arrived
    Bitmap delivered;
    std::vector<Psn> psns;  // by packet; kDelivered: it has arrived; kNoPsn: it has none

    bool is_in_use(std::uint32_t packet) const { return psns[packet] < kDelivered; }
  };

  Flow& flow_of(Handle message) { return flows_[index_of(message)]; }
  void answer_all(Unanswered& unanswered);
  void give_up_psns(Flow& flow);
  Record& take_psn(Connection& connection, Flow& flow, Handle message, std::uint32_t packet);
  // Returns whether this cancels a queued retransmission.
  bool deliver(SendMessage& message, Connection& connection, Flow& flow, std::uint32_t packet);
  void advance(Connection& connection);
  void resume(SendMessage& message, RetransmitReason why);

  // ---- hooks of the session
  Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const final {
    return sack_of(message, packet);
  }
  void feedback_known(SendMessage& message, const Feedback& feedback) final;
  void payload_lost(SendMessage& message, const Feedback& feedback) final;
  void receiver_ready(SendMessage& message) final { resume(message, RetransmitReason::rnr_nak); }
  void check_send(SendMessage& message) final;
  void paused(SendMessage& message) final { give_up_psns(flow_of(message.handle)); }
  void over(Handle message) final;

  const std::size_t window_;
  const Coalescing coalescing_;
  std::vector<Flow> flows_;                               // by the handle's index
  std::vector<std::unique_ptr<Connection>> connections_;  // by peer
};

// `coalescing_by_bytes` reads these.
Option acknowledged_bytes_option();
Option coalescing_time_option();

}  // namespace softroce
