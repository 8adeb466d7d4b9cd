// SPDX-License-Identifier: GPL-2.0-or-later
// Before a fabric runs, and behind it: its parts, and what they came to.
#include <stdexcept>
#include <utility>

#include "fabric.hpp"

namespace softroce::sim {
namespace {

constexpr std::size_t kMostAddresses = 1 << 24;  // between the least and the greatest

}  // namespace

PortIndex Fabric::add_port(const PortConfig& config) {
  const auto index = static_cast<PortIndex>(ports_.size());
  const std::uint32_t address = number_of(config.messages.gid);
  if (ports_.size() == 0) least_address_ = address;
  if (address < least_address_) {
    if (least_address_ - address > kMostAddresses)
      throw std::invalid_argument("addresses lie apart");
    port_of_address_.insert(port_of_address_.begin(), least_address_ - address, kNowhere);
    least_address_ = address;
  }
  const std::size_t at = address - least_address_;
  if (at >= kMostAddresses) throw std::invalid_argument("addresses lie apart");
  if (at >= port_of_address_.size()) port_of_address_.resize(at + 1, kNowhere);
  if (port_of_address_[at] != kNowhere) throw std::invalid_argument("an address of two ports");
  Port& port = ports_.emplace_back(*this, index, config);
  port.rnic().messages().set_on_restored(
      [this, index](const Gid& sender, std::uint32_t id, std::uint32_t packet, Time now) {
        note_restored(ports_[index], static_cast<std::uint32_t>(sender.low), id, packet, now);
      });
  port.omniscient = port.rnic().messages().is_omniscient();
  port.reasons = port.omniscient;
  port.tie_salt = static_cast<std::uint32_t>(lab_absorb(tie_key_, address));
  port_of_address_[at] = index;
  return index;
}

SwitchIndex Fabric::add_switch(std::uint64_t salt) {
  switches_.emplace_back().salt = salt;
  return static_cast<SwitchIndex>(switches_.size() - 1);
}

LinkIndex Fabric::add_link(End far, std::uint64_t near_mac, std::uint64_t far_mac) {
  Link& link = links_.emplace_back();
  link.near_mac = near_mac;
  link.far_mac = far_mac;
  ends_.push_back(far);
  received_by_.push_back(0);
  return static_cast<LinkIndex>(links_.size() - 1);
}

LinkIndex Fabric::add_link_to_port(PortIndex far, std::uint64_t near_mac, std::uint64_t far_mac) {
  ports_.at(far);
  return add_link({.to_host = 1, .index = far}, near_mac, far_mac);
}

LinkIndex Fabric::add_link_to_switch(SwitchIndex far, std::uint64_t near_mac,
                                     std::uint64_t far_mac) {
  switches_.at(far);
  return add_link({.to_host = 0, .index = far}, near_mac, far_mac);
}

void Fabric::set_uplink(PortIndex port, LinkIndex link) {
  links_.at(link);
  ports_.at(port).uplink = link;
  links_[link].lag(ports_[port].pipeline.latency());
}

void Fabric::set_routes(SwitchIndex at, const std::vector<std::vector<LinkIndex>>& groups,
                        std::span<const std::uint32_t> group_of_port) {
  if (group_of_port.size() != ports_.size()) throw std::invalid_argument("one group for each port");
  if (groups.size() >= UINT16_MAX) throw std::invalid_argument("too many different routes");
  Switch& table = switches_.at(at);
  table.groups.clear();
  table.links.clear();
  for (const auto& group : groups) {
    for (const LinkIndex link : group) links_.at(link);
    table.groups.push_back(
        {static_cast<std::uint32_t>(table.links.size()), static_cast<std::uint32_t>(group.size())});
    table.links.insert(table.links.end(), group.begin(), group.end());
  }
  table.groups.push_back({});
  table.group_of_port.clear();
  ++routes_;
  for (const std::uint32_t group : group_of_port) {
    if (group != kNoGroup) groups.at(group);
    const std::size_t number = group == kNoGroup ? groups.size() : group;
    table.group_of_port.push_back(static_cast<std::uint16_t>(number));
  }
}

void Fabric::shape(LinkIndex link, const lab_shape& shape) { links_.at(link).shape(shape); }

void Fabric::set_rules(LinkIndex link, const lab_fault_set& set,
                       std::span<const NamedPacket> named) {
  auto rules = std::make_unique<Rules>();
  rules->set = set;
  for (const NamedPacket& each : named) {
    const auto* tuple = std::find(set.tuple, set.tuple + set.tuples, each.tuple);
    if (tuple == set.tuple + set.tuples) throw std::invalid_argument("a name of an unknown tuple");
    rules->named[tuple - set.tuple][std::uint64_t{each.first} << 32 | each.second] = each.named;
  }
  const bool relative =
      std::find(set.tuple, set.tuple + set.tuples, LAB_NAME_RELATIVE) != set.tuple + set.tuples;
  learns_ = learns_ || relative || (set.needs & (LAB_NEED_RELATIVE | LAB_NEED_TAIL)) != 0;
  links_.at(link).set_rules(std::move(rules));
}

void Fabric::capture(std::vector<TappedLink> links, std::uint32_t snap_bytes,
                     std::vector<RuleText> rules, Tap::Sink sink) {
  for (const TappedLink& each : links) links_.at(each.link).watch();
  tap_ = std::make_unique<Tap>(std::move(links), snap_bytes, std::move(rules), std::move(sink));
}

void Fabric::record_recoveries() {
  recoveries_ = std::make_unique<Recoveries>();
  for (PortIndex index = 0; index < ports_.size(); ++index) {
    Port& port = ports_[index];
    port.rnic().set_event_sink(std::make_shared<RecoverySink>(*recoveries_, port.address));
  }
}

void Fabric::stall_timers(PortIndex port, Time begin, Time length) {
  ports_.at(port).stalls_at = begin;
  ports_.at(port).stalls_until = begin + length;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Fabric::on_links() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found(links_.size());
  flights_.for_each([&found](const Flight& flight) {
    ++found[flight.link].first;
    found[flight.link].second += flight.length;
  });
  return found;
}

std::vector<LinkTotals> Fabric::link_totals() const {
  std::vector<LinkTotals> found;
  for (const auto& [packets, bytes] : on_links()) {
    const Link& link = links_[found.size()];
    LinkTotals& totals = found.emplace_back(link.totals());
    totals.on_its_way = packets;
    totals.bytes_on_its_way = bytes;
    if (link.rules != nullptr) totals.records_lost = link.rules->not_logged;
  }
  return found;
}

// A switch has received what links to it have delivered.
std::vector<SwitchTotals> Fabric::switch_totals() const {
  std::vector<SwitchTotals> found;
  found.reserve(switches_.size());
  for (const Switch& each : switches_) found.push_back({0, each.no_route, each.ttl_exceeded});
  const auto under_way = on_links();
  for (std::size_t link = 0; link < ends_.size(); ++link)
    if (!ends_[link].to_host)
      found[ends_[link].index].received += links_[link].taken() - under_way[link].first;
  return found;
}

}  // namespace softroce::sim
