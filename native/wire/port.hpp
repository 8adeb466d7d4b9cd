// SPDX-License-Identifier: GPL-2.0-or-later
// A switch's port: an AF_XDP socket in the port's network namespace, on the shared UMEM. Frames
// that XDP redirects come in by it, and others go out, without a copy between ports. Copy mode:
// veth has no other.
#pragma once

#include <xdp/xsk.h>

#include <cstdint>
#include <deque>
#include <string>

#include "figures.hpp"
#include "frame_area.hpp"

namespace softroce::wire {

struct PortConfig {
  std::uint32_t ifindex;
  std::uint32_t rx_link;  // directed links that end and begin here
  std::uint32_t tx_link;
  bool to_host;  // where `tx_link` leads
};

class Port {
 public:
  static constexpr std::uint32_t kReceiveBatch = 64;
  static constexpr std::uint32_t kSendBatch = 32;  // what one call sends: TX_BATCH_SIZE, xsk.c

  // `number` tells its frames from other ports', from 1. The calling thread enters the namespace
  // and comes back. Throws std::system_error. A socket closed a moment ago may still hold the
  // queue (EBUSY): tried again for up to a second.
  Port(FrameArea& area, std::uint16_t number, const PortConfig& config, int netns);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  const PortConfig& config() const { return config_; }
  int fd() const { return xsk_socket__fd(socket_); }
  std::uint16_t number() const { return number_; }

  // Lets programs redirect the frames of this port's interface here: a map keyed by ifindex.
  void insert_into(int xsks_map) const;

  // Keeps `wanted` frames in the fill ring for arrivals, as far as there are free ones, once as
  // many as `short_of` are missing.
  void fill(std::uint32_t wanted, std::uint32_t short_of);
  // Calls `take(address, bytes)` for up to a batch of frames, which are the caller's then.
  template <typename F>
  std::uint32_t receive(F&& take) {
    std::uint32_t at = 0;
    const std::uint32_t n = xsk_ring_cons__peek(&rx_, kReceiveBatch, &at);
    if (n == 0) return 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const xdp_desc* desc = xsk_ring_cons__rx_desc(&rx_, at + i);
      area_.take_back(FrameArea::frame_of(desc->addr));
      take(desc->addr, desc->len);
    }
    xsk_ring_cons__release(&rx_, n);
    in_fill_ -= n;
    received_ += n;
    return n;
  }

  // Queues a frame, which the kernel takes with a `kick`. False: there is no room.
  bool send(std::uint64_t address, std::uint32_t bytes);
  bool has_unsent() const { return !in_ring_.empty(); }
  enum class State : std::uint8_t {
    up,
    down,  // just now: what is queued will not go out
    gone,  // for ever
  };
  struct Kick {
    std::uint32_t taken;  // so many queued frames are the kernel's now, the oldest first
    bool refused;         // the last of them was dropped: the far end had no room for it
    State state;
  };
  // One call to the kernel, which takes at most a batch.
  Kick kick();
  // The oldest queued frame: taken by the kernel, or, if not, returned.
  std::uint32_t pop_taken();
  std::uint32_t pop_withdrawn();
  // Frames that the kernel is done with are free again.
  void reclaim();

  PortFigures figures() const;  // but what was lost for want of a port
  void count_unknown() { ++unknown_; }

  bool is_gone = false;

 private:
  void open();
  std::uint32_t consumed() const { return __atomic_load_n(tx_.consumer, __ATOMIC_ACQUIRE); }

  FrameArea& area_;
  std::uint16_t number_;
  PortConfig config_;
  xsk_socket* socket_ = nullptr;
  xsk_ring_prod fill_{}, tx_{};
  xsk_ring_cons completion_{}, rx_{};
  std::deque<std::uint32_t> in_ring_;  // queued frames that the kernel has not taken
  std::uint32_t withdrawn_ = 0;        // entries of the ring in front of them that it will skip
  std::uint32_t in_fill_ = 0;          // frames in the fill ring, or received and not processed
  std::uint64_t received_ = 0, transmitted_ = 0, unknown_ = 0;
};

}  // namespace softroce::wire
