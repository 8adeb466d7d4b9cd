// SPDX-License-Identifier: GPL-2.0-or-later
#include "captures.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace softroce::monitor {

namespace {

constexpr off_t kMostListBytes = 16 << 20;

// While packets are captured, busy hosts must not keep us from the ring, which holds fractions of a
// second. Where the machine does not allow it we do without.
void hurry(bool wanted) {
  sched_param priority{};
  priority.sched_priority = wanted ? sched_get_priority_min(SCHED_FIFO) : 0;
  sched_setscheduler(0, wanted ? SCHED_FIFO : SCHED_OTHER, &priority);
}

[[noreturn]] void refuse(int code) { fail(code, "a capture's links"); }

std::string content_of(const Descriptor& file) {
  struct stat status {};
  checked(fstat(file.get(), &status), "a capture's links");
  if (!S_ISREG(status.st_mode) || status.st_size > kMostListBytes) refuse(EINVAL);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  if (got != static_cast<ssize_t>(text.size())) refuse(EIO);
  return text;
}

}  // namespace

Captures::Captures(const std::string& bpffs, const std::string& rules)
    : taps_(bpffs + "/taps"),
      rules_(rules),
      targets_(taps_.count()),
      ring_(bpffs + "/captures",
            [this](const void* record, std::size_t bytes) { take(record, bytes); }) {}

std::vector<Interface> Captures::interfaces_in(const Descriptor& list) const {
  std::vector<Interface> found;
  std::vector<bool> seen(taps_.count());
  std::istringstream lines(content_of(list));
  Interface each{};
  while (lines >> each.link && lines.get() == ' ' && std::getline(lines, each.name)) {
    if (each.link >= taps_.count() || seen[each.link]) refuse(EINVAL);
    seen[each.link] = true;
    found.push_back(each);
  }
  if (!lines.eof() || found.empty()) refuse(EINVAL);
  return found;
}

void Captures::add(Sink& sink) {
  drain();  // what was captured for others before is not this one's
  if (sinks_.empty()) hurry(true);
  sinks_.push_back(&sink);
  for (std::uint32_t i = 0; i < sink.interfaces().size(); ++i)
    targets_[sink.interfaces()[i].link].push_back({&sink, i});
  set_snaps(sink);
}

void Captures::remove(Sink& sink) {
  std::erase(sinks_, &sink);
  for (const Interface& each : sink.interfaces())
    std::erase_if(targets_[each.link], [&](const Target& of) { return of.sink == &sink; });
  set_snaps(sink);
  if (sinks_.empty()) hurry(false);
}

void Captures::set_snaps(const Sink& of) {
  for (const Interface& each : of.interfaces()) {
    std::uint32_t snap_bytes = 0;
    for (const Target& target : targets_[each.link])
      snap_bytes = std::max(snap_bytes, target.sink->snap_bytes());
    taps_.set_snap(each.link, snap_bytes);
  }
}

bool Captures::is_waiting() const {
  return std::ranges::any_of(sinks_, [](const Sink* sink) { return sink->is_waiting(); });
}

void Captures::drain() {
  ring_.drain();
  for (Sink* sink : sinks_) sink->flush(taps_);
}

void Captures::take(const void* record, std::size_t bytes) {
  lab_capture head;
  if (bytes < sizeof(head)) return;
  std::memcpy(&head, record, sizeof(head));
  if (head.directed_link >= targets_.size()) return;
  const auto* data = static_cast<const std::byte*>(record) + sizeof(head);
  for (const Target& target : targets_[head.directed_link])
    target.sink->take(target.interface, head, data, rules_);
}

}  // namespace softroce::monitor
