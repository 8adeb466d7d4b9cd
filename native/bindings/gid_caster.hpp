// SPDX-License-Identifier: GPL-2.0-or-later
// Addresses are integers in Python, as `int(ipaddress.ip_address(text))` makes them and
// `ipaddress.ip_address(number)` reads them: below 2^32 they are IPv4 addresses.
#pragma once

#include <nanobind/nanobind.h>

#include "../engine/codec/gid.hpp"

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

template <>
struct type_caster<softroce::Gid> {
  NB_TYPE_CASTER(softroce::Gid, const_name("int"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    if (!PyLong_Check(source.ptr())) return false;
    const object bits = steal(PyLong_FromLong(64));
    const object upper = steal(PyNumber_Rshift(source.ptr(), bits.ptr()));
    const std::uint64_t high = PyLong_AsUnsignedLongLong(upper.ptr());
    if (PyErr_Occurred()) {  // negative, or of more than 128 bits
      PyErr_Clear();
      return false;
    }
    const std::uint64_t low = PyLong_AsUnsignedLongLongMask(source.ptr());
    const bool ipv4 = high == 0 && low >> 32 == 0;
    value =
        ipv4 ? softroce::Gid::of_ipv4(static_cast<std::uint32_t>(low)) : softroce::Gid{high, low};
    return true;
  }

  static handle from_cpp(const softroce::Gid& gid, rv_policy, cleanup_list*) noexcept {
    if (gid.is_ipv4()) return PyLong_FromUnsignedLong(gid.ipv4());
    const object high = steal(PyLong_FromUnsignedLongLong(gid.high));
    const object low = steal(PyLong_FromUnsignedLongLong(gid.low));
    const object bits = steal(PyLong_FromLong(64));
    const object upper = steal(PyNumber_Lshift(high.ptr(), bits.ptr()));
    return PyNumber_Or(upper.ptr(), low.ptr());
  }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
