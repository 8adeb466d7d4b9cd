// SPDX-License-Identifier: GPL-2.0-or-later
#include "frame_area.hpp"

#include <fcntl.h>
#include <linux/if_link.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../system/descriptor.hpp"

namespace softroce::wire {
namespace {

constexpr std::uint32_t kAnchorRing = 64;  // of the anchor's own rings, never used

}  // namespace

FrameArea::FrameArea(std::uint32_t frames) : frames_(frames), holder_(frames, kNobody) {
  const std::size_t bytes = std::size_t{frames} * kFrameBytes;
  area_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
  if (area_ == MAP_FAILED) fail(errno, "memory for frames");
  madvise(area_, bytes, MADV_HUGEPAGE);  // only faster
  free_.reserve(frames);
  for (std::uint32_t frame = frames; frame-- > 0;) free_.push_back(frame);
}

void FrameArea::pin() {
  if (anchor_ != nullptr) return;
  if (home_ < 0) {
    if (unshare(CLONE_NEWNET) != 0) fail(errno, "a network namespace");
    home_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home_ < 0) fail(errno, "/proc/thread-self/ns/net");
  }
  register_area();
  bind_anchor();
}

void FrameArea::register_area() {
  if (umem_ != nullptr) return;
  // libxdp gives all that share the memory fill and completion rings of these sizes.
  const xsk_umem_config umem_config{.fill_size = kRing,
                                    .comp_size = kRing,
                                    .frame_size = kFrameBytes,
                                    .frame_headroom = 0,
                                    .flags = 0};
  const std::uint64_t bytes = std::uint64_t{frames_} * kFrameBytes;
  const int error = xsk_umem__create(&umem_, area_, bytes, &fill_, &completion_, &umem_config);
  if (error != 0) fail(-error, "register the memory for frames with AF_XDP");
}

void FrameArea::bind_anchor() {
  const xsk_socket_config config{.rx_size = kAnchorRing,
                                 .tx_size = kAnchorRing,
                                 .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
                                 .xdp_flags = XDP_FLAGS_SKB_MODE,
                                 .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
  const int error = xsk_socket__create(&anchor_, "lo", 0, umem_, &rx_, &tx_, &config);
  if (error != 0) fail(-error, "open an AF_XDP socket on a loopback device");
}

FrameArea::~FrameArea() {
  if (anchor_ != nullptr) xsk_socket__delete(anchor_);
  if (umem_ != nullptr) xsk_umem__delete(umem_);
  if (home_ >= 0) close(home_);
  munmap(area_, std::size_t{frames_} * kFrameBytes);
}

void FrameArea::give_back_all_of(std::uint16_t port) {
  for (std::uint32_t frame = 0; frame < frames_; ++frame)
    if (holder_[frame] == port) {
      holder_[frame] = kNobody;
      free_.push_back(frame);
    }
}

}  // namespace softroce::wire
