// SPDX-License-Identifier: GPL-2.0-or-later
#include <nanobind/stl/string.h>

#include "../live/echo.hpp"
#include "../live/paced_traffic.hpp"
#include "../live/raw_traffic.hpp"
#include "../live/udp_traffic.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

std::vector<std::uint8_t> copied(const nb::bytes& frame) {
  const auto* bytes = static_cast<const std::uint8_t*>(frame.data());
  return {bytes, bytes + frame.size()};
}

nb::tuple tuple_of(const TrafficResult& result) {
  return nb::make_tuple(result.sent, result.received, result.elapsed_ns);
}

}  // namespace

void bind_traffic(nb::module_& m) {
  nb::class_<XskPort>(m, "RawPort", "An AF_XDP socket on its own, for benches.")
      .def(nb::init<const XskConfig&>())
      .def("insert_into", &XskPort::insert_into);
  m.def(
      "raw_traffic",
      [](XskPort& sender, XskPort& receiver, const nb::bytes& frame, std::uint32_t payload_offset,
         std::uint32_t index_offset, std::int64_t duration_ns, bool moderate, int sender_cpu,
         int receiver_cpu) {
        const RawJob job{.frame = copied(frame),
                         .payload_offset = payload_offset,
                         .index_offset = index_offset,
                         .duration_ns = duration_ns,
                         .moderate = moderate,
                         .sender_cpu = sender_cpu,
                         .receiver_cpu = receiver_cpu};
        TrafficResult result;
        {
          const nb::gil_scoped_release release;
          result = run_raw_traffic(sender, receiver, job);
        }
        return tuple_of(result);
      },
      nb::arg("sender"), nb::arg("receiver"), nb::arg("frame"), nb::arg("payload_offset"),
      nb::arg("index_offset"), nb::arg("duration_ns"), nb::arg("moderate") = false,
      nb::arg("sender_cpu") = -1, nb::arg("receiver_cpu") = -1,
      "(frames sent, frames received, ns)");
  m.def(
      "udp_traffic",
      [](int sender_fd, int receiver_fd, std::uint32_t payload_bytes, std::int64_t duration_ns,
         bool moderate, int sender_cpu, int receiver_cpu) {
        TrafficResult result;
        {
          const nb::gil_scoped_release release;
          result = run_udp_traffic({.sender_fd = sender_fd,
                                    .receiver_fd = receiver_fd,
                                    .payload_bytes = payload_bytes,
                                    .duration_ns = duration_ns,
                                    .moderate = moderate,
                                    .sender_cpu = sender_cpu,
                                    .receiver_cpu = receiver_cpu});
        }
        return tuple_of(result);
      },
      nb::arg("sender_fd"), nb::arg("receiver_fd"), nb::arg("payload_bytes"),
      nb::arg("duration_ns"), nb::arg("moderate") = false, nb::arg("sender_cpu") = -1,
      nb::arg("receiver_cpu") = -1,
      "(datagrams sent, datagrams received, ns); the sender's socket is connected");
  m.def(
      "paced_traffic",
      [](XskPort& port, const nb::bytes& frame, std::uint32_t index_offset,
         std::uint32_t stamp_offset, std::uint32_t count, double frames_per_second, int cpu) {
        const PacedJob job{.frame = copied(frame),
                           .index_offset = index_offset,
                           .stamp_offset = stamp_offset,
                           .count = count,
                           .frames_per_second = frames_per_second,
                           .cpu = cpu};
        PacedResult result;
        {
          const nb::gil_scoped_release release;
          result = run_paced_traffic(port, job);
        }
        return nb::make_tuple(result.sent, result.elapsed_ns, result.latest_ns);
      },
      nb::arg("port"), nb::arg("frame"), nb::arg("index_offset"), nb::arg("stamp_offset"),
      nb::arg("count"), nb::arg("frames_per_second"), nb::arg("cpu") = -1,
      "(frames sent, ns, ns that the latest frame was behind its moment)");
  m.def(
      "echo",
      [](XskPort& near, XskPort& far, const nb::bytes& forth, const nb::bytes& back,
         std::uint32_t rounds, int near_cpu, int far_cpu) {
        const EchoJob job{copied(forth), copied(back), rounds, near_cpu, far_cpu};
        std::vector<std::int64_t> trips;
        {
          const nb::gil_scoped_release release;
          trips = run_echo(near, far, job);
        }
        return to_numpy(std::move(trips));
      },
      nb::arg("near"), nb::arg("far"), nb::arg("forth"), nb::arg("back"), nb::arg("rounds"),
      nb::arg("near_cpu") = -1, nb::arg("far_cpu") = -1, "each round trip, ns");
}

}  // namespace softroce
