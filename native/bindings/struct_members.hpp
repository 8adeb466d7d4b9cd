// SPDX-License-Identifier: GPL-2.0-or-later
// What struct_members.py's output is made of: members of structs as numpy's types, for Python.
#pragma once

#include <nanobind/stl/string.h>

#include <array>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "bindings.hpp"

namespace softroce {

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

class StructDescriptions {
 public:
  struct Member {
    const char* name;
    std::size_t bytes;
    nb::object (StructDescriptions::*type)() const;
  };

  nb::dict all;  // by name: (bytes, ((name, bytes, type) of each member, ...))

  template <typename T>
  void add(const char* name, std::initializer_list<Member> members) {
    nb::list each;
    for (const Member& member : members)
      each.append(nb::make_tuple(member.name, member.bytes, (this->*member.type)()));
    all[name] = nb::make_tuple(sizeof(T), nb::tuple(each));
    names_.emplace(typeid(T), name);
  }

  // "u8" for a number of eight bytes, (type, how many) for an array, the name of a struct that was
  // added before; all else are bytes.
  template <typename T>
  nb::object type() const {
    if constexpr (std::is_enum_v<T>) {
      return type<std::underlying_type_t<T>>();
    } else if constexpr (std::is_integral_v<T>) {
      return nb::cast((std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T)));
    } else if constexpr (IsArray<T>::value) {
      using Element = typename IsArray<T>::Element;
      return nb::make_tuple(type<Element>(), sizeof(T) / sizeof(Element));
    } else {
      const auto known = names_.find(typeid(T));
      if (known != names_.end()) return nb::cast(known->second);
      return nb::make_tuple("u1", sizeof(T));
    }
  }

 private:
  std::unordered_map<std::type_index, const char*> names_;
};

inline nb::dict enumerators(std::initializer_list<std::pair<const char*, long long>> values) {
  nb::dict all;
  for (const auto& [name, value] : values) all[name] = value;
  return all;
}

}  // namespace softroce

#define SOFTROCE_MEMBER(T, member) \
  { #member, sizeof(T::member), &StructDescriptions::type < decltype(T::member)> }
#define SOFTROCE_ENUMERATOR(T, name) \
  { #name, static_cast < long long>(T::name) }
