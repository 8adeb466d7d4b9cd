// SPDX-License-Identifier: GPL-2.0-or-later
// `irn`: Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018, sections 3.1 and 3.2.
//
// From the paper:
//
// - 3.1: The receiver keeps an out-of-order packet and answers it by a NACK. The NACK carries the
//   cumulative acknowledgement and the number of that packet.
// - 3.1: A NACK or a timeout starts loss recovery. The sender retransmits the packet at the
//   cumulative acknowledgement first. Any other packet is lost only if a packet with a higher
//   number is known to have arrived. When nothing is left to retransmit, new packets follow.
// - 3.2: At most one bandwidth-delay product is in flight past the cumulative acknowledgement
//   (BDP-FC).
// - 4.1: The timer is RTO_low while at most three packets are in flight, else RTO_high.
//
// From the authors' hardware modules (github.com/NetSys/irn-vivado-hls), where the paper has no
// rule:
//
// - A partial acknowledgement, one that does not end recovery, means that the packet at it is lost,
//   unless that packet was retransmitted already (receiveAck.cpp). Here this holds only in recovery
//   that a timeout started.
// - The timer runs for RTO_low first. It is extended if more than three packets are in flight by
//   then (timeout.cpp).
//
// This project's:
//
// - Recovery by a timeout ends with the last packet that was sent before the timeout. In the
// modules
//   each retransmission moves that end.
// - The timer restarts when the cumulative acknowledgement advances.
// - The rules of selective_repeat.hpp.
//
// Recovery by a NACK needs no state. The packet at the cumulative acknowledgement lies below the
// one that the NACK names, so it is lost by the paper's condition. A packet is retransmitted only
// once until the timer ends.
#include <algorithm>

#include "selective_repeat.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class Irn final : public SelectiveRepeat {
 public:
  using SelectiveRepeat::SelectiveRepeat;

 private:
  static constexpr std::uint32_t kFewOut = 3;

  std::uint32_t most_out() const override { return config().window_packets; }

  Time timeout(const SendMessage& message, const SendFlow& flow) const override {
    const bool few = message.next - flow.cumulative <= kFewOut;
    return few ? rto_low() : rto_high();
  }

  Feedback out_of_order(const ReceiveMessage&, std::uint32_t packet) const override {
    return {.type = BodyType::packet_nack, .packet = packet};
  }

  void react(SendMessage& message, SendFlow& flow, bool advanced) override {
    const bool timed_out = flow.cumulative < flow.timed_out_below;
    const bool next_is_lost = advanced && timed_out && flow.retransmitted_below <= flow.cumulative;
    if (!next_is_lost || retransmit(message, flow, flow.cumulative)) retransmit_lost(message, flow);
  }

  void timed_out(SendMessage& message, SendFlow& flow) override {
    flow.timed_out_below = message.next;
    flow.retransmitted_below = flow.cumulative;
    if (retransmit(message, flow, flow.cumulative)) retransmit_lost(message, flow);
  }
};

}  // namespace

Transport irn_transport() {
  return {.name = "irn",
          .make = make<Irn>,
          .framings = {"ud"},
          .options = {path_picker_option(kPickPerMessage)},
          .has_rto = true};
}

}  // namespace softroce
