// SPDX-License-Identifier: GPL-2.0-or-later
// A table of numbers that are read from time to time. A run of any length has at least half as many
// rows as there is room for, or one each first interval: when there is no more room, every second
// row goes, and the interval doubles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "../engine/units.hpp"

namespace softroce::sim {

class Samples {
 public:
  explicit Samples(std::size_t columns)
      : columns_(columns),
        most_(std::clamp<std::size_t>(kMostValues / std::max<std::size_t>(columns, 1), kLeastRows,
                                      kMostRows)) {}

  Time next() const { return next_; }
  // A row of zeros; `now` is `next()` or later.
  std::span<std::uint32_t> add(Time now) {
    if (times_.size() >= most_) thin();
    times_.push_back(now);
    values_.resize(values_.size() + columns_);
    next_ = (now / interval_ + 1) * interval_;
    return std::span(values_).last(columns_);
  }

  std::size_t columns() const { return columns_; }
  const std::vector<Time>& times() const { return times_; }
  const std::vector<std::uint32_t>& values() const { return values_; }  // row by row

 private:
  static constexpr std::size_t kMostValues = 1 << 20, kMostRows = 1 << 10, kLeastRows = 64;
  static constexpr Time kFirstInterval = 128 * kNanosecond;

  void thin() {
    for (std::size_t row = 1; 2 * row < times_.size(); ++row) {
      times_[row] = times_[2 * row];
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(2 * row * columns_), columns_,
                  values_.begin() + static_cast<std::ptrdiff_t>(row * columns_));
    }
    times_.resize((times_.size() + 1) / 2);
    values_.resize(times_.size() * columns_);
    interval_ *= 2;
  }

  std::size_t columns_, most_;
  Time interval_ = kFirstInterval, next_ = 0;
  std::vector<Time> times_;
  std::vector<std::uint32_t> values_;
};

}  // namespace softroce::sim
