// SPDX-License-Identifier: GPL-2.0-or-later
#include "protocol.hpp"

#include <algorithm>
#include <cstring>

#include "../engine/codec/bytes.hpp"
#include "../engine/mutant.hpp"

namespace softroce::shift {
namespace {

constexpr std::array<std::uint8_t, 4> kMagic = {'S', 'H', 'F', '2'};
constexpr std::uint32_t kPsnBits = 0xFFFFFF;

// How many requests there are up to and with the last notification that was executed.
std::size_t executed_prefix(std::span<const UnfinishedSend> requests, std::int64_t executed) {
  if (executed == 0) return 0;
  std::int64_t left = executed;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    left -= requests[i].request.consumes_receive();
    if (left == 0) return i + 1;
  }
  throw ProtocolError("the peer counts " + std::to_string(executed) +
                      " notifications that nobody sent it");
}

bool is_repeatable(const SendRequest& request) {
  if (mutated(Mutant::shift_atomic_repeated)) return true;
  const bool atomic =
      request.opcode == WrOpcode::compare_swap || request.opcode == WrOpcode::fetch_add;
  return !atomic && !(request.flags & kOnce);
}

}  // namespace

const char* name_of(Sender state) {
  constexpr const char* kNames[] = {"Default", "Fallback", "WaitSignaled", "WaitDrained", "Failed"};
  return kNames[static_cast<std::size_t>(state)];
}

const char* name_of(Receiver state) { return state == Receiver::primary ? "Default" : "Fallback"; }

MessageBytes encode(const Message& message, std::uint32_t sequence, const Owner& owner) {
  MessageBytes bytes{};
  std::uint8_t* at = bytes.data();
  std::ranges::copy(kMagic, at);
  at[4] = static_cast<std::uint8_t>(message.kind);
  store32(at + 8, message.epoch);
  store32(at + 12, message.next_psn);
  store64(at + 16, message.received);
  store32(at + 24, sequence);
  store32(at + 28, owner.default_qp);
  store32(at + 32, owner.backup_qp);
  store64(at + 36, owner.gid.high);
  store64(at + 44, owner.gid.low);
  return bytes;
}

std::optional<Received> read(std::span<const std::uint8_t> bytes) {
  if (bytes.size() != kMessageBytes || !std::equal(kMagic.begin(), kMagic.end(), bytes.begin()))
    return std::nullopt;
  const std::uint8_t* at = bytes.data();
  if (at[4] < static_cast<std::uint8_t>(Kind::move) ||
      at[4] > static_cast<std::uint8_t>(Kind::failed))
    return std::nullopt;
  return Received{
      {static_cast<Kind>(at[4]), load32(at + 8), load64(at + 16), load32(at + 12) & kPsnBits},
      load32(at + 24),
      {load32(at + 28), load32(at + 32), {load64(at + 36), load64(at + 44)}}};
}

Classes classify(std::span<const UnfinishedSend> unfinished, std::int64_t executed) {
  const std::size_t counted = executed_prefix(unfinished, executed);
  Classes classes;
  for (std::size_t i = 0; i < unfinished.size(); ++i) {
    const auto& [request, begun] = unfinished[i];
    const bool result_is_lost =
        request.reads_remote() && !mutated(Mutant::shift_lost_result_is_done);
    if (i < counted && !result_is_lost) {
      classes.done.push_back(i);
      continue;
    }
    classes.again.push_back(i);
    if (begun && !is_repeatable(request) && !classes.culprit) classes.culprit = i;
  }
  return classes;
}

}  // namespace softroce::shift
