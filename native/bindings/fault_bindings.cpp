// SPDX-License-Identifier: GPL-2.0-or-later
// The fabric's decisions as Python functions, compiled from the headers that the XDP programs use.
// Not for the data path: golden vectors hold this build and the BPF build to the same answers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "../../xdp/lab_fault.h"
#include "../../xdp/lab_route.h"
#include "bindings.hpp"

namespace softroce {

namespace {

using namespace nb::literals;

using Rule = std::tuple<std::uint64_t, std::uint64_t, bool>;  // stream, threshold, by index

lab_fault_set make_set(const std::vector<Rule>& rules) {
  if (rules.size() > LAB_FAULT_RULES) throw std::invalid_argument("more rules than a link takes");
  lab_fault_set set{};
  for (const auto& [stream, threshold, by_index] : rules) {
    const lab_u32 key = by_index ? LAB_KEY_INDEX : LAB_KEY_IDENTITY;
    set.rule[set.count] = {stream, threshold, set.count, key};
    set.count++;
    set.uses_index |= by_index;
  }
  return set;
}

}  // namespace

void bind_faults(nb::module_& module) {
  nb::class_<lab_identity>(module, "PacketIdentity",
                           "What names a packet to an identity rule; addresses are numbers.")
      .def(
          "__init__",
          [](lab_identity* self, std::uint32_t src, std::uint32_t dst, std::uint8_t kind,
             std::uint16_t operation, std::uint16_t step, std::uint32_t message,
             std::uint32_t index, std::uint8_t attempt) {
            new (self) lab_identity{src, dst, message, index, operation, step, kind, attempt, 0};
          },
          nb::kw_only(), "src"_a, "dst"_a, "kind"_a, "operation"_a = 0, "step"_a = 0,
          "message"_a = 0, "index"_a = 0, "attempt"_a = 0);

  module.attr("KIND_NONE") = LAB_KIND_NONE;
  module.attr("CERTAIN") = LAB_CERTAIN;
  module.def(
      "mix64", [](std::uint64_t word) -> std::uint64_t { return lab_mix64(word); }, "word"_a,
      "The mixer under every decision.");
  module.def(
      "identity_digest",
      [](const lab_identity& identity) -> std::uint64_t { return lab_identity_digest(&identity); },
      "identity"_a, "64 bits that stand for the packet's name.");
  module.def(
      "fault_draw",
      [](std::uint64_t stream, std::uint64_t name) -> std::uint64_t {
        return lab_fault_draw(stream, name);
      },
      "stream"_a, "name"_a, "What a rule's stream draws for a digest or a mixed count.");
  module.def(
      "fault_decide",
      [](const std::vector<Rule>& rules, const lab_identity& identity, std::uint64_t n) {
        const lab_fault_set set = make_set(rules);
        return lab_fault_decide(&set, &identity, n);
      },
      "rules"_a, "identity"_a, "n"_a = 0,
      "Position of the first of the (stream, threshold, by_index) rules that drops the packet, "
      "the\n"
      "n-th on its directed link; -1 if none does.");
  module.def(
      "route_choose",
      [](std::uint64_t salt, std::uint32_t src, std::uint32_t dst, std::uint8_t proto,
         std::uint16_t sport, std::uint16_t dport, std::uint32_t ways) -> std::uint32_t {
        const lab_flow flow{src, dst, sport, dport, proto};
        return lab_route_choose(lab_route_hash(salt, &flow), ways);
      },
      nb::kw_only(), "salt"_a, "src"_a, "dst"_a, "proto"_a, "sport"_a, "dport"_a, "ways"_a,
      "Which of `ways` equal-cost ports a switch sends a flow to.");
  module.def(
      "spray_choose",
      [](std::uint64_t salt, std::uint64_t n, std::uint32_t ways) -> std::uint32_t {
        return lab_route_choose(lab_spray_hash(salt, n), ways);
      },
      nb::kw_only(), "salt"_a, "n"_a, "ways"_a,
      "Which of `ways` equal-cost ports a spraying switch sends the n-th packet of a port to.");
}

}  // namespace softroce
