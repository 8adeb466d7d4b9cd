// SPDX-License-Identifier: GPL-2.0-or-later
// Receives that queue pairs share (SRQ). The default NIC has them; some are lent to the backup NIC
// as long as a queue pair is there. Which of them takes a message is nobody's promise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "surroundings.hpp"

namespace softroce::shift {

class SharedReceives {
 public:
  // `number`: of the SRQ on `near`. A region has one key on both NICs.
  SharedReceives(Nic& near, Nic& far, std::uint32_t number, std::uint32_t max_elements)
      : near_(near), far_(far), number_(number), max_elements_(max_elements) {}
  ~SharedReceives();
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  // The SRQ on the backup NIC, made when it is first needed. std::system_error.
  std::uint32_t far();
  void lend();
  void take_back();

 private:
  static constexpr std::uint32_t kLent = 32;

  Nic& near_;
  Nic& far_;
  const std::uint32_t number_, max_elements_;
  std::optional<std::uint32_t> far_number_{};
};

}  // namespace softroce::shift
