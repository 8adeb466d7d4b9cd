// SPDX-License-Identifier: GPL-2.0-or-later
#include "backup_files.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../engine/codec/bytes.hpp"
#include "../system/clock.hpp"

namespace softroce::verbs {
namespace {

constexpr std::size_t kMostRows = 256;

// Readers see the file before or the file after. What cannot be written is not there.
void replace(const std::string& path, const void* bytes, std::size_t size) {
  const std::string fresh = path + "." + std::to_string(getpid()) + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const bool whole = ::write(fd, bytes, size) == static_cast<ssize_t>(size);
  ::close(fd);
  if (!whole || ::rename(fresh.c_str(), path.c_str()) != 0) ::unlink(fresh.c_str());
}

std::string text_of(const Gid& gid) {
  std::uint8_t octets[16];
  store64(octets, gid.high);
  store64(octets + 8, gid.low);
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, octets, text, sizeof text);
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') made += '\\';
    made += each;
  }
  return made + '"';
}

// The columns of telemetry/transitions.py, but for the host.
std::string row_of(const shift::Transition& t) {
  const auto field = [](const char* name, std::int64_t value) {
    return ", \"" + std::string(name) + "\": " + std::to_string(value);
  };
  const auto text = [](const char* name, const std::string& value) {
    return ", \"" + std::string(name) + "\": " + quoted(value);
  };
  return "{\"monotonic_ns\": " + std::to_string(monotonic_ns()) + field("time_ns", t.at_ns) +
         text("peer", t.peer_gid == Gid{} ? "" : text_of(t.peer_gid)) + field("qp", t.qp_num) +
         field("peer_qp", t.peer_qp) + field("epoch", t.epoch) + text("side", t.side) +
         text("before", t.before) + text("after", t.after) + text("why", t.why) +
         field("consumed", t.consumed) + field("resubmitted", t.resubmitted) +
         field("receives", t.receives) + "}";
}

template <typename Rows, typename Row>
std::string list_of(const Rows& rows, Row row) {
  std::string list;
  for (const auto& each : rows) list += (list.empty() ? "" : ", ") + row(each);
  return "[" + list + "]";
}

}  // namespace

void BackupFiles::publish(std::uint32_t qp, const shift::BackupAddress& backup) {
  static_assert(std::has_unique_object_representations_v<shift::BackupAddress>);
  const std::lock_guard lock(lock_);
  if (over_) return;
  published_.insert(qp);
  for (const Gid& each : own_) replace(path_of(each, qp), &backup, sizeof backup);
}

std::optional<shift::BackupAddress> BackupFiles::find(const Gid& nic, std::uint32_t qp) {
  const int fd = ::open(path_of(nic, qp).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  shift::BackupAddress found;
  const ssize_t size = ::read(fd, &found, sizeof found);
  ::close(fd);
  if (size != sizeof found) return std::nullopt;
  return found;
}

void BackupFiles::withdraw(std::uint32_t qp) {
  const std::lock_guard lock(lock_);
  if (published_.erase(qp) != 0) remove(qp);
}

void BackupFiles::withdraw_all() {
  const std::lock_guard lock(lock_);
  over_ = true;
  for (const std::uint32_t qp : std::exchange(published_, {})) remove(qp);
}

void BackupFiles::remove(std::uint32_t qp) const {
  for (const Gid& each : own_) ::unlink(path_of(each, qp).c_str());
}

std::string BackupFiles::path_of(const Gid& nic, std::uint32_t qp) const {
  return folder_ + "/" + text_of(nic) + ":" + std::to_string(qp) + ".backup";
}

TransitionsFile::~TransitionsFile() { remove(); }

void TransitionsFile::remove() const { ::unlink(path_.c_str()); }

void TransitionsFile::add(const shift::Transition& transition) {
  const std::string& row = rows_.emplace_back(row_of(transition));
  newest_[{transition.qp_num, transition.side}] = row;
  if (rows_.size() > kMostRows) rows_.pop_front();
  const std::string document =
      "{\"pid\": " + std::to_string(getpid()) +
      ", \"newest\": " + list_of(newest_, [](const auto& each) { return each.second; }) +
      ", \"transitions\": " + list_of(rows_, [](const std::string& each) { return each; }) + "}";
  replace(path_, document.data(), document.size());
}

}  // namespace softroce::verbs
