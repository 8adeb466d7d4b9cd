// SPDX-License-Identifier: GPL-2.0-or-later
// Why a port with packets leaves its link idle, as far as the fabric's queues tell.
#include <algorithm>

#include "fabric.hpp"

namespace softroce::sim {
namespace {

constexpr std::uint32_t kQueuedFrames = 2;  // as many wait: the queue is no frame on its way
constexpr Time kNoWay = kNever / 2;         // no queue is as long
constexpr Time kSampleServes = 4;           // round trips of the empty fabric

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
  return stops.flow().has_one_path && port.ways.another_has_room ? Stop::single_path : Stop::queue;
}

// What waits on a flow's way now, and whether on another, that leaves it at one switch, waits at
// most half as much.
Fabric::Ways Fabric::examine(const Port& port, const StoppedFlow& of) const {
  const PortIndex destination = port_of(of.destination);
  if (load_balancing_ != LoadBalancing::flow || destination == kNowhere) return {};
  const lab_flow flow{port.address, of.destination, of.source_port, LAB_ROCE_UDP_PORT, kUdp};
  const Time waiting = waiting_behind(ends_[port.uplink], flow, destination, kNoWay);
  if (waiting == kNoWay) return {};
  Time before = 0;  // on the way that is shared
  End end = ends_[port.uplink];
  for (std::size_t hop = 0; hop < kPlannedLinks && !end.to_host; ++hop) {
    const Switch& at = switches_[end.index];
    const Group& group = group_to(at, destination);
    if (group.ways == 0) break;
    const LinkIndex chosen = choose_for_flow(at, group, flow);
    for (std::uint32_t way = 0; way < group.ways; ++way) {
      const LinkIndex other = at.links[group.first + way];
      const Time here = before + waiting_on(other);
      if (other == chosen || here > waiting / 2) continue;
      if (here + waiting_behind(ends_[other], flow, destination, waiting / 2 - here) <= waiting / 2)
        return {waiting, true};
    }
    before += waiting_on(chosen);
    if (before > waiting / 2) break;
    end = ends_[chosen];
  }
  return {waiting, false};
}

Time Fabric::waiting_on(LinkIndex link) const {
  return std::max(Time{0}, links_[link].busy_until() - now_);
}

// On the links behind that end which the flow would take; more than `most` is counted no further.
Time Fabric::waiting_behind(End end, const lab_flow& flow, PortIndex destination, Time most) const {
  Time waiting = 0;
  for (std::size_t hop = 0; hop < kPlannedLinks && !end.to_host && waiting <= most; ++hop) {
    const Switch& at = switches_[end.index];
    const Group& group = group_to(at, destination);
    if (group.ways == 0) return kNoWay;
    const LinkIndex link = choose_for_flow(at, group, flow);
    waiting += waiting_on(link);
    end = ends_[link];
  }
  return waiting;
}

}  // namespace softroce::sim
