// SPDX-License-Identifier: GPL-2.0-or-later
// Events of queue pairs, one by one, for the event log. The log is usually off:
// then an event costs one branch.
#pragma once

#include <cstdint>

#include "../units.hpp"
#include "completion.hpp"

namespace softroce {

enum class QpEventKind : std::uint8_t {
  state,            // `from` became `code`, of enum QpState
  post_send,        // `code`: WrOpcode
  post_recv,        // not to a shared receive queue
  sent,             // all packets of a request have left once: PSNs [psn, last_psn]
  retransmit,       // PSNs [psn, last_psn] are to be sent again; `code`: RetransmitReason
  timeout,          // the timer ran out; `psn`: the oldest that is not acknowledged
  ack_received,     // up to `psn`
  nak_received,     // `code`: the syndrome
  rnr_received,     // RNR NAK; `code`: its timer
  ack_sent,         // up to `psn`
  nak_sent,         // `code`: the syndrome
  rnr_sent,         // RNR NAK; `code`: its timer
  response_sent,    // a READ's or an atomic's result, PSNs [psn, last_psn]
  out_of_sequence,  // a request with `psn` came, `last_psn` is expected
  duplicate,        // a request with `psn` came again, `last_psn` is expected
  dropped,          // `code`: the counter of the reason
  completion,       // a work request ended: `code` WcStatus, `from` WcOpcode
  // Of striped messages:
  message,                // `code`: EventKind, the event for the session
  message_retransmit,     // packets [psn, last_psn] of it; `code`: RetransmitReason
  control_sent,           // `bytes` of a control message
  message_nack_sent,      // `packets` of it are missing, among indices [psn, last_psn]
  message_nack_received,  // the same, at its sender
  message_parity,  // `packets` of parity leave behind packets [psn, last_psn]; `code`: ParityReason
  message_restored,  // packets [psn, last_psn] of it were restored from parity
};

// Why parity that is not part of each message leaves: the host has nothing else to send until
// something arrives, or the round trip that it may save is longer than what it delays.
enum class ParityReason : std::uint8_t { idle, gain };

// `policy`: a session or a user's policy decided; `cause` says why (striped/decision.hpp).
// `informed`: the simulated fabric informed an omniscient transport.
enum class RetransmitReason : std::uint8_t {
  timeout,
  nak,
  implied_nak,
  rnr_nak,
  policy,
  informed,
  trimmed,
};

struct QpEvent {
  QpEventKind kind{};
  std::uint8_t code = 0, from = 0;
  bool signaled = true;  // of a completion: it has an entry in its completion queue
  std::uint32_t qp = 0;
  Time at = 0;
  std::uint32_t psn = 0, last_psn = 0;
  std::uint64_t wr_id = 0;
  std::uint64_t bytes = 0;
  std::uint32_t peer = 0;  // this and the rest: of striped messages
  std::uint32_t packets = 0;
  std::uint32_t peer_address = 0;  // IPv4, as a number; of message_retransmit and what follows it
  std::uint32_t loss_ppm = 0;      // of message_parity: measured by the sender, packets in 10^6
  MessageKey key{};
};

// Called in the engine's turn: to be quick, and never to wait.
class QpEventSink {
 public:
  virtual ~QpEventSink() = default;
  virtual void note(const QpEvent& event) = 0;
};

}  // namespace softroce
