// SPDX-License-Identifier: GPL-2.0-or-later
#include "pair.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "../engine/codec/crc.hpp"

namespace softroce {
namespace {

bool in_range(std::int64_t value, std::int64_t first, std::int64_t last) {
  return first <= value && value <= last;
}

bool matches(const DropRule& rule, const Packet& packet) {
  const LabHeader& lab = packet.lab;
  return rule.limit > 0 && (rule.kind < 0 || rule.kind == lab.kind) &&
         (rule.message < 0 || rule.message == lab.message) &&
         (rule.body < 0 || (packet.payload_bytes != 0 && rule.body == packet.payload[0])) &&
         (rule.path < 0 || rule.path == lab.path) &&
         in_range(lab.index, rule.index_first, rule.index_last) &&
         in_range(lab.attempt, rule.attempt_first, rule.attempt_last);
}

constexpr std::size_t kHeaderBytes =
    Ipv4::kBytes + kUdpBytes + kBthBytes + kDethBytes + LAB_HDR_BYTES;

std::uint32_t checksum(const std::uint8_t* frame, std::size_t payload) {
  return crc32(frame, kHeaderBytes, frame + kHeaderBytes, payload);
}

}  // namespace

Pair::Pair(const MessageConfig& a, const MessageConfig& b, std::uint64_t seed)
    : random_state_(seed) {
  sides_[0] = {.rnic = std::make_unique<Rnic>(a), .mac = 0x020000000001};
  sides_[1] = {.rnic = std::make_unique<Rnic>(b), .mac = 0x020000000002};
}

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t Pair::random() {
  std::uint64_t z = (random_state_ += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint32_t Pair::take_frame() {
  if (free_frames_.empty()) {
    frames_.emplace_back(kFrameBytes);
    return static_cast<std::uint32_t>(frames_.size() - 1);
  }
  const std::uint32_t frame = free_frames_.back();
  free_frames_.pop_back();
  return frame;
}

bool Pair::run(Time until) {
  for (;;) {
    const bool sent = transmit(0) | transmit(1);
    const bool delivered = deliver_due();
    bool acted = false;
    for (Side& side : sides_) side.rnic->handle_timeout(now_);
    for (Side& side : sides_) acted |= side.rnic->end_turn(now_);
    if (acted) continue;
    for (Side& side : sides_)
      if (side.rnic->messages().has_news()) return true;
    if (sent || delivered) continue;
    const Time next = next_event();
    if (next == kNever || next > until) {
      if (until != kNever) now_ = std::max(now_, until);
      return false;
    }
    now_ = std::max(now_, next);
  }
}

Time Pair::next_event() const {
  Time next = kNever;
  if (!in_order_.empty()) next = std::min(next, in_order_.front().at);
  if (!overtaking_.empty()) next = std::min(next, overtaking_.top().at);
  for (const Side& side : sides_) {
    next = std::min(next, side.rnic->next_timeout());
    if (side.rnic->has_packet()) next = std::min(next, std::max(now_, side.free_at));
  }
  return next;
}

bool Pair::transmit(int from) {
  Side& side = sides_[static_cast<std::size_t>(from)];
  Packet packet;
  int burst = 0;
  while (burst < kBurst && side.free_at <= now_ && side.rnic->poll_packet(packet, now_)) {
    side.free_at = now_ + side.cable.packet_time;
    send(from, packet);
    side.rnic->packet_done(now_);
    ++burst;
  }
  return burst != 0;
}

void Pair::send(int from, const Packet& packet) {
  Side& side = sides_[static_cast<std::size_t>(from)];
  Cable& cable = side.cable;
  const std::uint64_t number = side.totals.sent++;
  if (cable.carries != UINT64_MAX && cable.carries-- == 0) {
    cable.carries = UINT64_MAX;
    cable.down = true;
  }
  if (keeps_sent_) {
    Frame frame(kFrameBytes);
    frame.resize(encode(packet, side.mac, frame.data()));
    sent_.emplace_back(now_, from, std::move(frame));
  }
  const auto rule = std::ranges::find_if(
      cable.rules, [&](const DropRule& each) { return matches(each, packet); });
  if (rule != cable.rules.end()) --rule->limit;
  const bool named = std::ranges::find(cable.loses, number) != cable.loses.end();
  if (rule != cable.rules.end() || named || cable.down ||
      (cable.loss != 0 && random() < cable.loss)) {
    ++side.totals.lost;
    return;
  }
  Packet there = packet;
  Time leaves = now_;
  if (cable.service_time != 0 && !queue(side, there, leaves)) {
    ++side.totals.lost;
    return;
  }
  const bool twice = cable.duplicate != 0 && random() < cable.duplicate;
  side.totals.duplicated += twice;
  for (int copy = 0; copy <= twice; ++copy) {
    const std::uint32_t frame = take_frame();
    std::uint8_t* bytes = frames_[frame].data();
    const auto length = static_cast<std::uint32_t>(encode(there, side.mac, bytes));
    if (cable.corrupt != 0 && random() < cable.corrupt) {
      const std::uint64_t bit = random() % (length * 8);
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << (bit % 8));
      ++side.totals.corrupted;
    }
    const Time jitter =
        cable.jitter == 0
            ? 0
            : static_cast<Time>(random() % static_cast<std::uint64_t>(cable.jitter + 1));
    schedule(leaves + cable.delay + jitter, frame, length, 1 - from);
  }
}

// False: it is full.
bool Pair::queue(Side& side, Packet& packet, Time& leaves) {
  const Cable& cable = side.cable;
  const Time wait = std::max<Time>(side.served_until - now_, 0);
  const auto waiting = (wait + cable.service_time - 1) / cable.service_time;
  if (waiting >= cable.lose_from) return false;
  if (waiting >= cable.mark_from) {
    packet.traffic_class |= 3;  // all lab packets are ECN-capable
    ++side.totals.marked;
  }
  leaves = side.served_until = now_ + wait + cable.service_time;
  return true;
}

void Pair::schedule(Time at, std::uint32_t frame, std::uint32_t bytes, int to) {
  if (in_order_.empty() || in_order_.back().at <= at)
    in_order_.emplace_back(at, sequence_++, frame, bytes, to);
  else
    overtaking_.emplace(at, sequence_++, frame, bytes, to);
}

bool Pair::deliver_due() {
  bool any = false;
  for (;;) {
    const bool ordered = !in_order_.empty() && in_order_.front().at <= now_;
    const bool overtaken = !overtaking_.empty() && overtaking_.top().at <= now_;
    if (!ordered && !overtaken) return any;
    any = true;
    if (overtaken && (!ordered || in_order_.front() > overtaking_.top())) {
      deliver(overtaking_.top());
      overtaking_.pop();
    } else {
      deliver(in_order_.front());
      in_order_.pop_front();
    }
  }
}

void Pair::deliver(const Arrival& arrival) {
  receive(arrival.to, frames_[arrival.frame].data(), arrival.bytes);
  free_frames_.push_back(arrival.frame);
}

void Pair::inject(int to, const std::uint8_t* frame, std::size_t bytes) {
  receive(to, frame, bytes);
  side(to).end_turn(now_);
}

void Pair::receive(int to, const std::uint8_t* frame, std::size_t bytes) {
  Rnic& rnic = side(to);
  Packet packet = kBlankPacket;
  if (const auto refusal = decode(frame, bytes, packet))
    rnic.counters().add(*refusal);
  else
    rnic.handle_packet(packet, now_);
}

std::uint64_t bare_loop(const std::uint8_t* source, std::uint8_t* target, std::uint64_t bytes,
                        std::uint32_t chunk_bytes) {
  std::vector<std::vector<std::uint8_t>> frames(Pair::kBurst,
                                                std::vector<std::uint8_t>(Pair::kFrameBytes));
  const std::uint64_t burst_bytes = std::uint64_t{Pair::kBurst} * chunk_bytes;
  const auto each_packet = [&](std::uint64_t first, auto&& handle) {
    const std::uint64_t end = std::min(bytes, first + burst_bytes);
    std::size_t frame = 0;
    for (std::uint64_t at = first; at < end; at += chunk_bytes)
      handle(at, std::min<std::uint64_t>(chunk_bytes, end - at), frames[frame++].data());
    return frame;
  };
  std::uint64_t packets = 0;
  for (std::uint64_t first = 0; first < bytes; first += burst_bytes) {
    packets += each_packet(first, [&](std::uint64_t at, std::size_t payload, std::uint8_t* frame) {
      std::memcpy(frame + kHeaderBytes, source + at, payload);
      const std::uint32_t crc = checksum(frame, payload);
      std::memcpy(frame + kHeaderBytes + payload, &crc, sizeof crc);
    });
    each_packet(first, [&](std::uint64_t at, std::size_t payload, const std::uint8_t* frame) {
      const std::uint32_t crc = checksum(frame, payload);
      if (std::memcmp(frame + kHeaderBytes + payload, &crc, sizeof crc) != 0)
        throw std::runtime_error("a CRC of the bare loop is wrong");
      std::memcpy(target + at, frame + kHeaderBytes, payload);
    });
  }
  return packets;
}

}  // namespace softroce
