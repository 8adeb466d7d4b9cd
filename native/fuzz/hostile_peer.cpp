// SPDX-License-Identifier: GPL-2.0-or-later
// hostile_peer FRAMES SEED
//
// A live RC connection between two RNICs, both of which receive FRAMES frames of a peer that sends
// anything at all: what was on the cable before with bytes, fields or lengths changed (the ICRC put
// right, so that it gets past the first check), or plain noise. Meant to be built with
// AddressSanitizer. It ends with 1, and prints the reason, if memory is written that was never
// granted, if memory grows, or if the connection cannot be brought up again and used.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../engine/codec/codec.hpp"
#include "../engine/rnic/rnic.hpp"
#include "number.hpp"

namespace {

std::size_t live_bytes = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += malloc_usable_size(memory);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace {

using namespace softroce;
using Random = std::mt19937_64;
using Frame = std::vector<std::uint8_t>;

constexpr std::uint32_t kPathMtu = 1024, kDomain = 7;
constexpr std::uint8_t kGuard = 0xA5;
constexpr std::size_t kRegionBytes = 16384, kGuardBytes = 4096;
constexpr std::size_t kMostLiveBytes = 16 << 20;
constexpr std::size_t kRemembered = 64;  // frames of the cable that are changed
constexpr std::uint64_t kCheckEvery = 4096, kProveEvery = 65536;
constexpr std::array<std::uint8_t, 6> kForgedSyndromes = {0x1F, 0x60, 0x61, 0x62, 0x21, 0x00};
constexpr Time kTick = 20 * kMicrosecond;

std::uint32_t below(Random& random, std::uint64_t bound) {
  return static_cast<std::uint32_t>(random() % bound);
}

// Memory between guards, registered with some rights.
struct Region {
  Region(Rnic& rnic_, std::uint32_t access_)
      : rnic(rnic_), access(access_), bytes(kGuardBytes + kRegionBytes + kGuardBytes, kGuard) {
    key = rnic.memory().add(data(), kRegionBytes, access, kDomain);
  }
  // The key may have been invalidated.
  void renew() {
    rnic.memory().remove(key);
    key = rnic.memory().add(data(), kRegionBytes, access, kDomain);
  }
  std::uint8_t* data() { return bytes.data() + kGuardBytes; }
  std::uint64_t address() { return reinterpret_cast<std::uintptr_t>(data()); }
  bool guards_stand() const {
    for (std::size_t i = 0; i < kGuardBytes; ++i)
      if (bytes[i] != kGuard || bytes[bytes.size() - 1 - i] != kGuard) return false;
    return true;
  }
  bool is_untouched() const {
    for (const std::uint8_t byte : bytes)
      if (byte != kGuard) return false;
    return true;
  }
  Rnic& rnic;
  std::uint32_t access;
  Frame bytes;
  std::uint32_t key;
};

struct Side {
  Side(std::uint32_t ip, Random& random_) : rnic(config(ip)), random(random_) {
    cq = rnic.create_cq();
    QpConfig qp_config{.type = QpType::rc,
                       .protection_domain = kDomain,
                       .cap = {64, 64, 3, 3, 128},
                       .send_cq = cq,
                       .receive_cq = cq};
    if (rnic.create_qp(qp_config, qp) != 0) throw std::runtime_error("no QP");
  }
  static MessageConfig config(std::uint32_t ip) {
    MessageConfig config;
    config.gid = Gid::of_ipv4(ip);
    config.path_mtu = kPathMtu;
    return config;
  }

  void connect(const Side& peer, Time now) {
    for (Region* region : {&open, &readable, &closed, &scratch}) region->renew();
    QpAttr attr{.path_mtu = kPathMtu,
                .rq_psn = peer.psn,
                .sq_psn = psn,
                .dest_qp = peer.qp,
                .access = kRemoteWrite | kRemoteRead | kRemoteAtomic,
                .max_rd_atomic = 4,
                .max_dest_rd_atomic = 4,
                .min_rnr_timer = 1,
                .timeout = 6,
                .retry_count = 7,
                .rnr_retry = 7};
    attr.address.destination = peer.rnic.gid();
    to(QpState::reset, attr, 0, now);
    to(QpState::init, attr, kAttrPkeyIndex | kAttrPort | kAttrAccess, now);
    to(QpState::rtr, attr,
       kAttrAddress | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestReads |
           kAttrMinRnrTimer,
       now);
    to(QpState::rts, attr,
       kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxReads, now);
  }
  void to(QpState state, QpAttr& attr, std::uint32_t mask, Time now) {
    attr.state = state;
    if (rnic.modify_qp(qp, attr, mask | kAttrState, now) != 0)
      throw std::runtime_error("the QP cannot be modified");
  }
  bool broken() const { return rnic.find_qp(qp)->state() != QpState::rts; }

  ScatterGather local(std::uint32_t most) {
    const std::uint32_t length = below(random, most + 1);
    return {scratch.address() + below(random, kRegionBytes - length), length, scratch.key};
  }
  void post_receive(Time now) {
    ReceiveRequest request{.wr_id = 1, .targets = {local(4000), local(4000)}};
    rnic.post_receive(qp, std::move(request), now);
  }
  void post_send(Side& peer, Time now) {
    static constexpr std::array kOpcodes = {WrOpcode::send,
                                            WrOpcode::send_with_immediate,
                                            WrOpcode::send_with_invalidate,
                                            WrOpcode::rdma_read,
                                            WrOpcode::rdma_write_with_immediate,
                                            WrOpcode::rdma_write,
                                            WrOpcode::fetch_add,
                                            WrOpcode::compare_swap};
    SendRequest request{.wr_id = 2, .opcode = kOpcodes[below(random, kOpcodes.size())]};
    request.flags = below(random, 8);
    request.sources = {local(3000), local(3000)};
    request.remote_address = peer.open.address() + 8 * below(random, 64);
    request.rkey = peer.open.key;
    request.invalidate_rkey = below(random, 1 << 20);
    if (request.opcode == WrOpcode::fetch_add || request.opcode == WrOpcode::compare_swap)
      request.sources = {{scratch.address(), 8, scratch.key}};
    rnic.post_send(qp, std::move(request), now);
  }

  void check() const {
    if (!open.guards_stand() || !scratch.guards_stand())
      throw std::runtime_error("memory outside a region was written");
    if (!readable.is_untouched()) throw std::runtime_error("a region without write was written");
    if (!closed.is_untouched()) throw std::runtime_error("a region without access was written");
  }

  Rnic rnic;
  Random& random;
  std::shared_ptr<CompletionQueue> cq;
  std::uint32_t qp = 0, psn = 0xFFFFF0;
  Region open{rnic, kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic};
  Region readable{rnic, kRemoteRead};
  Region closed{rnic, kLocalWrite};
  Region scratch{rnic, kLocalWrite};  // where sends and receives are
};

class Cable {
 public:
  explicit Cable(std::uint64_t seed) : random_(seed) { connect(); }

  void run(std::uint64_t frames) {
    for (std::uint64_t sent = 0; sent < frames; ++sent) {
      if (sent % 4 == 0) work();
      const std::uint32_t to = below(random_, 2);
      tell(to, lie(to));
      if (sent % kCheckEvery == 0) check();
      if (sent % kProveEvery == 0) prove();
    }
    check();
    prove();
  }
  std::uint64_t refused() const { return refused_; }
  std::uint64_t reconnected() const { return reconnected_; }

 private:
  void connect() {
    for (int i = 0; i < 2; ++i) sides_[i]->psn = below(random_, 1 << 24);
    for (int i = 0; i < 2; ++i) {
      sides_[i]->connect(*sides_[1 - i], now_);
      next_request_[i] = sides_[1 - i]->psn;
      next_response_[i] = sides_[i]->psn;
    }
    ++reconnected_;
  }

  void work() {
    const std::uint32_t which = below(random_, 2);
    Side& side = *sides_[which];
    if (below(random_, 2)) side.post_receive(now_);
    if (below(random_, 2)) side.post_send(*sides_[1 - which], now_);
    pump(4, true);
    now_ += kTick;
    for (auto& each : sides_)
      if (each->rnic.next_timeout() <= now_) each->rnic.handle_timeout(now_);
    for (auto& each : sides_) {
      each->cq->poll(1000);
      each->rnic.take_async_events();
    }
    if (sides_[0]->broken() || sides_[1]->broken()) connect();
  }

  // Moves the frames between the two; frames may be lost.
  bool pump(int most, bool lossy) {
    bool any = false;
    for (int which = 0; which < 2; ++which) {
      Packet packet;
      for (int n = 0; n < most && sides_[which]->rnic.poll_packet(packet, now_); ++n) {
        Frame frame(kMostPathMtu + kMostOverheadBytes);
        frame.resize(encode(packet, 1, frame.data()));
        sides_[which]->rnic.packet_done(now_);
        any = true;
        remember(1 - which, packet);
        sent_[next_sent_++ % kRemembered] = frame;
        if (!lossy || below(random_, 16) != 0) tell(1 - which, frame);
      }
    }
    return any;
  }

  void tell(std::uint32_t to, const Frame& frame) {
    // Of exactly its length, so that the sanitizer detects a read beyond it.
    const auto exact = std::make_unique_for_overwrite<std::uint8_t[]>(frame.size());
    std::copy(frame.begin(), frame.end(), exact.get());
    Packet packet;
    Rnic& rnic = sides_[to]->rnic;
    if (const auto refusal = decode(exact.get(), frame.size(), packet)) {
      rnic.counters().add(*refusal);
      ++refused_;
    } else {
      rnic.handle_packet(packet, now_);
    }
  }

  // The PSN that comes next, of requests and of responses, as far as an eavesdropper can determine.
  void remember(int to, const Packet& packet) {
    const OpcodeTraits& traits = traits_of(packet.opcode);
    const bool response =
        traits.family == Family::read_response || traits.family == Family::acknowledge;
    const std::uint32_t packets = traits.family == Family::read
                                      ? std::max(1U, (packet.dma_length + kPathMtu - 1) / kPathMtu)
                                      : 1;
    (response ? next_response_ : next_request_)[to] = (packet.psn + packets) & kPsnMask;
  }

  Frame lie(std::uint32_t to) { return below(random_, 2) ? forge(to) : change(); }

  // A well-formed packet of any opcode that is about any memory.
  Frame forge(std::uint32_t to) {
    Side &victim = *sides_[to], &other = *sides_[1 - to];
    Packet packet;
    do {
      packet.opcode = static_cast<std::uint8_t>(below(random_, 24));
    } while (!traits_of(packet.opcode).known());
    const OpcodeTraits& traits = traits_of(packet.opcode);
    const bool response =
        traits.family == Family::read_response || traits.family == Family::acknowledge;
    packet.source = other.rnic.gid();
    packet.destination = victim.rnic.gid();
    packet.destination_qp = victim.qp;
    packet.psn = (response ? next_response_ : next_request_)[to];
    if (below(random_, 4) == 0) packet.psn = (packet.psn + below(random_, 9) - 4) & kPsnMask;
    packet.ack_request = below(random_, 2);
    packet.solicited = below(random_, 2);
    Region& region = any_region(victim);
    packet.rkey = below(random_, 8) ? region.key : below(random_, 1 << 20);
    packet.remote_address = any_address(region);
    const std::array<std::uint32_t, 4> lengths = {kPathMtu, below(random_, kPathMtu + 1), 8,
                                                  2 * kPathMtu};
    packet.payload_bytes = traits.carries_payload ? lengths[below(random_, 3)] : 0;
    packet.dma_length = below(random_, 2) ? packet.payload_bytes : lengths[below(random_, 4)];
    if (below(random_, 16) == 0) packet.dma_length = static_cast<std::uint32_t>(random_());
    packet.compare = packet.swap_or_add = packet.original = random_();
    packet.syndrome = below(random_, 2) ? kForgedSyndromes[below(random_, kForgedSyndromes.size())]
                                        : static_cast<std::uint8_t>(random_());
    packet.msn = below(random_, 1 << 24);
    packet.invalidate_rkey = below(random_, 4) ? below(random_, 1 << 20) : region.key;
    static const Frame kPayload(2 * kPathMtu, 0xEE);
    packet.payload = kPayload.data();
    Frame frame(kMostPathMtu + kMostOverheadBytes);
    frame.resize(encode(packet, 1, frame.data()));
    if (!response && (traits.ends || below(random_, 2)))
      next_request_[to] = (packet.psn + 1) & kPsnMask;  // if it is accepted
    return frame;
  }
  Region& any_region(Side& victim) {
    const std::array<Region*, 4> regions = {&victim.open, &victim.readable, &victim.closed,
                                            &victim.scratch};
    return *regions[below(random_, regions.size())];
  }
  std::uint64_t any_address(Region& region) {
    const std::array<std::uint64_t, 7> addresses = {region.address(),
                                                    region.address() + 8 * below(random_, 512),
                                                    region.address() - 1,
                                                    region.address() + kRegionBytes - 8,
                                                    region.address() + kRegionBytes,
                                                    UINT64_MAX - below(random_, 64),
                                                    random_()};
    return addresses[below(random_, addresses.size())];
  }

  Frame change() {
    Frame frame = sent_[below(random_, kRemembered)];
    if (frame.size() < kEthernetBytes + 44 || below(random_, 64) == 0) return noise();
    const std::uint32_t kind = below(random_, 8);
    if (kind == 0) frame.resize(below(random_, static_cast<std::uint32_t>(frame.size()) + 1));
    if (kind == 1) frame.resize(frame.size() + below(random_, 64), 0x5A);
    if (kind < 5) change_bytes(frame);
    if (kind >= 3) change_fields(frame);
    mend(frame);
    return frame;
  }
  Frame noise() {
    Frame frame(below(random_, 200));
    for (auto& byte : frame) byte = static_cast<std::uint8_t>(random_());
    return frame;
  }
  void change_bytes(Frame& frame) {
    for (std::uint32_t n = 1 + below(random_, 4); n != 0 && !frame.empty(); --n)
      frame[below(random_, frame.size())] ^= static_cast<std::uint8_t>(1U << below(random_, 8));
  }
  // Gives a packet's fields plausible values.
  void change_fields(Frame& frame) {
    constexpr std::size_t kBth = kEthernetBytes + 28;
    if (frame.size() < kBth + 32) return;
    std::uint8_t* bth = frame.data() + kBth;
    Side& victim = *sides_[below(random_, 2)];
    if (below(random_, 2)) bth[0] = static_cast<std::uint8_t>(below(random_, 24));
    if (below(random_, 4) == 0) bth[1] = static_cast<std::uint8_t>(random_());
    if (below(random_, 2)) bth[8] ^= 0x80;  // AckReq
    if (below(random_, 2))
      store32(bth + 8, (load32(bth + 8) & 0xFF000000) |
                           ((load24(bth + 8) + below(random_, 9) - 4) & kPsnMask));
    if (below(random_, 2)) store32(bth + 4, victim.qp);
    Region& region = any_region(victim);
    if (below(random_, 2)) store64(bth + 12, any_address(region));
    if (below(random_, 2)) store32(bth + 20, region.key);
    if (below(random_, 2))
      store32(bth + 24, below(random_, 8) ? below(random_, 20000) : UINT32_MAX);
    if (below(random_, 4) == 0) bth[12] = static_cast<std::uint8_t>(random_());  // AETH syndrome
  }
  void mend(Frame& frame) {
    if (frame.size() < kEthernetBytes + 44 || below(random_, 16) == 0) return;
    const auto ip_bytes = static_cast<std::uint16_t>(frame.size() - kEthernetBytes);
    if (below(random_, 16) != 0) {
      store16(frame.data() + kEthernetBytes + 2, ip_bytes);
      store16(frame.data() + kEthernetBytes + 24, static_cast<std::uint16_t>(ip_bytes - 20));
    }
    if (const auto icrc = icrc_of_frame(frame.data(), frame.size()))
      std::memcpy(frame.data() + frame.size() - kIcrcBytes, &*icrc, kIcrcBytes);
  }

  void check() const {
    for (const auto& side : sides_) side->check();
    if (live_bytes > kMostLiveBytes)
      throw std::runtime_error("memory grows: " + std::to_string(live_bytes) + " bytes");
  }

  // The connection, established again, carries a WRITE of known bytes.
  void prove() {
    connect();
    Side &a = *sides_[0], &b = *sides_[1];
    while (pump(64, false)) continue;
    a.cq->poll(1000);
    const std::uint64_t value = random_();
    std::memcpy(a.scratch.data(), &value, sizeof value);
    SendRequest request{.wr_id = 77, .opcode = WrOpcode::rdma_write, .flags = kSignaled};
    request.sources = {{a.scratch.address(), sizeof value, a.scratch.key}};
    request.remote_address = b.open.address() + 512;
    request.rkey = b.open.key;
    if (a.rnic.post_send(a.qp, std::move(request), now_) != 0)
      throw std::runtime_error("a fresh connection takes no request");
    while (pump(64, false)) continue;
    const auto completions = a.cq->poll(1000);
    const bool ended = completions.size() == 1 && completions[0].wr_id == 77 &&
                       completions[0].status == WcStatus::success;
    if (!ended || std::memcmp(b.open.data() + 512, &value, sizeof value) != 0)
      throw std::runtime_error("a fresh connection does not work");
  }

  Random random_;
  std::array<std::unique_ptr<Side>, 2> sides_{std::make_unique<Side>(0x0A000001, random_),
                                              std::make_unique<Side>(0x0A000002, random_)};
  std::array<Frame, kRemembered> sent_;
  std::size_t next_sent_ = 0;
  std::array<std::uint32_t, 2> next_request_{}, next_response_{};  // to each side
  Time now_ = 0;
  std::uint64_t refused_ = 0, reconnected_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t frames = 0, seed = 0;
  if (argc != 3 || !parse(argv[1], frames) || !parse(argv[2], seed)) {
    std::fprintf(stderr, "usage: hostile_peer FRAMES SEED\n");
    return 2;
  }
  try {
    Cable cable(seed);
    cable.run(frames);
    std::printf("%llu frames, %llu of them refused as no RoCE, %llu connections, %zu bytes live\n",
                static_cast<unsigned long long>(frames),
                static_cast<unsigned long long>(cable.refused()),
                static_cast<unsigned long long>(cable.reconnected()), live_bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hostile_peer %s %s: %s\n", argv[1], argv[2], error.what());
    return 1;
  }
  return 0;
}
