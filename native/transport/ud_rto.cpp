// SPDX-License-Identifier: GPL-2.0-or-later
// `ud_rto`: recovery over UD by a timer at the sender, one for each message. It is the baseline of
// `csa_ud`. All of it is this project's definition (docs/explanation/transports.md).
//
// Packets, bitmaps, reports, congestion control and acknowledgements are those of `csa_ud`. Only
// loss detection differs. The receiver sends SACKs. The RTO max(3 SRTT, T_min) runs from the last
// transmission of the message. When it ends, the sender retransmits all packets that are not known
// to have arrived.
#include <algorithm>

#include "../engine/mutant.hpp"
#include "sack_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class UdRto final : public SackReceiver {
 public:
  using SackReceiver::SackReceiver;

 private:
  // The RTO doubles with consecutive timeouts without progress, up to T_max.
  Nanoseconds rto_ns(const SendMessage& message) {
    const Nanoseconds base_ns = fixed_or(timing().rto_srtt * rtt(message.peer).srtt_ns);
    return backed_off_ns(measured_or(message.peer, base_ns), of(message).timeouts_without_progress);
  }

  void sent(SendMessage& message) override {
    if (!mutated(Mutant::rto_not_armed)) set_timer(message, now_ns() + rto_ns(message));
  }

  // If the RTO has grown with the RTT since the timer was set, the timer is extended.
  void send_timer(SendMessage& message) override {
    const Nanoseconds rto = rto_ns(message);
    const bool all_sent = message.next == message.count && message.retransmit_pending == 0;
    Nanoseconds last_ns = 0;
    for (const Sent& each : message.sent) last_ns = std::max(last_ns, each.at_ns());
    if (all_sent && now_ns() < last_ns + rto) return set_timer(message, last_ns + rto);
    set_timer(message, now_ns() + rto);
    if (all_sent) retransmit_sent(message, missing(message));
  }
};

}  // namespace

Transport ud_rto_transport() {
  return {.name = "ud_rto", .make = make<UdRto>, .has_rto = true, .sends_sacks = true};
}

}  // namespace softroce
