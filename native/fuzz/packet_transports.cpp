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
#include <span>
#include <utility>

#include "../engine/codec/bytes.hpp"
#include "live_ends.hpp"

namespace {

using namespace softroce;
using namespace softroce::fuzz;

constexpr std::array<std::uint32_t, 4> kThird = {0, 216, 5000, kMessageBytes};
constexpr int kMostDeeds = 4096;

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
      Flight forged = Flight::of(input.take(input.octet()));
      end.address(forged.packet);
      end.receive(forged, now_);
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
        to.push_back(Flight::of(packet));
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
