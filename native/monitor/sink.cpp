// SPDX-License-Identifier: GPL-2.0-or-later
#include "sink.hpp"

#include <algorithm>
#include <utility>

#include "../capture/comment.hpp"
#include "clock.hpp"

namespace softroce::monitor {

Sink::Sink(Descriptor file, std::vector<Interface> interfaces, std::uint32_t snap_bytes,
           std::uint64_t most_packets, const TapMap& taps)
    : output_(std::move(file)),
      interfaces_(std::move(interfaces)),
      snap_bytes_(snap_bytes == 0 ? LAB_SNAP_MAX
                                  : std::min<std::uint32_t>(snap_bytes, LAB_SNAP_MAX)),
      most_packets_(most_packets),
      wall_offset_ns_(wall_offset_ns()),
      begin_ns_(now_ns() + wall_offset_ns_) {
  pcapng::append_section(output_.pending());
  for (Interface& each : interfaces_) {
    each.missed_before = taps.missed(each.link);
    pcapng::append_interface(output_.pending(), each.name, snap_bytes);
  }
}

void Sink::take(std::uint32_t interface, const lab_capture& head, const std::byte* data,
                RuleTexts& rules) {
  if (is_over() || finished_) return;
  Interface& of = interfaces_[interface];
  if (!output_.has_room()) {
    ++of.missed;
    return;
  }
  const pcapng::PacketHead packet{interface, head.time_ns + wall_offset_ns_,
                                  std::min(head.captured, snap_bytes_), head.length};
  const auto text_of = [&rules](std::uint32_t rule, bool bad) { return rules.of(rule, bad); };
  pcapng::append_packet(output_.pending(), packet, data,
                        capture::comment_of(head.effects, head.rule_id, text_of));
  ++of.taken;
  ++packets_;
}

void Sink::flush(const TapMap& taps) noexcept {
  if (error_ != 0) return;
  error_ = output_.flush();
  if (error_ != 0) fail(taps);
}

void Sink::finish(const TapMap& taps) {
  if (error_ != 0 || finished_) return;
  finished_ = true;
  append_statistics(output_.pending(), taps);
  flush(taps);
}

std::uint64_t Sink::missed(const Interface& of, const TapMap& taps) const {
  return of.missed + taps.missed(of.link) - of.missed_before;
}

void Sink::append_statistics(pcapng::Buffer& to, const TapMap& taps) const {
  const std::uint64_t end_ns = now_ns() + wall_offset_ns_;
  for (std::uint32_t i = 0; i < interfaces_.size(); ++i) {
    const std::uint64_t dropped = missed(interfaces_[i], taps);
    pcapng::append_statistics(to, {i, begin_ns_, end_ns, interfaces_[i].taken + dropped, dropped});
  }
}

// The file takes no more: it becomes a complete capture with a count of the packets left out.
void Sink::fail(const TapMap& taps) noexcept {
  pcapng::Buffer last;
  append_statistics(last, taps);
  for (const std::uint32_t interface : pcapng::interfaces_of(output_.cut(last.size()))) {
    --interfaces_[interface].taken;
    ++interfaces_[interface].missed;
  }
  last.clear();
  append_statistics(last, taps);
  output_.end_with(last);
}

}  // namespace softroce::monitor
