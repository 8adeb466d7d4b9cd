// SPDX-License-Identifier: GPL-2.0-or-later
// Another NIC for the queue pairs of a NIC: what all of them share, under one lock.
//
// Who drives it calls `advance` when a queue of `arm` has rung, when `next_time_ns` has come, and
// now and then while `is_active`. Nothing here waits for time, or reads a clock but the NICs'.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shift_qp.hpp"

namespace softroce::shift {

class Backup : public std::enable_shared_from_this<Backup> {
 public:
  struct Surroundings {
    std::unique_ptr<Nic> near, far;
    std::unique_ptr<Directory> directory;
    std::uint32_t control_domain = 0;  // a protection domain of `far`
    bool same_keys = false;            // both NICs have a region under one key, the peer's, too
    std::function<void()> ring;        // wakes who drives it
    std::function<void(const Transition&)> on_transition;
  };

  // `in_background`: what a new queue pair needs at the backup is made by `work`.
  Backup(Surroundings surroundings, const Settings& settings, bool in_background);
  ~Backup();

  std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(lock_); }
  void release() { lock_.unlock(); }  // of who let go of what `hold` returned
  Nic& near() { return *around_.near; }
  Nic& far() { return *around_.far; }
  Directory& directory() { return *around_.directory; }
  const Settings& settings() const { return settings_; }
  std::int64_t now_ns() const { return around_.near->now() / kNanosecond; }
  bool in_background() const { return in_background_; }

  std::shared_ptr<ShiftQp> add(ShiftQp::Config config);

  // ---- what drives it

  void advance();
  std::optional<std::int64_t> next_time_ns();
  void arm();                             // ring at the next failure or control message
  bool is_active();                       // a queue pair is moving, or away from its default NIC
  void fail_all(const std::string& why);  // nobody drives it any more: errors surface
  // One part of setting up. False: there is none, or it is to be tried later.
  bool work();
  std::size_t tasks();
  std::size_t untried();  // how many of them nobody has begun: `work` begins with these

  // ---- for its queue pairs, under the lock

  using Task = std::function<bool()>;  // false: it is to be tried again
  bool run(Task task);                 // now, or in the background
  void add_owner(Path path, std::uint32_t number, ShiftQp& qp);
  void add_control(std::uint32_t number, ShiftQp& qp);
  void remove(const ShiftQp& qp);
  void set_active(ShiftQp& qp, bool active);
  std::shared_ptr<ShiftQp> owner(Path path, std::uint32_t number) const;
  const std::shared_ptr<CompletionQueue>& failures(Path path) const {
    return failures_[index_of(path)];
  }
  const std::shared_ptr<CompletionQueue>& control_queue() const { return control_queue_; }
  std::uint32_t control_domain() const { return around_.control_domain; }
  bool same_keys() const { return around_.same_keys; }
  void purge_failures(const ShiftQp& qp, Path path);  // of a queue pair that is left there
  // Keys of a peer's regions: what is known, and what the directory says now.
  const Keys& known_keys(const Gid& nic) { return keys_[{nic.high, nic.low}]; }
  const Keys& fetch_keys(const Gid& nic);
  void note(const Transition& transition) {
    if (around_.on_transition) around_.on_transition(transition);
  }

 private:
  // An application that forgets a queue pair without closing it ends it: nothing here holds one.
  using Owners = std::map<std::uint32_t, std::weak_ptr<ShiftQp>>;
  using Failure = std::pair<std::shared_ptr<ShiftQp>, WorkCompletion>;

  static std::shared_ptr<ShiftQp> find(const Owners& owners, std::uint32_t number);
  bool step();
  std::vector<Failure> take_failures(Path path);

  Surroundings around_;
  const Settings settings_;
  const bool in_background_;
  std::recursive_mutex lock_;
  std::array<std::shared_ptr<CompletionQueue>, 2> failures_;
  std::shared_ptr<CompletionQueue> control_queue_;
  std::array<Owners, 2> owners_;
  Owners controls_;
  Owners active_;
  std::array<std::vector<Failure>, 2> put_back_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Keys> keys_;  // by GID
  std::deque<Task> tasks_;
  std::size_t untried_ = 0;  // the first ones
  bool advancing_ = false;
};

}  // namespace softroce::shift
