// SPDX-License-Identifier: GPL-2.0-or-later
// A host's port: one AF_XDP socket (Documentation/networking/af_xdp.rst) with its own UMEM, on
// queue 0 of an interface of the calling thread's network namespace. Copy mode: veth has no other.
// Children of fork(2) have neither the frames nor, after exec(2), the socket.
#pragma once

#include <xdp/xsk.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../system/descriptor.hpp"
#include "../system/mapping.hpp"

namespace softroce {

struct XskConfig {
  std::string interface;
  std::uint32_t ifindex = 0;
  std::string xsks_map_path{};          // pinned XSKMAP, keyed by ifindex; empty: not inserted
  std::uint32_t receive_frames = 4096;  // powers of two
  std::uint32_t transmit_frames = 2048;
};

struct XskStatistics {
  std::uint64_t rx_dropped, rx_ring_full, rx_fill_ring_empty, tx_invalid, tx_ring_empty;
};

class XskPort {
 public:
  static constexpr std::uint32_t kFrameBytes = 4096;
  static constexpr std::uint32_t kBatch = 64;

  // A socket, and memory for the frames, which is registered with it. To open them takes
  // CAP_NET_RAW, and CAP_IPC_LOCK or the limit RLIMIT_MEMLOCK. Any process of the network namespace
  // may then make a port of them.
  struct Opened {
    Descriptor socket, memory;
  };
  static Opened open(const XskConfig& config = {});

  // `opened`: by the same numbers of frames. Throws std::system_error. A socket that was closed a
  // moment ago may still hold the queue (EBUSY): tried again for up to a second.
  XskPort(const XskConfig& config, Opened opened);
  explicit XskPort(const XskConfig& config) : XskPort(config, open(config)) {}
  ~XskPort() { close(); }
  XskPort(const XskPort&) = delete;
  XskPort& operator=(const XskPort&) = delete;

  int fd() const { return socket_.get(); }

  // Calls `take(frame, bytes)` for up to a batch of received frames; each is the port's again when
  // `take` returns. Returns how many there were.
  template <typename F>
  std::uint32_t receive(F&& take) {
    std::uint32_t at = 0;
    const std::uint32_t n = xsk_ring_cons__peek(&rx_, kBatch, &at);
    if (n == 0) return 0;
    std::uint32_t fill_at = 0;
    while (xsk_ring_prod__reserve(&fill_, n, &fill_at) != n) kick_receive();
    for (std::uint32_t i = 0; i < n; ++i) {
      const xdp_desc* desc = xsk_ring_cons__rx_desc(&rx_, at + i);
      take(frames_.at(desc->addr), desc->len);
      *xsk_ring_prod__fill_addr(&fill_, fill_at + i) = desc->addr & ~std::uint64_t{kFrameBytes - 1};
    }
    xsk_ring_cons__release(&rx_, n);
    xsk_ring_prod__submit(&fill_, n);
    return n;
  }

  // Frames that can be received before the next poll.
  std::uint32_t free_receive_frames() const {
    return config_.receive_frames -
           (__atomic_load_n(rx_.producer, __ATOMIC_ACQUIRE) - rx_.cached_cons);
  }

  // A frame to write, or null when all are on their way. `commit` queues it, `flush` sends.
  std::uint8_t* next_transmit_frame();
  void commit(std::uint32_t bytes);
  // Hands queued frames to the kernel; unless that is `sent`, some remain (call again).
  enum class Flush : std::uint8_t {
    sent,  // all of them
    full,  // the kernel takes no more just now
    down,  // nor will it until the interface is up again
  };
  Flush flush();
  std::uint32_t unsent() const;  // committed frames that the kernel has not taken

  // Releases the interface, which others may open then. Only `statistics` works afterwards.
  void close();
  bool is_open() const { return fd() >= 0; }

  XskStatistics statistics() const;  // closed: as they were

  // Permits programs to redirect frames of this port's interface here: a pinned XSKMAP keyed by
  // ifindex.
  void insert_into(const std::string& map_path);

 private:
  void map_rings();
  void reclaim();
  void kick_receive();

  XskConfig config_;
  Descriptor socket_;
  Mapping frames_, fill_ring_, completion_ring_, rx_ring_, tx_ring_;
  xsk_ring_prod fill_{}, tx_{};
  xsk_ring_cons completion_{}, rx_{};
  std::vector<std::uint64_t> free_transmit_;
  XskStatistics last_{};
};

}  // namespace softroce
