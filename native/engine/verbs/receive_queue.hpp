// SPDX-License-Identifier: GPL-2.0-or-later
// Posted receives: of one queue pair, or shared by many (SRQ, IBA 10.2.9).
#pragma once

#include <cerrno>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "work_request.hpp"

namespace softroce {

class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t max_requests, std::uint32_t max_elements)
      : max_requests_(max_requests), max_elements_(max_elements) {}

  // 0, EINVAL (too many elements) or ENOMEM (full), as ibv_post_recv.
  int post(ReceiveRequest&& request) {
    if (request.targets.size() > max_elements_) return EINVAL;
    if (requests_.size() >= max_requests_) return ENOMEM;
    requests_.push_back(std::move(request));
    return 0;
  }

  std::optional<ReceiveRequest> take() {
    if (requests_.empty()) return std::nullopt;
    std::optional<ReceiveRequest> request(std::move(requests_.front()));
    requests_.pop_front();
    return request;
  }

  void put_back(ReceiveRequest&& request) { requests_.push_front(std::move(request)); }

  bool empty() const { return requests_.empty(); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(requests_.size()); }
  std::uint32_t max_requests() const { return max_requests_; }
  // False: more requests are posted than that.
  bool resize(std::uint32_t max_requests) {
    if (requests_.size() > max_requests) return false;
    max_requests_ = max_requests;
    return true;
  }

 private:
  std::uint32_t max_requests_, max_elements_;
  std::deque<ReceiveRequest> requests_;
};

// With a limit that is reported once, when fewer requests than that are left (ibv_modify_srq).
struct SharedReceiveQueue {
  std::uint32_t number;
  std::uint32_t protection_domain;
  ReceiveQueue queue;
  std::uint32_t limit = 0;  // 0: not armed

  // True once after the limit was set, IBA 10.2.9.4.
  bool is_short() { return queue.size() < std::exchange(limit, queue.size() < limit ? 0 : limit); }
};

}  // namespace softroce
