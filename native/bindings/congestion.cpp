// SPDX-License-Identifier: GPL-2.0-or-later
// Congestion control as tests and lessons drive it: alone, with a clock moved by hand.
#include "../engine/congestion/congestion.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace softroce {
namespace {

nb::dict to_dict(const CongestionControl::Figures& figures) {
  nb::dict result;
  result["rate_bps"] = figures.rate_bps;
  result["target_bps"] = figures.target_bps;
  result["alpha"] = figures.alpha;
  result["window_packets"] = figures.window;
  result["target_delay_ns"] = to_ns(figures.target_delay);
  return result;
}

void bind_alone(nb::module_& m) {
  using C = CongestionControl;
  nb::class_<C>(m, "CongestionControl",
                "One flow's congestion control, without a flow: `congestion_control` of the "
                "configuration; the caller gives it the events.")
      .def(nb::new_([](const MessageConfig& config) {
        return make_congestion_control(congestion_of(config));
      }))
      .def_prop_ro("window_packets", &C::window_packets)
      .def_prop_ro("next_send_ps", &C::next_send, "no packet may leave before")
      .def("on_sent", [](C& c, std::uint32_t frame_bytes,
                         std::int64_t now_ns) { c.on_sent(frame_bytes, from_ns(now_ns)); })
      .def(
          "on_report",
          [](C& c, std::int64_t rtt_ns, std::uint32_t delivered_packets, std::int64_t now_ns,
             std::uint32_t hops, std::uint32_t ce_packets) {
            c.on_report({.rtt = from_ns(rtt_ns),
                         .delivered_packets = delivered_packets,
                         .ce_packets = ce_packets,
                         .hops = hops},
                        from_ns(now_ns));
          },
          nb::arg("rtt_ns"), nb::arg("delivered_packets"), nb::arg("now_ns"), nb::arg("hops") = 0,
          nb::arg("ce_packets") = 0)
      .def("on_cnp", [](C& c, std::int64_t now_ns) { c.on_cnp(from_ns(now_ns)); })
      .def("on_loss", [](C& c, std::int64_t now_ns) { c.on_loss(from_ns(now_ns)); })
      .def("on_trimmed", [](C& c, std::int64_t now_ns) { c.on_trimmed(from_ns(now_ns)); })
      .def("on_timeout", [](C& c, std::int64_t now_ns) { c.on_timeout(from_ns(now_ns)); })
      .def("figures",
           [](C& c, std::int64_t now_ns) { return to_dict(c.figures(from_ns(now_ns))); });
}

}  // namespace

void bind_congestion(nb::module_& m, EndpointClass& cls) {
  bind_alone(m);
  m.def("congestion_control_names", &congestion_control_names);
  cls.def(
      "congestion",
      [](Endpoint& e, PeerIndex peer) {
        return to_dict(call_in_engine(e, [=](Rnic& rnic, Time now) {
          return rnic.messages().congestion_figures(peer, now);
        }));
      },
      "what limits striped messages to this peer; IndexError: there is none");
  cls.def(
      "qp_congestion",
      [](Endpoint& e, std::uint32_t number) -> nb::object {
        const auto figures = call_in_engine(e, [=](Rnic& rnic, Time now) {
          const QueuePair* qp = rnic.find_qp(number);
          return qp == nullptr ? std::nullopt : qp->congestion_figures(now);
        });
        return figures ? nb::object(to_dict(*figures)) : nb::none();
      },
      "what limits a connected queue pair; None: no such one, or nothing but its constant window");
}

}  // namespace softroce
