// SPDX-License-Identifier: GPL-2.0-or-later
// The messages on DIRECTORY/monitor.sock, a socket of whole messages (SOCK_SEQPACKET), in the
// machine's byte order.
#pragma once

#include <cstdint>

namespace softroce::monitor {

enum class Word : std::uint32_t {
  kSync = 1,     // all that the rings held is in the files
  kCapture = 2,  // a capture begins; with two descriptors: its file, and the list of its links
  kEnd = 3,      // it ends, as it does when the connection ends
  kCount = 4,    // how far it is
};

struct Request {
  Word word;
  std::uint32_t snap_bytes;    // of kCapture: of each packet; 0: all
  std::uint64_t most_packets;  // of kCapture: it ends after so many; 0: it does not
};

// Every request has a response. That to kEnd also comes when a capture ends by itself. Behind it
// follow 64-bit numbers:
//   kSync   bytes of drops.bin, how many records found no room there since the start, and the
//           monitor's pauses: begin and end of each, CLOCK_MONOTONIC in ns
//   kCount, kEnd  of each link, in the order of the list: packets received, those of them missed
struct Answer {
  Word word;
  std::int32_t error;  // errno; 0: none. Of kEnd: why the file could not be written any more
};

}  // namespace softroce::monitor
