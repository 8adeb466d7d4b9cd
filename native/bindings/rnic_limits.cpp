// SPDX-License-Identifier: GPL-2.0-or-later
#include "../sim/rnic_limits.hpp"

#include "bindings.hpp"

namespace softroce {
namespace {

using sim::RnicModel;
using sim::RnicPipeline;

template <Time RnicModel::*field>
void bind_time(nb::class_<RnicModel>& cls, const char* name) {
  cls.def_prop_rw(
      name, [](const RnicModel& m) { return m.*field; },
      [](RnicModel& m, Time picoseconds) { m.*field = picoseconds; });
}

// A packet of a queue pair; with a peer's number, one of striped messages.
template <Time (RnicPipeline::*way)(const sim::Touched&, Time)>
Time pass(RnicPipeline& pipeline, std::uint32_t qp, Time now, std::uint32_t peer) {
  return (pipeline.*way)({qp, Gid::of_ipv4(peer), peer != 0}, now);
}

}  // namespace

void bind_rnic_limits(nb::module_& m) {
  nb::class_<RnicModel> model(m, "RnicModel", "What an RNIC cannot do at once; 0: no limit.");
  model.def(nb::init<>())
      .def_rw("cached_bytes", &RnicModel::cached_bytes)
      .def_rw("context_bytes", &RnicModel::context_bytes)
      .def_rw("peer_bytes", &RnicModel::peer_bytes);
  bind_time<&RnicModel::miss>(model, "miss_ps");
  bind_time<&RnicModel::host_latency>(model, "host_latency_ps");
  bind_time<&RnicModel::pcie_latency>(model, "pcie_latency_ps");
  bind_time<&RnicModel::packet_time>(model, "packet_time_ps");
  nb::class_<RnicPipeline>(m, "RnicPipeline", "What stands between an engine and its wire.")
      .def(nb::init<const RnicModel&>(), nb::arg("model"))
      .def("transmit_ps", &pass<&RnicPipeline::transmit>, nb::arg("qp"), nb::arg("now_ps"),
           nb::arg("peer") = 0)
      .def("receive_ps", &pass<&RnicPipeline::receive>, nb::arg("qp"), nb::arg("now_ps"),
           nb::arg("peer") = 0)
      .def_prop_ro("latency_ps", &RnicPipeline::latency)
      .def_prop_ro("uses", &RnicPipeline::uses)
      .def_prop_ro("misses", &RnicPipeline::misses);
}

}  // namespace softroce
