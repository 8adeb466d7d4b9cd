// SPDX-License-Identifier: GPL-2.0-or-later
// A user's policy: the hooks that its runner takes (softroce_lab/transports/runner.py), and what it
// does with what they return.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "../transport/python_policy.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

using Indices = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void bind_call(nb::module_& m) {
  nb::list names;
  for (const char* each : kHookNames) names.append(each);
  m.attr("HOOKS") = nb::tuple(names);  // the place behind them: the message is over
  nb::class_<HookCall>(m, "HookCall", "A hook that is to run, and what it sees of its message.")
      .def_prop_ro(
          "hook", [](const HookCall& c) { return static_cast<int>(c.hook); },
          "a place in HOOKS, or behind")
      .def_ro("handle", &HookCall::handle)
      .def_ro("peer", &HookCall::peer)
      .def_ro("id", &HookCall::id)
      .def_ro("count", &HookCall::count)
      .def_prop_ro("key",
                   [](const HookCall& c) {
                     return nb::make_tuple(c.key.operation, c.key.step, c.key.message);
                   })
      .def_prop_ro("at_ns", [](const HookCall& c) { return to_ns(c.at); })
      .def_ro("timeouts_without_progress", &HookCall::timeouts_without_progress)
      .def_ro("out", &HookCall::out)
      .def_ro("rnr_naks", &HookCall::rnr_naks)
      .def_ro("retry_ns", &HookCall::retry_ns)
      .def_prop_ro(
          "known_missing",
          [](const HookCall& c) -> nb::object {
            if (!c.known_missing) return nb::none();
            std::vector<std::uint8_t> bits = c.known_missing->bits();
            return nb::make_tuple(c.known_missing->base(),
                                  nb::cast(to_numpy(std::move(bits)), nb::rv_policy::move));
          },
          "(base, a byte for each packet or chunk); None: as in the call before")
      .def_ro("begun", &HookCall::begun, "of a receive: its id is known")
      .def_ro("received", &HookCall::received)
      .def_ro("fed_back", &HookCall::fed_back)
      .def_prop_ro(
          "packets", [](const HookCall& c) { return to_numpy(std::vector(c.packets)); },
          nb::rv_policy::move, "of a gap, or the trimmed one")
      .def_ro("last_hop", &HookCall::last_hop, "of a trimmed packet")
      .def_ro("submessage", &HookCall::submessage);
}

}  // namespace

void bind_policy(nb::module_& m, EndpointClass& cls) {
  bind_call(m);
  cls.def(
         "attach_policy",
         [](Endpoint& e, const std::vector<std::uint32_t>& hooks, std::uint32_t chunk_packets) {
           std::uint32_t bits = 0;
           for (const std::uint32_t hook : hooks) bits |= 1U << hook;
           call_in_engine(e, [=](Rnic& rnic, Time) {
             policy_of(rnic).attach(bits, chunk_packets);
             return 0;
           });
         },
         nb::arg("hooks"), nb::arg("chunk_packets"),
         "before anything is posted; `hooks`: places in HOOKS of those that it has; "
         "`chunk_packets`: for which a bit of its feedback stands, 0 for SACKs")
      .def("take_calls", &Endpoint::take_calls, nb::arg("begins"),
           "the hooks to run now; again with False once what they returned is applied, until there "
           "are none")
      .def(
          "retransmit_sent",
          [](Endpoint& e, const HookCall& call, Handle handle, const Indices& packets, bool urgent,
             std::uint32_t copies) {
            e.submit([cause = call.cause, handle, urgent, copies,
                      list = std::vector(packets.data(), packets.data() + packets.size())](
                         Rnic& rnic, Time now) {
              policy_of(rnic).retransmit_sent(cause, handle, list, urgent, copies, now);
            });
          },
          "those that were sent, within the session's bounds")
      .def("send_feedback",
           [](Endpoint& e, Handle handle) {
             e.submit([=](Rnic& rnic, Time now) { policy_of(rnic).send_feedback(handle, now); });
           })
      .def("request_status",
           [](Endpoint& e, Handle handle) {
             e.submit([=](Rnic& rnic, Time now) { policy_of(rnic).request_status(handle, now); });
           })
      .def("use_paths",
           [](Endpoint& e, const HookCall& call, PeerIndex peer,
              const std::vector<std::uint16_t>& weights) {
             std::array<std::uint16_t, kMaxPaths> all{};
             std::copy_n(weights.begin(), std::min<std::size_t>(weights.size(), kMaxPaths),
                         all.begin());
             e.submit([about = call.key, peer, all](Rnic& rnic, Time now) {
               policy_of(rnic).use_paths(about, peer, all, now);
             });
           })
      .def(
          "note_coded",
          [](Endpoint& e, const HookCall& call, Handle handle) {
            e.submit([about = call.key, handle](Rnic& rnic, Time now) {
              policy_of(rnic).note_coded(about, handle, now);
            });
          },
          "for the record of decisions: it encodes a send, or restores a receive");
}

}  // namespace softroce
