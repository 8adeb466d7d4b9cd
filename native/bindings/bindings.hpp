// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "../endpoint/endpoint.hpp"
#include "gid_caster.hpp"

namespace softroce {

namespace nb = nanobind;

using EndpointClass = nb::class_<Endpoint>;

void bind_types(nb::module_& m);
void bind_endpoint(nb::module_& m);
void bind_work_requests(nb::module_& m);
void bind_own_memory(nb::module_& m);
void bind_congestion(nb::module_& m, EndpointClass& cls);
void bind_path_picker(nb::module_& m);
void bind_verbs(EndpointClass& cls);
void bind_shift(nb::module_& m);
void bind_coding(EndpointClass& cls);
void bind_policy(nb::module_& m, EndpointClass& cls);
void bind_telemetry(nb::module_& m);
void bind_pair(nb::module_& m);
void bind_operation_trial(nb::module_& m);
void bind_host(nb::module_& m);
void bind_codec(nb::module_& m);
void bind_erasure(nb::module_& m);
void bind_faults(nb::module_& m);
void bind_traffic(nb::module_& m);
void bind_wire(nb::module_& m);
void bind_structs(nb::module_& m);
void bind_capture(nb::module_& m);
void bind_sim(nb::module_& m);
void bind_rnic_limits(nb::module_& m);

inline std::int64_t to_ns(Time time) { return time == kNever ? INT64_MAX : time / kNanosecond; }
inline Time from_ns(std::int64_t ns) {
  return ns >= kNever / kNanosecond ? kNever : ns * kNanosecond;
}

// Calls `body(rnic, now)` where the engine runs, and waits for its result. An action runs even
// when the wait for it was given up: the result is shared with it, and `body` must hold its
// arguments by value.
template <typename F>
auto call_in_engine(Endpoint& endpoint, F body) {
  const auto result = std::make_shared<std::invoke_result_t<F, Rnic&, Time>>();
  {
    const nb::gil_scoped_release release;
    endpoint.call(
        [result, body = std::move(body)](Rnic& rnic, Time now) { *result = body(rnic, now); });
  }
  return std::move(*result);
}

// (0, number of requests), or the errno value and the index of the request that it is about. Those
// before it are posted, those after it are not.
using Posted = std::pair<int, std::size_t>;

Posted post_sends(Endpoint& endpoint, std::uint32_t qp, std::vector<SendRequest> requests);
Posted post_receives(Endpoint& endpoint, std::uint32_t qp, std::vector<ReceiveRequest> requests);
// The bytes of inline requests, taken from memory that needs no region. Requests from the first on
// that cannot be taken are left out.
Posted take_inline(Endpoint& endpoint, std::vector<SendRequest>& requests);

// A numpy array that owns the vector's elements.
template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

}  // namespace softroce
