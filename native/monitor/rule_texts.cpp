// SPDX-License-Identifier: GPL-2.0-or-later
#include "rule_texts.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace softroce::monitor {

std::string RuleTexts::of(std::uint32_t rule_id, bool bad) {
  const Texts* found = find(rule_id);
  if (!found) {
    read_on();
    found = find(rule_id);
  }
  if (!found) return "rule " + std::to_string(rule_id);
  return bad ? found->bad : found->text;
}

const RuleTexts::Texts* RuleTexts::find(std::uint32_t rule_id) const {
  const auto behind = known_.upper_bound(rule_id);
  if (behind == known_.begin()) return nullptr;
  const Texts& texts = std::prev(behind)->second;
  return rule_id <= texts.last ? &texts : nullptr;
}

void RuleTexts::read_on() {
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(path_, none);
  if (none || size <= read_) return;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(read_));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // a line without its end is still written
    read_ += line.size() + 1;
    learn(line);
  }
}

void RuleTexts::learn(const std::string& line) {
  std::istringstream fields(line);
  std::uint32_t first, last;
  std::string text, bad;
  if (!(fields >> first >> last) || fields.get() != '\t') return;
  std::getline(fields, text, '\t');
  if (!std::getline(fields, bad)) bad = text;
  known_[first] = {last, text, bad};
}

}  // namespace softroce::monitor
