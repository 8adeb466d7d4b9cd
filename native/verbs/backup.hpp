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

  Engine& far() { return far_; }
  // Gives a queue pair of RC its backup.
  void add(Qp& qp, const QpConfig& granted);
  // Before it is destroyed, or begins anew.
  void remove(Qp& qp);

 private:
  static void* work(void* backup);
  void drive();
  std::int64_t patience_ns();
  void wait(std::int64_t longest_ns) const;
  void ring() const;

  Engine& far_;
  const int wake_fd_;
  BackupFiles* files_;  // of `backup_`
  std::unique_ptr<TransitionsFile> transitions_;
  std::shared_ptr<shift::Backup> backup_;
  std::atomic<bool> stopping_{false};
  pthread_t thread_{};
};

}  // namespace softroce::verbs
