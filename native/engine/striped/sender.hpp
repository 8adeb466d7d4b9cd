// SPDX-License-Identifier: GPL-2.0-or-later
// Messages on their way out: first passes and retransmissions to each peer, in turn, as far as flow
// control lets them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "clearance.hpp"
#include "engine_state.hpp"
#include "flow_control.hpp"
#include "nack.hpp"
#include "probe.hpp"
#include "send_order.hpp"

namespace softroce {

class Sender {
 public:
  Sender(EngineState& state, FlowControl& flow)
      : state_(state), flow_(flow), order_(schedule_of(state.config.schedule)) {}

  bool post(const MessageRequest& request, Time now);  // false: as MessageEngine::post_send
  void complete(Handle send, WcStatus status, Time now);
  void flush(std::optional<PeerIndex> peer, Time now, WcStatus status);  // as MessageEngine's

  SendMessage* find(Handle send) { return messages_.find(send); }
  SendMessage* find(PeerIndex peer, std::uint32_t id);  // null: it is over, or never was
  Pool<SendMessage, 0>& messages() { return messages_; }

  bool has_packet() const {
    return !probe_ring_.empty() || !retransmit_ring_.empty() || !order_.empty() ||
           !parity_ring_.empty();
  }
  bool poll_probe(Packet& packet, Time now);
  void arm_probes(Peer& peer, Time now);
  void names_fired(Peer& peer, Time armed_for, Time now);
  void move_path(Peer& peer, std::uint8_t path, Time now);  // to its next source port
  void move_silent_paths(Peer& peer, Time now);
  void move_slow_path(Peer& peer, Time now);
  void try_first_port(Peer& peer, Time now);  // of a path that fell silent there
  void leave_dead_ports(Peer& peer, std::uint32_t dead, Time now);  // paths, by bits
  void probe_missing_controls(Peer& peer);
  void repeat_fired(Peer& peer, Time armed_for, Time now);
  void probe_fired(Peer& peer, Time armed_for, Time now);
  bool poll_retransmit(Packet& packet, Time now);
  bool poll_data(Packet& packet, Time now);
  bool poll_parity(Packet& packet, Time now);
  void make_ready(Peer& peer);  // after anything that may let more be sent to it
  void prefetch_next() const {  // the peer whom the next packet goes to
    if (!order_.empty()) state_.peers[order_.peer()].prefetch_sending();
  }

  static constexpr std::uint32_t kMostCopies = 16;  // of one retransmission
  // An action that names a stale handle is counted.
  void retransmit(Handle send, std::span<const std::uint32_t> indices, bool urgent,
                  std::uint32_t copies, Time now, std::uint8_t cause = 0);
  void pause(Handle send, bool paused);
  // The parity of submessages up to this one may be sent; coding.cpp.
  void release_parity(Handle send, std::uint32_t submessage, Time now);

  void retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why, Time now);
  void forget_retransmit(SendMessage& message, std::uint32_t packet);
  void allow(SendMessage& message, std::uint32_t limit);
  void hold(Peer& peer, bool held);
  void pause(SendMessage& message, bool paused);

  void handle_clearance(Peer& peer, const Packet& packet, Time now);
  void handle_nack(Peer& peer, const Packet& packet, Time now);

 private:
  SendMessage& start_message(Peer& peer, const MessageRequest& request, Time now);
  std::uint32_t take_id(Peer& peer, Handle send);
  bool waits_for_id(Peer& peer, SendMessage& message, Time now);
  void send_held(Peer& peer, Time now);
  void build_data(Peer& peer, SendMessage& message, std::uint32_t index, bool retransmit, Time now,
                  Packet& packet);
  void complete_packet(Peer& peer, const SendMessage& message, bool retransmit, Time now,
                       Packet& packet);
  void put_parity(const SendMessage& message, std::uint32_t parity, Packet& packet) const;
  static void end_coding(SendMessage& message);
  bool has_memory(SendMessage& message);
  void finish_if_drained(SendMessage& message, Time now);
  void leave_queue(SendMessage& message, Peer& peer);
  void queue_retransmit(SendMessage& message, bool urgent = false);
  static void ask_for_copies(SendMessage& message, std::uint32_t index, std::uint32_t copies);
  static bool takes_copy(SendMessage& message, std::uint32_t index);
  void queue_first_pass(SendMessage& message);

  // Of recovery by path numbers, sender_losses.cpp.
  std::uint8_t first_path(Peer& peer, SendMessage& message, Time now);
  Time srtt_to(const Peer& peer) const {
    return peer.rtt.srtt != 0 ? peer.rtt.srtt : state_.config.initial_rtt;
  }
  // A packet that has the next number of the path leaves.
  static void note_on_path(Peer& peer, std::uint8_t path, Time now) {
    peer.loads.sent(path);
    relaxed_store(peer.sent_on[path], peer.sent_on[path] + 1);
    peer.progress[path].waits_since = std::min(peer.progress[path].waits_since, now);
  }
  void expect_again(Peer& peer, std::uint8_t path, Time now);
  Time next_trial(const Peer& peer, Time now) const;
  void change_port(Peer& peer, std::uint8_t path);
  void probe_when_idle(Peer& peer, Time now);
  Time probes_due(const Peer& peer) const;
  void queue_probe(Peer& peer, std::uint32_t paths);
  std::uint8_t path_of_probe(Peer& peer, bool is_copy) const;
  void arm_repeat(Peer& peer, Time now);
  std::uint32_t oldest_unacknowledged(Peer& peer);
  bool waits_for_answer(Peer& peer);
  static bool answers_probe(const Peer& peer, const Nack& nack);
  SendMessage* find_in_slot(Peer& peer, std::uint32_t id);
  void find_lost(Peer& peer, std::span<const NackWord> words, Time now);
  void find_lost_whole(Peer& peer, Time now);
  void note_lost(Peer& peer, SendMessage& message, std::uint32_t begin, std::uint32_t end,
                 Time now);
  void report_lost(const SendMessage& message, Time now);

  // Parity of a message's last packets, tail_parity.cpp.
  void note_sent_data(const SendMessage& message, Time now);
  bool queue_parity(Time now);
  std::uint32_t rows_for(const SendMessage& message, const Peer& peer) const;
  std::optional<ParityReason> reason_for(const SendMessage& message, const Peer& peer,
                                         std::uint32_t rows) const;
  void encode_tail(SendMessage& message, std::uint32_t rows);
  void build_parity(Peer& peer, SendMessage& message, Time now, Packet& packet);

  // Of the framing uc_immediate, sender_channels.cpp.
  void wait_for_clearance(Peer& peer, SendMessage& message, Time now);
  void start_if_cleared(Peer& peer, std::uint32_t id, Time now);
  void leave_channel(Peer& peer, const SendMessage& message, Time now);
  void address_channel_packet(Peer& peer, const SendMessage& message, Time now, Packet& packet);

  EngineState& state_;
  FlowControl& flow_;
  std::deque<PeerIndex> retransmit_ring_;  // peers to whom retransmissions wait
  SendOrder order_;                        // of first transmissions
  std::deque<PeerIndex> probe_ring_;       // peers whose paths are to be probed
  std::vector<std::uint8_t> probe_body_;   // of the one that leaves
  Probe probe_;                            // the same, before it is written
  Nack nack_;                              // the one being handled,
  std::vector<LostPacket> lost_;           // and what is lost of a message by it
  struct WaitingParity {
    Handle message;
    PeerIndex peer;
  };
  std::vector<Handle> tails_;  // messages whose data was sent, without a decision about parity
  std::deque<WaitingParity> parity_ring_;  // messages whose parity is to be sent
  TailCoder coder_;
  std::uint64_t data_sent_ = 0, parity_sent_ = 0;  // packets
  Pool<SendMessage, 0> messages_;
  std::unordered_set<PeerKey, PeerKeyHash> outstanding_;
};

}  // namespace softroce
