// SPDX-License-Identifier: GPL-2.0-or-later
// `irn`: Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018, sections 3.1 and 3.2.
//
// From the paper, section 3.1: a receiver responds to every out-of-order packet by a NACK that
// carries the cumulative acknowledgement and the sequence number that triggered it, and keeps the
// packet. A NACK or a timeout puts the sender into loss recovery: it retransmits the packet at the
// cumulative acknowledgement first; any other is lost only if a packet with a higher number is
// known to have arrived. With nothing left to retransmit it continues with new packets. Section
// 3.2: at most one bandwidth-delay product is out past the cumulative acknowledgement (BDP-FC).
// Section 4.1: the timer is RTO_low while at most three packets are out, RTO_high otherwise.
//
// Recovery that a NACK began needs no state: the packet at the cumulative acknowledgement lies
// below the one that the NACK names, so all that is retransmitted is lost by the paper's condition,
// and each packet is retransmitted once until the timer runs out.
//
// From the authors' hardware modules (github.com/NetSys/irn-vivado-hls), where the paper has no
// rule: in recovery that a timeout began, a partial acknowledgement means that the packet at it is
// lost, unless that was retransmitted already (receiveAck.cpp; there in all recovery); the timer
// runs for RTO_low first, and is extended if more than three packets are out by then (timeout.cpp).
//
// This project's: that recovery by a timeout ends with the last packet sent before that timeout (in
// the modules each retransmission moves the end); the timer begins again when the cumulative
// acknowledgement advances; and all that selective_repeat.hpp names.
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
  return {.name = "irn", .make = make<Irn>, .framings = {"ud"}, .has_rto = true};
}

}  // namespace softroce
