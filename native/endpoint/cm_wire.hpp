// SPDX-License-Identifier: GPL-2.0-or-later
// What a program's librdmacm and the connection manager of its host write to each other, a message
// a packet of a UNIX socket. Both are on one machine: numbers are in its order. GIDs are octets.
#pragma once

#include <cstdint>

namespace softroce::cm {

inline constexpr const char* kAddress = "softroce_lab/cm";  // abstract, of a network namespace
inline constexpr std::uint32_t kMostGids = 16;              // two of each device
inline constexpr std::uint8_t kNoAckTimeout = 0xFF;

enum class Kind : std::uint32_t { hello = 1, call, reply, event };

enum class Verb : std::uint32_t {
  create = 1,
  bind,  // to a port that no other id of the host has
  resolve_addr,
  resolve_route,
  listen,
  connect,
  accept,
  establish,
  reject,
  disconnect,
  destroy,
  attributes,
};

// A GID of the host, and what its device is.
struct LocalGid {
  std::uint8_t octets[16] = {};
  std::uint64_t guid = 0;
  std::uint8_t mtu = 0, ack_delay = 0, reserved[6] = {};
};

// To the manager, first of all: what the program's devices are.
struct Hello {
  Kind kind = Kind::hello;
  std::uint32_t gids = 0;
  LocalGid gid[kMostGids] = {};
};

// rdma_conn_param, or rdma_ud_param.
struct Parameters {
  std::uint8_t responder_resources = 0, initiator_depth = 0, flow_control = 0, retry_count = 0;
  std::uint8_t rnr_retry_count = 0, srq = 0, private_bytes = 0, reserved = 0;
  std::uint32_t qp_num = 0, qkey = 0;
  std::uint8_t private_data[256] = {};
};

// To the manager. `id` is 0 with `create`. A GID of zeros is any.
struct Call {
  Kind kind = Kind::call;
  Verb verb{};
  std::uint32_t id = 0, port_space = 0, transport = 0, backlog = 0;
  std::uint16_t source_port = 0, port = 0;
  std::uint32_t ack_timeout = kNoAckTimeout;
  std::uint8_t source[16] = {}, destination[16] = {};
  Parameters parameters{};
};

// From it, one to each call. `port` is of `bind`; what follows is of `attributes`.
struct Reply {
  Kind kind = Kind::reply;
  std::int32_t error = 0;
  std::uint32_t id = 0, port = 0, reliable = 0;
  std::uint8_t gid[16] = {};
  std::uint32_t flow_label = 0, traffic_class = 0, hop_limit = 0, path_mtu = 0, dest_qp_num = 0;
  std::uint32_t rq_psn = 0, sq_psn = 0, max_dest_rd_atomic = 0, max_rd_atomic = 0;
  std::uint32_t min_rnr_timer = 0, timeout = 0, retry_cnt = 0, rnr_retry = 0;
};

// From it. The port and the GIDs are of a request: where it came to, and from.
struct Event {
  Kind kind = Kind::event;
  std::uint32_t event = 0, id = 0, listen_id = 0;
  std::int32_t status = 0;
  std::uint32_t datagram = 0;
  std::uint16_t peer_port = 0, reserved = 0;
  std::uint8_t local_gid[16] = {}, peer_gid[16] = {};
  Parameters parameters{};
};

}  // namespace softroce::cm
