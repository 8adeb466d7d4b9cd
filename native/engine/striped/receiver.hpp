// SPDX-License-Identifier: GPL-2.0-or-later
// Messages on their way in: matched with posted receives, placed packet by packet, completed.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "clearance.hpp"
#include "control_queue.hpp"
#include "engine_state.hpp"
#include "loss_detector.hpp"
#include "reporter.hpp"

namespace softroce {

class Receiver {
 public:
  Receiver(EngineState& state, Reporter& reporter, ControlQueue& control)
      : state_(state), reporter_(reporter), control_(control) {}

  bool post(const MessageRequest& request, Time now);  // false: as MessageEngine::post_receive
  void fail(Handle receive, WcStatus status, Time now);
  void flush(std::optional<PeerIndex> peer, Time now, WcStatus status);  // as MessageEngine's
  // The sender has given the message up: ends its receive, begun or not, unless it is over. False:
  // there is none, yet or any more.

  // Something is put to this memory. What parity restores there later would be wrong.
  void overwritten(const std::uint8_t* at, std::uint64_t bytes);
  // An operation that may not come ends in this status at its sender.
  void refuse_operation(PeerIndex peer, std::uint32_t id, const MessageKey& key, WcStatus status,
                        Time now);

  ReceiveMessage* find(Handle receive) { return messages_.find(receive); }
  // What the peer's message of this id fills; null: it has not begun, or is over.
  ReceiveMessage* find_begun(PeerIndex peer, std::uint32_t id) {
    const ReceiveSlot& slot = state_.peers[peer].receive_slots[state_.slot_of(id)];
    const bool begun = slot.state == ReceiveSlot::State::open && slot.id == id;
    return begun ? messages_.find(slot.message) : nullptr;
  }
  bool is_complete(PeerIndex peer, std::uint32_t id) {
    const ReceiveSlot& slot = state_.peers[peer].receive_slots[state_.slot_of(id)];
    return slot.state == ReceiveSlot::State::complete && slot.id == id;
  }
  // Posted, and not begun.
  ReceiveMessage* find_posted(PeerIndex peer, const MessageKey& key) {
    const auto found = posted_.find({peer, key});
    return found == posted_.end() ? nullptr : messages_.find(found->second);
  }
  Pool<ReceiveMessage, kReceiveTag>& messages() { return messages_; }
  LossDetector& losses() { return losses_; }
  const LossDetector& losses() const { return losses_; }

  // Packets of this receive that are overtaken and do not come within the window are reported.
  void detect_gaps(Handle receive, Time window, Time now);
  void gap_fired(Handle receive, Time armed_for, Time now);

  // The session has restored all data of a submessage; coding.cpp.
  void restored(Handle receive, std::uint32_t submessage, Time now);

  void handle_data(Peer& peer, const Packet& packet, Time now);
  void handle_channel_packet(Packet& packet, Time now);
  void clear_fired(Peer& peer, Time armed_for, Time now);
  void names_fired(Peer& peer, Time armed_for, Time now);

 private:
  void report_trimmed(Peer& peer, const Packet& packet, Time now);
  void place(Peer& peer, ReceiveSlot& slot, ReceiveMessage& message, const Packet& packet,
             Time now);
  ReceiveMessage* open_message(Peer& peer, ReceiveSlot& slot, const Packet& packet,
                               const CodeLayout& layout, Time now);
  bool slot_taken(Peer& peer, ReceiveSlot& slot, const Packet& packet, Time now);
  ReceiveMessage* open_operation(Peer& peer, ReceiveSlot& slot, const Packet& packet, Time now);
  bool is_held(const ReceiveMessage& message, std::uint32_t index) const;
  bool has_memory(ReceiveMessage& message, Time now);
  void note_overlap(ReceiveMessage& message);
  void restore_held(ReceiveMessage& message, const std::vector<std::uint32_t>& missing);
  void begin(ReceiveMessage& message, Time now);
  ReceiveMessage* refuse(Peer& peer, ReceiveSlot& slot, const LabHeader& lab, Counter why,
                         EventKind event, Time now);
  void report_at_intervals(Peer& peer, ReceiveSlot& slot, const LabHeader& lab, EventKind event,
                           Time now);
  void complete(ReceiveMessage& message, WcStatus status, Time now);
  void finish(ReceiveMessage& message, Time now);
  std::uint8_t* place_of(ReceiveMessage& message, std::uint32_t index);
  bool is_tail_parity(const LabHeader& lab) const {
    return state_.parity.enabled && lab.kind == LAB_KIND_PARITY;
  }
  void take_parity(ReceiveMessage& message, const Packet& packet, Time now);
  void restore_tail(ReceiveMessage& message, Time now);
  void note_restored(ReceiveMessage& message, std::uint32_t index, Time now);
  std::uint64_t restored_key(const Peer& peer, std::uint32_t id) const {
    return std::uint64_t{peer.index} << 32 | state_.slot_of(id);
  }
  bool came_when_restored(const Peer& peer, const LabHeader& lab);
  void note_chunk(ReceiveMessage& message, std::uint32_t index, Time now);
  static void end_coding(ReceiveMessage& message);
  void arm_gap_check(ReceiveMessage& message, Time not_before);
  void report_gaps(ReceiveMessage& message, Time now);

  // Of the framing uc_immediate, receiver_channels.cpp.
  void give_slots(Peer& peer, Time now);
  bool waits_for_name(Peer& peer, Time now);
  void send_clearance(Peer& peer, const std::vector<Cleared>& receives);
  void arm_clearance(Peer& peer, Time now);
  void repeat_clearance(Peer& peer, Time now);

  EngineState& state_;
  Reporter& reporter_;
  ControlQueue& control_;
  Pool<ReceiveMessage, kReceiveTag> messages_;
  TailCoder coder_;
  LossDetector losses_{state_, reporter_, messages_};
  struct Restored {  // packets of a message that parity restored, and that have not arrived
    std::uint32_t id = 0;
    Bitmap packets;
  };
  // By peer and slot: kept beyond the message's end, until parity restores another one's packets.
  std::unordered_map<std::uint64_t, Restored> restored_;
  std::unordered_map<PeerKey, Handle, PeerKeyHash> posted_;  // not begun yet
  std::vector<Handle> restorable_;  // operations that have begun, and that parity may complete
};

}  // namespace softroce
