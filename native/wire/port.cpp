// SPDX-License-Identifier: GPL-2.0-or-later
#include "port.hpp"

#include <bpf/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "../system/xsk.hpp"

namespace softroce::wire {
namespace {

constexpr std::uint64_t kNowhere = UINT64_MAX;  // no frame lies there: the kernel skips it

// The calling thread is in another network namespace during the lifetime of this object.
class Visit {
 public:
  Visit(int netns, int home) : home_(home) {
    if (setns(netns, CLONE_NEWNET) != 0) fail(errno, "enter the port's network namespace");
  }
  ~Visit() { setns(home_, CLONE_NEWNET); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  int home_;
};

}  // namespace

Port::Port(FrameArea& area, std::uint16_t number, const PortConfig& config, int netns)
    : area_(area), number_(number), config_(config) {
  const Visit visit(netns, area.home());
  open();
}

void Port::open() {
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(config_.ifindex, name.data()) == nullptr)
    fail(errno, "interface " + std::to_string(config_.ifindex));
  const xsk_socket_config config{.rx_size = FrameArea::kRing,
                                 .tx_size = FrameArea::kRing,
                                 .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
                                 .xdp_flags = 0,
                                 .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
  open_xsk(name.data(), [&] {
    return xsk_socket__create_shared(&socket_, name.data(), 0, area_.umem(), &rx_, &tx_, &fill_,
                                     &completion_, &config);
  });
  own_whole_ring(fd());
}

Port::~Port() { xsk_socket__delete(socket_); }

void Port::insert_into(int xsks_map) const {
  const int value = fd();
  if (bpf_map_update_elem(xsks_map, &config_.ifindex, &value, BPF_ANY) != 0)
    fail(errno, "let programs redirect to the AF_XDP socket");
}

void Port::fill(std::uint32_t wanted, std::uint32_t short_of) {
  if (in_fill_ + short_of >= wanted) return;
  const std::uint32_t n = std::min(wanted - in_fill_, area_.free_frames());
  std::uint32_t at = 0;
  if (n == 0 || xsk_ring_prod__reserve(&fill_, n, &at) != n) return;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t frame = area_.take();
    area_.hand_to(frame, number_);
    *xsk_ring_prod__fill_addr(&fill_, at + i) = std::uint64_t{frame} * FrameArea::kFrameBytes;
  }
  xsk_ring_prod__submit(&fill_, n);
  in_fill_ += n;
}

bool Port::send(std::uint64_t address, std::uint32_t bytes) {
  std::uint32_t at = 0;
  if (xsk_ring_prod__reserve(&tx_, 1, &at) != 1) return false;
  *xsk_ring_prod__tx_desc(&tx_, at) = {.addr = address, .len = bytes, .options = 0};
  xsk_ring_prod__submit(&tx_, 1);
  area_.hand_to(FrameArea::frame_of(address), number_);
  in_ring_.push_back(FrameArea::frame_of(address));
  return true;
}

Port::Kick Port::kick() {
  const std::uint32_t before = consumed();
  const ssize_t sent = sendto(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, 0);
  const int error = sent < 0 ? errno : 0;
  const std::uint32_t passed = consumed() - before;
  const std::uint32_t skipped = std::min(passed, withdrawn_);
  withdrawn_ -= skipped;
  State state = State::up;
  if (error == ENETDOWN) state = State::down;
  if (error == ENXIO || error == EBADF) state = State::gone;
  // EBUSY stands for NET_XMIT_DROP of one frame.
  return {passed - skipped, error == EBUSY && passed > skipped, state};
}

std::uint32_t Port::pop_taken() {
  const std::uint32_t frame = in_ring_.front();
  in_ring_.pop_front();
  ++transmitted_;
  return frame;
}

// The kernel has not begun with it, and skips an entry that points nowhere.
std::uint32_t Port::pop_withdrawn() {
  const auto left = static_cast<std::uint32_t>(in_ring_.size());
  xsk_ring_prod__tx_desc(&tx_, tx_.cached_prod - left)->addr = kNowhere;
  ++withdrawn_;
  const std::uint32_t frame = in_ring_.front();
  in_ring_.pop_front();
  area_.take_back(frame);
  return frame;
}

void Port::reclaim() {
  std::uint32_t at = 0;
  const std::uint32_t n = xsk_ring_cons__peek(&completion_, FrameArea::kRing, &at);
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t frame =
        FrameArea::frame_of(*xsk_ring_cons__comp_addr(&completion_, at + i));
    area_.take_back(frame);
    area_.give_back(frame);
  }
  if (n != 0) xsk_ring_cons__release(&completion_, n);
}

PortFigures Port::figures() const {
  xdp_statistics kernel{};
  socklen_t length = sizeof kernel;
  getsockopt(fd(), SOL_XDP, XDP_STATISTICS, &kernel, &length);
  return {.received = received_,
          .transmitted = transmitted_,
          .unknown = unknown_,
          .lost_port_down = 0,
          .tx_failed = 0,
          .rx_ring_full = kernel.rx_ring_full,
          .rx_fill_ring_empty = kernel.rx_fill_ring_empty_descs,
          .rx_dropped = kernel.rx_dropped,
          .is_gone = is_gone};
}

}  // namespace softroce::wire
