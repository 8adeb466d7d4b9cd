// SPDX-License-Identifier: GPL-2.0-or-later
#include "../live/traffic.hpp"

#include <nanobind/stl/string.h>

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
  nb::class_<XskPort>(m, "RawPort", "An AF_XDP socket on its own, for benchmarks.")
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
}

}  // namespace softroce
