// SPDX-License-Identifier: GPL-2.0-or-later
// `ud_rto`: sender-driven recovery over UD, with a timer for each message; the baseline of
// `csa_ud`.
//
// This project's definition (docs/protocols.md, section 2). It has the same packets, bitmaps,
// reports, congestion control and acknowledgements as `csa_ud`; only the detection of loss differs.
// The receiver sends SACKs. The sender retransmits what it does not know to have arrived when
// max(3 SRTT, T_min) have passed since the last packet left.
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
  // Doubles, to T_max, when timeouts in a row bring nothing.
  Nanoseconds rto_ns(const SendMessage& message) {
    const Nanoseconds own_ns = fixed_or(timing().rto_srtt * rtt(message.peer).srtt_ns);
    return backed_off_ns(no_shorter_than_measured(message.peer, own_ns),
                         of(message).timeouts_without_progress);
  }

  void sent(SendMessage& message) override {
    if (!mutated(Mutant::rto_not_armed)) set_timer(message, now_ns() + rto_ns(message));
  }

  // The RTO may have grown with the RTT since the timer was set; then the timer goes on.
  void send_timer(SendMessage& message) override {
    const Nanoseconds rto = rto_ns(message);
    const bool all_out = message.next == message.count && message.retransmit_pending == 0;
    Nanoseconds last_ns = 0;
    for (const Sent& each : message.sent) last_ns = std::max(last_ns, each.at_ns());
    if (all_out && now_ns() < last_ns + rto) return set_timer(message, last_ns + rto);
    set_timer(message, now_ns() + rto);
    if (all_out) retransmit_sent(message, missing(message));
  }
};

}  // namespace

Transport ud_rto_transport() {
  return {.name = "ud_rto", .make = make<UdRto>, .has_rto = true, .sends_sacks = true};
}

}  // namespace softroce
