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
//           bits 5-6 of the first, both: all are datagrams, and the endpoint carries the operations
//           of one reliable connection, which has a region, a receive and a READ of its own
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
#include "../transport/transports.hpp"

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

enum class Carries { datagrams, uc_writes, operations };

// The connection's first PSNs are 0. What the peer knows of the region:
constexpr std::uint32_t kRegionKey = 0x700;
constexpr std::uint64_t kRegionAddress = 0x1000;

Carries carried(std::uint8_t first) {
  if ((first >> 5 & 3) == 3) return Carries::operations;
  return first >> 7 ? Carries::uc_writes : Carries::datagrams;
}

MessageConfig config(std::uint32_t ip, Carries carries) {
  MessageConfig config;
  config.gid = Gid::of_ipv4(ip);
  config.path_mtu = 256;
  config.message_slots = 4;
  config.window_packets = 64;
  config.framing = carries == Carries::uc_writes ? "uc_immediate" : "ud";
  if (carries == Carries::operations) {
    config.carries_operations = true;
    config.transport = "csa_ud";
    const auto found = std::ranges::find(transports(), config.transport, &Transport::name);
    for (const Option& each : found->options) config.options[each.name] = each.usual;
    config.path_probes = found->path_probes;
  }
  if (carries != Carries::uc_writes) {
    config.options["parity"] = std::string("2");
    config.options["parity_budget"] = 1.0;
  }
  return config;
}

class Endpoint {
 public:
  explicit Endpoint(Carries carries)
      : arena_((kSends + kReceives) * kStride + kGuardBytes, kGuard),
        rnic_(config(0x0A000001, carries)),
        carries_operations_(carries == Carries::operations) {
    rnic_.set_qkey(kQkey);
    peer_ = rnic_.messages().connect(
        {.gid = kPeer, .mac = 2, .data_qp = 0x11, .recovery_qp = 0x12, .qkey = kQkey});
    key_ = rnic_.memory().add(arena_.data(), arena_.size(), kLocalWrite);
    if (carries_operations_) connect();
    for (std::uint32_t i = 0; !carries_operations_ && i < kSends + kReceives; ++i) post(i);
  }

  void pass(Time pause) {
    now_ += pause;
    for (std::size_t n = 0; n < kMostTimeouts && rnic_.next_timeout() <= now_; ++n) {
      rnic_.handle_timeout(now_);
      end_turn();
    }
  }
  void take_away() {
    Packet packet;
    for (int n = 0; n < 64 && rnic_.poll_packet(packet, now_); ++n) rnic_.packet_done(now_);
    if (!carries_operations_) rnic_.messages().events().clear();
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
    end_turn();
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
  static constexpr std::uint32_t kRemote = kRemoteWrite | kRemoteRead | kRemoteAtomic;
  const Gid kPeer = Gid::of_ipv4(0x0A000002);

  std::uint8_t* message(std::uint32_t i) { return arena_.data() + i * kStride + kGuardBytes; }
  ScatterGather element(std::uint32_t i) {
    return {reinterpret_cast<std::uintptr_t>(message(i)), kMessageBytes, key_};
  }
  void end_turn() {
    if (carries_operations_) rnic_.end_turn(now_);
  }

  // The first receive's memory is open to the peer, the second's is posted, the third's is where
  // what a READ returns goes.
  void connect() {
    rnic_.memory().add_under(kRegionKey, message(kSends), kMessageBytes, kLocalWrite | kRemote, 0,
                             kRegionAddress);
    const auto cq = rnic_.create_cq();
    const QpConfig made{
        .type = QpType::rc, .cap = {8, 8, 1, 1, 0}, .send_cq = cq, .receive_cq = cq};
    require(rnic_.create_qp(made, qp_) == 0);
    QpAttr attr{.path_mtu = 256, .dest_qp = qp_, .access = kRemote};
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 6;
    attr.retry_count = attr.rnr_retry = 3;
    attr.address.destination = kPeer;
    to(QpState::init, attr, kAttrPkeyIndex | kAttrPort | kAttrAccess);
    to(QpState::rtr, attr,
       kAttrAddress | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestReads |
           kAttrMinRnrTimer);
    to(QpState::rts, attr,
       kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxReads);
    require(rnic_.post_receive(qp_, {.wr_id = 1, .targets = {element(kSends + 1)}}, now_) == 0);
    SendRequest read{.wr_id = 2, .opcode = WrOpcode::rdma_read};
    read.sources = {element(kSends + 2)};
    require(rnic_.post_send(qp_, std::move(read), now_) == 0);
    end_turn();
  }
  void to(QpState state, QpAttr& attr, std::uint32_t mask) {
    attr.state = state;
    require(rnic_.modify_qp(qp_, attr, mask | kAttrState, now_) == 0);
  }

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
  bool carries_operations_;
  PeerIndex peer_ = 0;
  std::uint32_t key_ = 0, qp_ = 0;
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
  const Carries carries = carried(size != 0 ? data[0] : 0);
  Endpoint endpoint(carries);
  endpoint.take_away();
  for (std::size_t n = 0; n < kMostDatagrams && size >= 3; ++n) {
    const std::uint8_t how = data[0];
    const auto bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(load16(data + 1), size - 3));
    // Of exactly its length, so that the sanitizer detects a read beyond it.
    const auto body = std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
    std::copy_n(data + 3, bytes, body.get());
    endpoint.pass(kPauses[how >> 2 & 3]);
    if (carries == Carries::operations)
      endpoint.tell(endpoint.data_qp() + (how & 3), body.get(), bytes);
    else if (how >> 5 & 1)
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
