// SPDX-License-Identifier: GPL-2.0-or-later
// What an omniscient transport has of the fabric: a lost packet goes
// on as a ghost of no bytes through the queues ahead of it, and its receiver gets a call when it
// comes. Feedback takes the delays of its way, and nothing else: no queue, no rate, no rule.
#include <algorithm>

#include "fabric.hpp"

namespace softroce::sim {

void Fabric::begin_ghost(FlightIndex index, LinkIndex onto) {
  Flight& flight = flights_[index];
  ++off_links_;
  flight.link = kNowhere;
  flight.ghost_on = onto;
  const Time at = onto != kNowhere ? links_[onto].ghost_arrival(now_) : now_;
  arrive_at(at, {EventKind::ghost, index});
}

void Fabric::move_ghost(FlightIndex index) {
  Flight& flight = flights_[index];
  if (flight.ghost_on != kNowhere) {
    const End end = ends_[std::exchange(flight.ghost_on, kNowhere)];
    Time at = now_;  // where no route leads on, too
    if (end.to_host) {
      const RnicPipeline& pipeline = ports_[end.index].pipeline;
      at = std::max(now_, pipeline.receive_free()) + pipeline.latency();
    } else if (const Switch& next = switches_[end.index];
               group_to(next, flight.destination).ways != 0 && flight.hop_limit > 1) {
      --flight.hop_limit;
      const Group& group = group_to(next, flight.destination);
      flight.ghost_on = choose_for_flow(next, group, flights_.load(index).flow);
      at = links_[flight.ghost_on].ghost_arrival(now_);
    }
    return arrive_at(at, {EventKind::ghost, index});
  }
  --off_links_;
  Port& port = ports_[flight.destination];
  port.rnic().messages().handle_loss(flights_.load(index).packet, now_);
  discard(index);
  serve(port);
}

void Fabric::send_feedback(Port& port) {
  MessageEngine& engine = port.rnic().messages();
  while (engine.has_feedback()) {
    const FlightIndex index = flights_.acquire();
    Load& load = flights_.load(index);
    load.packet = {};
    engine.poll_feedback(load.packet, now_);
    Flight& flight = flights_[index];
    prepare(flight, load);
    ++off_links_;
    flight.link = kNowhere;
    wheel_.add(now_ + propagation(port, flight, load.flow), {EventKind::feedback, index});
  }
}

void Fabric::hand_feedback(FlightIndex index) {
  const Flight& flight = flights_[index];
  Port& port = ports_[flight.destination];
  Packet& packet = flights_.load(index).packet;
  packet.hop_limit = flight.hop_limit;
  --off_links_;
  port.rnic().handle_packet(packet, now_);
  discard(index);
  serve(port);
}

// Of the way that this flow takes now, hosts' latencies included; up to where no route leads on.
Time Fabric::propagation(const Port& from, Flight& flight, const lab_flow& flow) const {
  Time whole = 0;
  LinkIndex link = from.uplink;
  for (;;) {
    whole += links_[link].propagation(now_);
    const End end = ends_[link];
    if (end.to_host) return whole + ports_[end.index].pipeline.latency();
    const Switch& at = switches_[end.index];
    const Group& group = group_to(at, flight.destination);
    if (group.ways == 0 || flight.hop_limit <= 1) return whole;
    --flight.hop_limit;
    link = choose_for_flow(at, group, flow);
  }
}

}  // namespace softroce::sim
