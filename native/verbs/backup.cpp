// SPDX-License-Identifier: GPL-2.0-or-later
#include "backup.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "../system/clock.hpp"
#include "quiet_thread.hpp"

namespace softroce::verbs {
namespace {

constexpr std::int64_t kIdleNs = 500'000'000;  // without anything due; what happens ends it
constexpr std::int64_t kActiveNs = 500'000;    // while a queue pair moves, or is at the backup
// Until what the peer has not published yet is looked for again; the time doubles. A peer without
// SHIFT never publishes anything.
constexpr std::int64_t kRetryNs = 20'000'000, kMostRetryNs = 2'000'000'000;
constexpr std::size_t kRoom = 64;             // completions of the lab's own requests
constexpr std::uint8_t kControlTimeout = 14;  // 67 ms: a peer's thread may wait for a processor

// A device's engine as SHIFT turns it.
class EngineNic final : public shift::Nic {
 public:
  explicit EngineNic(Engine& engine) : engine_(engine) {}
  void call(std::function<void(Rnic&, Time)> action) override {
    const auto held = engine_.hold();
    const Time at = engine_.now();
    action(engine_.rnic(), at);
    engine_.posted(at);
  }
  Time now() const override { return engine_.since_epoch(); }
  Gid gid() const override { return engine_.rnic().gid(); }
  AddressVector route_to(const Gid& destination) const override {
    return {.destination = destination, .mac = engine_.settings().next_hop_mac};
  }

 private:
  Engine& engine_;
};

void set_up_one(shift::Backup& backup) {
  try {
    backup.work();
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "softroce: a queue pair has no backup: %s\n", error.what());
  }
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

DeviceBackup::DeviceBackup(Engine& near, Engine& far) {
  const Settings& settings = near.settings();
  auto files = std::make_unique<BackupFiles>(folder_of(settings.statistics), settings.gids);
  files_ = files.get();
  transitions_ = std::make_shared<TransitionsFile>(near.statistics_path() + ".shift");
  shift::Backup::Surroundings around{
      .near = std::make_unique<EngineNic>(near),
      .far = std::make_unique<EngineNic>(far),
      .directory = std::move(files),
      .control_domain = new_protection_domain(),
      .same_keys = true,
      .ring = [bell = bell_] { bell->ring(); },
      .on_transition =
          [to = transitions_](const shift::Transition& each) {
            to->add(each);
            if (each.status == WcStatus::retry_exc_err)
              std::fprintf(stderr, "softroce: queue pair %#x: no failover: %s\n", each.qp_num,
                           each.why.c_str());
          }};
  backup_ = std::make_shared<shift::Backup>(
      std::move(around), shift::Settings{.control_timeout = kControlTimeout}, true);
  thread_ = start_quiet_thread(&DeviceBackup::work, this);
}

DeviceBackup::~DeviceBackup() {
  stopping_ = true;
  bell_->ring();
  pthread_join(thread_, nullptr);
  files_->withdraw_all();
}

// ---------------------------------------------------------------- its queue pairs

void DeviceBackup::add(Qp& qp, const QpConfig& granted) {
  const auto completions = [this](ibv_cq* base) {
    Cq& cq = *static_cast<Cq*>(base);
    const auto held = backup_->hold();
    if (!cq.both) {
      cq.both = std::make_shared<BothQueues>(backup_, cq.queue,
                                             static_cast<std::size_t>(cq.cqe) + kRoom, ring_of(cq));
      cq.at_both.store(&cq.both->completions, std::memory_order_release);
    }
    return std::shared_ptr<shift::Completions>(cq.both, &cq.both->completions);
  };
  Srq* srq = static_cast<Srq*>(qp.srq);
  if (srq != nullptr && !srq->shared)
    srq->shared = std::make_shared<shift::SharedReceives>(backup_->near(), backup_->far(),
                                                          srq->number, srq->max_sge);
  qp.shift = backup_->add({.number = qp.qp_num,
                           .cap = granted.cap,
                           .signal_all = granted.signal_all,
                           .sends = completions(qp.send_cq),
                           .receives = completions(qp.recv_cq),
                           .shadow_domain =
                               [domain = granted.protection_domain] {
                                 return std::make_shared<shift::ShadowDomain>(domain);
                               },
                           .shared = srq != nullptr ? srq->shared : nullptr});
  qp.posts_by = qp.shift.get();
}

void DeviceBackup::remove(Qp& qp) {
  qp.posts_by = nullptr;
  while (qp.posting != 0) sched_yield();
  qp.shift->close();
  qp.shift.reset();
  files_->withdraw(qp.qp_num);
}

void DeviceBackup::leave() {
  stopping_ = true;
  files_->withdraw_all();
  transitions_->remove();
}

// ---------------------------------------------------------------- the thread

void* DeviceBackup::work(void* backup) {
  prctl(PR_SET_NAME, "softroce-shift");
  auto* self = static_cast<DeviceBackup*>(backup);
  try {
    self->drive();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softroce: no backup any more: %s\n", error.what());
    self->backup_->fail_all(error.what());
  }
  return nullptr;
}

void DeviceBackup::drive() {
  while (!stopping_) {
    bell_->await(patience_ns());
    backup_->arm();
    backup_->advance();
    set_up();
  }
}

// All that is new, and now and then what was in vain.
void DeviceBackup::set_up() {
  const std::int64_t now_ns = monotonic_ns();
  const std::size_t untried = backup_->untried();
  const bool again = now_ns >= retry_at_ns_;
  for (std::size_t left = again ? backup_->tasks() : untried; left > 0 && !stopping_; --left)
    set_up_one(*backup_);
  if (untried != 0) {
    retry_pause_ns_ = kRetryNs;
  } else if (again) {
    retry_pause_ns_ = std::min(2 * retry_pause_ns_, kMostRetryNs);
  } else {
    return;
  }
  retry_at_ns_ = now_ns + retry_pause_ns_;
}

std::int64_t DeviceBackup::patience_ns() {
  std::int64_t longest_ns = backup_->is_active() ? kActiveNs : kIdleNs;
  if (backup_->untried() != 0) return 0;
  if (backup_->tasks() != 0) longest_ns = std::min(longest_ns, retry_at_ns_ - monotonic_ns());
  if (const auto due_ns = backup_->next_time_ns())
    longest_ns = std::min(longest_ns, *due_ns - backup_->now_ns());
  return std::max<std::int64_t>(longest_ns, 0);
}

DeviceBackup::Bell::Bell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

DeviceBackup::Bell::~Bell() { ::close(fd_); }

void DeviceBackup::Bell::ring() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

void DeviceBackup::Bell::await(std::int64_t longest_ns) const {
  pollfd rung{.fd = fd_, .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = longest_ns / 1'000'000'000,
                         .tv_nsec = longest_ns % 1'000'000'000};
  ppoll(&rung, 1, &timeout, nullptr);
  std::uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
}

}  // namespace softroce::verbs
