// SPDX-License-Identifier: GPL-2.0-or-later
// hostile_control TRANSPORT MESSAGES SEED
//
// Two live endpoints of a packet transport exchange messages over a network that loses and trims
// packets. Both receive MESSAGES hostile packets besides: what was on the network before with
// fields, bytes or lengths changed, control messages that nobody sent, noise, and headers of
// trimmed packets. No data packet is hostile. Meant to be built with AddressSanitizer. It ends with
// 1, and prints the reason, if memory is written that was never granted, if a receiver reports data
// that was not sent, if memory grows, or if fresh endpoints cannot exchange messages.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../transport/bodies.hpp"
#include "counted_memory.hpp"
#include "forger.hpp"
#include "live_ends.hpp"
#include "number.hpp"

namespace {

using namespace softroce;
using namespace softroce::fuzz;

constexpr std::size_t kMostGrowth = 2 << 20;  // bytes, since the endpoints began
constexpr std::uint64_t kCheckEvery = 4096, kRenewEvery = 1 << 18;
constexpr std::uint32_t kRemembered = 64;
constexpr Time kStep = 4 * kMicrosecond, kLongStep = 25 * kMillisecond;  // timers end meanwhile

// A control message's first byte, and how long such a body is.
constexpr std::array<std::pair<std::uint8_t, std::uint32_t>, 16> kBodies = {{{1, 72},
                                                                             {1, 88},
                                                                             {3, 5},
                                                                             {3, 13},
                                                                             {4, 1},
                                                                             {4, 13},
                                                                             {5, 13},
                                                                             {6, 15},
                                                                             {7, 13},
                                                                             {7, 40},
                                                                             {8, 40},
                                                                             {16, 13},
                                                                             {17, 17},
                                                                             {18, 25},
                                                                             {19, 19},
                                                                             {20, 5}}};

class Wire {
 public:
  Wire(const Setup& setup, std::uint64_t seed) : setup_(setup), random_(seed) {}

  void run(std::uint64_t messages) {
    for (std::uint64_t sent = 0; sent < messages; ++sent) {
      if (sent % kRenewEvery == 0) renew();
      if (sent % 4 == 0) work();
      const std::uint32_t to = below(random_, 2);
      Flight lie = any_lie(to);
      ends_[to]->receive(lie, now_);
      if (sent % kCheckEvery == 0) check();
    }
    check();
    count_taken();
  }
  std::uint64_t taken() const { return taken_; }
  std::uint64_t completed() const { return completed_; }

 private:
  using Ends = std::array<std::unique_ptr<End>, 2>;

  // ---- the honest part

  void renew() {
    if (ends_[0] != nullptr) count_taken();
    for (int which = 0; which < 2; ++which) ends_[which] = std::make_unique<End>(which, setup_);
    post_all();
    come_to_rest();
    if (ends_[1]->good().size() != kMessages)
      throw std::runtime_error("fresh endpoints do not work");
    live_at_first_ = live_bytes;
  }

  void post_all() {
    for (std::uint32_t i = 0; i < kMessages; ++i)
      for (auto& end : ends_) end->post(i, now_);
  }

  // Hostile messages may hold up the honest ones for long, so these are given up now and then.
  void work() {
    if (below(random_, 256) == 0) {
      for (auto& end : ends_) {
        end->rnic().messages().flush(std::nullopt, now_);
        end->arriving().clear();
        end->settle(now_);
      }
      post_all();
    }
    for (std::uint32_t to = 0; to < 2; ++to) {
      drain(1 - to);
      for (std::uint32_t n = below(random_, 16); n != 0; --n) deliver(to);
    }
    pass(below(random_, 32) == 0 ? kLongStep : kStep);
  }

  // Takes the oldest packet off the network. One in 16 is lost, and one in 8 trimmed.
  void deliver(std::uint32_t to) {
    auto& arriving = ends_[to]->arriving();
    if (arriving.empty()) return;
    Flight flight = std::move(arriving.front());
    arriving.pop_front();
    const bool is_data = flight.packet.lab.kind == LAB_KIND_DATA;
    if (is_data && below(random_, 8) == 0) trim(flight);
    if (below(random_, 16) != 0) ends_[to]->receive(flight, now_);
    seen_[to][seen_count_[to]++ % kRemembered] = std::move(flight);
  }

  void trim(Flight& flight) {
    flight.carry({});
    flight.packet.lab.trimmed = true;
    flight.packet.traffic_class =
        trimmed_class(flight.packet.traffic_class, below(random_, 2) != 0);
  }

  void drain(std::uint32_t from) {
    auto& to = ends_[1 - from]->arriving();
    End& end = *ends_[from];
    end.settle(now_);
    Packet packet;
    while (to.size() < kMostQueued && end.rnic().poll_packet(packet, now_)) {
      to.push_back(Flight::of(packet));
      end.rnic().packet_done(now_);
      end.settle(now_);
    }
  }

  void pass(Time time) {
    now_ += time;
    for (auto& end : ends_)
      for (int n = 0; n < 1000 && end->rnic().next_timeout() <= now_; ++n) {
        end->rnic().handle_timeout(now_);
        end->settle(now_);
      }
  }

  void come_to_rest() {
    for (int round = 0; round < kMostRounds; ++round) {
      for (std::uint32_t from = 0; from < 2; ++from) drain(from);
      bool is_silent = true;
      for (auto& end : ends_)
        for (; !end->arriving().empty(); end->arriving().pop_front(), is_silent = false)
          end->receive(end->arriving().front(), now_);
      if (!is_silent) continue;
      const Time next = std::min(ends_[0]->rnic().next_timeout(), ends_[1]->rnic().next_timeout());
      if (next == kNever) return;
      pass(std::max<Time>(next - now_, 0));
    }
    throw std::runtime_error("an end does not come to rest");
  }

  void check() const {
    ends_[1]->check();
    if (live_bytes > live_at_first_ + kMostGrowth)
      throw std::runtime_error("memory grows: " + std::to_string(live_bytes) + " bytes of " +
                               std::to_string(live_at_first_));
  }

  void count_taken() {
    for (auto& end : ends_) {
      const Counters& counters = end->rnic().counters();
      taken_ += counters[Counter::rx_control] + counters[Counter::rx_nack];
    }
    completed_ += ends_[1]->completed();
  }

  // ---- the hostile part

  Flight any_lie(std::uint32_t to) {
    const std::uint32_t seen = std::min(seen_count_[to], kRemembered);
    if (seen == 0 || below(random_, 2) != 0) return forged(to);
    const Flight& before = seen_[to][below(random_, seen)];
    Flight lie{before.packet, nullptr};
    lie.carry({before.payload.get(), before.packet.payload_bytes});
    if (is_data_kind(lie.packet.lab.kind)) {
      trim(lie);
      for (std::uint32_t n = below(random_, 3); n != 0; --n) change_header(lie.packet.lab, to);
    } else {
      change_body(lie, to);
    }
    return lie;
  }
  static bool is_data_kind(std::uint8_t kind) {
    return kind == LAB_KIND_DATA || kind == LAB_KIND_PARITY;
  }

  // A control message that nobody sent.
  Flight forged(std::uint32_t to) {
    const auto [type, bytes] = kBodies[below(random_, kBodies.size())];
    const bool is_noise = below(random_, 16) == 0;
    std::vector<std::uint8_t> body(is_noise ? below(random_, 64) : bytes);
    for (std::size_t at = 1; at < body.size(); ++at)
      body[at] = static_cast<std::uint8_t>(below(random_, 4) != 0 ? 0 : random_());
    for (std::size_t at = 1; at + 4 <= body.size(); at += 4) put_word(body, at, to);
    if (!body.empty()) body[0] = is_noise ? static_cast<std::uint8_t>(random_()) : type;
    const bool has_flags = type == static_cast<std::uint8_t>(BodyType::packet_trimmed);
    if (has_flags && body.size() == bytes) body[17] = body[18] = below(random_, 2) != 0;
    Flight lie = Flight::of(body);
    ends_[to]->address(lie.packet);
    if (type == 1) lie.packet.lab.message_id = LAB_CONTROL_NACK;
    return lie;
  }

  void change_body(Flight& lie, std::uint32_t to) {
    std::vector<std::uint8_t> body(lie.payload.get(), lie.payload.get() + lie.packet.payload_bytes);
    for (std::uint32_t n = 1 + below(random_, 3); n != 0 && !body.empty(); --n) {
      const std::size_t at = below(random_, body.size());
      const std::uint32_t how = below(random_, 8);
      if (how == 0)
        body.resize(at);
      else if (how == 1)
        body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), body[at]);
      else if (how < 4)
        body[at] ^= static_cast<std::uint8_t>(1U << below(random_, 8));
      else if (const std::size_t word = at & ~std::size_t{3}; word + 5 <= body.size())
        put_word(body, word + 1, to);
    }
    const bool was_whole = lie.packet.lab.length == lie.packet.payload_bytes;
    lie.carry(body);
    if (was_whole) lie.packet.lab.length = lie.packet.payload_bytes;
  }

  void change_header(LabHeader& lab, std::uint32_t to) {
    std::uint32_t* const fields[] = {&lab.index,    &lab.count,  &lab.length, &lab.message_id,
                                     &lab.stamp_ns, &lab.number, &lab.message};
    *fields[below(random_, std::size(fields))] = word(to);
  }

  void put_word(std::vector<std::uint8_t>& body, std::size_t at, std::uint32_t to) {
    store32(&body[at], word(to));
  }

  // What a field may hold: mostly what is near the truth.
  std::uint32_t word(std::uint32_t to) {
    static constexpr std::uint32_t kEdges[] = {0, 1, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    const std::uint32_t seen = std::min(seen_count_[1 - to], kRemembered);
    const std::uint32_t how = below(random_, 8);
    if (how == 0) return static_cast<std::uint32_t>(random_());
    if (how == 1) return kEdges[below(random_, std::size(kEdges))];
    if (how < 4 || seen == 0) return below(random_, 80);
    const LabHeader& lab = seen_[1 - to][below(random_, seen)].packet.lab;  // sent by the victim
    return how < 6 ? lab.message_id : lab.stamp_ns;
  }

  Setup setup_;
  Random random_;
  Ends ends_;
  std::array<std::array<Flight, kRemembered>, 2> seen_;  // by the end that received them
  std::array<std::uint32_t, 2> seen_count_{};
  Time now_ = 1000 * kMillisecond;
  std::size_t live_at_first_ = 0;
  std::uint64_t taken_ = 0, completed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t messages = 0, seed = 0;
  const auto* transport =
      argc != 4 ? nullptr : std::ranges::find(kTransports, std::string_view(argv[1]));
  if (transport == nullptr || transport == kTransports.end() || !parse(argv[2], messages) ||
      !parse(argv[3], seed)) {
    std::fprintf(stderr, "usage: hostile_control TRANSPORT MESSAGES SEED\n");
    return 2;
  }
  try {
    Wire wire({.transport = *transport, .payload = true, .spray = false, .third = kMessageBytes},
              seed);
    wire.run(messages);
    std::printf(
        "%llu hostile packets, %llu control messages taken, %llu messages received, "
        "%zu bytes live\n",
        static_cast<unsigned long long>(messages), static_cast<unsigned long long>(wire.taken()),
        static_cast<unsigned long long>(wire.completed()), live_bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hostile_control %s %s %s: %s\n", argv[1], argv[2], argv[3], error.what());
    return 1;
  }
  return 0;
}
