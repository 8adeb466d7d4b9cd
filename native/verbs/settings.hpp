// SPDX-License-Identifier: GPL-2.0-or-later
// What `lab exec --verbs` writes of the host's RNIC: lines of a name and a value, in a file that
// only the program's mount namespace has (softroce_lab/fabric/verbs_device.py writes it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../engine/codec/gid.hpp"

namespace softroce::verbs {

inline constexpr const char* kSysfs = "/sys";
inline constexpr const char* kSettings = "/sys/class/infiniband_verbs/uverbs0/softroce_lab";

struct Settings {
  std::string device;        // name, as softroce0
  std::uint64_t guid = 0;    // of the node, host order
  std::string interface {};  // empty: the RNIC reaches itself alone
  std::uint32_t ifindex = 0;
  std::uint64_t mac = 0, next_hop_mac = 0;
  std::vector<Gid> gids{};
  std::uint32_t path_mtu = 1024;
  bool generic = false;
  std::string xsks_map{}, queues_map{}, statistics{};
  std::uint32_t uplink = 0;  // the directed link that begins at the port
  std::string kept{};        // folder for the counters of processes that have ended; empty: nowhere
  std::string losses{};      // folder for what is done about losses; empty: nowhere
};

// Nothing: no file, so no device. A line that it does not know is a file of another version: that
// is reported on stderr, and there is no device.
std::optional<Settings> read_settings();

}  // namespace softroce::verbs
