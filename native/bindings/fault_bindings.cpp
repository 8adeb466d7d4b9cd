// SPDX-License-Identifier: GPL-2.0-or-later
// The fabric's decisions as Python functions, compiled from the headers that the XDP programs use.
// Not for the data path: golden vectors require equal results of this build and the BPF build.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "../../xdp/lab_fault.h"
#include "../../xdp/lab_name.h"
#include "../../xdp/lab_route.h"
#include "bindings.hpp"
#include "structures.hpp"

namespace softroce {

namespace {

using namespace nb::literals;

template <typename T>
nb::bytes to_bytes(const T& value) {
  return nb::bytes(reinterpret_cast<const char*>(&value), sizeof(T));
}

constexpr std::uint32_t kMessagePackets = 512;

lab_packet nameless_packet() {
  lab_packet packet{};
  packet.id.kind = LAB_KIND_NONE;
  packet.kind_bit = LAB_KIND_BIT_OTHER;
  packet.opcode = LAB_NO_OPCODE;
  return packet;
}

// What the rules of one directed link decide, and what they remember.
class LinkFaults {
 public:
  explicit LinkFaults(const nb::bytes& set) : set_(from_bytes<lab_fault_set>(set)) {}

  lab_verdict decide(const lab_packet& packet, std::uint64_t now_ns) {
    lab_verdict verdict{};
    verdict.rule_id[LAB_SLOT_DROP] = LAB_FATE_PASSED;
    lab_fault_decide(&set_, &state_, &packet, now_ns, &verdict);
    return verdict;
  }

  // Positions of the packets, of `count` like the first one, on which a rule had any effect.
  // Messages of kMessagePackets packets follow each other.
  std::vector<std::uint64_t> run(lab_packet packet, std::uint64_t count) {
    std::vector<std::uint64_t> hit;
    for (std::uint64_t n = 0; n < count; ++n) {
      packet.id.message = static_cast<std::uint32_t>(n / kMessagePackets);
      packet.id.index = n % kMessagePackets;
      if (decide(packet, 0).effects != 0) hit.push_back(n);
    }
    return hit;
  }

  const lab_fault_state& state() const { return state_; }

 private:
  lab_fault_set set_;
  lab_fault_state state_{};
};

void bind_link_faults(nb::module_& module) {
  nb::class_<lab_verdict>(module, "Verdict", "What becomes of a packet.")
      .def_ro("effects", &lab_verdict::effects, "Bits of enum lab_effect.")
      .def_prop_ro(
          "rule_ids",
          [](const lab_verdict& self) {
            return std::make_tuple(self.rule_id[0], self.rule_id[1], self.rule_id[2],
                                   self.rule_id[3]);
          },
          "Of the rules that dropped, corrupted, duplicated, reordered.");

  nb::class_<LinkFaults>(module, "LinkFaults", "The rules of one directed link, at work.")
      .def(nb::init<const nb::bytes&>(), "fault_set"_a, "`fault_set`: a struct lab_fault_set.")
      .def(
          "decide",
          [](LinkFaults& self, const nb::bytes& packet, std::uint64_t now_ns) {
            return self.decide(from_bytes<lab_packet>(packet), now_ns);
          },
          "packet"_a, "now_ns"_a = 0,
          "What becomes of the packet at this moment of the lab's timeline.")
      .def(
          "run",
          [](LinkFaults& self, std::uint64_t count, const std::optional<nb::bytes>& first) {
            const lab_packet packet = first ? from_bytes<lab_packet>(*first) : nameless_packet();
            std::vector<std::uint64_t> hit;
            {
              nb::gil_scoped_release released;
              hit = self.run(packet, count);
            }
            return to_numpy(std::move(hit));
          },
          "count"_a, "first"_a = nb::none(),
          "Let `count` packets like `first` (None: without a name) pass, MESSAGE_PACKETS of each\n"
          "message; the positions of those that a rule hit.")
      .def_prop_ro(
          "state", [](const LinkFaults& self) { return to_bytes(self.state()); },
          "A struct lab_fault_state.");

  module.def(
      "named_hits",
      [](const nb::bytes& value, const nb::bytes& of, bool timed, std::uint64_t now_ns) {
        lab_named named = from_bytes<lab_named>(value);
        const auto packet = from_bytes<lab_packet>(of);
        const bool hit = lab_named_hits(&named, &packet, timed, now_ns);
        return std::make_tuple(hit, to_bytes(named));
      },
      "named"_a, "packet"_a, "timed"_a = false, "now_ns"_a = 0,
      "Whether a struct lab_named drops this transmission, and what it is afterwards.");
}

}  // namespace

void bind_faults(nb::module_& module) {
  module.attr("NO_OPCODE") = LAB_NO_OPCODE;
  module.attr("CERTAIN") = LAB_CERTAIN;
  module.attr("MESSAGE_PACKETS") = kMessagePackets;
  bind_link_faults(module);
  module.def(
      "mix64", [](std::uint64_t word) -> std::uint64_t { return lab_mix64(word); }, "word"_a,
      "The mixer under every decision.");
  module.def(
      "tail_is_new",
      [](std::uint32_t newest, std::uint32_t opcode, std::uint32_t psn) {
        const bool fresh = lab_ends_rc_message(opcode) != 0 && lab_tail_is_new(&newest, psn) != 0;
        return std::make_tuple(fresh, newest);
      },
      "newest"_a, "opcode"_a, "psn"_a,
      "Whether a packet is the last one of an RC message, sent for the first time on a connection\n"
      "whose newest tail is `newest` (0: none); and what is the newest one afterwards.");
  module.def(
      "identity_digest",
      [](const nb::bytes& packet) -> std::uint64_t {
        const auto id = from_bytes<lab_packet>(packet).id;
        return lab_identity_digest(&id);
      },
      "packet"_a, "64 bits that stand for the packet's name.");
  module.def(
      "fault_draw",
      [](std::uint64_t stream, std::uint64_t name) -> std::uint64_t {
        return lab_fault_draw(lab_stream(stream), name);
      },
      "stream"_a, "name"_a, "What a rule's stream draws for a digest or a mixed count.");
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
