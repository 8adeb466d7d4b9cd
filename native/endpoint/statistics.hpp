// SPDX-License-Identifier: GPL-2.0-or-later
// All counters of an RNIC and its port at one moment, as words: what a host publishes while it
// lives, and what a run directory keeps. softroce_lab/telemetry/counters_file.py reads it.
//
//     header     kHeaderWords words, below
//     port       one word a name of the first line of names
//     QPs        kQpWords words each, then one word a name of the second line
//     names      two lines of text, names between blanks
//
// So a reader needs no other version's order of counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../engine/rnic/rnic.hpp"

namespace softroce {

// Values that only the owner of a port has.
struct PortCounts {
  std::uint64_t frames_sent = 0, frames_received = 0;
  std::uint64_t octets_sent = 0, octets_received = 0;  // of the frames: Ethernet header to ICRC
  std::uint64_t rx_dropped = 0, rx_ring_full = 0, rx_fill_ring_empty = 0;  // of the socket
  std::uint64_t tx_invalid = 0, tx_ring_empty = 0;
};

namespace statistics {

inline constexpr std::uint64_t kMagic = 0x325441545342414C;  // "LABSTAT2"
inline constexpr std::size_t kMostQps = 256;

enum Header : std::size_t {
  kMagicAt,
  kSequence,  // odd: being written
  kPid,
  kRank,      // 1 + the rank that a launcher gave the process; 0: none
  kTakenNs,   // CLOCK_MONOTONIC
  kQpsAlive,  // of them, so many follow:
  kQpsHere,
  kPortNames,
  kQpNames,
  kNamesAt,  // bytes from the beginning
  kNamesBytes,
  kHeaderWords,
};

enum Qp : std::size_t {
  kNumber,
  kType,        // enum QpType
  kState,       // enum QpState
  kRemote,      // number of the peer's QP, of connected services
  kRemoteHigh,  // its GID
  kRemoteLow,
  kQpWords,
};

const std::string& names();
std::size_t bytes();  // of the largest

// The words of a queue pair.
void add_qp(const QueuePair& qp, std::vector<std::uint64_t>& words);

// All but kSequence, kPid and kRank. The engine's turn. `gone`: words of queue pairs that are no
// more, at most kMostQps of them.
void take(const Rnic& rnic, const PortCounts& port, std::int64_t now_ns,
          std::vector<std::uint64_t>& words, const std::vector<std::uint64_t>& gone = {});

// Makes a file for StatisticsFile, which appears whole in place of one of that name, with a flock
// on it. Returns its descriptor. Throws std::system_error.
int make_file(const std::string& path);

}  // namespace statistics

// A file that holds them while its process runs, rewritten in place under a sequence lock. Its
// writer holds a flock on it, so that a process that gets the lock knows that the writer has ended.
class StatisticsFile {
 public:
  // Throws std::system_error.
  explicit StatisticsFile(const std::string& path);
  // Of a file of `make_file` that stays, or that another process removes. `fd` is its own from now
  // on. `rank`: as kRank has it.
  explicit StatisticsFile(int fd, std::uint64_t rank = 0);
  ~StatisticsFile();  // removes what it made, unless another has taken its place
  StatisticsFile(const StatisticsFile&) = delete;
  StatisticsFile& operator=(const StatisticsFile&) = delete;

  void publish(const Rnic& rnic, const PortCounts& port, std::int64_t now_ns,
               const std::vector<std::uint64_t>& gone = {});

 private:
  std::string path_{};  // empty: it does not remove the file
  int fd_ = -1;
  std::uint64_t* words_ = nullptr;
  std::vector<std::uint64_t> scratch_;
};

}  // namespace softroce
