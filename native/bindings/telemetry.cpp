// SPDX-License-Identifier: GPL-2.0-or-later
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "../endpoint/event_log.hpp"
#include "../endpoint/statistics.hpp"
#include "../system/clock.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

nb::bytes statistics_of(Endpoint& endpoint) {
  Endpoint* const of = &endpoint;
  const auto words = call_in_engine(endpoint, [of](Rnic& rnic, Time) {
    std::vector<std::uint64_t> taken;
    statistics::take(rnic, of->port_counts(), monotonic_ns(), taken);
    return taken;
  });
  return nb::bytes(reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]);
}

// An endpoint has one log at a time, and keeps it until it is given none.
std::shared_ptr<EventLog> open_log(Endpoint& endpoint, const std::string& path,
                                   const std::string& head, std::uint64_t most_bytes) {
  const auto log = std::make_shared<EventLog>(
      EventLogConfig{.path = path,
                     .head = head,
                     .epoch_ns = endpoint.epoch_ns(),
                     .now_ns = endpoint.epoch_ns() + to_ns(endpoint.now()),
                     .most_bytes = most_bytes});
  Endpoint* const of = &endpoint;
  call_in_engine(endpoint, [log, of](Rnic&, Time) { return of->set_event_sink(log), 0; });
  return log;
}

void close_log(Endpoint& endpoint, EventLog& log) {
  Endpoint* const of = &endpoint;
  call_in_engine(endpoint, [of](Rnic&, Time) { return of->set_event_sink(nullptr), 0; });
  const nb::gil_scoped_release release;
  log.close();
}

}  // namespace

void bind_telemetry(nb::module_& m) {
  nb::class_<EventLog>(m, "EventLog", "What queue pairs do, as lines of JSON in a file.")
      .def_prop_ro("written", &EventLog::written)
      .def_prop_ro("lost", &EventLog::lost)
      .def_prop_ro("error", &EventLog::error, "errno of what made it stop writing; 0: nothing");
  m.def("statistics", &statistics_of, nb::arg("endpoint"),
        "all counters now, as softroce_lab.telemetry.counters_file reads them");
  m.def("make_statistics_file", &statistics::make_file, nb::arg("path"),
        "a descriptor of a file for the counters of another process, which holds the file's lock");
  m.def("open_event_log", &open_log, nb::arg("endpoint"), nb::arg("path"), nb::arg("head"),
        nb::arg("most_bytes") = EventLogConfig{}.most_bytes);
  m.def("close_event_log", &close_log, nb::arg("endpoint"), nb::arg("log"));
}

}  // namespace softroce
