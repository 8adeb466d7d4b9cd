// SPDX-License-Identifier: GPL-2.0-or-later
// Transports by name: sessions, and those that react to every packet.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "oracle.hpp"
#include "selective_repeat.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<PacketTransport> (*make)(const TransportConfig&, TransportHost&);
};
struct SessionEntry {
  std::string_view name;
  std::unique_ptr<MessageSession> (*make)(MessageEngine&);
};
constexpr std::array kSessions = {
    SessionEntry{"csa_ud", make_csa_ud},     SessionEntry{"python_policy", make_python_policy},
    SessionEntry{"sdr_auto", make_sdr_auto}, SessionEntry{"sdr_ec", make_sdr_ec},
    SessionEntry{"sdr_sr", make_sdr_sr},     SessionEntry{"sdr_sr_nack", make_sdr_sr_nack},
    SessionEntry{"ud_rto", make_ud_rto}};
constexpr std::array kTransports = {Entry{"irn", make_irn}, Entry{"oracle", make_oracle},
                                    Entry{"srnic", make_srnic}};

}  // namespace

std::unique_ptr<PacketTransport> make_packet_transport(std::string_view name,
                                                       const TransportConfig& config,
                                                       TransportHost& host) {
  const auto names = session_names();
  if (name == kPolicyTransport || std::ranges::find(names, name) != names.end()) return nullptr;
  std::string known(kPolicyTransport);
  for (const Entry& each : kTransports) {
    if (each.name == name) return each.make(config, host);
    known += ", " + std::string(each.name);
  }
  throw std::invalid_argument("unknown transport '" + std::string(name) + "'; known: " + known);
}

std::unique_ptr<MessageSession> make_session(std::string_view name, MessageEngine& engine) {
  for (const SessionEntry& each : kSessions)
    if (each.name == name) return each.make(engine);
  return nullptr;
}

std::vector<std::string> session_names() {
  std::vector<std::string> names;
  for (const SessionEntry& each : kSessions) names.emplace_back(each.name);
  return names;
}

std::vector<std::string> packet_transport_names() {
  std::vector<std::string> names;
  for (const Entry& each : kTransports) names.emplace_back(each.name);
  return names;
}

}  // namespace softroce
