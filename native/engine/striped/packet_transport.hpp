// SPDX-License-Identifier: GPL-2.0-or-later
// The seam between the message engine and transports that react to every packet (native/transport),
// like the hardware they stand for. With one of them the engine hands no events to a policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../codec/packet.hpp"
#include "../units.hpp"
#include "../verbs/qp_event.hpp"
#include "message.hpp"

namespace softroce {

struct TransportConfig {
  Time base_rtt = 2 * kMillisecond;  // of an unloaded path
  Time rto_low = 0;                  // 0: the paper's share of base_rtt
  Time rto_high = 0;
  Time timeout = 0;               // in place of each of a transport's timeouts; 0: those
  bool timeout_measured = false;  // none is shorter than SRTT + 4 RTTVAR (RFC 6298)
  std::uint32_t bdp_packets = 1024;
  std::uint32_t retry_limit = 40;  // consecutive timeouts, or keepalives, without progress
  std::uint32_t rnr_retry = 7;     // accepted RNR NAKs; 7: unlimited
                                   // (IBA 9.7.5.2.8)
  std::uint32_t message_slots = 1024;
};

// Why a valid data packet has no effect.
enum class Refusal : std::uint8_t {
  no_receive,  // no receive is posted for the message
  too_long,    // the message is larger than its receive
  complete,    // all of the message is here already
  failed,      // its receive has ended in error
};

// Requests of a transport to the engine. A message is valid until it is ended.
class TransportHost {
 public:
  // Null: the message is over.
  virtual SendMessage* find_send(Handle send) = 0;
  virtual ReceiveMessage* find_receive(Handle receive) = 0;
  virtual Time last_received_at(PeerIndex peer) const = 0;  // any valid packet; -1: never
  virtual Time measured_rto(PeerIndex peer) const = 0;      // SRTT + 4 RTTVAR; 0: no sample yet

  // A control message of at most kMostSmallBody bytes, on that path. One that finds no room is
  // dropped and counted, as if the network had lost it.
  static constexpr std::size_t kMostSmallBody = 31;
  virtual void send_control(PeerIndex peer, std::uint8_t path,
                            std::span<const std::uint8_t> body) = 0;

  virtual void retransmit(SendMessage& message, std::uint32_t packet, RetransmitReason why,
                          Time now) = 0;
  virtual void forget_retransmit(SendMessage& message, std::uint32_t packet) = 0;
  virtual void forget_retransmissions(SendMessage& message) = 0;
  // Packets [0, limit) may be sent for the first time.
  virtual void allow(SendMessage& message, std::uint32_t limit) = 0;
  virtual void pause(SendMessage& message, bool paused) = 0;

  // The peer echoes the stamp of a packet that has just arrived there: a sample of the RTT, and
  // what was sent up to then is not in flight any more. False: no packet had that stamp.
  virtual bool echoed(PeerIndex peer, std::uint32_t stamp_ns, Time now) = 0;
  virtual void write_off(PeerIndex peer, Time sent_up_to) = 0;  // is not in flight any more

  virtual void end(SendMessage& message, WcStatus status, Time now) = 0;
  virtual void end(ReceiveMessage& message, WcStatus status, Time now) = 0;
  // The sender has given the message up: ends its receive, begun or not, unless it is over; one
  // that is not posted yet ends when it is.
  virtual void sender_gave_up(PeerIndex peer, std::uint32_t id, const MessageKey& key,
                              WcStatus status, Time now) = 0;
  virtual void wake_at(Time at, Handle subject) = 0;  // PacketTransport::woken

 protected:
  ~TransportHost() = default;
};

// Events from the engine to a transport. None of these may throw or wait.
class PacketTransport {
 public:
  virtual ~PacketTransport() = default;

  // Whether it learns of every loss and every refusal, as the simulated fabric alone can do. Its
  // packets take all paths.
  virtual bool omniscient() const { return false; }

  virtual void send_posted(SendMessage& message) = 0;
  virtual void packet_sent(SendMessage& message, std::uint32_t packet, Time now) = 0;

  virtual void receive_posted(ReceiveMessage& message, Time now) = 0;
  // Its bit is set, now or before; the message may be complete by it, and ends afterwards.
  virtual void packet_arrived(ReceiveMessage& message, const LabHeader& lab, Time now) = 0;
  virtual void packet_refused(PeerIndex peer, const LabHeader& lab, Refusal why) = 0;
  // Of an omniscient transport: it was lost, and would be here by now.
  virtual void packet_lost(PeerIndex /*peer*/, const LabHeader& /*lab*/) {}

  // Anything may be in a body. False: it makes no sense, and had no effect.
  virtual bool control_arrived(PeerIndex peer, std::span<const std::uint8_t> body, Time now) = 0;
  virtual void woken(Handle subject, Time asked_for, Time now) = 0;
};

inline constexpr std::string_view kPolicyTransport = "policy";  // events to a policy: no transport

// Null for kPolicyTransport. Throws std::invalid_argument that lists the known names for an unknown
// one.
std::unique_ptr<PacketTransport> make_packet_transport(std::string_view name,
                                                       const TransportConfig& config,
                                                       TransportHost& host);
std::vector<std::string> packet_transport_names();

}  // namespace softroce
