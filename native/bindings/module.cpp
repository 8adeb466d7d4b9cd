// SPDX-License-Identifier: GPL-2.0-or-later
// softroce_lab._native: the engine and what drives it. Times cross this border as integer
// nanoseconds; memory as addresses that the Python objects keep valid.
#include <nanobind/nanobind.h>

#include <system_error>

#include "bindings.hpp"

namespace {

// What the system refused becomes an OSError with its errno.
void raise_os_error(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    const nanobind::tuple arguments = nanobind::make_tuple(error.code().value(), error.what());
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
  }
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Native core of softroce_lab: soft RNIC engine, in-memory pair, AF_XDP port.";
  nanobind::register_exception_translator(raise_os_error);
  softroce::bind_structs(m);
  softroce::bind_types(m);
  softroce::bind_work_requests(m);
  softroce::bind_own_memory(m);
  softroce::bind_endpoint(m);
  softroce::bind_telemetry(m);
  softroce::bind_pair(m);
  softroce::bind_operation_trial(m);
  softroce::bind_codec(m);
  softroce::bind_erasure(m);
  softroce::bind_faults(m);
  softroce::bind_wire(m);
  softroce::bind_capture(m);
  softroce::bind_rnic_limits(m);
  softroce::bind_sim(m);
  softroce::bind_shift(m);
#ifdef SOFTROCE_HAS_LIVE
  softroce::bind_host(m);
  softroce::bind_traffic(m);
  m.attr("has_live") = true;
#else
  m.attr("has_live") = false;  // no Host, PortConfig, RawPort nor traffic: the virtual clock alone
#endif
}
