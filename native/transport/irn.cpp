// SPDX-License-Identifier: GPL-2.0-or-later
// `irn`: Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018, sections 3.1 and 3.2.
//
// From the paper: a receiver responds to every out-of-order packet by a NACK that carries the
// cumulative acknowledgement and the sequence number that triggered it, and keeps the packet. A
// NACK or a timeout puts the sender into loss recovery: it retransmits the packet at the cumulative
// acknowledgement first; any other is lost only if a packet with a higher number is known to have
// arrived. With nothing left to retransmit it continues with new packets. It leaves recovery when
// the cumulative acknowledgement passes the last packet that was sent before the retransmission. At
// most one bandwidth-delay product is out past the cumulative acknowledgement (BDP-FC). The timer
// is RTO_low while at most three packets are out, RTO_high otherwise.
//
// From the authors' hardware modules (github.com/NetSys/irn-vivado-hls), where the paper has no
// rule: a partial acknowledgement during recovery means that the packet at it is lost, unless that
// was retransmitted already; a timeout makes the sender begin again at the cumulative
// acknowledgement; the timer runs for RTO_low first, and is extended if more than three packets are
// out by then.
//
// This project's: that a NACK which also advances the cumulative acknowledgement begins recovery
// too (the paper's words; the modules wait for the next); the timer begins again when the
// cumulative acknowledgement advances; and all that selective_repeat.hpp names.
#include <algorithm>

#include "selective_repeat.hpp"

namespace softroce {
namespace {

class Irn final : public SelectiveRepeat {
 public:
  using SelectiveRepeat::SelectiveRepeat;

 private:
  static constexpr std::uint32_t kFewOut = 3;

  std::uint32_t most_out() const override { return config().bdp_packets; }

  Time timeout(const SendMessage& message, const SendFlow& flow) const override {
    const bool few = message.next - flow.cumulative <= kFewOut;
    return few ? config().rto_low : config().rto_high;
  }

  Feedback out_of_order(const ReceiveMessage&, std::uint32_t packet) const override {
    return {.type = BodyType::packet_nack, .packet = packet};
  }

  void react(SendMessage& message, SendFlow& flow, const Feedback& feedback, bool advanced,
             Time now) override {
    if (flow.recovering && flow.cumulative > flow.recovery_end) flow.recovering = false;
    if (!flow.recovering) {
      const bool gap = feedback.type == BodyType::packet_nack && feedback.packet > flow.cumulative;
      if (!gap) return;  // in order, or overtaken by what closed the gap
      recover(message, flow, now);
    } else if (advanced && flow.retransmitted_below <= flow.cumulative) {
      retransmit(message, flow, flow.cumulative, now);
    }
    retransmit_lost(message, flow, now);
  }

  void timed_out(SendMessage& message, SendFlow& flow, Time now) override {
    recover(message, flow, now);
    retransmit_lost(message, flow, now);
  }

  void recover(SendMessage& message, SendFlow& flow, Time now) {
    flow.recovering = true;
    flow.recovery_end = message.next - 1;
    flow.retransmitted_below = flow.cumulative;
    retransmit(message, flow, flow.cumulative, now);
  }
};

}  // namespace

std::unique_ptr<PacketTransport> make_irn(const TransportConfig& config, TransportHost& host) {
  return std::make_unique<Irn>(config, host);
}

}  // namespace softroce
