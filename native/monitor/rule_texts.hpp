// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace softroce::monitor {

// Texts of rules by their ids, from an append-only file: an id is never reused as long as the lab
// exists (softroce_lab/fabric/faults.py). It is read
// again when an id is unknown, for faults change while captures run.
class RuleTexts {
 public:
  explicit RuleTexts(std::string path) : path_(std::move(path)) {}

  // `bad`: of what a gemodel does in its bad state.
  std::string of(std::uint32_t rule_id, bool bad);

 private:
  struct Texts {
    std::uint32_t last;  // id, of those with these texts
    std::string text, bad;
  };

  const Texts* find(std::uint32_t rule_id) const;
  void read_on();
  void learn(const std::string& line);

  std::string path_;
  std::uintmax_t read_ = 0;               // bytes of the file
  std::map<std::uint32_t, Texts> known_;  // by the first id
};

}  // namespace softroce::monitor
