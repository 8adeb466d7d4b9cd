// SPDX-License-Identifier: GPL-2.0-or-later
// Congestion control: how many packets may be in flight to a peer. A registry by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "units.hpp"

namespace softroce {

struct RateSample {  // what one receiver report tells
  Time rtt;
  std::uint32_t delivered_packets;
  std::uint32_t ce_packets;
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  virtual std::uint32_t window_packets() const = 0;
  virtual void on_report(const RateSample& sample) = 0;
};

// Throws std::invalid_argument that lists the known names for an unknown one.
std::unique_ptr<CongestionControl> make_congestion_control(std::string_view name,
                                                           std::uint32_t bdp_packets);
std::vector<std::string> congestion_control_names();

}  // namespace softroce
