// SPDX-License-Identifier: GPL-2.0-or-later
// softroce-monitor BPFFS DIRECTORY
//
// Drains the ring buffers pinned in BPFFS until SIGTERM or SIGINT, and once more then: `drops`
// into DIRECTORY/drops.bin (xdp/lab_records.h), and `captures` into the files that clients of
// DIRECTORY/monitor.sock hand over (protocol.hpp). DIRECTORY/rules.txt has the texts of rules.
#include <cstdio>
#include <exception>

#include "server.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: softroce-monitor BPFFS DIRECTORY\n");
    return 2;
  }
  try {
    softroce::monitor::Server(argv[1], argv[2]).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softroce-monitor: %s\n", error.what());
    return 1;
  }
  return 0;
}
