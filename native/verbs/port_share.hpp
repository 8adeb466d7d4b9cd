// SPDX-License-Identifier: GPL-2.0-or-later
// This process's share of a host's port (endpoint/port_wire.hpp). The service that grants it is
// softroce_lab/programs/device/ports.py, a process of the lab beside the programs of a host.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "../endpoint/port_wire.hpp"
#include "../system/descriptor.hpp"

namespace softroce::verbs {

class PortShare {
 public:
  PortShare() = default;
  ~PortShare() { give_back(); }
  PortShare(const PortShare&) = delete;
  PortShare& operator=(const PortShare&) = delete;

  // 0, or an errno value, and a line on stderr says why.
  int take(const std::string& interface);
  void give_back();
  // Whether a port's link is up, of which this process has no share. Nobody to ask: true.
  static bool link_is_up(const std::string& interface);

  const ports::Grant& grant() const { return grant_; }
  // What came with the share: the caller's from now on.
  Descriptor take_given(ports::Given which) { return std::move(given_[which]); }
  // Readable when `news` has some; -1: without a share.
  int fd() const { return fd_; }
  // Whether the port's link is up, if the service has said so since it was asked last.
  std::optional<bool> news();

 private:
  int ask(const std::string& interface, bool share);
  ssize_t receive_grant();

  int fd_ = -1;
  ports::Grant grant_;
  std::array<Descriptor, ports::kGiven> given_;
};

}  // namespace softroce::verbs
