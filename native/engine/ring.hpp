// SPDX-License-Identifier: GPL-2.0-or-later
// A queue in one piece of memory, which doubles when it is full and is never given back.
#pragma once

#include <cstddef>
#include <vector>

namespace softroce {

template <typename T>
class Ring {
 public:
  bool empty() const { return begin_ == end_; }
  std::size_t size() const { return end_ - begin_; }
  T& operator[](std::size_t index) { return slots_[(begin_ + index) & (slots_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  void pop() { ++begin_; }
  T& push() {  // as it was left there
    if (size() == slots_.size()) grow();
    return slots_[end_++ & (slots_.size() - 1)];
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);
    for (std::size_t i = 0; i < size(); ++i) larger[i] = (*this)[i];
    end_ = size();
    begin_ = 0;
    slots_ = std::move(larger);
  }

  std::vector<T> slots_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace softroce
