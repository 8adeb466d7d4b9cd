// SPDX-License-Identifier: GPL-2.0-or-later
#include "endpoint.hpp"

#include <stdexcept>

#include "../transport/python_policy.hpp"

namespace softroce {

PythonPolicy& policy_of(Rnic& rnic) {
  auto* policy = dynamic_cast<PythonPolicy*>(rnic.messages().session());
  if (policy == nullptr)
    throw std::invalid_argument("the endpoint's transport is no user's policy");
  return *policy;
}

std::vector<HookCall> DirectEndpoint::take_calls(bool begins) {
  std::vector<HookCall> calls;
  submit([&](Rnic& rnic, Time now) { calls = policy_of(rnic).next_calls(begins, now); });
  return calls;
}

}  // namespace softroce
