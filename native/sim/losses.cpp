// SPDX-License-Identifier: GPL-2.0-or-later
// Packets that are lost: what it takes until their payload is at the receiver after all.
#include "../engine/striped/uc_framing.hpp"
#include "../engine/verbs/connected_qp.hpp"
#include "fabric.hpp"

namespace softroce::sim {
namespace {

// Data or parity of a striped message. Of the framing uc_immediate, the fields that the sender had
// in mind are still there.
bool is_of_message(const Packet& packet) {
  const bool channel =
      packet.opcode == uc_framing::kOpcode && packet.destination_qp >= uc_framing::kFirstQp;
  return (packet.has_lab_header || channel) && lab_kind_is_named(packet.lab.kind);
}

}  // namespace

// Nothing: no data packet; nobody misses parity by itself. Of RC, packets with a request's payload:
// those of a READ's response are left out.
std::optional<PacketName> Fabric::name_of(const Load& load) {
  const Packet& packet = load.packet;
  PacketName name{.source = load.flow.src, .destination = load.flow.dst};
  if (packet.has_lab_header || is_of_message(packet)) {
    if (packet.lab.kind != LAB_KIND_DATA) return std::nullopt;
    name.first = packet.lab.message_id;
    name.second = packet.lab.index;
    name.striped = true;
    return name;
  }
  const Family family = traits_of(packet.opcode).family;
  if (service_of(packet.opcode) != Service::rc ||
      (family != Family::send && family != Family::write))
    return std::nullopt;
  name.first = packet.destination_qp;
  name.second = packet.psn & kPsnMask;
  return name;
}

lab_packet Fabric::describe_as_sent(const Load& load) const {
  lab_packet packet = describe(load);
  if (is_of_message(load.packet)) packet.id = identity_of(load);
  return packet;
}

void Fabric::lose(FlightIndex index, LinkIndex onto, DropCause cause) {
  Load& load = flights_.load(index);
  note_unruled(load, onto, cause);
  const auto name = name_of(load);
  if (!name || flights_[index].destination == kNowhere || load.spare || !resolve_copy(load, false))
    return discard(index);
  note_loss(*name, load, cause);
  if (ports_[port_of(load.flow.src)].omniscient) return begin_ghost(index, onto);
  discard(index);
}

// Its header goes on. Where a copy has its payload still, that is no loss yet.
void Fabric::note_cut(Load& load) {
  const auto name = name_of(load);
  if (!name || load.spare || port_of(load.flow.dst) == kNowhere) return;
  load.spare = !resolve_copy(load, false);
  if (!load.spare) note_loss(*name, load, DropCause::trimmed);
}

void Fabric::note_duplicate(Load& load) {
  const std::uint32_t destination = port_of(load.flow.dst);
  if (load.spare || destination == kNowhere || !name_of(load)) return;
  if (load.copies == 0) ++ports_[destination].reasons;
  copies_.duplicate(load.copies);
}

// Of a packet that is lost: whether no copy of it has arrived, or may yet.
bool Fabric::resolve_copy(Load& load, bool arrived) {
  if (load.copies == 0) return !arrived;
  bool all_lost = false;
  if (copies_.resolve(load.copies, arrived, all_lost)) --ports_[port_of(load.flow.dst)].reasons;
  load.copies = 0;
  return all_lost;
}

void Fabric::note_loss(const PacketName& name, const Load& load, DropCause cause) {
  if (!is_first(name, load.packet)) return;
  Repair repair{.dropped_ns = now_ / kNanosecond,
                .source = name.source,
                .destination = name.destination,
                .cause = cause};
  if (name.striped) {
    const LabHeader& lab = load.packet.lab;
    repair.message = lab.message;
    repair.index = lab.index;
    repair.operation = lab.operation;
    repair.step = lab.step;
  } else {
    repair.qpn = name.first;
    repair.psn = name.second;
  }
  if (repairs_.dropped(name, repair)) ++ports_[port_of(name.destination)].reasons;
}

Recovery Fabric::recovery_of(const Load& load) const {
  const lab_packet packet = describe_as_sent(load);
  Recovery record{.time_ns = now_ / kNanosecond,
                  .source = packet.id.src,
                  .destination = packet.id.dst,
                  .host = packet.id.src,
                  .message = packet.id.message,
                  .index = packet.id.index,
                  .last_index = packet.id.index,
                  .packets = 1,
                  .qpn = packet.qpn,
                  .psn = packet.psn,
                  .last_psn = packet.psn};
  record.operation = packet.id.operation;
  record.step = packet.id.step;
  record.sport = load.flow.sport;
  record.attempt = packet.id.attempt;
  record.packet_kind = packet.id.kind;
  return record;
}

void Fabric::note_sent_again(const Load& load, const Port& port) {
  const Packet& packet = load.packet;
  if (packet.lab.attempt == 0 && !packet.sent_before) return;
  const auto name = name_of(load);
  if (!name || is_first(*name, packet)) return;
  Recovery record = recovery_of(load);
  record.event = RecoveryKind::sent_again;
  record.host = port.address;
  recoveries_->add(record);
}

// What rules and links that are down took is in `drops()`, unless its name is not on the wire.
void Fabric::note_unruled(const Load& load, LinkIndex onto, DropCause cause) {
  if (recoveries_ == nullptr) return;
  const bool hidden = is_of_message(load.packet) && !load.packet.has_lab_header;
  if (!hidden && (cause == DropCause::rule || cause == DropCause::link_down)) return;
  Recovery record = recovery_of(load);
  record.event = RecoveryKind::lost;
  record.cause = static_cast<std::uint8_t>(cause);
  record.link = onto;
  recoveries_->add(record);
}

// Whether a queue pair has taken the packet: its PSN is behind.
bool Fabric::has_payload(const PacketName& name, Port& port) const {
  const QueuePair* qp = port.rnic().find_qp(name.first);
  const auto expected = qp != nullptr ? qp->expected_psn() : std::nullopt;
  return expected && psn_distance(name.second, *expected) < 0;
}

// A packet arrives where some are awaited.
void Fabric::examine(Load& load, Port& port) {
  Packet& packet = load.packet;
  const auto name = name_of(load);
  if (name && packet.has_lab_header && packet.lab.trimmed) {
    port.rnic().handle_packet(packet, now_);
    if (port.omniscient && !load.spare) port.rnic().messages().handle_loss(packet, now_);
    return;
  }
  const bool again = name && (load.copies != 0 || !is_first(*name, packet));
  if (load.copies != 0) resolve_copy(load, true);
  if (!again || !repairs_.awaits(*name)) return port.rnic().handle_packet(packet, now_);
  Counters& counters = port.rnic().counters();
  const std::uint64_t placed = counters[Counter::rx_placed];
  port.rnic().handle_packet(packet, now_);
  if (name->striped ? counters[Counter::rx_placed] == placed : !has_payload(*name, port)) return;
  repairs_.arrived(*name, now_);
  --port.reasons;
}

// A code made up for the packet: its payload is where it belongs.
void Fabric::note_restored(Port& port, std::uint32_t sender, std::uint32_t id, std::uint32_t index,
                           Time now) {
  const PacketName name{
      .source = sender, .destination = port.address, .first = id, .second = index, .striped = true};
  if (!repairs_.awaits(name)) return;
  repairs_.arrived(name, now);
  --port.reasons;
}

}  // namespace softroce::sim
