// SPDX-License-Identifier: GPL-2.0-or-later
// What goes over wire.sock, a SOCK_SEQPACKET socket: one packet is the request, one the response,
// in the machine's byte order.
#pragma once

#include <cstdint>

#include "../../xdp/lab_shape.h"

namespace softroce::wire {

enum class Operation : std::uint32_t {
  open_port = 1,  // with a descriptor of the port's network namespace (SCM_RIGHTS)
  shape = 2,
  epoch = 3,
  link_figures = 4,   // response: struct LinkFigures
  port_figures = 5,   // struct PortFigures
  stage_figures = 6,  // struct StageFigures
  link_base = 7,      // struct LinkFigures: as they were when the link's shape was last set
  pauses = 8,         // some struct Pause: those seen while a client was connected, and others
};

struct PortLinks {
  std::uint32_t rx_link, tx_link;  // directed links that end and begin at the port
  std::uint32_t to_host;           // 1: the link that begins there leads to a host; else 0
};

union RequestBody {
  PortLinks port;
  lab_shape shape;
  std::uint64_t epoch_ns;  // CLOCK_MONOTONIC
};

struct Request {
  Operation operation;
  std::uint32_t number;  // directed link, or ifindex of a port
  RequestBody body;
};

enum class Status : std::uint32_t {
  done = 0,
  failed = 1,   // followed by what went wrong, as text
  no_room = 2,  // by struct NoRoom
};

struct Answer {
  Status status;
  std::uint32_t bytes;  // that follow
};

// A shape is refused: its queue and delay may hold more frames than there are.
struct NoRoom {
  std::uint64_t needed_frames;  // of this directed link
  std::uint64_t available_frames;
  std::uint64_t all_frames;
};

}  // namespace softroce::wire
