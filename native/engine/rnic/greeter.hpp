// SPDX-License-Identifier: GPL-2.0-or-later
// Agrees with other processes on the transport that carries operations, before the first of them.
// All of it is this project's definition.
//
// A process asks another one by a control message to its recovery queue pair, whose number follows
// from the numbers of its queue pairs: who opens a port first, or shares it, has a range of
// numbers. The other answers if a queue pair there is connected to the first. The answer carries
// the question's nonce, so that nobody who does not see the question can answer it.
//
//   hello   version 8 | flags 8: 1 answer | nonce of the question 64 | incarnation 64 | digest 64 |
//           name of the transport, 24 octets
//
// incarnation: drawn at random when a process begins; its low half is the Q_Key of the process. So
// packets for a process that was killed are refused. A process answers to no other incarnation than
// that of the session which it has: it asks first, and begins a new session with the new one.
// digest: of all that both ends must have in common; 0: operations are RC's packets.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "../striped/message_engine.hpp"

namespace softroce {

// One process at the other end: an address, and which of those that share its port.
struct PeerName {
  Gid source, gid;
  std::uint32_t share = 0;
  bool operator==(const PeerName&) const = default;
};
struct PeerNameHash {
  std::size_t operator()(const PeerName& name) const {
    const std::uint64_t mixed = name.gid.high * 3 ^ name.gid.low ^ std::uint64_t{name.share} << 40;
    return std::hash<std::uint64_t>()(mixed * 0x9E3779B97F4A7C15ULL);
  }
};

// What this process tells.
struct Greeting {
  std::uint64_t incarnation = 0, digest = 0;
  std::string transport = "rc";

  std::uint32_t qkey() const { return static_cast<std::uint32_t>(incarnation); }
};

class Greeter {
 public:
  static constexpr std::uint32_t kQkey = 0x48454C4F;  // of all hellos
  enum class State : std::uint8_t { asks, agrees, refuses };

  // `tell` gets a line for the user about a peer that does not agree.
  Greeter(MessageEngine& engine, Counters& counters, Greeting greeting,
          std::function<void(const std::string&)> tell);

  // A queue pair is connected to it: it is asked, unless that was done. After `patience` without an
  // answer it does not agree.
  void ask(const PeerName& name, Time patience, Time now);
  State state_of(const PeerName& name) const;
  std::optional<PeerIndex> session_with(const PeerName& name) const;

  // A hello to this process. True: somebody agrees now, or does not.
  bool handle_packet(const Packet& packet, Time now);
  bool has_packet() const { return !waiting_.empty(); }
  bool poll_packet(Packet& packet);
  // True: somebody does not agree now.
  bool handle_timeout(Time now);
  Time next_timeout() const;

 private:
  struct Asked {
    State state = State::asks;
    std::uint64_t nonce = 0;
    std::uint32_t questions = 0;
    Time ask_at = kNever, until = 0;
    std::optional<PeerIndex> session;
    std::uint64_t incarnation = 0;  // of the session's peer
  };
  struct Hello {
    bool is_answer = false;
    std::uint64_t nonce = 0;
    Greeting greeting;
  };
  struct Waiting {
    PeerName to;
    std::uint32_t path = 0;
    Hello hello;
  };

  void question(const PeerName& name, Asked& asked, Time now);
  bool take_answer(const PeerName& name, Asked& asked, const Hello& hello, Time now);
  void begin_session(const PeerName& name, Asked& asked, std::uint64_t incarnation, Time now);
  void refuse(const PeerName& name, Asked& asked, const std::string& why);
  static std::optional<Hello> read(const Packet& packet);
  void write(const Hello& hello);
  std::uint64_t new_nonce();

  MessageEngine& engine_;
  Counters& counters_;
  Greeting own_;
  std::function<void(const std::string&)> tell_;
  std::unordered_map<PeerName, Asked, PeerNameHash> asked_;
  std::deque<Waiting> waiting_;
  std::vector<std::uint8_t> body_;  // of the packet that leaves
  std::uint64_t nonces_ = 0;
};

}  // namespace softroce
