// SPDX-License-Identifier: GPL-2.0-or-later
// SHIFT for programs (native/shift): queue pairs of RC of a device go on over the host's next
// device when a NIC, port or path fails. A region has the same key and protection domain at both.
// A thread of its own drives what moves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "../shift/backup.hpp"
#include "backup_files.hpp"
#include "engine.hpp"
#include "objects.hpp"

namespace softroce::verbs {

class DeviceBackup {
 public:
  // For queue pairs of `near`, whose port is open, on `far`. std::system_error: no thread.
  DeviceBackup(Engine& near, Engine& far);
  ~DeviceBackup();
  DeviceBackup(const DeviceBackup&) = delete;
  DeviceBackup& operator=(const DeviceBackup&) = delete;

  // Gives a queue pair of RC its backup.
  void add(Qp& qp, const QpConfig& granted);
  // Before it is destroyed, or begins anew.
  void remove(Qp& qp);
  // The process ends, and its queue pairs with it. Takes no lock that a thread may hold for long.
  void leave();

 private:
  // Wakes the thread. Queue pairs that a program left may ring when the thread is gone.
  class Bell {
   public:
    Bell();
    ~Bell();
    Bell(const Bell&) = delete;
    Bell& operator=(const Bell&) = delete;
    void ring() const;
    void await(std::int64_t longest_ns) const;

   private:
    const int fd_;
  };

  static void* work(void* backup);
  void drive();
  void set_up();
  std::int64_t patience_ns();

  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  BackupFiles* files_;  // of `backup_`
  std::shared_ptr<TransitionsFile> transitions_;
  std::shared_ptr<shift::Backup> backup_;
  // Of the thread: when it looks again for what peers have not published, and how long after that.
  std::int64_t retry_at_ns_ = 0, retry_pause_ns_ = 0;
  std::atomic<bool> stopping_{false};
  pthread_t thread_{};
};

}  // namespace softroce::verbs
