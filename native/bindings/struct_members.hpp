// SPDX-License-Identifier: GPL-2.0-or-later
// Types of members for struct_members.py's output, as softroce_lab/structs.py reads them.
#pragma once

#include <nanobind/stl/string.h>

#include <array>
#include <string>
#include <type_traits>

#include "bindings.hpp"

namespace softroce {

template <typename T>
constexpr const char* kStructName = nullptr;  // of each struct that is listed

template <typename T>
struct IsArray : std::false_type {};
template <typename T, std::size_t n>
struct IsArray<T[n]> : std::true_type {
  using Element = T;
};
template <typename T, std::size_t n>
struct IsArray<std::array<T, n>> : std::true_type {
  using Element = T;
};

// "u8" for a number of eight bytes, (type, how many) for an array, the name of a listed struct; all
// else are bytes.
template <typename T>
nb::object type_of_member() {
  if constexpr (std::is_enum_v<T>) {
    return type_of_member<std::underlying_type_t<T>>();
  } else if constexpr (std::is_integral_v<T>) {
    return nb::cast((std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T)));
  } else if constexpr (IsArray<T>::value) {
    using Element = typename IsArray<T>::Element;
    return nb::make_tuple(type_of_member<Element>(), sizeof(T) / sizeof(Element));
  } else if constexpr (kStructName<T> != nullptr) {
    return nb::cast(kStructName<T>);
  } else {
    return nb::make_tuple("u1", sizeof(T));
  }
}

}  // namespace softroce
