// SPDX-License-Identifier: GPL-2.0-or-later
// What `lab exec --verbs` writes of the host's RNICs: lines of a name and a value, in a file each
// that only the program's mount namespace has (softroce_lab/programs/device/device.py writes it).
// The variable SOFTROCE_VERBS names other files, with ':' between them.
//
// A line `engine.NAME VALUE` sets a field of the engine's configuration (config_text.hpp). The
// variable SOFTROCE_TRANSPORT holds such a configuration in one line, and replaces the lines of all
// devices: a launcher hands it on to processes at other hosts, whose files it does not write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../engine/codec/gid.hpp"
#include "../engine/striped/message_config.hpp"

namespace softroce::verbs {

inline constexpr const char* kSysfs = "/sys";
inline constexpr const char* kVerbsClass = "/sys/class/infiniband_verbs";
inline constexpr std::size_t kMostDevices = 8;

struct Settings {
  std::string device;              // name, as softroce0
  std::string character_device{};  // as uverbs0
  std::uint64_t guid = 0;          // of the node, host order
  std::string interface {};        // empty: the RNIC reaches itself alone
  std::uint32_t ifindex = 0;
  std::uint64_t mac = 0, next_hop_mac = 0;
  std::vector<Gid> gids{};
  std::uint32_t path_mtu = 1024;
  std::string statistics{};  // the file of its counters, beside which SHIFT keeps others
  std::string kept{};        // folder for counters that stay; empty: nowhere
  std::uint64_t rank = 0;    // 1 + that of a launcher; 0: none
  bool shift = false;        // whether queue pairs have backups on the next device (backup.hpp)
  std::string losses{};      // folder for what is done about losses; empty: nowhere
  MessageConfig messages{};  // of the engine, without what differs from device to device
};

// Of all devices. A file with a line that is not known here is of another version: that is reported
// on stderr, and the device is left out. If SOFTROCE_TRANSPORT is wrong, there is no device.
std::vector<Settings> read_settings();

}  // namespace softroce::verbs
