// SPDX-License-Identifier: GPL-2.0-or-later
#include "tap.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "../capture/comment.hpp"
#include "../engine/codec/codec.hpp"

namespace softroce::sim {
namespace {

using Frame = std::array<std::uint8_t, kMostOverheadBytes + kMostLabBytes + kMostPathMtu>;

constexpr std::size_t kMostPending = 1 << 20;

std::uint64_t in_ns(Time at) { return static_cast<std::uint64_t>(at / kNanosecond); }

// The frame as this link carries it, and its length. Bytes that a packet does not carry are zeros.
std::size_t encode_onto(const Link& link, const Flight& flight, const Load& load, Frame& frame) {
  constexpr std::uint8_t kEcnMask = 3;
  Packet packet = load.packet;
  packet.destination_mac = link.far_mac;
  packet.hop_limit = flight.hop_limit;
  packet.traffic_class = static_cast<std::uint8_t>((packet.traffic_class & ~kEcnMask) | flight.ecn);
  const std::size_t bytes = encode(packet, link.near_mac, frame.data());
  // Which bit an earlier link flipped is not simulated, that the ICRC detects it is.
  if (flight.corrupted) frame[bytes - 1] ^= 1;
  return bytes;
}

}  // namespace

Tap::Tap(std::vector<TappedLink> links, std::uint32_t snap_bytes, std::vector<RuleText> rules,
         Sink sink)
    : seen_(links.size()), snap_bytes_(snap_bytes), sink_(std::move(sink)) {
  for (RuleText& each : rules) {
    const std::uint32_t id = each.rule_id;
    rules_.emplace(id, std::move(each));
  }
  pcapng::append_section(pending_);
  std::uint32_t interface = 0;
  for (const TappedLink& each : links) {
    if (each.link >= interface_of_.size()) interface_of_.resize(each.link + 1, kNot);
    interface_of_[each.link] = interface++;
    pcapng::append_interface(pending_, each.name, snap_bytes);
  }
}

void Tap::see(const Flight& flight, const Load& load, std::uint32_t number, const Link& link,
              const lab_verdict& verdict, Time now) {
  const std::uint32_t interface = interface_of(number);
  if (interface == kNot) return;
  Frame frame;
  const auto length = static_cast<std::uint32_t>(encode_onto(link, flight, load, frame));
  const std::uint32_t captured = snap_bytes_ == 0 ? length : std::min(length, snap_bytes_);
  const auto text_of = [this](std::uint32_t rule, bool bad) {
    const RuleText& text = rules_.at(rule);
    return bad ? text.bad : text.text;
  };
  pcapng::append_packet(pending_, {interface, in_ns(now), captured, length},
                        reinterpret_cast<const std::byte*>(frame.data()),
                        capture::comment_of(verdict.effects, verdict.rule_id, text_of));
  ++seen_[interface];
  if (pending_.size() >= kMostPending) hand_on();
}

void Tap::hand_on() {
  sink_(pending_);
  pending_.clear();
}

std::vector<std::uint64_t> Tap::finish(Time now) {
  for (std::uint32_t interface = 0; interface < seen_.size(); ++interface)
    pcapng::append_statistics(pending_, {interface, 0, in_ns(now), seen_[interface], 0});
  hand_on();
  return seen_;
}

}  // namespace softroce::sim
