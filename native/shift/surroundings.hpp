// SPDX-License-Identifier: GPL-2.0-or-later
// What SHIFT needs of a program's surroundings: two RNICs, and a directory in which the ends find
// each other's backups. The lab's verbs in Python and libibverbs bring their own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "../engine/rnic/rnic.hpp"

namespace softroce::shift {

// One RNIC of the host, and what turns its engine.
class Nic {
 public:
  virtual ~Nic() = default;
  // Runs `action` in the engine's turn, and waits for it. Where the wait is given up (the engine
  // ends) the action may run later: it holds what it uses by value.
  virtual void call(std::function<void(Rnic&, Time)> action) = 0;
  virtual Time now() const = 0;
  virtual Gid gid() const = 0;
  virtual AddressVector route_to(const Gid& destination) const = 0;

  // What `body(rnic, now)` returns, in the engine's turn.
  template <typename F>
  auto ask(F body) {
    const auto result = std::make_shared<std::invoke_result_t<F, Rnic&, Time>>();
    call([result, body = std::move(body)](Rnic& rnic, Time now) { *result = body(rnic, now); });
    return std::move(*result);
  }
};

// Where the control messages of an end go.
struct ControlAddress {
  std::uint32_t qp = 0, psn = 0;
  std::uint64_t mailbox = 0;
  std::uint32_t rkey = 0, unused = 0;  // so that what is written to a file has no gaps
};

// By what an end's backup is known to its peer.
struct BackupAddress {
  Gid gid{};
  std::uint32_t qp = 0, psn = 0;
  ControlAddress control{};
};

// The directory does not answer.
struct Unreachable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Keys =
    std::unordered_map<std::uint32_t, std::uint32_t>;  // of regions: one NIC's, the other's

// A key-value service or whatever else connects the ends. A NIC is named by its GID.
class Directory {
 public:
  virtual ~Directory() = default;
  // Of our queue pair `qp`. Never throws for a service that is away: it publishes later.
  virtual void publish(std::uint32_t qp, const BackupAddress& backup) = 0;
  // Of queue pair `qp` of a peer; nothing: not published yet. Throws Unreachable.
  virtual std::optional<BackupAddress> find(const Gid& nic, std::uint32_t qp) = 0;
  // Keys of a peer's regions on its default NIC, and on its backup. Throws Unreachable.
  virtual Keys region_keys(const Gid& nic) = 0;
};

}  // namespace softroce::shift
