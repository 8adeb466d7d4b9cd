// SPDX-License-Identifier: GPL-2.0-or-later
// Two live endpoints of a packet transport (native/transport), and a network between them that does
// what the input describes. Its first octet sets them up: bit 1 without payload, bit 2 sprayed,
// bits 3-4 how long the third message is, bits 0, 5, 6 and 7 which transport (kTransports).
// `csa_ud` has two packets of parity behind each message. Then deeds follow, an octet each, of
// which bits 0-2 say what, and bit 3 to which end:
//
//   0 deliver the oldest packet       1 lose it        2 deliver it, and keep it
//   3 put it behind all others        4 the same, changed: which field, and four octets
//   5 time goes by: an octet          6 post: which message
//   7 a control message from the peer: its length, and that
//
// It traps if memory is written that was never granted, if what a receiver calls good is not
// what was sent, though no data packet was changed, or if, once the network is good again, an end
// does not come to rest.
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

#include "../engine/codec/bytes.hpp"
#include "../engine/rnic/rnic.hpp"
#include "../transport/transports.hpp"

namespace {

using namespace softroce;

constexpr std::uint32_t kQkey = 0x1D2B3A49, kMessages = 4;
constexpr std::uint8_t kGuard = 0xA5;
constexpr std::size_t kMessageBytes = 16000, kGuardBytes = 256, kMostQueued = 512;
constexpr std::size_t kStride = kMessageBytes + kGuardBytes;
constexpr std::array<const char*, 11> kTransports = {"irn",    "srnic", "csa_ud",  "rack_tlp",
                                                     "falcon", "mrc",   "uet_rud", "uet_rod",
                                                     "dcp",    "ndp",   "uccl"};
constexpr std::array<std::uint32_t, 4> kThird = {0, 216, 5000, kMessageBytes};
constexpr int kMostDeeds = 4096, kMostRounds = 100'000;

void require(bool holds) {
  if (!holds) std::abort();
}

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> data) : data_(data) {}
  bool empty() const { return data_.empty(); }
  std::uint8_t octet() { return empty() ? 0 : take(1)[0]; }
  std::uint32_t word() {
    std::array<std::uint8_t, 4> octets{};
    std::ranges::copy(take(4), octets.begin());
    return load32(octets.data());
  }
  std::span<const std::uint8_t> take(std::size_t most) {
    const auto front = data_.first(std::min(most, data_.size()));
    data_ = data_.subspan(front.size());
    return front;
  }

 private:
  std::span<const std::uint8_t> data_;
};

struct Setup {
  const char* transport;
  bool payload, spray;
  std::uint32_t third;
};

MessageConfig config(int which, const Setup& options) {
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

std::uint8_t content(std::uint32_t message, std::size_t at) {
  return static_cast<std::uint8_t>(message * 89 + at * 7 + (at >> 8));
}

// A packet on its way: its payload lies where the sender's memory may change meanwhile.
struct Flight {
  Packet packet;
  std::unique_ptr<std::uint8_t[]> payload;  // of exactly its length, for the sanitizer
};

class End {
 public:
  End(int which, const Setup& options)
      : which_(which),
        options_(options),
        arena_(kMessages * kStride + kGuardBytes, kGuard),
        rnic_(config(which, options)) {
    rnic_.set_qkey(kQkey);
    const Gid peer = Gid::of_ipv4(0x0A000002U - static_cast<std::uint32_t>(which));
    peer_ = rnic_.messages().connect(
        {.gid = peer, .mac = 2, .data_qp = 0x11, .recovery_qp = 0x12, .qkey = kQkey});
    if (options.payload) key_ = rnic_.memory().add(arena_.data(), arena_.size(), kLocalWrite);
    for (std::uint32_t i = 0; sends() && i < kMessages; ++i)
      for (std::size_t at = 0; at < kMessageBytes; ++at)
        arena_[i * kStride + kGuardBytes + at] = content(i, at);
  }

  Rnic& rnic() { return rnic_; }
  std::deque<Flight>& arriving() { return arriving_; }
  bool sends() const { return which_ == 0; }

  void post(std::uint32_t i, Time now) {
    const std::uint32_t bytes = i == 2 ? options_.third : kMessageBytes;
    std::uint8_t* base = nullptr;
    if (options_.payload)
      base = rnic_.memory().pin(key_, i * kStride + kGuardBytes, bytes,
                                sends() ? 0U : std::uint32_t{kLocalWrite});
    const MessageEngine::WorkRequest request{peer_, {1, 0, i}, base, bytes, key_, i};
    MessageEngine& engine = rnic_.messages();
    const bool taken = sends() ? engine.post_send(request, now) : engine.post_receive(request, now);
    if (!taken && options_.payload) rnic_.memory().unpin(key_);
  }
  void control(std::span<const std::uint8_t> body, Time now) {
    const auto copy = std::make_unique_for_overwrite<std::uint8_t[]>(body.size());
    std::ranges::copy(body, copy.get());
    Packet packet;
    packet.source = Gid::of_ipv4(0x0A000002U - static_cast<std::uint32_t>(which_));
    packet.destination = rnic_.gid();
    packet.destination_qp = rnic_.recovery_qp();
    packet.source_qp = 0x12;
    packet.qkey = kQkey;
    packet.source_port = LAB_UDP_SPORT_BASE;
    packet.has_lab_header = true;
    packet.lab.kind = LAB_KIND_CONTROL;
    packet.payload = copy.get();
    packet.payload_bytes = static_cast<std::uint32_t>(body.size());
    rnic_.handle_packet(packet, now);
  }
  void receive(Flight& flight, Time now) {
    Packet packet = flight.packet;
    packet.payload = flight.payload.get();
    rnic_.handle_packet(packet, now);
  }
  void settle(Time now) {
    while (rnic_.messages().end_turn(now)) {
    }
    for (const auto& each : rnic_.completions().poll(64)) {
      require(each.wr_id < kMessages);
      if (each.status == WcStatus::success) good_.insert(each.wr_id);
    }
  }

  // The memory granted to a receiver, and the data that it reports.
  void check() const {
    for (std::size_t at = 0; at < arena_.size(); ++at) {
      const std::size_t message = at / kStride, in = at % kStride;
      const bool granted = message < kMessages && in >= kGuardBytes;
      require(granted || arena_[at] == kGuard);
    }
    for (const std::uint64_t each : good_) {
      if (!options_.payload || altered_) continue;
      const auto message = static_cast<std::uint32_t>(each);
      const std::size_t bytes = message == 2 ? options_.third : kMessageBytes;
      for (std::size_t at = 0; at < bytes; ++at)
        require(arena_[message * kStride + kGuardBytes + at] == content(message, at));
    }
  }
  void alter() { altered_ = true; }

 private:
  int which_;
  Setup options_;
  std::vector<std::uint8_t> arena_;
  Rnic rnic_;
  PeerIndex peer_ = 0;
  std::uint32_t key_ = 0;
  std::deque<Flight> arriving_;
  std::set<std::uint64_t> good_;
  bool altered_ = false;  // data packets came that the sender never sent
};

void change(Packet& packet, std::uint8_t field, std::uint32_t value) {
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

class Network {
 public:
  explicit Network(const Setup& options) : ends_{End(0, options), End(1, options)} {
    for (End& end : ends_)
      for (std::uint32_t i = 0; i < 2; ++i) end.post(i, now_);
  }

  void deed(std::uint8_t what, Input& input) {
    End& end = ends_[what >> 3 & 1];
    auto& arriving = end.arriving();
    const int kind = what & 7;
    if (kind == 5) {
      pass(Time{1} << (input.octet() % 40));
    } else if (kind == 6) {
      end.post(input.octet() % kMessages, now_);
    } else if (kind == 7) {
      end.control(input.take(input.octet()), now_);
    } else if (!arriving.empty()) {
      if (kind == 4) {
        change(arriving.front().packet, input.octet(), input.word());
        end.alter();
      }
      if (kind != 1 && kind != 3) end.receive(arriving.front(), now_);
      if (kind == 3) arriving.push_back(std::move(arriving.front()));
      if (kind != 2) arriving.pop_front();
    }
    drain();
  }

  // Until no end has output or a wait, except for a peer that may still post something.
  void come_to_rest() {
    for (int round = 0; round < kMostRounds; ++round) {
      for (End& end : ends_) {
        for (; !end.arriving().empty(); end.arriving().pop_front())
          end.receive(end.arriving().front(), now_);
      }
      drain();
      if (!ends_[0].arriving().empty() || !ends_[1].arriving().empty()) continue;
      const Time next = std::min(ends_[0].rnic().next_timeout(), ends_[1].rnic().next_timeout());
      if (next == kNever) return;
      pass(std::max<Time>(next - now_, 0));
    }
    std::abort();
  }
  void check() const { ends_[1].check(); }

 private:
  void pass(Time time) {
    now_ += time;
    for (End& end : ends_)
      for (int n = 0; n < 1000 && end.rnic().next_timeout() <= now_; ++n) {
        end.rnic().handle_timeout(now_);
        end.settle(now_);
      }
    drain();
  }
  void drain() {
    for (int from = 0; from < 2; ++from) {
      auto& to = ends_[1 - from].arriving();
      ends_[from].settle(now_);
      Packet packet;
      while (to.size() < kMostQueued && ends_[from].rnic().poll_packet(packet, now_)) {
        Flight flight{packet, nullptr};
        if (packet.payload != nullptr) {
          flight.payload = std::make_unique_for_overwrite<std::uint8_t[]>(packet.payload_bytes);
          std::copy_n(packet.payload, packet.payload_bytes, flight.payload.get());
        }
        to.push_back(std::move(flight));
        ends_[from].rnic().packet_done(now_);
        ends_[from].settle(now_);
      }
    }
  }

  std::array<End, 2> ends_;
  Time now_ = 1000 * kMillisecond;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input({data, size});
  const std::uint8_t how = input.octet();
  const char* transport = kTransports[((how >> 5) * 2 + (how & 1)) % kTransports.size()];
  Network network({.transport = transport,
                   .payload = (how & 2) == 0,
                   .spray = (how & 4) != 0,
                   .third = kThird[how >> 3 & 3]});
  for (int n = 0; n < kMostDeeds && !input.empty(); ++n) network.deed(input.octet(), input);
  network.come_to_rest();
  network.check();
  return 0;
}
