// SPDX-License-Identifier: GPL-2.0-or-later
// The lab's own header, reports and control messages as input of a live endpoint of striped
// messages, which with the framing ud takes parity as csa_ud's does. An input is a row of datagrams
// from its peer:
//
//   0 how   bits 0-1: to the data QP (0), the recovery QP (1), or one that would not take it
//           bits 2-3: time that goes by before; bit 4: the endpoint's output is taken away
//           bit 5: not a datagram but packet numbers to send again, which a policy took from one
//           bit 6: a UC WRITE to one of its channels: channel, immediate, and what is wrong
//           bit 7 of the first: the framing is uc_immediate
//   1 bytes in two octets; then so many: struct lab_hdr and what follows it
//
// It traps if memory is written that was never granted, or if a report is not what it was
// built from.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../engine/codec/bytes.hpp"
#include "../engine/rnic/rnic.hpp"
#include "../engine/striped/report.hpp"

namespace {

using namespace softroce;

constexpr std::uint32_t kQkey = 0x1D2B3A49, kSends = 3, kReceives = 3;
constexpr std::uint8_t kGuard = 0xA5;
constexpr std::size_t kMessageBytes = 4000, kGuardBytes = 256;
constexpr Time kOneSecond = 1000 * kMillisecond;
constexpr std::array<Time, 4> kPauses = {0, 10 * kMicrosecond, 5 * kMillisecond, 2 * kOneSecond};
constexpr std::size_t kMostDatagrams = 256, kMostTimeouts = 1000;

void require(bool holds) {
  if (!holds) std::abort();
}

MessageConfig config(std::uint32_t ip, bool uc) {
  MessageConfig config;
  config.gid = Gid::of_ipv4(ip);
  config.path_mtu = 256;
  config.message_slots = 4;
  config.window_packets = 64;
  config.framing = uc ? "uc_immediate" : "ud";
  if (!uc) config.options = {{"parity", std::string("2")}, {"parity_budget", 1.0}};
  return config;
}

class Endpoint {
 public:
  explicit Endpoint(bool uc)
      : arena_((kSends + kReceives) * kStride + kGuardBytes, kGuard),
        rnic_(config(0x0A000001, uc)) {
    rnic_.set_qkey(kQkey);
    peer_ = rnic_.messages().connect(
        {.gid = kPeer, .mac = 2, .data_qp = 0x11, .recovery_qp = 0x12, .qkey = kQkey});
    key_ = rnic_.memory().add(arena_.data(), arena_.size(), kLocalWrite);
    for (std::uint32_t i = 0; i < kSends + kReceives; ++i) post(i);
  }

  void pass(Time pause) {
    now_ += pause;
    for (std::size_t n = 0; n < kMostTimeouts && rnic_.next_timeout() <= now_; ++n)
      rnic_.handle_timeout(now_);
  }
  void take_away() {
    Packet packet;
    for (int n = 0; n < 64 && rnic_.poll_packet(packet, now_); ++n) rnic_.packet_done(now_);
    rnic_.messages().events().clear();
    rnic_.completions().poll(64);
  }
  void tell(std::uint32_t qp, const std::uint8_t* body, std::uint32_t bytes) {
    Packet packet;
    packet.source = kPeer;
    packet.destination = rnic_.gid();
    packet.destination_qp = qp;
    packet.source_qp = qp;
    packet.qkey = kQkey;
    packet.source_port = static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + (bytes > 2 ? body[2] : 0));
    packet.payload = body;
    packet.payload_bytes = bytes;
    rnic_.handle_packet(packet, now_);
  }
  // The first octets say what the packet is; the rest of it is as the engine wants it, but for what
  // they say is wrong.
  void write(const std::uint8_t* body, std::uint32_t bytes) {
    if (bytes < 6) return;
    const std::uint32_t chunk = rnic_.messages().chunk_bytes();
    const std::uint8_t channel = body[0], wrong = body[5];
    Packet packet;
    packet.source = kPeer;
    packet.destination = rnic_.gid();
    packet.opcode = uc_framing::kOpcode;
    packet.destination_qp = uc_framing::kFirstQp + channel;
    packet.source_port =
        static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + channel % kMaxPaths + (wrong & 1));
    packet.immediate = load32(body + 1);
    const uc_framing::Place place{.slot = packet.immediate >> 22,
                                  .index = packet.immediate >> 4 & (uc_framing::kMostPackets - 1)};
    packet.remote_address = uc_framing::address_of(place, chunk) + (wrong >> 1 & 1);
    packet.rkey = Channels::kFirstRootKey + (wrong >> 2 & 1);
    packet.psn = load32(body + 1);
    packet.payload = body + 6;
    packet.payload_bytes = bytes - 6;
    packet.dma_length = packet.payload_bytes + (wrong >> 3 & 1);
    rnic_.handle_packet(packet, now_);
  }
  void retransmit(const std::uint8_t* body, std::size_t bytes) {
    std::vector<std::uint32_t> indices;
    for (std::size_t at = 0; at + 4 <= bytes; at += 4) indices.push_back(load32(body + at));
    std::vector<Handle> sends;
    rnic_.messages().sends().for_each([&](SendMessage& each) { sends.push_back(each.handle); });
    for (const Handle send : sends)
      rnic_.messages().retransmit(send, indices, (send & 1) != 0, (send >> 1 & 3) + 1, now_);
  }
  std::uint32_t data_qp() const { return rnic_.data_qp(); }

  void check() const {
    for (std::size_t i = 0; i < arena_.size(); ++i) {
      const std::size_t in = i % kStride;
      const bool received = i / kStride >= kSends && in >= kGuardBytes;
      require(received || arena_[i] == kGuard);
    }
  }

 private:
  static constexpr std::size_t kStride = kGuardBytes + kMessageBytes;
  const Gid kPeer = Gid::of_ipv4(0x0A000002);

  void post(std::uint32_t i) {
    const std::size_t offset = i * kStride + kGuardBytes;
    const std::uint32_t access = i < kSends ? 0U : std::uint32_t{kLocalWrite};
    std::uint8_t* base = rnic_.memory().pin(key_, offset, kMessageBytes, access);
    const MessageEngine::WorkRequest request{peer_, {1, 0, i % kSends}, base, kMessageBytes, key_,
                                             i};
    MessageEngine& engine = rnic_.messages();
    require(i < kSends ? engine.post_send(request, now_) : engine.post_receive(request, now_));
  }

  std::vector<std::uint8_t> arena_;
  Rnic rnic_;
  PeerIndex peer_ = 0;
  std::uint32_t key_ = 0;
  Time now_ = kOneSecond;
};

void obey_the_law(const std::uint8_t* body, std::uint32_t bytes) {
  for (const bool names_packets : {false, true}) {
    Report report;
    if (!read_report(body, bytes, names_packets, report)) continue;
    std::vector<std::uint8_t> again;
    write_report(report, names_packets, again);
    require(again.size() == bytes && std::memcmp(again.data(), body, bytes) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Endpoint endpoint(size != 0 && data[0] >> 7);
  endpoint.take_away();
  for (std::size_t n = 0; n < kMostDatagrams && size >= 3; ++n) {
    const std::uint8_t how = data[0];
    const auto bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(load16(data + 1), size - 3));
    // Of exactly its length, so that the sanitizer detects a read beyond it.
    const auto body = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
    std::copy_n(data + 3, bytes, body.get());
    endpoint.pass(kPauses[how >> 2 & 3]);
    if (how >> 5 & 1)
      endpoint.retransmit(body.get(), bytes);
    else if (how >> 6 & 1)
      endpoint.write(body.get(), bytes);
    else
      endpoint.tell(endpoint.data_qp() + (how & 3), body.get(), bytes);
    if (bytes >= LAB_HDR_BYTES) obey_the_law(body.get() + LAB_HDR_BYTES, bytes - LAB_HDR_BYTES);
    if (how >> 4 & 1) endpoint.take_away();
    data += 3 + bytes;
    size -= 3 + bytes;
  }
  endpoint.pass(10 * kOneSecond);
  endpoint.take_away();
  endpoint.check();
  return 0;
}
