// SPDX-License-Identifier: GPL-2.0-or-later
#include "xsk_port.hpp"

#include <bpf/bpf.h>
#include <linux/if_link.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "../system/xsk.hpp"

namespace softroce {

XskPort::XskPort(const XskConfig& config) : config_(config) {
  area_bytes_ = std::size_t{config.receive_frames + config.transmit_frames} * kFrameBytes;
  area_ = mmap(nullptr, area_bytes_, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (area_ == MAP_FAILED) fail(errno, "memory for AF_XDP frames");
  try {
    create();
  } catch (...) {
    if (socket_ != nullptr) xsk_socket__delete(socket_);
    if (umem_ != nullptr) xsk_umem__delete(umem_);
    munmap(area_, area_bytes_);
    throw;
  }
}

void XskPort::create() {
  const xsk_umem_config umem_config{.fill_size = config_.receive_frames,
                                    .comp_size = config_.transmit_frames,
                                    .frame_size = kFrameBytes,
                                    .frame_headroom = 0,
                                    .flags = 0};
  const int error =
      xsk_umem__create(&umem_, area_, area_bytes_, &fill_, &completion_, &umem_config);
  if (error != 0) fail(-error, "register AF_XDP frame memory");

  const xsk_socket_config socket_config{
      .rx_size = config_.receive_frames,
      .tx_size = config_.transmit_frames,
      .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
      .xdp_flags = config_.generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE,
      .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
  open_xsk(config_.interface, [&] {
    return xsk_socket__create(&socket_, config_.interface.c_str(), 0, umem_, &rx_, &tx_,
                              &socket_config);
  });
  own_whole_ring(fd());

  std::uint32_t at = 0;
  xsk_ring_prod__reserve(&fill_, config_.receive_frames, &at);
  for (std::uint32_t i = 0; i < config_.receive_frames; ++i)
    *xsk_ring_prod__fill_addr(&fill_, at + i) = std::uint64_t{i} * kFrameBytes;
  xsk_ring_prod__submit(&fill_, config_.receive_frames);
  for (std::uint32_t i = 0; i < config_.transmit_frames; ++i)
    free_transmit_.push_back(std::uint64_t{config_.receive_frames + i} * kFrameBytes);
  if (!config_.xsks_map_path.empty()) insert_into(config_.xsks_map_path);
}

void XskPort::insert_into(const std::string& map_path) {
  const Descriptor map(checked(bpf_obj_get(map_path.c_str()), ("open " + map_path).c_str()));
  const int value = fd();
  if (bpf_map_update_elem(map.get(), &config_.ifindex, &value, BPF_ANY) != 0)
    fail(errno, "insert the AF_XDP socket into " + map_path);
}

XskPort::~XskPort() { close(); }

void XskPort::close() {
  if (!is_open()) return;
  last_ = statistics();
  xsk_socket__delete(std::exchange(socket_, nullptr));
  xsk_umem__delete(umem_);
  munmap(area_, area_bytes_);
}

void XskPort::reclaim() {
  std::uint32_t at = 0;
  const std::uint32_t n = xsk_ring_cons__peek(&completion_, config_.transmit_frames, &at);
  for (std::uint32_t i = 0; i < n; ++i)
    free_transmit_.push_back(*xsk_ring_cons__comp_addr(&completion_, at + i));
  if (n != 0) xsk_ring_cons__release(&completion_, n);
}

std::uint8_t* XskPort::next_transmit_frame() {
  if (free_transmit_.empty()) reclaim();
  if (free_transmit_.empty()) return nullptr;
  return static_cast<std::uint8_t*>(xsk_umem__get_data(area_, free_transmit_.back()));
}

void XskPort::commit(std::uint32_t bytes) {
  std::uint32_t at = 0;
  xsk_ring_prod__reserve(&tx_, 1, &at);  // never full: the ring holds as many as there are frames
  *xsk_ring_prod__tx_desc(&tx_, at) = {.addr = free_transmit_.back(), .len = bytes, .options = 0};
  free_transmit_.pop_back();
  xsk_ring_prod__submit(&tx_, 1);
}

std::uint32_t XskPort::unsent() const {
  return tx_.cached_prod - __atomic_load_n(tx_.consumer, __ATOMIC_ACQUIRE);
}

XskPort::Flush XskPort::flush() {
  // One call sends at most 32 frames (TX_BATCH_SIZE, net/xdp/xsk.c), and returns EAGAIN for more.
  for (std::uint32_t before = unsent(); before != 0;) {
    const ssize_t sent = sendto(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, 0);
    if (sent < 0 && (errno == ENETDOWN || errno == ENXIO)) return Flush::down;
    if (sent < 0 && errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
      fail(errno, "send on AF_XDP");
    reclaim();
    const std::uint32_t after = unsent();
    if (after == before) return Flush::full;
    before = after;
  }
  return Flush::sent;
}

void XskPort::kick_receive() {
  if (xsk_ring_prod__needs_wakeup(&fill_))
    recvfrom(fd(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

XskStatistics XskPort::statistics() const {
  if (!is_open()) return last_;
  xdp_statistics s{};
  socklen_t length = sizeof s;
  getsockopt(xsk_socket__fd(socket_), SOL_XDP, XDP_STATISTICS, &s, &length);
  return {s.rx_dropped, s.rx_ring_full, s.rx_fill_ring_empty_descs, s.tx_invalid_descs,
          s.tx_ring_empty_descs};
}

}  // namespace softroce
