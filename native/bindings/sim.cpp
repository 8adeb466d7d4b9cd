// SPDX-License-Identifier: GPL-2.0-or-later
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "../sim/fabric.hpp"
#include "bindings.hpp"
#include "structures.hpp"

namespace softroce {
namespace {

// A host may produce no event for as long as the largest message takes; Ctrl-C is handled.
constexpr std::uint64_t kEventsBetweenSignals = 100'000;

using namespace nb::literals;
using sim::Fabric;
using Groups = std::vector<std::vector<sim::LinkIndex>>;
template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using GroupOfPort = Array<std::uint32_t>;
using Named = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, nb::bytes>;

sim::LoadBalancing load_balancing_named(const std::string& name) {
  if (name == "flow") return sim::LoadBalancing::flow;
  if (name == "spray") return sim::LoadBalancing::spray;
  if (name == "adaptive") return sim::LoadBalancing::adaptive;
  throw std::invalid_argument("no load balancing is called " + name);
}

void set_rules(Fabric& fabric, sim::LinkIndex link, const nb::bytes& set,
               const std::vector<Named>& named) {
  std::vector<sim::NamedPacket> packets;
  for (const auto& [tuple, first, second, what] : named)
    packets.push_back({tuple, first, second, from_bytes<lab_named>(what)});
  fabric.set_rules(link, from_bytes<lab_fault_set>(set), packets);
}

void replay_fates(Fabric& fabric, const Array<std::uint64_t>& keys,
                  const Array<std::uint32_t>& rules, const Array<std::uint32_t>& effects) {
  fabric.replay_fates({keys.data(), keys.size()}, {rules.data(), rules.size()},
                      {effects.data(), effects.size()});
}

template <typename T>
nb::bytes bytes_of(const std::vector<T>& values) {
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

nb::dict port_totals(const Fabric& fabric, sim::PortIndex port) {
  const sim::PortTotals& t = fabric.port_totals(port);
  const sim::RnicPipeline& rnic = fabric.pipeline(port);
  nb::dict d;
  d["contexts_used"] = rnic.uses();
  d["contexts_missed"] = rnic.misses();
  d["held"] = t.held;
  d["sent"] = t.sent;
  d["received"] = t.received;
  d["corrupted"] = t.corrupted;
  return d;
}

// For how long the link of an idle port was kept from packets that the port has, by cause.
nb::dict stopped_ns(Fabric& fabric, sim::PortIndex port) {
  const Stops& stops = fabric.endpoint(port).rnic().stops();
  nb::dict d;
  for (std::size_t each = 0; each < kStops; ++each)
    d[kStopNames[each]] = to_ns(stops.total(static_cast<Stop>(each)));
  return d;
}

// What the rules of a link remember: struct lab_fault_state, and each name with its struct.
nb::object rules_state(const Fabric& fabric, sim::LinkIndex link) {
  const sim::Rules* rules = fabric.rules(link);
  if (rules == nullptr) return nb::none();
  nb::list named;
  for (const auto& names : rules->named)
    for (const auto& [key, each] : names)
      named.append(nb::bytes(reinterpret_cast<const char*>(&each), sizeof(each)));
  return nb::make_tuple(
      nb::bytes(reinterpret_cast<const char*>(&rules->state), sizeof(rules->state)), named);
}

void capture(Fabric& fabric, const std::vector<std::tuple<sim::LinkIndex, std::string>>& links,
             std::uint32_t snap_bytes,
             const std::vector<std::tuple<std::uint32_t, std::string, std::string>>& rules,
             const nb::callable& write) {
  std::vector<sim::TappedLink> tapped;
  for (const auto& [link, name] : links) tapped.push_back({link, name});
  std::vector<sim::RuleText> texts;
  for (const auto& [id, text, bad] : rules) texts.push_back({id, text, bad});
  fabric.capture(std::move(tapped), snap_bytes, std::move(texts),
                 [write](const pcapng::Buffer& blocks) {
                   write(nb::bytes(reinterpret_cast<const char*>(blocks.data()), blocks.size()));
                 });
}

// Struct Recovery, one behind the other; none if they are not recorded. There may be 64 MiB of
// them: the array owns what the fabric had.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> take_recoveries(Fabric& fabric) {
  auto records = std::make_unique<std::vector<Recovery>>(fabric.take_recoveries());
  auto* const bytes = reinterpret_cast<std::uint8_t*>(records->data());
  const std::size_t size = records->size() * sizeof(Recovery);
  const nb::capsule owner(records.release(), [](void* each) noexcept {
    delete static_cast<std::vector<Recovery>*>(each);
  });
  return {bytes, {size}, owner};
}

// Times in picoseconds (int64), and a row of values (uint32) for each.
std::pair<nb::bytes, nb::bytes> samples(const Fabric& fabric) {
  if (fabric.samples() == nullptr) throw std::invalid_argument("no samples are taken");
  return {bytes_of(fabric.samples()->times()), bytes_of(fabric.samples()->values())};
}

std::vector<std::uint64_t> end_capture(Fabric& fabric) {
  if (fabric.tap() == nullptr) throw std::logic_error("nothing is captured");
  return fabric.tap()->finish(fabric.now());
}

}  // namespace

void bind_sim(nb::module_& m) {
  nb::class_<Fabric>(m, "Fabric", "A simulated fabric and its clock; softroce_lab.sim builds it.")
      .def(
          "__init__",
          [](Fabric* self, const std::string& lb, std::uint64_t tie_key) {
            new (self) Fabric(load_balancing_named(lb), tie_key);
          },
          "load_balancing"_a, "tie_key"_a)
      .def(
          "add_port",
          [](Fabric& f, const MessageConfig& messages, std::uint64_t mac,
             const sim::RnicModel& rnic) {
            return f.add_port({messages, mac, rnic});
          },
          "messages"_a, "mac"_a, "rnic"_a = sim::RnicModel{})
      .def("add_switch", &Fabric::add_switch, "salt"_a)
      .def("add_link_to_port", &Fabric::add_link_to_port, "far"_a, "near_mac"_a, "far_mac"_a)
      .def("add_link_to_switch", &Fabric::add_link_to_switch, "far"_a, "near_mac"_a, "far_mac"_a)
      .def("set_uplink", &Fabric::set_uplink, "port"_a, "link"_a)
      .def(
          "set_routes",
          [](Fabric& f, sim::SwitchIndex at, const Groups& groups, const GroupOfPort& of) {
            f.set_routes(at, groups, {of.data(), of.size()});
          },
          "at"_a, "groups"_a, "group_of_port"_a)
      .def(
          "shape",
          [](Fabric& f, sim::LinkIndex link, const nb::bytes& shape) {
            f.shape(link, from_bytes<lab_shape>(shape));
          },
          "link"_a, "shape"_a)
      .def("set_rules", &set_rules, "link"_a, "fault_set"_a, "named"_a)
      .def(
          "stall_timers",
          [](Fabric& f, sim::PortIndex port, std::int64_t at_ns, std::int64_t for_ns) {
            f.stall_timers(port, from_ns(at_ns), from_ns(for_ns));
          },
          "port"_a, "at_ns"_a, "for_ns"_a, "The host's timers stand still for a while")
      .def("capture", &capture, "links"_a, "snap_bytes"_a, "rules"_a, "write"_a,
           "Packets of these links (number, name) are seen from now on, and `write` is called with "
           "the blocks of a pcapng file; rules: id, text, and text of a gemodel's bad state")
      .def("end_capture", &end_capture, "Ends that file; how many packets were seen, by link")
      .def_prop_ro("now_ns", [](const Fabric& f) { return to_ns(f.now()); })
      .def_prop_ro("now_ps", &Fabric::now)
      .def(
          "run",
          [](Fabric& f, std::int64_t until_ns) {
            f.run(from_ns(until_ns), kEventsBetweenSignals);
            while (f.paused()) {
              if (PyErr_CheckSignals() != 0) throw nb::python_error();
              f.run(from_ns(until_ns), kEventsBetweenSignals);
            }
            return f.attention();
          },
          "until_ns"_a, "The ports whose RNIC has events or new completions; none: it is the time")
      .def(
          "endpoint", [](Fabric& f, sim::PortIndex port) -> Endpoint& { return f.endpoint(port); },
          nb::rv_policy::reference_internal, "port"_a)
      .def_prop_ro("hops", &Fabric::hops, "packets delivered over a link, all together")
      .def_prop_ro("in_flight", &Fabric::in_flight)
      .def(
          "link_totals", [](const Fabric& f) { return bytes_of(f.link_totals()); },
          "Struct LinkTotals of every directed link")
      .def(
          "switch_totals", [](const Fabric& f) { return bytes_of(f.switch_totals()); },
          "Struct SwitchTotals of every switch")
      .def("port_totals", &port_totals, "port"_a)
      .def("stopped_ns", &stopped_ns, "port"_a,
           "How long the port's link was idle while it had packets to send, by what stopped them")
      .def("rules_state", &rules_state, "link"_a)
      .def_prop_ro("repairs", [](const Fabric& f) { return bytes_of(f.repairs().records()); })
      .def_prop_ro("repairs_not_recorded",
                   [](const Fabric& f) { return f.repairs().not_recorded(); })
      .def("record_recoveries", &Fabric::record_recoveries,
           "From now on what is done about losses is recorded")
      .def("take_recoveries", &take_recoveries, "Those recorded since the last call")
      .def_prop_ro("recoveries_not_recorded",
                   [](const Fabric& f) {
                     return f.recoveries() == nullptr ? 0 : f.recoveries()->not_recorded();
                   })
      .def("record_samples", &Fabric::record_samples,
           "When all is built: from now on links and ports are looked at from time to time")
      .def_prop_ro("samples", &samples,
                   "Times in ps (int64), and for each (uint32) the bytes that wait at each link, "
                   "then packets in flight and window of each port")
      .def("keep_fates", &Fabric::keep_fates,
           "Before the run: the key of each fate that rules decide is kept, beside `drops`")
      .def("replay_fates", &replay_fates, "keys"_a, "rules"_a, "effects"_a,
           "Before the run: these fates happen by key, and rules draw for nothing")
      .def_prop_ro("fates",
                   [](const Fabric& f) {
                     if (f.fates() == nullptr) throw std::invalid_argument("no fates are kept");
                     return bytes_of(f.fates()->logged());
                   })
      .def_prop_ro("drops", [](const Fabric& f) { return bytes_of(f.drops()); });
}

}  // namespace softroce
