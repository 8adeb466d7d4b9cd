// SPDX-License-Identifier: GPL-2.0-or-later
#include "fabric.hpp"

#include <algorithm>
#include <utility>

#include "../engine/codec/codec.hpp"

namespace softroce::sim {
namespace {

constexpr std::uint8_t kEcnMask = 3;
constexpr std::size_t kFlightAhead = 20, kLinkAhead = 12, kTurnsAhead = 5;  // events
constexpr std::uint32_t kLooks = 8;  // of lb: adaptive at queues, as LAB_LOOKS of xdp/fabric.c
constexpr std::size_t kMostRecords = 1 << 20;  // 64 MiB of what rules did

// What remains without the data after the lab header and its padding.
std::uint32_t trimmed_bytes(const Packet& packet, std::uint32_t length) {
  if (!packet.has_lab_header || !lab_kind_is_named(packet.lab.kind) || packet.payload_bytes == 0)
    return 0;
  return length - (packet.payload_bytes + kMostPadBytes) / 4 * 4;
}

std::uint64_t flow_key(const Load& load) {
  return lab_absorb(std::uint64_t{load.flow.src} << 32 | load.flow.dst, load.packet.destination_qp);
}

// What a packet needs of its RNIC, which has this queue pair and talks to this peer.
Touched touched(const Rnic& rnic, std::uint32_t qp, const Gid& peer) {
  return {qp, peer, qp == rnic.data_qp() || qp == rnic.recovery_qp()};
}

}  // namespace

// ---------------------------------------------------------------- running

bool Fabric::run(Time until, std::uint64_t most_events) {
  attention_.clear();
  serve_touched();
  Event event;
  std::uint64_t left = most_events;
  while (attention_.empty() && left != 0) {
    if (!touched_.empty()) {  // a session acted
      if (now_ >= until) {    // the driver has something to do at this moment
        attention_ = touched_;
        break;
      }
      serve_touched();
      continue;
    }
    if (!wheel_.take(until, now_, event)) break;
    --left;
    if (now_ >= sample_at_) [[unlikely]]
      sample();
    look_ahead();
    switch (event.kind) {
      case EventKind::arrival:
        arrive(event.subject);
        break;
      case EventKind::wake:
        if (Port& port = ports_[event.subject]; port.wake_at == now_) {
          port.wake_at = kNever;
          serve(port);
        }
        break;
      case EventKind::step:
        step(event.subject);
        break;
      case EventKind::enter: {
        Port& port = ports_[port_of(flights_.load(event.subject).flow.src)];
        port.processed.push() = event.subject;
        send_processed(port);
        wake_later(port);
        break;
      }
      case EventKind::come:
        deliver(event.subject, ports_[ends_[flights_[event.subject].link].index]);
        break;
      case EventKind::ghost:
        move_ghost(event.subject);
        break;
      case EventKind::feedback:
        hand_feedback(event.subject);
        break;
    }
  }
  paused_ = attention_.empty() && left == 0;
  if (attention_.empty() && !paused_ && until != kNever) now_ = std::max(now_, until);
  return !attention_.empty();
}

// Fetches from memory what events need that come soon: each step what the one before has led to.
void Fabric::look_ahead() {
  if (const Event* event = wheel_.foresee(kFlightAhead)) {
    if (event->kind == EventKind::arrival) flights_.prefetch(event->subject);
    if (event->kind == EventKind::wake) ports_[event->subject].prefetch();
  }
  if (const Event* event = wheel_.foresee(kLinkAhead)) {
    if (event->kind == EventKind::arrival) prefetch_next(event->subject);
    if (event->kind == EventKind::wake) ports_[event->subject].prefetch_last();
  }
  if (const Event* event = wheel_.foresee(kTurnsAhead);
      event && event->kind == EventKind::arrival) {
    const Flight& flight = flights_[event->subject];
    if (const LinkIndex next = flight.next(); next != kNowhere)
      links_[next].prefetch_turns();
    else if (flight.destination != kNowhere)
      ports_[flight.destination].prefetch_for(flights_.load(event->subject).packet);
  }
}

// Where a packet goes when it arrives: onto the next link, or, most likely, to its host.
void Fabric::prefetch_next(FlightIndex index) const {
  const Flight& flight = flights_[index];
  if (const LinkIndex next = flight.next(); next != kNowhere) return links_[next].prefetch();
  flights_.prefetch_load(index);
  if (flight.destination != kNowhere) ports_[flight.destination].prefetch();
}

// A caller acted on its RNIC.
void Fabric::touch(Port& port) {
  if (std::exchange(port.touched, true)) return;
  touched_.push_back(port.index_);
}

void Fabric::serve_touched() {
  serving_.swap(touched_);
  std::ranges::sort(serving_);
  for (const PortIndex index : serving_) ports_[index].touched = false;
  for (const PortIndex index : serving_) serve(ports_[index]);
  serving_.clear();
}

void Fabric::serve(Port& port) {
  if (port.rnic().next_timeout() <= now_ && port.timers_run(now_) == now_)
    port.rnic().handle_timeout(now_);
  if (port.totals.held != 0) send_processed(port);
  transmit(port);
  wake_later(port);
  MessageEngine& messages = port.rnic().messages();
  if (!messages.events().empty() && port.rnic().end_turn(now_)) touch(port);
  note_attention(port);
}

void Fabric::note_attention(Port& port) {
  const std::size_t pushed = port.rnic().completions_pushed();
  MessageEngine& messages = port.rnic().messages();
  const bool has_events = !messages.events().empty() && !messages.handles_events();
  if (!has_events && pushed == port.pushed_seen) return;
  port.pushed_seen = pushed;
  if (attention_.empty() || attention_.back() != port.index_) attention_.push_back(port.index_);
}

// The port sends when its link can take a packet, so that what is urgent overtakes in the RNIC.
void Fabric::transmit(Port& port) {
  Rnic& rnic = port.rnic();
  if (port.omniscient) [[unlikely]]
    send_feedback(port);
  while (may_send_at(port) <= now_ && rnic.has_packet()) {
    const FlightIndex index = flights_.acquire();
    Load& load = flights_.load(index);
    if (!rnic.poll_packet(load.packet, now_)) {
      flights_.release(index);
      break;
    }
    rnic.stops().packet_leaves(now_);
    Flight& flight = flights_[index];
    prepare(flight, load);
    if (recoveries_ != nullptr) note_sent_again(load, port);
    if (fates_ != nullptr) [[unlikely]]
      name_fate(load);
    rnic.packet_done(now_);
    flight.tie_salt = port.tie_salt;
    if (load_balancing_ == LoadBalancing::flow) plan(port, flight, load.flow);
    if (learns_) learn(load);
    const Packet& sent = load.packet;
    const Time at = port.pipeline.transmit(touched(rnic, sent.source_qp, sent.destination), now_);
    const Link& link = links_[port.uplink];
    if (++port.totals.held == 1 && at == now_ && link.busy_until() <= now_) {
      come_out(index, port);
    } else {
      port.to_send += link.time_of(flight.length, now_);
      wheel_.add(at, {EventKind::enter, index});
    }
  }
  if (rnic.stops().concerned() && !rnic.has_packet())
    rnic.stops().link_idle(std::max(now_, may_send_at(port)), cause(port));
}

// What has been processed waits in the RNIC, and not in the queue of its link, where it might be
// dropped.
void Fabric::send_processed(Port& port) {
  const Link& link = links_[port.uplink];
  while (!port.processed.empty() && link.busy_until() <= now_) {
    const FlightIndex index = port.processed.front();
    port.processed.pop();
    port.to_send -= link.time_of(flights_[index].length, now_);
    come_out(index, port);
  }
  if (port.totals.held == 0) port.to_send = 0;  // whatever became of the rate meanwhile
}

// A packet leaves its RNIC.
void Fabric::come_out(FlightIndex index, Port& port) {
  --port.totals.held;
  ++port.totals.sent;
  enter(index, port.uplink);
}

// A packet is processed while the one before it is being sent.
Time Fabric::may_send_at(const Port& port) const {
  return std::max(links_[port.uplink].busy_until() + port.to_send - port.pipeline.ahead(),
                  port.pipeline.transmit_free());
}

void Fabric::wake_later(Port& port) {
  Time at = port.timers_run(std::max(port.rnic().next_timeout(), now_));
  if (port.rnic().has_packet()) at = std::min(at, std::max(now_, may_send_at(port)));
  if (port.totals.held != 0 && !port.processed.empty())
    at = std::min(at, links_[port.uplink].busy_until());
  if (at >= port.wake_at) return;
  port.wake_at = at;
  wheel_.add(port.wake_at, {EventKind::wake, port.index_});
}

std::uint32_t Fabric::port_of(std::uint32_t address) const {
  const std::uint32_t at = address - least_address_;
  return at < port_of_address_.size() ? port_of_address_[at] : kNowhere;
}

// The fields of a packet just sent by an RNIC that the fabric uses.
void Fabric::prepare(Flight& flight, Load& load) {
  Packet& packet = load.packet;
  load.flow = {number_of(packet.source), number_of(packet.destination), packet.source_port,
               LAB_ROCE_UDP_PORT, kUdp};
  flight.destination = port_of(load.flow.dst);
  flight.length = frame_bytes(packet);
  load.trimmed_length = trimmed_bytes(packet, flight.length);
  flight.ecn = packet.traffic_class & kEcnMask;
  flight.hop_limit = packet.hop_limit;
  flight.corrupted = false;
  flight.planned_for = 0;
  load.spare = false;
  load.copies = 0;
  if (packet.payload != nullptr) {
    load.bytes.assign(packet.payload, packet.payload + packet.payload_bytes);
    packet.payload = load.bytes.data();
  }
}

// Every switch chooses by the flow alone: so all packets of a flow go the way of its first one,
// until routes change.
void Fabric::plan(Port& port, Flight& flight, const lab_flow& flow) {
  PlannedFlow& known = port.planned(flight.destination, flow.sport);
  if (known.planned_for != routes_ || known.destination != flight.destination ||
      known.source_port != flow.sport) {
    known = {.planned_for = routes_, .destination = flight.destination, .source_port = flow.sport};
    known.plan.fill(kNowhere);
    End end = ends_[port.uplink];
    for (LinkIndex& link : known.plan) {
      if (end.to_host) break;
      const Switch& at = switches_[end.index];
      const Group& group = group_to(at, flight.destination);
      if (group.ways == 0) break;
      link = choose_for_flow(at, group, flow);
      end = ends_[link];
    }
  }
  flight.plan = known.plan;
  flight.planned_for = routes_;
  flight.planned_at = 0;
}

// ---------------------------------------------------------------- onto a link

void Fabric::enter(FlightIndex index, LinkIndex onto) {
  Link& link = links_[onto];
  link.enter();
  if (!link.is_straight()) return enter_crooked(index, onto);
  const Flight& flight = flights_[index];
  bool marked = false;
  const Time arrival = link.pass_straight(flight.length, flight.ecn != 0, now_, marked);
  fly(index, onto, arrival, marked);
}

void Fabric::enter_crooked(FlightIndex index, LinkIndex onto) {
  Link& link = links_[onto];
  lab_leg leg{};
  if (link.rules != nullptr || (fates_ != nullptr && fates_->replays())) {
    if (!meet_rules(index, link, onto, leg)) {
      const bool down = (leg.effects & LAB_EFFECT_DOWN) != 0;
      return lose(index, onto, down ? DropCause::link_down : DropCause::rule);
    }
  } else if (tap_ != nullptr) [[unlikely]] {
    tap_->see(flights_[index], flights_.load(index), onto, link, {}, now_);
  }
  if (leg.effects & LAB_EFFECT_CUT && flights_.load(index).trimmed_length != 0) {
    note_cut(flights_.load(index));
    trim(index, onto);
  }
  if (leg.effects & LAB_EFFECT_DUPLICATE) {
    note_duplicate(flights_.load(index));
    const FlightIndex copy = flights_.acquire();
    flights_[copy] = flights_[index];
    Load& load = flights_.load(copy);
    load = flights_.load(index);
    if (load.packet.payload != nullptr) load.packet.payload = load.bytes.data();
    load.fate = Fates::of_copy(load.fate, hop_of(index));
    ++link.rare.duplicated;
    queue(index, onto, leg, false);
    return queue(copy, onto, leg, true);
  }
  queue(index, onto, leg, false);
}

// Its payload is gone, its headers go on.
void Fabric::trim(FlightIndex index, LinkIndex onto) {
  ++links_[onto].rare.trimmed;
  Flight& flight = flights_[index];
  Load& load = flights_.load(index);
  flight.length = std::exchange(load.trimmed_length, 0);
  load.packet.lab.trimmed = true;
  load.packet.payload_bytes = 0;
  load.packet.traffic_class = trimmed_class(flight.ecn, ends_[onto].to_host);
}

// False: a rule takes the packet.
bool Fabric::meet_rules(FlightIndex index, Link& link, LinkIndex number, lab_leg& leg) {
  Flight& flight = flights_[index];
  lab_verdict verdict{};
  verdict.rule_id[LAB_SLOT_DROP] = LAB_FATE_PASSED;
  decide(index, link.rules.get(), verdict);
  if (tap_ != nullptr) [[unlikely]]
    tap_->see(flight, flights_.load(index), number, link, verdict, now_);
  leg = {verdict.effects, verdict.jitter};
  if (verdict.effects == 0) return true;
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    const std::uint32_t effect = verdict.effects & lab_effects_of_slot(slot);
    if (effect != 0) log(index, number, verdict.rule_id[slot], effect);
  }
  link.rare.corrupted += (verdict.effects & LAB_EFFECT_CORRUPT) != 0;
  link.rare.reordered += (verdict.effects & LAB_EFFECT_REORDER) != 0;
  flight.corrupted |= (verdict.effects & LAB_EFFECT_CORRUPT) != 0;
  if ((verdict.effects & LAB_EFFECT_DROP) == 0) return true;
  ++((verdict.effects & LAB_EFFECT_DOWN) != 0 ? link.rare.dropped_down : link.rare.dropped);
  return false;
}

void Fabric::decide(FlightIndex index, Rules* rules, lab_verdict& verdict) {
  const auto now_ns = static_cast<std::uint64_t>(now_ / kNanosecond);
  if (fates_ != nullptr && fates_->replays()) [[unlikely]]
    return replay_fate(index, rules, now_ns, verdict);
  const lab_packet packet = describe(flights_.load(index));
  if (!hits_name(*rules, packet, now_ns, verdict))
    lab_fault_decide(&rules->set, &rules->state, &packet, now_ns, &verdict);
}

bool Fabric::hits_name(Rules& rules, const lab_packet& packet, std::uint64_t now_ns,
                       lab_verdict& verdict) {
  const lab_fault_set& set = rules.set;
  if (set.needs & LAB_NEED_DOWN && lab_link_is_down(&set, now_ns, &verdict)) return false;
  for (std::uint32_t each = 0; each < set.tuples; ++each) {
    lab_name_key key{};
    if (!lab_name_of(&packet, set.tuple[each], &key) || !lab_name_maybe(&set, &key)) continue;
    const auto found =
        rules.named[each].find(std::uint64_t{key.first} << 32 | std::uint64_t{key.second});
    if (found == rules.named[each].end()) continue;
    if (!lab_named_hits(&found->second, &packet, set.needs & LAB_NEED_TIME, now_ns)) continue;
    verdict.effects = LAB_EFFECT_DROP;
    verdict.rule_id[LAB_SLOT_DROP] = found->second.rule_id;
    return true;
  }
  return false;
}

lab_packet Fabric::describe(const Load& load) const {
  const Packet& packet = load.packet;
  lab_packet described{};
  described.id = {load.flow.src, load.flow.dst, 0, 0, 0, 0, LAB_KIND_NONE, 0, 0};
  described.kind_bit = LAB_KIND_BIT_OTHER;
  described.opcode = packet.opcode;
  described.qpn = packet.destination_qp & kPsnMask;
  described.psn = packet.psn & kPsnMask;
  if (packet.has_lab_header) {
    described.id = identity_of(load);
    described.kind_bit = lab_kind_bit(packet.lab.kind);
    described.tail = packet.lab.count - packet.lab.index;
    described.trimmed = packet.lab.trimmed;
  }
  if (!learns_) return described;
  if (load.new_tail) described.kind_bit |= LAB_KIND_BIT_TAIL;
  if (const auto known = flows_.find(flow_key(load)); known != flows_.end()) {
    described.relative_qpn = known->second.number;
    described.relative_psn = ((described.psn - known->second.first_psn) & kPsnMask) + 1;
  }
  return described;
}

// As the host port's program does it: a connection has its number from its first packet on.
void Fabric::learn(Load& load) {
  const std::uint32_t psn = load.packet.psn & kPsnMask;
  const auto [flow, fresh] = flows_.try_emplace(flow_key(load));
  if (fresh) flow->second = {++spoken_to_[load.flow.src], psn, 0};
  load.new_tail = lab_ends_rc_message(load.packet.opcode) != 0 &&
                  lab_tail_is_new(&flow->second.newest_tail, psn) != 0;
}

void Fabric::log(FlightIndex index, LinkIndex link, std::uint32_t rule, std::uint32_t effect) {
  if (drops_.size() >= kMostRecords) {
    if (links_[link].rules != nullptr) ++links_[link].rules->not_logged;
    return;
  }
  if (fates_ != nullptr) fates_->log(fate_key(index));
  const Load& load = flights_.load(index);
  const lab_packet packet = describe(load);
  drops_.push_back({.time_ns = static_cast<std::uint64_t>(now_ / kNanosecond),
                    .directed_link = link,
                    .rule_id = rule,
                    .src = packet.id.src,
                    .dst = packet.id.dst,
                    .message = packet.id.message,
                    .index = packet.id.index,
                    .operation = packet.id.operation,
                    .step = packet.id.step,
                    .attempt = packet.id.attempt,
                    .kind = packet.id.kind,
                    .zero = 0,
                    .sport = load.flow.sport,
                    .effect = static_cast<std::uint16_t>(effect),
                    .psn = packet.psn,
                    .qpn = packet.qpn,
                    .length = flights_[index].length});
}

void Fabric::queue(FlightIndex index, LinkIndex onto, const lab_leg& leg, bool copy) {
  Link& link = links_[onto];
  if (link.stepwise) return queue_stepwise(index, onto, leg, copy);
  const Flight& flight = flights_[index];
  bool marked = false;
  const Time arrival = link.pass(flight.length, flight.ecn != 0, leg, now_, marked);
  fly(index, onto, arrival, marked);
}

// A link has taken the packet, or, if it never arrives, had no room for it.
void Fabric::fly(FlightIndex index, LinkIndex onto, Time arrival, bool marked) {
  if (arrival == kNever) [[unlikely]] {
    ++links_[onto].rare.dropped_limit;
    return lose(index, onto, DropCause::full_queue);
  }
  Flight& flight = flights_[index];
  if (marked) [[unlikely]] {
    flight.ecn = kEcnMask;
    ++links_[onto].rare.marked;
  }
  flight.link = onto;
  arrive_at(arrival, {EventKind::arrival, index});
}

// Links of equal rates and delays bring packets at the same moment. The order of scheduling would
// favour one source for a whole run, so a hash of the run's key, the source and the moment decides
// who enters a queue first. Packets of one source keep their order.
void Fabric::arrive_at(Time at, Event event) {
  const std::uint32_t salt = flights_[event.subject].tie_salt;
  const std::uint64_t draw = lab_absorb(salt, static_cast<std::uint64_t>(at));
  wheel_.add(at, event, static_cast<std::uint32_t>(draw >> (64 - kTieBits)));
}

void Fabric::queue_stepwise(FlightIndex index, LinkIndex onto, const lab_leg& leg, bool copy) {
  Link& link = links_[onto];
  Flight& flight = flights_[index];
  Load& load = flights_.load(index);
  wire::Frame frame{.handle = index,
                    .length = flight.length,
                    .trimmed_length = load.trimmed_length,
                    .ecn_capable = flight.ecn != 0,
                    .roce = true,
                    .copy = copy};
  flight.link = onto;
  const bool taken = link.stepwise->offer(frame, leg, now_, departures_) == wire::Offered::taken;
  link.rare.most_waiting_packets =
      std::max(link.rare.most_waiting_packets, link.stepwise->waiting_packets());
  link.rare.most_waiting_bytes =
      std::max(link.rare.most_waiting_bytes, link.stepwise->waiting_bytes());
  if (taken) link.take(frame.length);
  if (!taken) {
    ++link.rare.dropped_limit;
    lose(index, onto, DropCause::full_queue);
  } else if (frame.trimmed) {
    note_unruled(load, onto, DropCause::trimmed);
    note_cut(load);
    trim(index, onto);
  } else if (frame.marked) {
    ++link.rare.marked;
    flight.ecn = kEcnMask;
  }
  depart(onto);
}

// What the link has released since the last call.
void Fabric::depart(LinkIndex from) {
  Link& link = links_[from];
  for (const wire::Departure& each : departures_) {
    link.stepwise->released(each.frame, each.at, each.at);
    arrive_at(each.at + link.lag(), {EventKind::arrival, each.frame.handle});
  }
  departures_.clear();
  const Time next = link.stepwise->next();
  if (next == kNever || next == link.step_at) return;
  link.step_at = next;
  wheel_.add(next, {EventKind::step, from});
}

void Fabric::step(LinkIndex number) {
  Link& link = links_[number];
  if (link.step_at == now_) link.step_at = kNever;
  link.stepwise->advance(now_, departures_);
  depart(number);
}

// ---------------------------------------------------------------- at the far end

void Fabric::arrive(FlightIndex index) {
  Flight& flight = flights_[index];
  ++hops_;
  if (flight.planned_for == routes_ && flight.hop_limit > 1) [[likely]] {
    if (const LinkIndex next = flight.next(); next != kNowhere) {
      ++flight.planned_at;
      --flight.hop_limit;
      return enter(index, next);
    }
  }
  const End end = ends_[flight.link];
  if (end.to_host) return reach(index, ports_[end.index]);
  forward(index, switches_[end.index]);
}

void Fabric::reach(FlightIndex index, Port& port) {
  const Packet& packet = flights_.load(index).packet;
  const Time processed =
      port.pipeline.receive(touched(port.rnic(), packet.destination_qp, packet.source), now_);
  const Time at = processed + port.pipeline.latency();
  if (at == now_) return deliver(index, port);
  wheel_.add(at, {EventKind::come, index});
}

void Fabric::deliver(FlightIndex index, Port& port) {
  const Flight& flight = flights_[index];
  Packet& packet = flights_.load(index).packet;
  ++port.totals.received;
  if (flight.corrupted) {
    ++port.totals.corrupted;
    port.rnic().counters().add(Counter::rx_wrong_icrc);
    return lose(index, kNowhere, DropCause::corrupted);
  }
  packet.traffic_class = static_cast<std::uint8_t>((packet.traffic_class & ~kEcnMask) | flight.ecn);
  packet.hop_limit = flight.hop_limit;
  if (port.reasons == 0) [[likely]]
    port.rnic().handle_packet(packet, now_);
  else
    examine(flights_.load(index), port);
  discard(index);
  serve(port);
}

// A switch that has to route a packet.
void Fabric::forward(FlightIndex index, Switch& at) {
  Flight& flight = flights_[index];
  const Group& group = group_to(at, flight.destination);
  if (group.ways == 0) {
    ++at.no_route;
    return lose(index, kNowhere, DropCause::no_route);
  }
  if (flight.hop_limit <= 1) {
    ++at.ttl_exceeded;
    return lose(index, kNowhere, DropCause::no_route);
  }
  --flight.hop_limit;
  enter(index, choose(at, group, index));
}

LinkIndex Fabric::choose_for_flow(const Switch& at, const Group& group, const lab_flow& flow) {
  const LinkIndex* links = &at.links[group.first];
  if (group.ways == 1) return links[0];
  return links[lab_route_choose(lab_route_hash(at.salt, &flow), group.ways)];
}

LinkIndex Fabric::choose(const Switch& at, const Group& group, FlightIndex index) {
  if (load_balancing_ == LoadBalancing::flow || group.ways == 1)
    return choose_for_flow(at, group, flights_.load(index).flow);
  const LinkIndex* links = &at.links[group.first];
  const std::uint32_t hash = lab_spray_hash(at.salt, ++received_by_[flights_[index].link]);
  const std::uint32_t way = lab_route_choose(hash, group.ways);
  if (load_balancing_ == LoadBalancing::spray) return links[way];
  LinkIndex best = links[way];
  std::uint64_t least = links_[best].waiting_bytes(now_);
  for (std::uint32_t each = 1; each < std::min(group.ways, kLooks); ++each) {
    const LinkIndex other = links[(way + each) % group.ways];
    const std::uint64_t bytes = links_[other].waiting_bytes(now_);
    if (bytes >= least) continue;
    best = other;
    least = bytes;
  }
  return best;
}

}  // namespace softroce::sim
