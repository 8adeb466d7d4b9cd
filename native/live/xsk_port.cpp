// SPDX-License-Identifier: GPL-2.0-or-later
#include "xsk_port.hpp"

#include <bpf/bpf.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "../system/xsk.hpp"

namespace softroce {
namespace {

constexpr const char* kMemory = "memory for AF_XDP frames";

std::size_t bytes_of(const XskConfig& config) {
  return std::size_t{config.receive_frames + config.transmit_frames} * XskPort::kFrameBytes;
}

template <typename T>
void set_option(int fd, int option, const T& value, const char* what) {
  if (setsockopt(fd, SOL_XDP, option, &value, sizeof value) != 0) fail(errno, what);
}

// Lets one of the inline functions' rings (xdp/xsk.h) show what is mapped.
template <typename Ring>
Mapping map_ring(int fd, std::uint64_t page, const xdp_ring_offset& at, std::uint32_t entries,
                 std::size_t entry_bytes, Ring& ring) {
  Mapping made(at.desc + entries * entry_bytes, MAP_SHARED | MAP_POPULATE, fd,
               static_cast<off_t>(page), "map a ring of an AF_XDP socket");
  ring.size = entries;
  ring.mask = entries - 1;
  ring.producer = reinterpret_cast<std::uint32_t*>(made.at(at.producer));
  ring.consumer = reinterpret_cast<std::uint32_t*>(made.at(at.consumer));
  ring.flags = reinterpret_cast<std::uint32_t*>(made.at(at.flags));
  ring.ring = made.at(at.desc);
  return made;
}

}  // namespace

XskPort::Opened XskPort::open(const XskConfig& config) {
  Opened made{
      Descriptor(checked(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0), "open an AF_XDP socket")),
      Descriptor(checked(memfd_create("softroce frames", MFD_CLOEXEC), kMemory))};
  own_whole_ring(made.socket.get());
  const std::size_t bytes = bytes_of(config);
  checked(ftruncate(made.memory.get(), static_cast<off_t>(bytes)), kMemory);
  const Mapping frames(bytes, MAP_SHARED | MAP_POPULATE, made.memory.get(), 0, kMemory);
  xdp_umem_reg area{};  // pins the pages, which outlast this mapping
  area.addr = reinterpret_cast<std::uintptr_t>(frames.at(0));
  area.len = bytes;
  area.chunk_size = kFrameBytes;
  set_option(made.socket.get(), XDP_UMEM_REG, area, "register AF_XDP frame memory");
  return made;
}

XskPort::XskPort(const XskConfig& config, Opened opened)
    : config_(config),
      socket_(std::move(opened.socket)),
      frames_(bytes_of(config), MAP_SHARED | MAP_POPULATE, opened.memory.get(), 0, kMemory) {
  madvise(frames_.at(0), bytes_of(config), MADV_DONTFORK);  // a child has no port
  map_rings();
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = if_nametoindex(config_.interface.c_str());
  address.sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP;
  open_xsk(config_.interface, [&] {
    return bind(fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : -errno;
  });

  std::uint32_t at = 0;
  xsk_ring_prod__reserve(&fill_, config_.receive_frames, &at);
  for (std::uint32_t i = 0; i < config_.receive_frames; ++i)
    *xsk_ring_prod__fill_addr(&fill_, at + i) = std::uint64_t{i} * kFrameBytes;
  xsk_ring_prod__submit(&fill_, config_.receive_frames);
  for (std::uint32_t i = 0; i < config_.transmit_frames; ++i)
    free_transmit_.push_back(std::uint64_t{config_.receive_frames + i} * kFrameBytes);
  if (!config_.xsks_map_path.empty()) insert_into(config_.xsks_map_path);
}

void XskPort::map_rings() {
  constexpr const char* kWhat = "make a ring of an AF_XDP socket";
  const std::uint32_t receive = config_.receive_frames, transmit = config_.transmit_frames;
  set_option(fd(), XDP_UMEM_FILL_RING, receive, kWhat);
  set_option(fd(), XDP_UMEM_COMPLETION_RING, transmit, kWhat);
  set_option(fd(), XDP_RX_RING, receive, kWhat);
  set_option(fd(), XDP_TX_RING, transmit, kWhat);
  xdp_mmap_offsets at{};
  socklen_t length = sizeof at;
  checked(getsockopt(fd(), SOL_XDP, XDP_MMAP_OFFSETS, &at, &length), kWhat);
  fill_ring_ = map_ring(fd(), XDP_UMEM_PGOFF_FILL_RING, at.fr, receive, sizeof(__u64), fill_);
  completion_ring_ =
      map_ring(fd(), XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, transmit, sizeof(__u64), completion_);
  rx_ring_ = map_ring(fd(), XDP_PGOFF_RX_RING, at.rx, receive, sizeof(xdp_desc), rx_);
  tx_ring_ = map_ring(fd(), XDP_PGOFF_TX_RING, at.tx, transmit, sizeof(xdp_desc), tx_);
  fill_.cached_cons = receive;  // so much is free: what the kernel consumed, and a whole ring
  tx_.cached_cons = transmit;
}

void XskPort::insert_into(const std::string& map_path) {
  const Descriptor map(checked(bpf_obj_get(map_path.c_str()), ("open " + map_path).c_str()));
  const int value = fd();
  if (bpf_map_update_elem(map.get(), &config_.ifindex, &value, BPF_ANY) != 0)
    fail(errno, "insert the AF_XDP socket into " + map_path);
}

void XskPort::close() {
  if (!is_open()) return;
  last_ = statistics();
  socket_ = Descriptor();
  for (Mapping* each : {&frames_, &fill_ring_, &completion_ring_, &rx_ring_, &tx_ring_})
    *each = Mapping();
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
  return frames_.at(free_transmit_.back());
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
  getsockopt(fd(), SOL_XDP, XDP_STATISTICS, &s, &length);
  return {s.rx_dropped, s.rx_ring_full, s.rx_fill_ring_empty_descs, s.tx_invalid_descs,
          s.tx_ring_empty_descs};
}

}  // namespace softroce
