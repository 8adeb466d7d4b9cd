// SPDX-License-Identifier: GPL-2.0-or-later
#include "../live/host.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"

namespace softroce {

void bind_host(nb::module_& m) {
  nb::class_<XskConfig>(m, "PortConfig", "An AF_XDP port of this network namespace.")
      .def(nb::init<>())
      .def_rw("interface", &XskConfig::interface)
      .def_rw("ifindex", &XskConfig::ifindex)
      .def_rw("xsks_map_path", &XskConfig::xsks_map_path)
      .def_rw("receive_frames", &XskConfig::receive_frames);
  m.def(
      "open_port",
      [] {
        XskPort::Opened opened = XskPort::open();
        return nb::make_tuple(opened.socket.release(), opened.memory.release());
      },
      "descriptors of an AF_XDP socket of this network namespace, and of its frames' memory");
  nb::class_<HostConfig>(m, "HostConfig")
      .def(nb::init<>())
      .def_rw("messages", &HostConfig::messages)
      .def_rw("port", &HostConfig::port)
      .def_rw("mac", &HostConfig::mac)
      .def_rw("epoch_ns", &HostConfig::epoch_ns, "CLOCK_MONOTONIC when the run began")
      .def_rw("queues_map", &HostConfig::queues_map,
              "path of the pinned map of backlogs; empty: the port takes everything")
      .def_rw("uplink", &HostConfig::uplink, "the directed link that begins at the port")
      .def_rw("cpu", &HostConfig::cpu)
      .def_rw("statistics", &HostConfig::statistics,
              "path of a file to publish counters in while it runs; empty: nowhere");
  nb::class_<Host, Endpoint>(m, "Host", "An RNIC on the real clock, in a thread of its own.")
      .def(nb::init<const HostConfig&>())
      .def("start", &Host::start)
      .def("stop", &Host::stop, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &Host::close, nb::call_guard<nb::gil_scoped_release>(),
           "stop for good: others may open its port")
      .def_prop_ro("event_fd", &Host::event_fd)
      .def_prop_ro("completion_fd", &Host::completion_fd)
      .def_prop_ro("failure", &Host::failure)
      .def_prop_ro("frames_sent", &Host::frames_sent)
      .def_prop_ro("frames_received", &Host::frames_received)
      .def("record_recoveries", &Host::record_recoveries,
           "before start: from now on what is done about losses is recorded")
      .def(
          "take_recoveries",
          [](Host& host) {
            const std::vector<Recovery> found = host.take_recoveries();
            return nb::bytes(reinterpret_cast<const char*>(found.data()),
                             found.size() * sizeof(Recovery));
          },
          "after stop: those recorded, as softroce_lab.telemetry.recoveries reads them")
      .def_prop_ro("recoveries_not_recorded", &Host::recoveries_not_recorded)
      .def("timer_lateness", [](const Host& h) { return h.timer_lateness().counts(); })
      .def("decision_lateness_ns",
           [](const Host& h) { return to_numpy(std::vector(h.decision_lateness_ns())); })
      .def("turn_length", [](const Host& h) { return h.turn_length().counts(); })
      .def(
          "pauses",
          [](const Host& h) {
            nb::list pauses;
            for (const Pause& each : h.pauses().kept())
              pauses.append(nb::make_tuple(each.begin_ns, each.end_ns));
            return pauses;
          },
          "after stop: when its thread did not run, (begin, end) by CLOCK_MONOTONIC in ns")
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
