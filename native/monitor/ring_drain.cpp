// SPDX-License-Identifier: GPL-2.0-or-later
#include "ring_drain.hpp"

#include <bpf/bpf.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "clock.hpp"

namespace softroce::monitor {

RingDrain::RingDrain(const std::string& pin, Take take)
    : take_(std::move(take)),
      map_(checked(bpf_obj_get(pin.c_str()), pin.c_str())),
      ring_(ring_buffer__new(map_.get(), on_record, this, nullptr)) {
  if (!ring_) throw std::system_error(errno, std::generic_category(), pin);
}

int RingDrain::on_record(void* self, void* record, std::size_t bytes) noexcept {
  auto& drain = *static_cast<RingDrain*>(self);
  std::uint64_t time_ns = 0;  // every record begins with it
  std::memcpy(&time_ns, record, sizeof(time_ns));
  drain.take_(record, bytes);
  return time_ns < drain.until_ns_ ? 0 : -ECANCELED;
}

void RingDrain::drain() {
  until_ns_ = now_ns();
  const int result = ring_buffer__consume(ring_.get());
  if (result < 0 && result != -ECANCELED)
    throw std::system_error(-result, std::generic_category(), "ring buffer");
}

}  // namespace softroce::monitor
