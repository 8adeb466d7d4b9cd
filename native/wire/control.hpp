// SPDX-License-Identifier: GPL-2.0-or-later
// The control socket of the wire stage (protocol.hpp).
#pragma once

#include <string>

#include "../system/descriptor.hpp"
#include "protocol.hpp"
#include "stage.hpp"

namespace softroce::wire {

class Control {
 public:
  // Listens at `path`. Throws std::system_error.
  Control(Stage& stage, const std::string& path);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Serves until a signal comes (SIGTERM, SIGINT), or `over` is readable.
  void serve(int over);

 private:
  void accept_one();
  void answer(int client);
  void forget(int client);
  std::string reply_to(const Request& request, int descriptor);

  Stage& stage_;
  std::string path_;
  Descriptor epoll_, listener_, signals_;
  int clients_ = 0;
};

}  // namespace softroce::wire
