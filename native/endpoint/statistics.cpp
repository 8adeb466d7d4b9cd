// SPDX-License-Identifier: GPL-2.0-or-later
#include "statistics.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace softroce {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

namespace statistics {
namespace {

constexpr const char* kPortCountNames[] = {
    "frames_sent",  "frames_received",    "octets_sent", "octets_received", "rx_dropped",
    "rx_ring_full", "rx_fill_ring_empty", "tx_invalid",  "tx_ring_empty"};
constexpr std::size_t kPortCounts = std::size(kPortCountNames);
constexpr std::size_t kPortWords = kPortCounts + kCounterNames.size();
static_assert(sizeof(PortCounts) == kPortCounts * sizeof(std::uint64_t));

std::string joined() {
  std::string text;
  for (const char* name : kPortCountNames) text.append(name).push_back(' ');
  for (const char* name : kCounterNames) text.append(name).push_back(' ');
  text.back() = '\n';
  for (std::size_t i = 0; i < kQpCounters; ++i) text.append(kCounterNames[i]).push_back(' ');
  text.back() = '\n';
  return text;
}

std::size_t words_before_names(std::size_t qps) {
  return kHeaderWords + kPortWords + qps * (kQpWords + kQpCounters);
}

}  // namespace

const std::string& names() {
  // Never destroyed: a process publishes for the last time after its static objects have gone.
  static const std::string& text = *new std::string(joined());
  return text;
}

void add_qp(const QueuePair& qp, std::vector<std::uint64_t>& words) {
  const QpAttr& attr = qp.attributes();
  words.push_back(qp.number());
  words.push_back(static_cast<std::uint64_t>(qp.config().type));
  words.push_back(static_cast<std::uint64_t>(qp.state()));
  words.push_back(attr.dest_qp);
  words.push_back(attr.address.destination.high);
  words.push_back(attr.address.destination.low);
  const auto& values = qp.counters().values();
  words.insert(words.end(), values.begin(), values.end());
}

std::size_t bytes() {
  const std::size_t all = words_before_names(kMostQps) * sizeof(std::uint64_t) + names().size();
  return (all + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t) * sizeof(std::uint64_t);
}

void take(const Rnic& rnic, const PortCounts& port, std::int64_t now_ns,
          std::vector<std::uint64_t>& words, const std::vector<std::uint64_t>& gone) {
  words.assign(kHeaderWords, 0);
  words[kMagicAt] = kMagic;
  words[kTakenNs] = static_cast<std::uint64_t>(now_ns);
  words[kPortNames] = kPortWords;
  words[kQpNames] = kQpCounters;
  const auto* counts = reinterpret_cast<const std::uint64_t*>(&port);
  words.insert(words.end(), counts, counts + kPortCounts);
  const auto& values = rnic.counters().values();
  words.insert(words.end(), values.begin(), values.end());
  std::size_t here = gone.size() / (kQpWords + kQpCounters);
  rnic.for_each_qp([&](const QueuePair& qp) {
    if (here < kMostQps) add_qp(qp, words), ++here;
  });
  words.insert(words.end(), gone.begin(), gone.end());
  words[kQpsAlive] = rnic.qps();
  words[kQpsHere] = here;
  words[kNamesAt] = words.size() * sizeof(std::uint64_t);
  words[kNamesBytes] = names().size();
  words.resize(words.size() + (names().size() + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  std::memcpy(words.data() + words[kNamesAt] / sizeof(std::uint64_t), names().data(),
              names().size());
}

int make_file(const std::string& path) {
  const std::string fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) fail("open " + fresh);
  const auto size = static_cast<off_t>(bytes());
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && ftruncate(fd, size) == 0 &&
      posix_fallocate(fd, 0, size) == 0 &&  // or a full /run would be a SIGBUS
      rename(fresh.c_str(), path.c_str()) == 0)
    return fd;
  const int error = errno;
  unlink(fresh.c_str());
  close(fd);
  errno = error;
  fail("make " + path);
}

}  // namespace statistics

StatisticsFile::StatisticsFile(const std::string& path)
    : StatisticsFile(statistics::make_file(path)) {
  path_ = path;
}

StatisticsFile::StatisticsFile(int fd, std::uint64_t rank) : fd_(fd) {
  void* area = mmap(nullptr, statistics::bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (area == MAP_FAILED) {
    close(fd_);
    fail("map counters");
  }
  words_ = static_cast<std::uint64_t*>(area);
  words_[statistics::kPid] = static_cast<std::uint64_t>(getpid());
  words_[statistics::kRank] = rank;
}

StatisticsFile::~StatisticsFile() {
  struct stat ours, there;
  if (!path_.empty() && fstat(fd_, &ours) == 0 && stat(path_.c_str(), &there) == 0 &&
      ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
    unlink(path_.c_str());
  munmap(words_, statistics::bytes());
  close(fd_);
}

// Readers that meet an odd sequence, or another one afterwards, read again.
void StatisticsFile::publish(const Rnic& rnic, const PortCounts& port, std::int64_t now_ns,
                             const std::vector<std::uint64_t>& gone) {
  using std::memory_order_relaxed;
  statistics::take(rnic, port, now_ns, scratch_, gone);
  const std::atomic_ref<std::uint64_t> sequence(words_[statistics::kSequence]);
  const std::uint64_t before = sequence.load(memory_order_relaxed);
  sequence.store(before + 1, memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < scratch_.size(); ++i) {
    if (i == statistics::kSequence || i == statistics::kPid || i == statistics::kRank) continue;
    std::atomic_ref<std::uint64_t>(words_[i]).store(scratch_[i], memory_order_relaxed);
  }
  sequence.store(before + 2, std::memory_order_release);
}

}  // namespace softroce
