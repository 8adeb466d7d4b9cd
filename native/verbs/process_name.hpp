// SPDX-License-Identifier: GPL-2.0-or-later
// What this process is called in folders that have a file of each: `1234.ib_write_bw`.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace softroce::verbs {

inline std::string process_name() {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  std::ranges::replace(name, '/', '_');
  return std::to_string(getpid()) + "." + name;
}

}  // namespace softroce::verbs
