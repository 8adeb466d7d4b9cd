// SPDX-License-Identifier: GPL-2.0-or-later
// Two live endpoints of a packet transport (native/transport), as harnesses drive them: messages
// from the first one to the second, in memory between guards, and packets on their way.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "../engine/rnic/rnic.hpp"
#include "../transport/transports.hpp"

namespace softroce::fuzz {

inline constexpr std::uint32_t kQkey = 0x1D2B3A49, kMessages = 4;
inline constexpr std::uint8_t kUntouched = 0xA5;
inline constexpr std::size_t kMessageBytes = 16000, kGapBytes = 256, kMostQueued = 512;
inline constexpr std::size_t kStride = kMessageBytes + kGapBytes;
inline constexpr int kMostRounds = 100'000;
inline constexpr std::array<const char*, 11> kTransports = {
    "irn",     "srnic",   "csa_ud", "rack_tlp", "falcon", "mrc",
    "uet_rud", "uet_rod", "dcp",    "ndp",      "uccl"};

inline void require(bool holds) {
  if (!holds) std::abort();
}

struct Setup {
  const char* transport;
  bool payload, spray;
  std::uint32_t third;
};

inline MessageConfig config_of(int which, const Setup& options) {
  MessageConfig config;
  config.gid = Gid::of_ipv4(0x0A000001U + static_cast<std::uint32_t>(which));
  config.path_mtu = 256;
  config.message_slots = 4;
  config.window_packets = 64;
  config.initial_rtt = 24 * kMicrosecond;
  config.timing.most_attempts = 5;
  config.timing.rnr_retry = 3;  // 7 would be without end
  config.timing.keepalive_probes = 5;
  config.transport = options.transport;
  const auto found = std::ranges::find(transports(), config.transport, &Transport::name);
  for (const Option& each : found->options) config.options[each.name] = each.usual;
  config.path_probes = found->path_probes;
  if (found->path_probes) {  // csa_ud
    config.options["parity"] = std::string("2");
    config.options["parity_budget"] = 1.0;
  } else if (options.spray) {
    config.options["path_picker"] = std::string("reps");
  }
  config.carries_payload = options.payload;
  return config;
}

inline std::uint8_t content(std::uint32_t message, std::size_t at) {
  return static_cast<std::uint8_t>(message * 89 + at * 7 + (at >> 8));
}

// A packet on its way: its payload lies where the sender's memory may change meanwhile, in exactly
// its length, for the sanitizer.
struct Flight {
  Packet packet;
  std::unique_ptr<std::uint8_t[]> payload;

  static Flight of(const Packet& packet) {
    Flight flight{packet, nullptr};
    if (packet.payload != nullptr) flight.carry({packet.payload, packet.payload_bytes});
    return flight;
  }
  static Flight of(std::span<const std::uint8_t> body) {
    Flight flight;
    flight.carry(body);
    return flight;
  }
  void carry(std::span<const std::uint8_t> body) {
    payload = std::make_unique_for_overwrite<std::uint8_t[]>(body.size());
    std::ranges::copy(body, payload.get());
    packet.payload = payload.get();
    packet.payload_bytes = static_cast<std::uint32_t>(body.size());
  }
};

class End {
 public:
  End(int which, const Setup& options)
      : which_(which),
        options_(options),
        arena_(kMessages * kStride + kGapBytes, kUntouched),
        rnic_(config_of(which, options)) {
    rnic_.set_qkey(kQkey);
    const Gid peer = Gid::of_ipv4(0x0A000002U - static_cast<std::uint32_t>(which));
    peer_ = rnic_.messages().connect(
        {.gid = peer, .mac = 2, .data_qp = 0x11, .recovery_qp = 0x12, .qkey = kQkey});
    if (options.payload) key_ = rnic_.memory().add(arena_.data(), arena_.size(), kLocalWrite);
    for (std::uint32_t i = 0; sends() && i < kMessages; ++i)
      for (std::size_t at = 0; at < kMessageBytes; ++at)
        arena_[i * kStride + kGapBytes + at] = content(i, at);
  }

  Rnic& rnic() { return rnic_; }
  std::deque<Flight>& arriving() { return arriving_; }
  bool sends() const { return which_ == 0; }

  void post(std::uint32_t i, Time now) {
    const std::uint32_t bytes = i == 2 ? options_.third : kMessageBytes;
    std::uint8_t* base = nullptr;
    if (options_.payload)
      base = rnic_.memory().pin(key_, i * kStride + kGapBytes, bytes,
                                sends() ? 0U : std::uint32_t{kLocalWrite});
    const MessageEngine::WorkRequest request{peer_, {1, 0, i}, base, bytes, key_, i};
    MessageEngine& engine = rnic_.messages();
    const bool taken = sends() ? engine.post_send(request, now) : engine.post_receive(request, now);
    if (!taken && options_.payload) rnic_.memory().unpin(key_);
  }
  // Makes of a payload a control message from the peer.
  void address(Packet& packet) const {
    packet.source = Gid::of_ipv4(0x0A000002U - static_cast<std::uint32_t>(which_));
    packet.destination = rnic_.gid();
    packet.destination_qp = rnic_.recovery_qp();
    packet.source_qp = 0x12;
    packet.qkey = kQkey;
    packet.source_port = LAB_UDP_SPORT_BASE;
    packet.has_lab_header = true;
    packet.lab.kind = LAB_KIND_CONTROL;
    packet.lab.length = packet.payload_bytes;
  }
  void receive(Flight& flight, Time now) {
    Packet packet = flight.packet;
    packet.payload = flight.payload.get();
    rnic_.handle_packet(packet, now);
  }
  void settle(Time now) {
    while (rnic_.end_turn(now)) {
    }
    for (const auto& each : rnic_.completions().poll(64)) {
      require(each.wr_id < kMessages);
      if (each.status != WcStatus::success) continue;
      good_.insert(each.wr_id);
      ++completed_;
    }
  }

  // The memory granted to a receiver, and the data that it reports.
  void check() const {
    for (std::size_t at = 0; at < arena_.size(); ++at) {
      const std::size_t message = at / kStride, in = at % kStride;
      const bool granted = message < kMessages && in >= kGapBytes;
      require(granted || arena_[at] == kUntouched);
    }
    for (const std::uint64_t each : good_) {
      if (!options_.payload || altered_) continue;
      const auto message = static_cast<std::uint32_t>(each);
      const std::size_t bytes = message == 2 ? options_.third : kMessageBytes;
      for (std::size_t at = 0; at < bytes; ++at)
        require(arena_[message * kStride + kGapBytes + at] == content(message, at));
    }
  }
  void alter() { altered_ = true; }
  const std::set<std::uint64_t>& good() const { return good_; }
  std::uint64_t completed() const { return completed_; }

 private:
  int which_;
  Setup options_;
  std::vector<std::uint8_t> arena_;
  Rnic rnic_;
  PeerIndex peer_ = 0;
  std::uint32_t key_ = 0;
  std::deque<Flight> arriving_;
  std::set<std::uint64_t> good_;
  std::uint64_t completed_ = 0;
  bool altered_ = false;  // data packets came that the sender never sent
};

inline void change(Packet& packet, std::uint8_t field, std::uint32_t value) {
  LabHeader& lab = packet.lab;
  switch (field % 13) {
    case 0:
      lab.index = value;
      break;
    case 1:
      lab.count = value;
      break;
    case 2:
      lab.length = value;
      break;
    case 3:
      lab.message_id = value;
      break;
    case 4:
      lab.message = value;
      break;
    case 5:
      lab.attempt = static_cast<std::uint16_t>(value);
      break;
    case 6:
      lab.path = static_cast<std::uint8_t>(value);
      break;
    case 7:
      lab.stamp_ns = value;
      break;
    case 8:
      lab.kind = static_cast<std::uint8_t>(value);
      break;
    case 9:
      lab.trimmed = (value & 1) != 0;
      packet.traffic_class = trimmed_class(packet.traffic_class, (value & 2) != 0);
      break;
    case 10:
      packet.payload_bytes = std::min(packet.payload_bytes, value);
      break;
    case 11:
      lab.code = static_cast<std::uint8_t>(value);
      break;
    default:
      packet.source_port = static_cast<std::uint16_t>(value);
      break;
  }
}

}  // namespace softroce::fuzz
