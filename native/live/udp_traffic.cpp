// SPDX-License-Identifier: GPL-2.0-or-later
#include "udp_traffic.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "moderation.hpp"

namespace softroce {
namespace {

constexpr unsigned kBatch = 64;

// A batch of datagrams of equal length. Each time it is aimed elsewhere in the buffer, as an
// application's are.
class Batch {
 public:
  explicit Batch(std::size_t payload) : buffer_(payload) {
    for (unsigned i = 0; i < kBatch; ++i) {
      places_[i].iov_len = payload;
      messages_[i].msg_hdr.msg_iov = &places_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  mmsghdr* aimed() {
    for (iovec& place : places_) place.iov_base = buffer_.next();
    return messages_.data();
  }

 private:
  PayloadBuffer buffer_;
  std::array<iovec, kBatch> places_{};
  std::array<mmsghdr, kBatch> messages_{};
};

std::uint64_t send(const UdpJob& job, std::int64_t until_ns) {
  stay_on_cpu(job.sender_cpu);
  Batch batch(job.payload_bytes);
  std::uint64_t sent = 0;
  while (monotonic_ns() < until_ns) {
    const int n = sendmmsg(job.sender_fd, batch.aimed(), kBatch, 0);
    if (n < 0 && errno != EINTR && errno != ENOBUFS)
      throw std::system_error(errno, std::generic_category(), "sendmmsg");
    if (n > 0) sent += static_cast<unsigned>(n);
  }
  return sent;
}

std::uint64_t receive(const UdpJob& job, const std::atomic<bool>& over) {
  stay_on_cpu(job.receiver_cpu);
  Batch batch(job.payload_bytes);
  Moderation moderation(job.moderate);
  std::uint64_t received = 0;
  while (true) {
    const int n = recvmmsg(job.receiver_fd, batch.aimed(), kBatch, MSG_DONTWAIT, nullptr);
    if (n > 0) {
      received += static_cast<unsigned>(n);
      moderation.arrived();
      continue;
    }
    if (errno != EAGAIN && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "recvmmsg");
    if (over) return received;
    moderation.wait(job.receiver_fd);
  }
}

}  // namespace

TrafficResult run_udp_traffic(const UdpJob& job) {
  return run_traffic(
      job.duration_ns, [&](std::int64_t until_ns) { return send(job, until_ns); },
      [&](const std::atomic<bool>& over) { return receive(job, over); });
}

}  // namespace softroce
