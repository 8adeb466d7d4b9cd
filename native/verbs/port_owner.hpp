// SPDX-License-Identifier: GPL-2.0-or-later
// A port has one owner: the process that holds its name among the abstract UNIX addresses of the
// port's network namespace (unix(7)), as softroce_lab/fabric/net/owner.py does.
#pragma once

#include <string>

namespace softroce::verbs {

class PortOwner {
 public:
  PortOwner() = default;
  ~PortOwner() { release(); }
  PortOwner(const PortOwner&) = delete;
  PortOwner& operator=(const PortOwner&) = delete;

  // 0; EBUSY if another process holds it, which a line on stderr names; or why there is no socket.
  int hold(const std::string& interface);
  void release();

 private:
  int fd_ = -1;
};

}  // namespace softroce::verbs
