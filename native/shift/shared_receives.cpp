// SPDX-License-Identifier: GPL-2.0-or-later
#include "shared_receives.hpp"

#include <algorithm>
#include <cstdint>
#include <system_error>

namespace softroce::shift {
namespace {

using Receives = std::vector<ReceiveRequest>;

// The first `most` of them.
Receives take(Nic& nic, std::uint32_t number, std::size_t most) {
  return nic.ask([=](Rnic& rnic, Time) { return rnic.take_srq_receives(number, most); });
}

}  // namespace

SharedReceives::~SharedReceives() {
  if (!far_number_) return;
  far_.ask([number = *far_number_](Rnic& rnic, Time) { return rnic.destroy_srq(number); });
}

std::uint32_t SharedReceives::far() {
  if (far_number_) return *far_number_;
  const std::uint32_t domain = near_.ask(
      [number = number_](Rnic& rnic, Time) { return rnic.find_srq(number)->protection_domain; });
  const auto [error, made] = far_.ask([=, most = max_elements_](Rnic& rnic, Time) {
    std::uint32_t number = 0;
    const int refused = rnic.create_srq(domain, kLent, most, number);
    return std::pair{refused, number};
  });
  if (error != 0) throw std::system_error(error, std::generic_category(), "an SRQ at the backup");
  far_number_ = made;
  return made;
}

void SharedReceives::lend() {
  const std::uint32_t there =
      far_.ask([number = far()](Rnic& rnic, Time) { return rnic.find_srq(number)->queue.size(); });
  const Receives lent = take(near_, number_, kLent - std::min(kLent, there));
  if (lent.empty()) return;
  far_.ask([lent, number = far()](Rnic& rnic, Time) {
    for (const ReceiveRequest& each : lent) rnic.post_srq_receive(number, ReceiveRequest(each));
    return 0;
  });
}

void SharedReceives::take_back() {
  const Receives left = take(far_, far(), SIZE_MAX);
  near_.ask([left, number = number_](Rnic& rnic, Time) {
    const auto srq = rnic.find_srq(number);
    for (auto each = left.rbegin(); each != left.rend(); ++each)
      srq->queue.put_back(ReceiveRequest(*each));
    return 0;
  });
}

}  // namespace softroce::shift
