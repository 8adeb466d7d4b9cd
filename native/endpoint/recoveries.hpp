// SPDX-License-Identifier: GPL-2.0-or-later
// The log of recovery, packet by packet, on both clocks. It has the decisions to retransmit with
// their reasons, the retransmitted packets, NACKs, and the NAKs and timeouts of queue pairs. On a
// simulated fabric it also has the losses that no fault rule recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../engine/units.hpp"
#include "../engine/verbs/qp_event.hpp"

namespace softroce {

enum class RecoveryKind : std::uint8_t {
  retransmit,     // the sender decided to: `reason`, packets [index, last_index]; of RC PSNs
  sent_again,     // a packet left its host that had left before
  lost,           // on `link`, by something that is no rule: `cause`
  timeout,        // of a queue pair: `psn` is the oldest that is not acknowledged
  nak_sent,       // of a queue pair: `psn` is expected
  nak_received,   // of a queue pair
  nack_sent,      // of a message: `packets` are missing, among [index, last_index]
  nack_received,  // of a message: the same, at its sender
  parity_sent,    // of a message: `packets` of parity behind [index, last_index]; `cause`: why
  restored,       // of a message: packets [index, last_index], from parity
};

// A row of recovery.parquet; what does not apply is 0.
struct Recovery {
  static constexpr std::uint32_t kNoLink = UINT32_MAX;

  std::int64_t time_ns = 0;                   // since the run began
  std::uint32_t source = 0, destination = 0;  // of the packet: IPv4 addresses; 0: not known
  std::uint32_t host = 0;                     // address of the one that acted
  std::uint32_t message = 0, index = 0, last_index = 0, packets = 0;
  std::uint32_t qpn = 0;  // the destination's; of what a queue pair did, its own
  std::uint32_t psn = 0, last_psn = 0;
  std::uint32_t link = kNoLink;  // directed
  std::uint16_t operation = 0, step = 0, sport = 0, attempt = 0;
  RecoveryKind event{};
  RetransmitReason reason{};
  std::uint8_t cause = 0;  // DropCause, of a simulated fabric; of parity_sent: ParityReason
  std::uint8_t packet_kind = 0;
};

class Recoveries {
 public:
  Recoveries() { records_.reserve(kReserved); }

  void add(const Recovery& record) {
    if (records_.size() < kMostRecords)
      records_.push_back(record);
    else
      ++not_recorded_;
  }
  std::vector<Recovery> take() { return std::exchange(records_, {}); }
  std::uint64_t not_recorded() const { return not_recorded_; }

 private:
  static constexpr std::size_t kMostRecords = 1 << 20;  // 64 MiB
  static constexpr std::size_t kReserved = 1 << 12;     // before an engine's turn grows it

  std::vector<Recovery> records_;
  std::uint64_t not_recorded_ = 0;
};

// What an RNIC decides: of all its events those that are about a loss. `next` gets all of them.
class RecoverySink final : public QpEventSink {
 public:
  RecoverySink(Recoveries& recoveries, std::uint32_t address)
      : recoveries_(recoveries), address_(address) {}

  void note(const QpEvent& event) override {
    if (next != nullptr) next->note(event);
    Recovery record{.time_ns = event.at / kNanosecond, .host = address_};
    switch (event.kind) {
      case QpEventKind::message_retransmit:
        record.reason = static_cast<RetransmitReason>(event.code);
        record.cause = event.from;
        about_message(record, event, true);
        break;
      case QpEventKind::message_nack_sent:
        record.event = RecoveryKind::nack_sent;
        about_message(record, event, false);
        break;
      case QpEventKind::message_nack_received:
        record.event = RecoveryKind::nack_received;
        about_message(record, event, true);
        break;
      case QpEventKind::message_parity:
        record.event = RecoveryKind::parity_sent;
        record.cause = event.code;
        about_message(record, event, true);
        break;
      case QpEventKind::message_restored:
        record.event = RecoveryKind::restored;
        about_message(record, event, false);
        break;
      case QpEventKind::retransmit:
        record.reason = static_cast<RetransmitReason>(event.code);
        break;
      case QpEventKind::timeout:
        record.event = RecoveryKind::timeout;
        break;
      case QpEventKind::nak_sent:
        record.event = RecoveryKind::nak_sent;
        break;
      case QpEventKind::nak_received:
        record.event = RecoveryKind::nak_received;
        break;
      default:
        return;
    }
    if (record.packets == 0) {  // of a queue pair
      record.qpn = event.qp;
      record.psn = event.psn;
      record.last_psn = event.last_psn;
    }
    recoveries_.add(record);
  }

  std::shared_ptr<QpEventSink> next;

 private:
  // `sends`: the host that acts is the message's sender.
  void about_message(Recovery& record, const QpEvent& event, bool sends) const {
    record.source = sends ? address_ : event.peer_address;
    record.destination = sends ? event.peer_address : address_;
    record.message = event.key.message;
    record.operation = event.key.operation;
    record.step = event.key.step;
    record.index = event.psn;
    record.last_index = event.last_psn;
    record.packets = event.packets;
  }

  Recoveries& recoveries_;
  std::uint32_t address_;
};

}  // namespace softroce
