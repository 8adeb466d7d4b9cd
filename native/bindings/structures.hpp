// SPDX-License-Identifier: GPL-2.0-or-later
// Structures of the maps (xdp/), as the bytes that Python has of them.
#pragma once

#include <cstring>
#include <stdexcept>

#include "bindings.hpp"

namespace softroce {

// Throws std::invalid_argument for bytes of another size.
template <typename T>
T from_bytes(const nb::bytes& bytes) {
  if (bytes.size() != sizeof(T)) throw std::invalid_argument("a structure of another size");
  T value;
  std::memcpy(&value, bytes.c_str(), sizeof(T));
  return value;
}

}  // namespace softroce
