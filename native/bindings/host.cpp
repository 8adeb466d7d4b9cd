// SPDX-License-Identifier: GPL-2.0-or-later
#include "../live/host.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include "../live/raw_traffic.hpp"
#include "bindings.hpp"

namespace softroce {

void bind_host(nb::module_& m) {
  nb::class_<XskConfig>(m, "PortConfig", "An AF_XDP port of this network namespace.")
      .def(nb::init<>())
      .def_rw("interface", &XskConfig::interface)
      .def_rw("ifindex", &XskConfig::ifindex)
      .def_rw("xsks_map_path", &XskConfig::xsks_map_path)
      .def_rw("receive_frames", &XskConfig::receive_frames)
      .def_rw("transmit_frames", &XskConfig::transmit_frames)
      .def_rw("generic", &XskConfig::generic);
  nb::class_<XskPort>(m, "RawPort", "An AF_XDP socket on its own, for benches.")
      .def(nb::init<const XskConfig&>())
      .def("insert_into", &XskPort::insert_into);
  m.def(
      "raw_traffic",
      [](XskPort& sender, XskPort& receiver, const nb::bytes& frame, std::uint32_t payload_offset,
         std::uint32_t index_offset, std::int64_t duration_ns, int sender_cpu, int receiver_cpu) {
        const auto* bytes = static_cast<const std::uint8_t*>(frame.data());
        const RawJob job{.frame = {bytes, bytes + frame.size()},
                         .payload_offset = payload_offset,
                         .index_offset = index_offset,
                         .duration_ns = duration_ns,
                         .sender_cpu = sender_cpu,
                         .receiver_cpu = receiver_cpu};
        RawResult result;
        {
          const nb::gil_scoped_release release;
          result = run_raw_traffic(sender, receiver, job);
        }
        return nb::make_tuple(result.sent, result.received, result.elapsed_ns);
      },
      nb::arg("sender"), nb::arg("receiver"), nb::arg("frame"), nb::arg("payload_offset"),
      nb::arg("index_offset"), nb::arg("duration_ns"), nb::arg("sender_cpu") = -1,
      nb::arg("receiver_cpu") = -1, "(frames sent, frames received, ns)");
  nb::class_<HostConfig>(m, "HostConfig")
      .def(nb::init<>())
      .def_rw("messages", &HostConfig::messages)
      .def_rw("port", &HostConfig::port)
      .def_rw("mac", &HostConfig::mac)
      .def_rw("epoch_ns", &HostConfig::epoch_ns, "CLOCK_MONOTONIC when the run began")
      .def_rw("cpu", &HostConfig::cpu);
  nb::class_<Host, Endpoint>(m, "Host", "An RNIC on the real clock, in a thread of its own.")
      .def(nb::init<const HostConfig&>())
      .def("start", &Host::start)
      .def("stop", &Host::stop, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("event_fd", &Host::event_fd)
      .def_prop_ro("completion_fd", &Host::completion_fd)
      .def_prop_ro("failure", &Host::failure)
      .def_prop_ro("frames_sent", &Host::frames_sent)
      .def_prop_ro("frames_received", &Host::frames_received)
      .def("timer_lateness", [](const Host& h) { return h.timer_lateness().counts(); })
      .def("turn_length", [](const Host& h) { return h.turn_length().counts(); })
      .def("port_statistics", [](const Host& h) {
        const XskStatistics s = h.port_statistics();
        nb::dict d;
        d["rx_dropped"] = s.rx_dropped;
        d["rx_ring_full"] = s.rx_ring_full;
        d["rx_fill_ring_empty"] = s.rx_fill_ring_empty;
        d["tx_invalid"] = s.tx_invalid;
        d["tx_ring_empty"] = s.tx_ring_empty;
        return d;
      });
}

}  // namespace softroce
