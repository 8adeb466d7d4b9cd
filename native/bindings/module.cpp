// SPDX-License-Identifier: GPL-2.0-or-later
// softroce_lab._native: the engine and what drives it. Times cross this border as integer
// nanoseconds; memory as addresses that the Python objects keep alive.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_native, m) {
  m.doc() = "Native core of softroce_lab: soft RNIC engine, AF_XDP port, in-memory pair.";
  softroce::bind_types(m);
  softroce::bind_endpoint(m);
  softroce::bind_pair(m);
  softroce::bind_host(m);
  softroce::bind_codec(m);
  softroce::bind_faults(m);
}
