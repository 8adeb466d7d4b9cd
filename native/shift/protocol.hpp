// SPDX-License-Identifier: GPL-2.0-or-later
// What the two ends of a SHIFT connection (arXiv 2512.11094) know and tell each other, and which
// requests may be repeated. docs/explanation/shift.md has the reasons; control messages are this
// project's definition.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../engine/verbs/queue_pair.hpp"

namespace softroce::shift {

// Which of the two queue pairs. An epoch's path is its lowest bit.
enum class Path : std::uint8_t { primary, backup };
constexpr Path path_of(std::uint32_t epoch) { return static_cast<Path>(epoch & 1); }
constexpr std::size_t index_of(Path path) { return static_cast<std::size_t>(path); }

// States of the sending side by their published names; `failed` is the lab's.
enum class Sender : std::uint8_t { primary, fallback, wait_signaled, wait_drained, failed };
enum class Receiver : std::uint8_t { primary, fallback };
const char* name_of(Sender state);
const char* name_of(Receiver state);

struct Settings {
  // How long a peer may take to answer MOVE, before the failure surfaces.
  std::int64_t handshake_timeout_ns = 2'000'000'000;
  // Between probes of the default path. It doubles after each probe that fails and after each
  // failback that fails within it, up to `most_probe_interval_ns`.
  std::int64_t probe_interval_ns = 20'000'000;
  std::int64_t most_probe_interval_ns = 2'000'000'000;
  // How long requests are held for a failback, before it is given up.
  std::int64_t drain_timeout_ns = 500'000'000;
  // Of control messages, as queue pairs have it (4.096 us * 2^timeout); 0: the application's.
  std::uint8_t control_timeout = 0;
};

// A transition of one side, or the figures of a move.
struct Transition {
  std::int64_t at_ns = 0;
  std::uint32_t qp_num = 0, epoch = 0;
  const char* side = "";  // "sender" or "receiver"
  const char* before = "";
  const char* after = "";
  std::string why{};
  std::uint32_t consumed = 0;           // requests that the peer had executed
  std::uint32_t resubmitted = 0;        // requests that were posted again
  std::uint32_t receives = 0;           // receives that were posted again
  WcStatus status = WcStatus::success;  // where an error surfaces: of the oldest request
  Gid peer_gid{};                       // of the peer's default NIC; zero: not connected yet
  std::uint32_t peer_qp = 0;
};

// ---------------------------------------------------------------- control messages

enum class Kind : std::uint8_t {
  move = 1,     // the sender's receives are in `epoch`; it executes nothing more of earlier ones
  drained = 2,  // the sender has no request in flight in `epoch`, and posts none
  resume = 3,   // it posts in `epoch` after all
  failed = 4,   // it has surfaced an error, and is gone
};

// Each message is one WRITE with immediate into a mailbox of the peer over the backup NIC. The
// immediate is the low 32 bits of `received`.
constexpr std::size_t kMessageBytes = 52;
using MessageBytes = std::array<std::uint8_t, kMessageBytes>;

struct Message {
  Kind kind{};
  std::uint32_t epoch = 0;
  std::uint64_t received = 0;  // messages that consumed a receive, ever
  std::uint32_t next_psn = 0;  // with which the queue pair that is left begins anew
  bool operator==(const Message&) const = default;
};

// The end that a message is of. Captures have no other way to tell which queue pairs are one
// connection.
struct Owner {
  std::uint32_t default_qp = 0, backup_qp = 0;
  Gid gid{};  // of its default NIC
};

struct Received {
  Message message;
  std::uint32_t sequence = 0;
  Owner owner;
};

MessageBytes encode(const Message& message, std::uint32_t sequence, const Owner& owner);
std::optional<Received> read(std::span<const std::uint8_t> bytes);  // nothing: no message

// The peer broke the protocol: it cannot be trusted with what is in flight.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---------------------------------------------------------------- which requests may be repeated

// Places among unfinished requests, in order.
struct Classes {
  std::vector<std::size_t> done;   // the peer executed them
  std::vector<std::size_t> again;  // the rest
  // The first of the rest that may not be repeated.
  std::optional<std::size_t> culprit{};
};

// Divides what is unfinished, of which the peer has executed so many notifications. RC executes in
// order: all that was posted before an executed notification was executed too, and must not be
// repeated, because the peer may have reused its memory. Only the result of a READ or an atomic
// among it is lost. Such a READ is repeated: without a fence, nobody may rely on its being executed
// before the requests behind it (IBA 10.8.3.3). ProtocolError: the peer counts more notifications
// than it was sent.
Classes classify(std::span<const UnfinishedSend> unfinished, std::int64_t executed);

}  // namespace softroce::shift
