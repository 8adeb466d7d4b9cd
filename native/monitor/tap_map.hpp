// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "descriptor.hpp"
#include "lab_maps.h"

namespace softroce::monitor {

// The pinned map of struct lab_tap, mapped: what is captured on each directed link.
class TapMap {
 public:
  // Throws std::system_error.
  explicit TapMap(const std::string& pin);
  ~TapMap();
  TapMap(const TapMap&) = delete;
  TapMap& operator=(const TapMap&) = delete;

  std::uint32_t links() const { return links_; }
  void set_snap(std::uint32_t link, std::uint32_t snap_bytes);
  std::uint64_t missed(std::uint32_t link) const;

 private:
  std::size_t bytes() const;

  Descriptor fd_;
  std::uint32_t links_ = 0;
  lab_tap* taps_ = nullptr;
};

}  // namespace softroce::monitor
