// SPDX-License-Identifier: GPL-2.0-or-later
// hostile_peer FRAMES SEED
//
// A live RC connection between two RNICs, both of which receive FRAMES frames of a peer that sends
// anything at all: what was on the cable before with bytes, fields or lengths changed (the ICRC put
// right, so that it gets past the first check), or plain noise. Meant to be built with
// AddressSanitizer. It ends with 1, and prints the reason, if memory is written that was never
// granted, if memory grows, or if the connection cannot be brought up again and used.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../engine/codec/codec.hpp"
#include "../engine/rnic/rnic.hpp"
#include "counted_memory.hpp"
#include "forger.hpp"
#include "live_peer.hpp"
#include "number.hpp"

namespace {

using namespace softroce;
using namespace softroce::fuzz;

constexpr std::size_t kMostLiveBytes = 16 << 20;
constexpr std::uint64_t kCheckEvery = 4096, kProveEvery = 65536;
constexpr Time kTick = 20 * kMicrosecond;

class Cable {
 public:
  explicit Cable(std::uint64_t seed) : random_(seed) { connect(); }

  void run(std::uint64_t frames) {
    for (std::uint64_t sent = 0; sent < frames; ++sent) {
      if (sent % 4 == 0) work();
      const std::uint32_t to = below(random_, 2);
      tell(to, forger_.lie(targets_[to]));
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
      const Side& peer = *sides_[1 - i];
      sides_[i]->connect(peer.rnic.gid(), peer.qp, peer.psn, now_);
      sides_[i]->describe(targets_[i]);
      targets_[i].peer = peer.rnic.gid();
      targets_[i].next_request = peer.psn;
      targets_[i].next_response = sides_[i]->psn;
    }
    ++reconnected_;
  }

  void work() {
    const std::uint32_t which = below(random_, 2);
    Side& side = *sides_[which];
    if (below(random_, 2)) side.post_receive(now_);
    if (below(random_, 2)) side.post_send(sides_[1 - which]->open.memory(), now_);
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
        forger_.saw(targets_[1 - which], packet, frame);
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
  Forger forger_{random_};
  std::array<Target, 2> targets_;  // each side
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
