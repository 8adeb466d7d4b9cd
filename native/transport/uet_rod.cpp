// SPDX-License-Identifier: GPL-2.0-or-later
// `uet_rod`: reliable ordered delivery (ROD) of Ultra Ethernet's packet delivery sublayer.
// uet_session.hpp names the sources, and has the rules for acknowledgements, trimming and timers.
//
// From the sources:
//
// - The receiver drops each packet behind a gap. Its answer is a NACK (ROD_OOO) that names the
//   expected PSN [spec, pp. 233-235]. [provider] keeps such packets, and sends no NACK.
// - The sender *goes back*: it retransmits the expected packet and all later ones [spec].
// - All packets take one path [spec: one entropy value].
//
// This project's rules:
//
// - Packets are in order within a message, not within the connection. So the sender goes back
//   within one message, and each message has its own path.
// - At a NACK, the sender goes back only if the dropped packet was sent after the newest
//   transmission of the expected packet. So the sender goes back once for a loss, although the
//   receiver sends a NACK for each dropped packet. If the retransmission is lost, the sender goes
//   back again.
// - The sender also goes back to a packet that was trimmed or whose timer ended, because the
//   receiver drops the packets behind it. After a timeout, the timeouts of all these packets
//   double, so that their timers end in order.
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
  // The receiver takes packets in order only. So `received` is the index of the expected packet.
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
