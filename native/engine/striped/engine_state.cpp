// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine_state.hpp"

#include <bit>
#include <stdexcept>

namespace softroce {
namespace {

// The user's, or that of a transport without the option.
std::string_view path_picker_of(const MessageConfig& config, bool chooses_paths) {
  const auto option = config.options.find("path_picker");
  if (option != config.options.end()) return std::get<std::string>(option->second);
  return chooses_paths ? kPickLeastInFlight : kPickTurns;
}

}  // namespace

EngineState::EngineState(const MessageConfig& config_, MemoryTable& memory_,
                         CompletionQueue& completions, Counters& counters_, std::uint32_t data_qp_,
                         std::uint32_t recovery_qp_)
    : config(config_),
      framing(framing_named(config.framing)),
      base_rtt(congestion_of(config).base_rtt),
      path_picker(path_picker_of(config, numbers_paths() && has(kPathChoice))),
      parity(framing == Framing::ud ? parity_of(config.options) : ParityConfig()),
      packet_time(
          static_cast<Time>(config.path_mtu * 8e12 / static_cast<double>(config.line_rate_bps))),
      chunk_bytes(chunk_bytes_of(framing, config.path_mtu) -
                  (config.carries_operations ? LAB_OPERATION_BYTES : 0)),
      data_qp(data_qp_),
      recovery_qp(recovery_qp_),
      counters(counters_),
      memory(memory_),
      grants(config),
      events(completions, data_qp, recovery_qp) {
  if (!std::has_single_bit(config.message_slots))
    throw std::invalid_argument("message_slots must be a power of two");
  if (config.paths == 0 || config.paths > kMaxPaths)
    throw std::invalid_argument("paths must be 1 to 16");
  if (config.window_packets == 0 || config.window_packets > FlightLog::kMostInFlight)
    throw std::invalid_argument("window_packets must be 1 to 1048576");
  if (!std::has_single_bit(config.path_mtu) || config.path_mtu < 256 || config.path_mtu > 4096)
    throw std::invalid_argument("path_mtu must be 256, 512, 1024, 2048 or 4096");
  for (const CodeShape& each : config.code.shapes)
    if (config.code.chunk_packets == 0 || config.code.chunk_packets > UINT16_MAX ||
        each.data_chunks == 0 || each.parity_chunks == 0 ||
        each.data_chunks + each.parity_chunks > kMostCodeChunks)
      throw std::invalid_argument("a code has k, m >= 1, k + m <= 256 and chunks of packets");
  if (framing == Framing::uc_immediate && config.code.shapes.size() > 1)
    throw std::invalid_argument("an immediate does not tell codes apart: one at most");
  if (framing == Framing::uc_immediate && config.message_slots > uc_framing::kMostSlots)
    throw std::invalid_argument("message_slots must be at most 1024: an immediate has 10 bits");
  if (config.carries_operations && framing != Framing::ud)
    throw std::invalid_argument("operations of queue pairs need the framing ud");
  make_congestion_control(congestion_of(config));  // is all of it known?
  heeds_marks(path_picker);
}

}  // namespace softroce
