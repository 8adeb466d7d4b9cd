// SPDX-License-Identifier: GPL-2.0-or-later
// When a loop did not run: its process was stopped, or had no CPU. Judged by
// softroce_lab/telemetry/fidelity.py, whose limit is kLeastNs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace softroce {

struct Pause {
  std::uint64_t begin_ns, end_ns;  // CLOCK_MONOTONIC
};

// The gaps between the turns of a loop, beyond the sleep that it asked for. One thread uses it.
class Pauses {
 public:
  static constexpr std::int64_t kLeastNs = 100'000'000;
  static constexpr std::size_t kKept = 64;  // the newest
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  // A turn begins. Times are of CLOCK_MONOTONIC.
  void turn(std::int64_t now_ns) {
    if (now_ns - due_ns_ > kLeastNs) [[unlikely]]
      keep(now_ns);
    due_ns_ = now_ns;
  }
  // The turn ends, and the loop sleeps for `longest_ns` at most.
  void sleep(std::int64_t now_ns, std::int64_t longest_ns) {
    turn(now_ns);
    due_ns_ = longest_ns == kForever ? kForever : now_ns + longest_ns;
  }

  const std::vector<Pause>& kept() const { return kept_; }

 private:
  void keep(std::int64_t now_ns) {
    if (kept_.size() == kKept) kept_.erase(kept_.begin());
    kept_.push_back({static_cast<std::uint64_t>(due_ns_), static_cast<std::uint64_t>(now_ns)});
  }

  std::int64_t due_ns_ = kForever;
  std::vector<Pause> kept_;
};

}  // namespace softroce
