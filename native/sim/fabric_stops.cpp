// SPDX-License-Identifier: GPL-2.0-or-later
// Why a port with packets leaves its link idle, as far as the fabric's queues tell.
#include <algorithm>

#include "fabric.hpp"

namespace softroce::sim {
namespace {

constexpr std::uint32_t kQueuedFrames = 2;  // as many wait: the queue is no frame on its way
constexpr Time kNoWay = kNever / 2;
constexpr Time kSampleServes = 4;  // round trips of the empty fabric

}  // namespace

// A sample of the queues serves for a while: a port may stop after each packet.
Stop Fabric::cause(Port& port) {
  const Stops& stops = port.rnic().stops();
  const Stop why = stops.why();
  if (!stops.changed() || (why != Stop::queue && why != Stop::congestion_control)) return why;
  const MessageConfig& config = port.rnic().messages().config();
  if (now_ >= port.ways_good_until) {
    port.ways = examine(port, stops.flow());
    port.ways_good_until = now_ + kSampleServes * config.initial_rtt;
  }
  const Time queued = kQueuedFrames * links_[port.uplink].time_of(config.path_mtu, now_);
  if (why == Stop::congestion_control && port.ways.waiting <= queued) return why;
  return stops.flow().has_one_path && port.ways.least_of_others <= port.ways.waiting / 2
             ? Stop::single_path
             : Stop::queue;
}

// What waits on a flow's way now, and what on the least busy of those that leave it at one switch.
Fabric::Ways Fabric::examine(const Port& port, const StoppedFlow& of) const {
  Ways found;
  const PortIndex destination = port_of(of.destination);
  if (load_balancing_ != LoadBalancing::flow || destination == kNowhere) return found;
  const lab_flow flow{port.address, of.destination, of.source_port, LAB_ROCE_UDP_PORT, kUdp};
  End end = ends_[port.uplink];
  for (std::size_t hop = 0; hop < kPlannedLinks && !end.to_host; ++hop) {
    const Switch& at = switches_[end.index];
    const Group& group = group_to(at, destination);
    if (group.ways == 0) break;
    const LinkIndex chosen = choose_for_flow(at, group, flow);
    for (std::uint32_t way = 0; way < group.ways; ++way) {
      const LinkIndex other = at.links[group.first + way];
      if (other == chosen) continue;
      const Time waiting = found.waiting + waiting_from(other, flow, destination);
      found.least_of_others = std::min(found.least_of_others, waiting);
    }
    found.waiting += waiting_on(chosen);
    end = ends_[chosen];
  }
  return found;
}

Time Fabric::waiting_on(LinkIndex link) const {
  return std::max(Time{0}, links_[link].busy_until() - now_);
}

// On a link and those behind it that the flow would take.
Time Fabric::waiting_from(LinkIndex link, const lab_flow& flow, PortIndex destination) const {
  Time waiting = waiting_on(link);
  for (std::size_t hop = 0; hop < kPlannedLinks && !ends_[link].to_host; ++hop) {
    const Switch& at = switches_[ends_[link].index];
    const Group& group = group_to(at, destination);
    if (group.ways == 0) return kNoWay;
    link = choose_for_flow(at, group, flow);
    waiting += waiting_on(link);
  }
  return waiting;
}

}  // namespace softroce::sim
