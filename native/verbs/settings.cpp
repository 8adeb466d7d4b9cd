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
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "../engine/codec/bytes.hpp"
#include "../engine/rnic/rnic.hpp"
#include "../engine/striped/config_text.hpp"
#include "../transport/transports.hpp"

namespace softroce::verbs {
namespace {

using namespace std::string_literals;

constexpr std::string_view kEngine = "engine.";
constexpr const char* kTransport = "SOFTROCE_TRANSPORT";

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

void take_engine(std::string_view field, Settings& settings) {
  const std::size_t end = std::min(field.find(' '), field.size());
  set_field(settings.messages, field.substr(0, end), field.substr(std::min(end + 1, field.size())));
}

bool accepts(const Option& option, const OptionValue& value) {
  if (value.index() != option.usual.index()) return false;
  if (const auto* word = std::get_if<std::string>(&value))
    return option.choices.empty() || std::ranges::count(option.choices, *word) != 0;
  const double number = std::visit(
      [](const auto& each) {
        if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(each)>>)
          return static_cast<double>(each);
        else
          return 0.0;
      },
      value);
  return number >= option.least.value_or(number) && number <= option.most.value_or(number);
}

// Sessions take their options as they are: Python has checked what a user wrote.
void check_options(const Transport& transport, const Options& options) {
  for (const Option& each : transport.options) {
    const auto found = options.find(each.name);
    if (found == options.end())
      throw std::invalid_argument(std::string("options.") + each.name + " is missing");
    if (!accepts(each, found->second))
      throw std::invalid_argument(std::string("options.") + each.name + ": " + transport.name +
                                  " does not accept this value");
  }
  for (const auto& [name, value] : options)
    if (std::ranges::find(transport.options, name, &Option::name) == transport.options.end())
      throw std::invalid_argument("options." + name + ": " + transport.name +
                                  " does not have this option");
}

// Throws std::invalid_argument if no engine of a program can have this configuration.
void check(const MessageConfig& config) {
  const bool has_transport = config.transport != kPolicyTransport;
  if (config.carries_operations != has_transport)
    throw std::invalid_argument("carries_operations must be true with a transport, else false");
  if (has_transport) {
    const auto found = std::ranges::find(transports(), config.transport, &Transport::name);
    if (found == transports().end() || found->omniscient)
      throw std::invalid_argument("programs have no transport '" + config.transport + "'");
    check_options(*found, config.options);
    if (config.framing != "ud" || !config.carries_payload)
      throw std::invalid_argument("programs need the framing ud, and packets with payload");
  }
  const Rnic trial(config);  // throws for all else
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

// Throws std::invalid_argument. Nothing: the variable is not set.
std::optional<MessageConfig> read_transport() {
  const char* text = secure_getenv(kTransport);
  if (text == nullptr || *text == 0) return std::nullopt;
  MessageConfig config = read_config(text, TextForm::one_line);
  check(config);
  return config;
}

// Throws std::invalid_argument for a line that is wrong.
void take_line(const std::string& line, Settings& settings) {
  if (line.starts_with(kEngine))
    return take_engine(std::string_view(line).substr(kEngine.size()), settings);
  std::istringstream words(line);
  std::string name, value;
  words >> name >> value;
  if (!name.empty() && !take(name, value, settings))
    throw std::invalid_argument("'" + line + "' is not a setting of this version");
}

std::optional<Settings> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  Settings settings;
  std::string place = path;  // of what is read
  try {
    bool sets_engine = false;
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) {
      place = path + ":" + std::to_string(++count);
      take_line(line, settings);
      sets_engine |= line.starts_with(kEngine);
    }
    place = path;
    if (sets_engine) check(settings.messages);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "softroce: %s: %s\n", place.c_str(), error.what());
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

std::vector<Settings> read_settings() try {
  const std::optional<MessageConfig> transport = read_transport();
  const char* named = secure_getenv("SOFTROCE_VERBS");
  std::istringstream files(named != nullptr ? named : "");
  std::vector<Settings> all;
  for (std::size_t i = 0; i < kMostDevices; ++i) {
    const std::string device = "uverbs" + std::to_string(i);
    std::string file = std::string(kVerbsClass) + "/" + device + "/softroce_lab";
    if (named != nullptr && !std::getline(files, file, ':')) break;
    auto settings = read_file(file);
    if (!settings) continue;
    if (transport) settings->messages = *transport;
    if (settings->shift && settings->messages.carries_operations) {
      std::fprintf(stderr, "softroce: SOFTROCE_SHIFT: queue pairs over %s have no backups\n",
                   settings->messages.transport.c_str());
      return {};
    }
    settings->character_device = device;
    all.push_back(std::move(*settings));
  }
  return all;
} catch (const std::invalid_argument& error) {
  std::fprintf(stderr, "softroce: %s: %s\n", kTransport, error.what());
  return {};
}

}  // namespace softroce::verbs
