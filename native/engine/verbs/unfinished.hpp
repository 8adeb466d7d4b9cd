// SPDX-License-Identifier: GPL-2.0-or-later
// What a queue pair whose requests may go on elsewhere keeps instead of flushing it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "completion.hpp"
#include "work_request.hpp"

namespace softroce {

struct UnfinishedSend {
  SendRequest request;
  bool begun = false;  // a packet of it has left
};

struct Unfinished {
  std::vector<UnfinishedSend> sends{};  // in the order of posting
  std::vector<ReceiveRequest> receives{};
  // Since the queue pair was made or left: messages that consumed a receive of the peer and are
  // acknowledged, and those that consumed one here.
  std::uint64_t notified = 0, received = 0;
  std::uint32_t next_psn = 0;      // the first that no request has used
  std::uint32_t expected_psn = 0;  // of the next request of the peer
};

struct Keeper {
  Unfinished unfinished{};
  std::shared_ptr<CompletionQueue> failures;  // gets what ended in error, and nothing flushed
};

}  // namespace softroce
