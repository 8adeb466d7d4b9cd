// SPDX-License-Identifier: GPL-2.0-or-later
// `srnic`: Wang et al., "SRNIC: A Scalable Architecture for RDMA NICs", NSDI 2023.
//
// From the paper: selective repeat over a lossy fabric. The receiver acknowledges packets in order.
// It keeps packets out of order and reports them by a SACK. A gap in the acknowledged packets is a
// loss. A timer of 10 base RTTs detects the losses that SACKs do not show.
//
// This project's:
//
// - A SACK carries the 64-bit word of the receiver's bitmap that contains the packet. So a later
//   SACK makes up for a lost one.
// - A packet below the highest one that is known to have arrived is lost. There is no reordering
//   window.
// - A gap causes one retransmission of a packet. If that is lost, the timer detects it.
// - The timer restarts when the cumulative acknowledgement advances. When it ends, all packets in
//   flight that are not known to have arrived are retransmitted.
// - Only the window (congestion control and credit) limits the packets in flight.
// - The rules of selective_repeat.hpp.
#include <algorithm>

#include "selective_repeat.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class Srnic final : public SelectiveRepeat {
 public:
  using SelectiveRepeat::SelectiveRepeat;

 private:
  static constexpr int kTimeoutRtts = 10;

  std::uint32_t most_out() const override { return UINT32_MAX; }

  Time timeout(const SendMessage&, const SendFlow&) const override {
    return config().timeout != 0 ? config().timeout : kTimeoutRtts * base_rtt();
  }

  Feedback out_of_order(const ReceiveMessage& message, std::uint32_t packet) const override {
    return sack_of(message, packet);
  }

  void react(SendMessage& message, SendFlow& flow, bool) override {
    retransmit_lost(message, flow);
  }

  void timed_out(SendMessage& message, SendFlow& flow) override {
    flow.lost_below = message.next;
    flow.retransmitted_below = flow.cumulative;
    retransmit_lost(message, flow);
  }
};

}  // namespace

Transport srnic_transport() {
  return {.name = "srnic",
          .make = make<Srnic>,
          .framings = {"ud"},
          .options = {path_picker_option(kPickPerMessage)},
          .has_rto = true};
}

}  // namespace softroce
