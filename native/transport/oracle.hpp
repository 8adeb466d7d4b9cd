// SPDX-License-Identifier: GPL-2.0-or-later
// `oracle` [D]: a bound for retransmission after loss, on the virtual clock alone. A packet that is
// lost, whatever lost it, goes on as a ghost of no bytes through the queues ahead of it
// (sim/ghosts.cpp). Its receiver answers the ghost as it would the packet, and the sender
// retransmits at once. Feedback occupies nothing and cannot be lost.
//
// So there are no timers, no keepalives, and no retransmission of what has arrived. Windows and
// congestion control are those of all transports; packets take all paths, as csa_ud's do.
//
// - A packet that was lost kEager times in a row waits for a sixteenth of the time since the first
//   loss before each further transmission: an outage of a second costs a hundred, not 100,000.
// - One that is lost for as long as `retry_limit` times the longest wait of irn and srnic (40 ms,
// or
//   a base RTT) ends its send in IBV_WC_RETRY_EXC_ERR, and the receive with it.
// - A packet without a posted receive is refused; what was refused is retransmitted when the
// receive
//   is posted. The wait has no limit (rnr_retry 7, IBA 9.7.5.2.8).
#pragma once

#include <memory>

#include "../engine/striped/packet_transport.hpp"

namespace softroce {

// Throws std::invalid_argument: an rnr_retry that limits the wait for a receive.
std::unique_ptr<PacketTransport> make_oracle(const TransportConfig& config, TransportHost& host);

}  // namespace softroce
