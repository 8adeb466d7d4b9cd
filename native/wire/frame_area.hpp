// SPDX-License-Identifier: GPL-2.0-or-later
// The memory of all frames: one UMEM that the sockets of every port share, whatever network
// namespace they are in, and the list of free frames.
#pragma once

#include <xdp/xsk.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softroce::wire {

class FrameArea {
 public:
  static constexpr std::uint32_t kFrameBytes = 4096;
  static constexpr std::uint32_t kRing = 4096;  // entries of each port's rings

  // Takes address space alone: most labs hold no frame ever. Throws std::system_error.
  explicit FrameArea(std::uint32_t frames);
  ~FrameArea();
  FrameArea(const FrameArea&) = delete;
  FrameArea& operator=(const FrameArea&) = delete;

  // Brings the memory in and registers it; nothing happens if it is. Throws std::system_error.
  // The calling thread is in a network namespace of its own afterwards: the UMEM's first socket
  // must stay bound for others to share it, so it is bound to a loopback device that nobody can
  // take away.
  void pin();

  xsk_umem* umem() { return umem_; }
  int home() const { return home_; }  // the namespace
  std::uint32_t frames() const { return frames_; }
  std::uint32_t free_frames() const { return static_cast<std::uint32_t>(free_.size()); }

  std::uint8_t* at(std::uint64_t address) { return static_cast<std::uint8_t*>(area_) + address; }
  static std::uint32_t frame_of(std::uint64_t address) {
    return static_cast<std::uint32_t>(address / kFrameBytes);
  }

  // Nobody: this process owns it, free or not.
  static constexpr std::uint16_t kNobody = 0;

  bool has_free() const { return !free_.empty(); }
  std::uint32_t take() {
    const std::uint32_t frame = free_.back();
    free_.pop_back();
    return frame;
  }
  void give_back(std::uint32_t frame) { free_.push_back(frame); }

  // Which port's rings hold a frame, so that it can be recovered when the port dies.
  void hand_to(std::uint32_t frame, std::uint16_t port) { holder_[frame] = port; }
  void take_back(std::uint32_t frame) { holder_[frame] = kNobody; }
  void give_back_all_of(std::uint16_t port);

 private:
  void register_area();
  void bind_anchor();

  void* area_ = nullptr;
  std::uint32_t frames_;
  int home_ = -1;
  xsk_umem* umem_ = nullptr;
  xsk_socket* anchor_ = nullptr;
  xsk_ring_prod fill_{}, tx_{};
  xsk_ring_cons completion_{}, rx_{};
  std::vector<std::uint32_t> free_;
  std::vector<std::uint16_t> holder_;
};

}  // namespace softroce::wire
