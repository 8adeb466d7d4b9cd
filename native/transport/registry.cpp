// SPDX-License-Identifier: GPL-2.0-or-later
// Packet-reactive transports by name.
#include <array>
#include <stdexcept>

#include "oracle.hpp"
#include "selective_repeat.hpp"

namespace softroce {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<PacketTransport> (*make)(const TransportConfig&, TransportHost&);
};
constexpr std::array kTransports = {Entry{"irn", make_irn}, Entry{"oracle", make_oracle},
                                    Entry{"srnic", make_srnic}};

}  // namespace

std::unique_ptr<PacketTransport> make_packet_transport(std::string_view name,
                                                       const TransportConfig& config,
                                                       TransportHost& host) {
  if (name == kPolicyTransport) return nullptr;
  std::string known(kPolicyTransport);
  for (const Entry& each : kTransports) {
    if (each.name == name) return each.make(config, host);
    known += ", " + std::string(each.name);
  }
  throw std::invalid_argument("unknown transport '" + std::string(name) + "'; known: " + known);
}

std::vector<std::string> packet_transport_names() {
  std::vector<std::string> names;
  for (const Entry& each : kTransports) names.emplace_back(each.name);
  return names;
}

}  // namespace softroce
