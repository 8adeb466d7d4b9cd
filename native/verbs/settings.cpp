// SPDX-License-Identifier: GPL-2.0-or-later
#include "settings.hpp"

#include <arpa/inet.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "../engine/codec/bytes.hpp"

namespace softroce::verbs {
namespace {

using namespace std::string_literals;

// A GID as IPv6 addresses are written.
bool take_gid(const std::string& text, Settings& settings) {
  std::uint8_t octets[16];
  if (inet_pton(AF_INET6, text.c_str(), octets) != 1) return false;
  settings.gids.push_back({load64(octets), load64(octets + 8)});
  return true;
}

bool take(const std::string& name, const std::string& value, Settings& settings) {
  const auto number = [&] { return std::strtoull(value.c_str(), nullptr, 0); };
  if (name == "device") return settings.device = value, true;
  if (name == "guid") return settings.guid = number(), true;
  if (name == "interface") return settings.interface = value, true;
  if (name == "ifindex") return settings.ifindex = static_cast<std::uint32_t>(number()), true;
  if (name == "mac") return settings.mac = number(), true;
  if (name == "next_hop_mac") return settings.next_hop_mac = number(), true;
  if (name == "path_mtu") return settings.path_mtu = static_cast<std::uint32_t>(number()), true;
  if (name == "statistics") return settings.statistics = value, true;
  return name == "gid" && take_gid(value, settings);
}

// As statistics::kRank: of Open MPI, PMIx, MPICH or torchrun.
std::uint64_t read_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}) {
    const char* text = secure_getenv(name);
    std::uint32_t rank = 0;
    if (text == nullptr) continue;
    const char* end = text + std::strlen(text);
    if (const auto read = std::from_chars(text, end, rank);
        read.ec == std::errc{} && read.ptr == end)
      return std::uint64_t{rank} + 1;
  }
  return 0;
}

std::optional<Settings> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  Settings settings;
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    ++count;
    std::istringstream words(line);
    std::string name, value;
    words >> name >> value;
    if (name.empty() || take(name, value, settings)) continue;
    std::fprintf(stderr, "softroce: %s:%zu: '%s' is not a setting of this version\n", path.c_str(),
                 count, line.c_str());
    return std::nullopt;
  }
  settings.rank = read_rank();
  if (const char* folder = secure_getenv("SOFTROCE_COUNTERS")) settings.kept = folder;
  if (const char* folder = secure_getenv("SOFTROCE_LOSSES")) settings.losses = folder;
  if (const char* wanted = secure_getenv("SOFTROCE_SHIFT")) settings.shift = wanted == "1"s;
  if (settings.device.empty() || settings.gids.empty()) return std::nullopt;
  return settings;
}

}  // namespace

std::vector<Settings> read_settings() {
  const char* named = secure_getenv("SOFTROCE_VERBS");
  std::istringstream files(named != nullptr ? named : "");
  std::vector<Settings> all;
  for (std::size_t i = 0; i < kMostDevices; ++i) {
    const std::string device = "uverbs" + std::to_string(i);
    std::string file = std::string(kVerbsClass) + "/" + device + "/softroce_lab";
    if (named != nullptr && !std::getline(files, file, ':')) break;
    auto settings = read_file(file);
    if (!settings) continue;
    settings->character_device = device;
    all.push_back(std::move(*settings));
  }
  return all;
}

}  // namespace softroce::verbs
