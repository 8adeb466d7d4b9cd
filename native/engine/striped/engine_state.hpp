// SPDX-License-Identifier: GPL-2.0-or-later
// What the parts of the message engine share; each part owns the rest of what it uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "../codec/codec.hpp"
#include "../counters.hpp"
#include "../stops.hpp"
#include "../verbs/completion.hpp"
#include "../verbs/memory.hpp"
#include "event_queue.hpp"
#include "framing.hpp"
#include "grants.hpp"
#include "message_config.hpp"
#include "message_owner.hpp"
#include "message_session.hpp"
#include "peer_table.hpp"
#include "timers.hpp"
#include "ud_framing.hpp"

namespace softroce {

// Numbers of the engine's queue pairs among those of its process.
inline constexpr std::uint32_t kDataQpNumber = 0x11, kRecoveryQpNumber = 0x12;

inline std::uint32_t saturate_ns(Time time) {
  return static_cast<std::uint32_t>(std::min<Time>(time / kNanosecond, UINT32_MAX));
}

ParityConfig parity_of(const Options& options);  // tail_parity.cpp

struct EngineState {
  // `config` stays its owner's, and outlives this. Throws std::invalid_argument: what of it is out
  // of bounds or unknown.
  EngineState(const MessageConfig& config, MemoryTable& memory, CompletionQueue& completions,
              Counters& counters, std::uint32_t data_qp, std::uint32_t recovery_qp);

  std::uint32_t slot_of(std::uint32_t id) const { return id & (config.message_slots - 1); }
  // UC packets have no room for numbers on paths: their PSNs count by channel (IBA 9.8.2.1).
  bool numbers_paths() const { return framing == Framing::ud && has(kPathNumbers); }
  bool has(Mechanism each) const { return config.path_probes && (config.without & each) == 0; }
  bool joins_reports() const { return numbers_paths() && has(kJoinedReports); }
  // Whether a message of a session that reacts to every packet stays on one path.
  bool keeps_to_one_path() const { return path_picker == kPickPerMessage; }
  std::uint32_t control_bytes() const { return config.path_mtu - LAB_HDR_BYTES; }

  // A UD packet with our header, from QP to QP of one kind: the first sending of data on the data
  // QPs, all the rest on the recovery QPs.
  void address(Peer& peer, bool recovery, Time now, Packet& packet) {
    packet.destination_mac = peer.address.mac;
    packet.source = peer.address.source;
    packet.destination = peer.address.gid;
    packet.qkey = peer.address.qkey;
    packet.destination_qp = recovery ? peer.address.recovery_qp : peer.address.data_qp;
    packet.source_qp = recovery ? recovery_qp : data_qp;
    packet.psn = recovery ? recovery_psn++ : data_psn++;
    packet.lab.epoch = config.connection_epoch;
    packet.lab.stamp_ns = stamp_of(now);
    packet.lab.srtt = lab_time_code(saturate_ns(peer.rtt.srtt));
    packet.lab.rttvar = lab_time_code(saturate_ns(peer.rtt.rttvar));
    if (is_control(packet.lab.kind) && numbers_paths())
      peer.controls.sent(packet.lab.path, peer.ports.tries_first(packet.lab.path), now);
    packet.lab.path = peer.ports.of(packet.lab.path);
    ud_framing::close(packet);
    if (packet.lab.kind != LAB_KIND_DATA && packet.lab.kind != LAB_KIND_PARITY)
      counters.add(Counter::tx_control_bytes, frame_bytes(packet));
  }

  // Of a message of that many bytes, coding.cpp. `place`: of the code in the list of the run's
  // codes; beyond it: no code.
  CodeLayout layout_of(std::uint32_t length, std::uint32_t place) const;
  // The block that parity of a message covers, tail_parity.cpp.
  TailCoder::Block tail_block(std::uint8_t* base, std::uint32_t length,
                              std::uint32_t packets) const;
  // SRTT of data from the peer, as its packets carry it.
  Time srtt_from(const Peer& peer) const {
    return peer.remote_srtt_ns != 0 ? Time{peer.remote_srtt_ns} * kNanosecond : config.initial_rtt;
  }
  bool fits(std::uint32_t length, const CodeLayout& layout) const {  // a header has room for it
    const std::uint32_t data = packets_of(length, chunk_bytes);
    return framing == Framing::ud ? data <= LAB_COUNT_MASK && layout.fits()
                                  : data + layout.parity_packets() <= uc_framing::kMostPackets;
  }

  const MessageConfig& config;
  const Framing framing;
  const Time base_rtt;                 // of an empty fabric
  const std::string_view path_picker;  // a name: path_picker.hpp
  const ParityConfig parity;
  const Time packet_time;  // of a packet of data on the port
  const std::uint32_t chunk_bytes;
  std::uint32_t data_qp;
  std::uint32_t recovery_qp;
  std::uint32_t data_psn = 0;
  std::uint32_t recovery_psn = 0;
  Counters& counters;
  Stops stops{counters};
  MemoryTable& memory;
  std::unique_ptr<MessageSession> session;  // null: events by hand
  MessageOwner* owner = nullptr;            // of operations' messages; null: there are none
  MessageSession* reacting = nullptr;       // the same, if it reacts to every packet
  TimerQueue timers;
  PeerTable peers;
  Grants grants;
  EventQueue events;
  // Of each packet that a code restored: its sender, message id and index. Empty: nobody asks.
  std::function<void(const Gid&, std::uint32_t, std::uint32_t, Time)> on_restored;
};

}  // namespace softroce
