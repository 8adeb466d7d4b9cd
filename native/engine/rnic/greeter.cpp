// SPDX-License-Identifier: GPL-2.0-or-later
#include "greeter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../../../xdp/lab_hash.h"
#include "../../../xdp/lab_maps.h"
#include "../codec/bytes.hpp"
#include "../striped/ud_framing.hpp"

namespace softroce {
namespace {

constexpr std::uint8_t kVersion = 1, kAnswer = 1;
constexpr std::size_t kNameBytes = 24, kHelloBytes = 2 + 8 + 8 + 8 + kNameBytes;
constexpr Time kFirstInterval = kMillisecond, kLongestInterval = 100 * kMillisecond;
constexpr std::size_t kMostWaiting = 1 << 10;

std::string text_of(const Gid& gid) {
  std::uint8_t octets[16];
  store64(octets, gid.high);
  store64(octets + 8, gid.low);
  std::string text;
  if (gid.is_ipv4()) {
    for (int i = 12; i < 16; ++i) text += (i > 12 ? "." : "") + std::to_string(octets[i]);
    return text;
  }
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) {
    if (i != 0 && i % 2 == 0) text += ':';
    text += kDigits[octets[i] >> 4];
    text += kDigits[octets[i] & 15];
  }
  return text;
}

}  // namespace

Greeter::Greeter(MessageEngine& engine, Counters& counters, Greeting greeting,
                 std::function<void(const std::string&)> tell)
    : engine_(engine), counters_(counters), own_(std::move(greeting)), tell_(std::move(tell)) {}

std::uint64_t Greeter::new_nonce() { return lab_absorb(lab_mix64(own_.incarnation), ++nonces_); }

// ---------------------------------------------------------------- questions

void Greeter::ask(const PeerName& name, Time patience, Time now) {
  const auto [found, is_new] = asked_.try_emplace(name);
  Asked& asked = found->second;
  if (asked.state == State::refuses) asked.state = State::asks;
  if (asked.state == State::agrees) return;
  asked.until = std::max(asked.until, now + patience);
  if (asked.ask_at == kNever) question(name, asked, now);
}

void Greeter::question(const PeerName& name, Asked& asked, Time now) {
  if (asked.ask_at == kNever) {
    asked.nonce = new_nonce();
    asked.questions = 0;
  }
  const Time wait = kFirstInterval << std::min(asked.questions, 10U);
  asked.ask_at = now + std::min(wait, kLongestInterval);
  const std::uint32_t path = asked.questions++ % engine_.config().paths;
  if (waiting_.size() < kMostWaiting)
    waiting_.push_back({name, path, {.nonce = asked.nonce, .greeting = own_}});
}

Greeter::State Greeter::state_of(const PeerName& name) const {
  const auto found = asked_.find(name);
  return found == asked_.end() ? State::asks : found->second.state;
}

std::optional<PeerIndex> Greeter::session_with(const PeerName& name) const {
  const auto found = asked_.find(name);
  if (found == asked_.end() || found->second.state != State::agrees) return std::nullopt;
  return found->second.session;
}

Time Greeter::next_timeout() const {
  Time next = kNever;
  for (const auto& [name, asked] : asked_) next = std::min(next, asked.ask_at);
  return next;
}

bool Greeter::handle_timeout(Time now) {
  bool any = false;
  for (auto& [name, asked] : asked_) {
    if (asked.ask_at > now) continue;
    if (now < asked.until) {
      question(name, asked, now);
      continue;
    }
    any = true;
    refuse(name, asked, "does not answer: is its program another library's, or Linux's RNIC?");
  }
  return any;
}

void Greeter::refuse(const PeerName& name, Asked& asked, const std::string& why) {
  asked.ask_at = kNever;
  asked.state = State::refuses;
  tell_(text_of(name.gid) + " " + why);
}

// ---------------------------------------------------------------- hellos

std::optional<Greeter::Hello> Greeter::read(const Packet& packet) {
  if (packet.payload_bytes != kHelloBytes || packet.lab.kind != LAB_KIND_CONTROL ||
      packet.lab.message_id != LAB_CONTROL_HELLO || packet.payload[0] != kVersion)
    return std::nullopt;
  const std::uint8_t* at = packet.payload;
  const char* name = reinterpret_cast<const char*>(at + 26);
  return Hello{.is_answer = (at[1] & kAnswer) != 0,
               .nonce = load64(at + 2),
               .greeting = {.incarnation = load64(at + 10),
                            .digest = load64(at + 18),
                            .transport = std::string(name, strnlen(name, kNameBytes))}};
}

void Greeter::write(const Hello& hello) {
  body_.assign(kHelloBytes, 0);
  body_[0] = kVersion;
  body_[1] = hello.is_answer ? kAnswer : 0;
  store64(&body_[2], hello.nonce);
  store64(&body_[10], hello.greeting.incarnation);
  store64(&body_[18], hello.greeting.digest);
  const std::string& name = hello.greeting.transport;
  std::memcpy(&body_[26], name.data(), std::min(name.size(), kNameBytes));
}

bool Greeter::handle_packet(const Packet& received, Time now) {
  Packet packet = received;
  const bool is_hello = ud_framing::open(packet) && packet.destination_qp == engine_.recovery_qp();
  const auto hello = is_hello ? read(packet) : std::nullopt;
  if (!hello) return counters_.add(Counter::rx_bad_header), false;
  const PeerName name{packet.destination, packet.source, packet.source_qp >> LAB_SHARE_QPN_BITS};
  const auto answer = [&] {
    if (waiting_.size() < kMostWaiting)
      waiting_.push_back({name, packet.lab.path, {true, hello->nonce, own_}});
    return false;
  };
  if (own_.digest == 0 && !hello->is_answer) return answer();  // there are no sessions here
  const auto found = asked_.find(name);
  if (found == asked_.end())  // no queue pair is connected to it
    return counters_.add(Counter::rx_unknown_peer), false;
  Asked& asked = found->second;
  if (hello->is_answer) return take_answer(name, asked, *hello, now);
  const bool is_known = !asked.session || asked.incarnation == hello->greeting.incarnation;
  if (!is_known && asked.ask_at == kNever) {  // it began anew
    asked.until = now + kLongestInterval;
    question(name, asked, now);
  }
  return is_known && answer();
}

bool Greeter::take_answer(const PeerName& name, Asked& asked, const Hello& hello, Time now) {
  if (asked.ask_at == kNever || hello.nonce != asked.nonce)
    return counters_.add(Counter::rx_bad_header), false;
  if (hello.greeting.digest == own_.digest) {
    begin_session(name, asked, hello.greeting.incarnation, now);
    return true;
  }
  const bool same = hello.greeting.transport == own_.transport;
  refuse(
      name, asked,
      same ? "uses " + own_.transport + " with other options than this program"
           : "uses the transport " + hello.greeting.transport + ", this program " + own_.transport);
  return true;
}

void Greeter::begin_session(const PeerName& name, Asked& asked, std::uint64_t incarnation,
                            Time now) {
  asked.ask_at = kNever;
  asked.state = State::agrees;
  if (own_.digest == 0 || (asked.session && asked.incarnation == incarnation)) return;
  if (asked.session) engine_.disconnect(*asked.session, now);
  const std::uint32_t numbers = name.share << LAB_SHARE_QPN_BITS;
  asked.session = engine_.connect({.gid = name.gid,
                                   .data_qp = numbers | kDataQpNumber,
                                   .recovery_qp = numbers | kRecoveryQpNumber,
                                   .qkey = static_cast<std::uint32_t>(incarnation),
                                   .source = name.source});
  asked.incarnation = incarnation;
}

bool Greeter::poll_packet(Packet& packet) {
  if (waiting_.empty()) return false;
  const Waiting next = std::move(waiting_.front());
  waiting_.pop_front();
  write(next.hello);
  packet.source = next.to.source;
  packet.destination = next.to.gid;
  packet.qkey = kQkey;
  packet.destination_qp = next.to.share << LAB_SHARE_QPN_BITS | kRecoveryQpNumber;
  packet.source_qp = engine_.recovery_qp();
  packet.lab = {.kind = LAB_KIND_CONTROL,
                .path = static_cast<std::uint8_t>(next.path),
                .message_id = LAB_CONTROL_HELLO,
                .length = kHelloBytes};
  packet.payload = body_.data();
  packet.payload_bytes = kHelloBytes;
  ud_framing::close(packet);
  counters_.add(Counter::tx_control);
  return true;
}

}  // namespace softroce
