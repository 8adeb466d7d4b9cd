// SPDX-License-Identifier: GPL-2.0-or-later
#include "congestion.hpp"

#include <stdexcept>

namespace softroce {
namespace {

// A constant window of one bandwidth-delay product, as IRN has it (Mittal et al., SIGCOMM 2018,
// section 3.2). It reacts to nothing. `grants` has it, too: the receiver lets less of it be used.
class Bdp final : public CongestionControl {
 public:
  explicit Bdp(std::uint32_t packets) : CongestionControl(packets, false, false) {}
  Figures figures(Time) override { return {.window = static_cast<double>(window_packets_)}; }
};

std::unique_ptr<CongestionControl> make_bdp(const CongestionConfig& config) {
  return std::make_unique<Bdp>(config.window_packets);
}

struct Kind {
  const char* name;
  std::unique_ptr<CongestionControl> (*make)(const CongestionConfig&);
};
constexpr std::uint64_t kMostLineRate = 10'000'000'000'000;
constexpr Kind kKinds[] = {{"bdp", make_bdp},
                           {"dcqcn", make_dcqcn},
                           {"grants", make_bdp},
                           {"nscc", make_nscc},
                           {"swift", make_swift}};

}  // namespace

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config) {
  if (config.line_rate_bps == 0 || config.line_rate_bps > kMostLineRate)
    throw std::invalid_argument("the line rate must be 1 to 10 000 000 000 000 bits a second");
  if (config.base_rtt <= 0) throw std::invalid_argument("the base RTT must be more than 0");
  if (config.cnp_interval <= 0) throw std::invalid_argument("the CNP interval must be more than 0");
  std::string known;
  for (const Kind& kind : kKinds) {
    if (config.name == kind.name) return kind.make(config);
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  throw std::invalid_argument("unknown congestion control '" + config.name + "'; known: " + known);
}

std::vector<std::string> congestion_control_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

bool sends_cnps(std::string_view congestion_control) { return congestion_control == "dcqcn"; }

}  // namespace softroce
