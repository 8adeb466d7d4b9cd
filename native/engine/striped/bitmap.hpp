// SPDX-License-Identifier: GPL-2.0-or-later
// Bits of a message's packets. Words are written by the engine alone and may be read by a policy's
// thread at the same time, hence relaxed atomics; on one thread they cost nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace softroce {

template <typename T>
T relaxed_load(const T& from) {
  return std::atomic_ref<T>(const_cast<T&>(from)).load(std::memory_order_relaxed);
}
template <typename T>
void relaxed_store(T& to, T value) {
  std::atomic_ref<T>(to).store(value, std::memory_order_relaxed);
}

class Bitmap {
 public:
  void reset(std::uint32_t bits) { words_.assign((bits + 63) / 64, 0); }

  bool test(std::uint32_t bit) const { return words_[bit / 64] >> (bit % 64) & 1; }

  // Returns whether the bit was clear.
  bool set(std::uint32_t bit) {
    std::uint64_t& word = words_[bit / 64];
    const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
    if (word & mask) return false;
    relaxed_store(word, word | mask);
    return true;
  }

  // Returns whether the bit was set.
  bool clear(std::uint32_t bit) {
    std::uint64_t& word = words_[bit / 64];
    const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
    if (!(word & mask)) return false;
    relaxed_store(word, word & ~mask);
    return true;
  }

  std::uint64_t word(std::uint32_t number) const { return words_[number]; }

  // The first clear bit at or after `from`; `bits()` if there is none.
  std::uint32_t next_clear(std::uint32_t from) const {
    for (std::uint32_t w = from / 64; w < words_.size(); ++w) {
      std::uint64_t clear = ~words_[w];
      if (w == from / 64) clear &= ~std::uint64_t{0} << (from % 64);
      if (clear != 0) return w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(clear));
    }
    return bits();
  }

  // Clears and returns the first set bit at or after `from`; `bits()` if there is none.
  std::uint32_t take_next(std::uint32_t from) {
    for (std::uint32_t w = from / 64; w < words_.size(); ++w) {
      std::uint64_t word = words_[w];
      if (w == from / 64) word &= ~std::uint64_t{0} << (from % 64);
      if (word == 0) continue;
      const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(word));
      relaxed_store(words_[w], words_[w] & ~(std::uint64_t{1} << bit));
      return w * 64 + bit;
    }
    return bits();
  }

  std::uint32_t bits() const { return static_cast<std::uint32_t>(words_.size() * 64); }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace softroce
