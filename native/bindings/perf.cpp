// SPDX-License-Identifier: GPL-2.0-or-later
#include "../endpoint/perf.hpp"

#include <nanobind/stl/shared_ptr.h>

#include "bindings.hpp"

namespace softroce {
namespace {

using nb::literals::operator""_a;

void bind_config(nb::module_& m) {
  nb::enum_<PerfVerb>(m, "PerfVerb", "What a perf run does.")
      .value("SEND", PerfVerb::send)
      .value("WRITE", PerfVerb::write);
  nb::class_<PerfConfig>(m, "PerfConfig", "One side of a perf run.")
      .def(nb::init<>())
      .def_rw("verb", &PerfConfig::verb)
      .def_rw("posts", &PerfConfig::posts, "else it only receives")
      .def_rw("begins", &PerfConfig::begins, "a ping-pong")
      .def_rw("spins", &PerfConfig::spins)
      .def_rw("bytes", &PerfConfig::bytes)
      .def_rw("slots", &PerfConfig::slots, "places of a message in the buffers, used in turn")
      .def_rw("depth", &PerfConfig::depth)
      .def_rw("signal_every", &PerfConfig::signal_every)
      .def_rw("iterations", &PerfConfig::iterations, "of a ping-pong")
      .def_prop_rw(
          "duration_ns", [](const PerfConfig& c) { return to_ns(c.duration); },
          [](PerfConfig& c, std::int64_t ns) { c.duration = from_ns(ns); })
      .def_prop_rw(
          "patience_ns", [](const PerfConfig& c) { return to_ns(c.patience); },
          [](PerfConfig& c, std::int64_t ns) { c.patience = from_ns(ns); })
      .def_rw("receives", &PerfConfig::receives, "posted at a time")
      .def_rw("receive_bytes", &PerfConfig::receive_bytes)
      .def_rw("send_address", &PerfConfig::send_address)
      .def_rw("receive_address", &PerfConfig::receive_address)
      .def_rw("lkey", &PerfConfig::lkey)
      .def_rw("qp", &PerfConfig::qp)
      .def_rw("remote_address", &PerfConfig::remote_address, "of WRITEs")
      .def_rw("rkey", &PerfConfig::rkey);
}

void bind_result(nb::module_& m) {
  nb::enum_<PerfEnd>(m, "PerfEnd", "How a perf run ended.")
      .value("RUNNING", PerfEnd::running)
      .value("DONE", PerfEnd::done)
      .value("STOPPED", PerfEnd::stopped)
      .value("FAILED", PerfEnd::failed)
      .value("REFUSED", PerfEnd::refused)
      .value("STALLED", PerfEnd::stalled);
  nb::class_<PerfResult>(m, "PerfResult")
      .def_ro("end", &PerfResult::end)
      .def_prop_ro("status", [](const PerfResult& r) { return static_cast<int>(r.status); })
      .def_ro("error", &PerfResult::error)
      .def_ro("posted", &PerfResult::posted)
      .def_ro("completed", &PerfResult::completed)
      .def_ro("received", &PerfResult::received)
      .def_prop_ro("began_ns", [](const PerfResult& r) { return to_ns(r.began_at); })
      .def_prop_ro("ended_ns", [](const PerfResult& r) { return to_ns(r.ended_at); })
      .def_prop_ro(
          "posted_ns", [](const PerfResult& r) { return to_numpy(std::vector(r.posted_ns)); },
          nb::rv_policy::move);
}

void bind_run(nb::module_& m) {
  nb::class_<Application>(m, "Application", "A program for the engine's thread.");
  nb::class_<Perf, Application>(m, "Perf", "A perf run.")
      .def_static(
          "stream",
          [](const PerfConfig& config, CompletionQueue& queue) {
            return make_perf_stream(config, queue.shared_from_this());
          },
          "config"_a, "cq"_a)
      .def_static(
          "ping_pong",
          [](const PerfConfig& config, CompletionQueue& queue) {
            return make_perf_ping_pong(config, queue.shared_from_this());
          },
          "config"_a, "cq"_a)
      .def(
          "prepare",
          [](const std::shared_ptr<Perf>& perf, Endpoint& endpoint) {
            call_in_engine(endpoint,
                           [perf](Rnic& rnic, Time now) { return perf->prepare(rnic, now), 0; });
          },
          "endpoint"_a, "post the first receives")
      .def(
          "turn",
          [](const std::shared_ptr<Perf>& perf, Endpoint& endpoint) {
            return call_in_engine(endpoint,
                                  [perf](Rnic& rnic, Time now) { return perf->turn(rnic, now); });
          },
          "endpoint"_a, "one turn, for endpoints that are moved by hand")
      .def("stop", &Perf::stop, "wait for nobody else")
      .def(
          "wait",
          [](Perf& perf, std::int64_t longest_ns) {
            return perf.wait(std::chrono::nanoseconds(longest_ns));
          },
          "longest_ns"_a, nb::call_guard<nb::gil_scoped_release>(), "whether it is over")
      .def("result", &Perf::result, "final once it is over");
}

}  // namespace

void bind_perf(nb::module_& m) {
  bind_config(m);
  bind_result(m);
  bind_run(m);
}

}  // namespace softroce
