// SPDX-License-Identifier: GPL-2.0-or-later
#include "sink.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "../capture/comment.hpp"
#include "records.hpp"

namespace softroce::monitor {

namespace {

std::uint64_t wall_clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: of some readings, the one least interrupted.
std::uint64_t wall_offset_ns() {
  std::uint64_t offset = 0, least = std::numeric_limits<std::uint64_t>::max();
  for (int reading = 0; reading < 8; ++reading) {
    const std::uint64_t before = now_ns(), wall = wall_clock_ns(), after = now_ns();
    if (after - before >= least) continue;
    least = after - before;
    offset = wall - (before + least / 2);
  }
  return offset;
}

}  // namespace

std::string RuleTexts::of(std::uint32_t rule_id, bool bad) {
  const Texts* found = find(rule_id);
  if (!found) {
    read_on();
    found = find(rule_id);
  }
  if (!found) return "rule " + std::to_string(rule_id);
  return bad ? found->bad : found->text;
}

const RuleTexts::Texts* RuleTexts::find(std::uint32_t rule_id) const {
  const auto behind = known_.upper_bound(rule_id);
  if (behind == known_.begin()) return nullptr;
  const Texts& texts = std::prev(behind)->second;
  return rule_id <= texts.last ? &texts : nullptr;
}

void RuleTexts::read_on() {
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(path_, none);
  if (none || size <= read_) return;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(read_));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // a line without its end is still written
    read_ += line.size() + 1;
    learn(line);
  }
}

void RuleTexts::learn(const std::string& line) {
  std::istringstream fields(line);
  std::uint32_t first, last;
  std::string text, bad;
  if (!(fields >> first >> last) || fields.get() != '\t') return;
  std::getline(fields, text, '\t');
  if (!std::getline(fields, bad)) bad = text;
  known_[first] = {last, text, bad};
}

// --- Output

Output::Output(Descriptor fd) : fd_(std::move(fd)) {
  struct stat status {};
  checked(fstat(fd_.get(), &status), "a capture's file");
  is_file_ = S_ISREG(status.st_mode);
  const int flags = checked(fcntl(fd_.get(), F_GETFL), "a capture's file");
  if ((flags & O_ACCMODE) == O_RDONLY) fail(EBADF, "a capture's file");
  if (is_file_) return;
  checked(fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK), "a capture's file");
  fcntl(fd_.get(), F_SETPIPE_SZ, kPipeBytes);  // else it stays as it is
}

int Output::flush() noexcept {
  while (written_ < pending_.size()) {
    const ssize_t done = write(fd_.get(), pending_.data() + written_, pending_.size() - written_);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) break;
    if (done < 0) return errno;
    written_ += static_cast<std::size_t>(done);
  }
  const std::size_t whole = pcapng::whole_blocks(pending_, written_);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(whole));
  written_ -= whole;
  return 0;
}

std::span<const std::byte> Output::cut(std::size_t room_bytes) noexcept {
  const std::size_t room = written_ > room_bytes ? written_ - room_bytes : 0;
  staying_ = pcapng::whole_blocks(pending_, room);
  return std::span(pending_).subspan(staying_);
}

void Output::end_with(const pcapng::Buffer& last) noexcept {
  const off_t at = lseek(fd_.get(), 0, SEEK_CUR);
  if (!is_file_ || at < 0) return;
  off_t end = at - static_cast<off_t>(written_ - staying_);
  const ssize_t done = pwrite(fd_.get(), last.data(), last.size(), end);  // over what is there
  if (done == static_cast<ssize_t>(last.size())) end += done;
  [[maybe_unused]] const int cut = ftruncate(fd_.get(), end);
}

// --- Sink

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
  if (error_ != 0) give_up(taps);
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
void Sink::give_up(const TapMap& taps) noexcept {
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
