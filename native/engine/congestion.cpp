// SPDX-License-Identifier: GPL-2.0-or-later
#include "congestion.hpp"

#include <stdexcept>

namespace softroce {
namespace {

// A constant window of one bandwidth-delay product, as IRN has it (Mittal et al., SIGCOMM 2018,
// section 3.2). It reacts to nothing.
class Bdp final : public CongestionControl {
 public:
  explicit Bdp(std::uint32_t packets) : packets_(packets) {}
  std::uint32_t window_packets() const override { return packets_; }
  void on_report(const RateSample&) override {}

 private:
  std::uint32_t packets_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_congestion_control(std::string_view name,
                                                           std::uint32_t bdp_packets) {
  if (name == "bdp") return std::make_unique<Bdp>(bdp_packets);
  std::string known;
  for (const auto& each : congestion_control_names()) known += (known.empty() ? "" : ", ") + each;
  throw std::invalid_argument("unknown congestion control '" + std::string(name) +
                              "'; known: " + known);
}

std::vector<std::string> congestion_control_names() { return {"bdp"}; }

}  // namespace softroce
