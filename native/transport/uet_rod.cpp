// SPDX-License-Identifier: GPL-2.0-or-later
// `uet_rod`: reliable ordered delivery of Ultra Ethernet's PDS. Sources, acknowledgements, trimming
// and timers: uet_session.hpp.
//
// From the sources:
//
// - The receiver drops a packet behind a gap. It answers each one by a NACK (ROD_OOO) that names
//   the expected PSN [spec, pp. 233-235]. [provider] keeps such packets, and sends no NACK.
// - The sender goes back: it retransmits the expected packet and all behind it [spec].
// - Packets keep one path [spec: one entropy].
//
// This project's rules:
//
// - The order is that of a message's packets, not that of the connection. So the sender goes back
//   in one message, and each message has its own path.
// - The sender goes back if the dropped packet was sent after the newest transmission of the
//   expected one. So one loss makes it go back once, although each dropped packet has a NACK, and
//   the loss of the retransmission makes it go back again.
// - It also goes back to a packet whose timer ended or that was trimmed: the receiver drops what
//   was sent behind them. After a timeout all of these packets have doubled timeouts, so that their
//   timers end in order.
#include "../engine/mutant.hpp"
#include "uet_session.hpp"

namespace softroce {
namespace {

class UetRod final : public UetSession {
 public:
  using UetSession::UetSession;

 private:
  void go_back(Connection& connection, Psn first, RetransmitReason why);

  // ---- hooks
  // Packets arrive in order, so `received` is the first one that is missing.
  bool refuses(ReceiveMessage& message, const Packet& packet, Time now) override;
  void dropped_out_of_order(Connection& connection, Psn expected, Nanoseconds sent_ns) override {
    const Record& record = connection.at(expected);
    if (record.is_out() && record.sent_ns <= sent_ns)
      go_back(connection, expected, RetransmitReason::nak);
  }
  void payload_cut(Connection& connection, Psn psn, bool) override {
    go_back(connection, psn, RetransmitReason::trimmed);
  }
  void timed_out(Connection& connection, Psn psn) override {
    go_back(connection, psn, RetransmitReason::timeout);
  }
};

bool UetRod::refuses(ReceiveMessage& message, const Packet& packet, Time now) {
  if (packet.lab.index <= message.received) return false;
  if (mutated(Mutant::dropped_counts)) message.bitmap.set(packet.lab.index);
  set_now(now);
  send_feedback(message.peer,
                {.type = BodyType::packet_nack,
                 .id = message.id,
                 .cumulative = message.received + mutated(Mutant::expected_one_too_many),
                 .packet = packet.lab.index},
                echo_of(packet));
  return true;
}

// Retransmits the packet, and the message's packets behind it.
void UetRod::go_back(Connection& connection, Psn first, RetransmitReason why) {
  const Record& lost = connection.at(first);
  SendMessage* message = engine().find_send(lost.message);
  if (message != nullptr) message->retransmit_cursor = lost.packet;
  for (Psn psn = first; psn < connection.end(); ++psn) {
    const Record& record = connection.at(psn);
    if (record.message != lost.message || !record.is_out()) continue;
    if (why == RetransmitReason::timeout)
      retransmit(connection, psn, why);
    else
      retransmit_early(connection, psn, psn == first ? why : RetransmitReason::nak);
  }
}

}  // namespace

Transport uet_rod_transport() {
  return {.name = "uet_rod",
          .make = make<UetRod>,
          .framings = {"ud"},
          .options = UetSession::options(kPickPerMessage),
          .has_rto = true};
}

}  // namespace softroce
