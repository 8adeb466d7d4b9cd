// SPDX-License-Identifier: GPL-2.0-or-later
// `srnic`: Wang et al., "SRNIC: A Scalable Architecture for RDMA NICs", NSDI 2023.
//
// From the paper: selective repeat over a lossy fabric; in-order packets are acknowledged,
// out-of-order ones kept and reported by a SACK; a gap in what is acknowledged is a loss, and what
// SACKs do not reveal is left to a timer, 10 times the base RTT.
//
// This project's: a SACK carries the whole 64-bit word of the receiver's bitmap that the packet
// belongs to, so that a lost SACK is made up for by the next; a packet below the highest one known
// to have arrived is lost, with no allowance for reordering; it is retransmitted once, and if that
// is lost too the timer finds it; the timer begins again when the cumulative acknowledgement
// advances, and retransmits all that is out and not known to have arrived. No cap on what is out
// but the window of congestion control and credit. And all that selective_repeat.hpp names.
#include <algorithm>

#include "../engine/mutant.hpp"
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
    return {.type = BodyType::packet_sack,
            .packet = packet & ~63U,
            .bits = message.bitmap.word(packet / 64) << mutated(Mutant::sack_shifted)};
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
  return {.name = "srnic", .make = make<Srnic>, .framings = {"ud"}, .has_rto = true};
}

}  // namespace softroce
