// SPDX-License-Identifier: GPL-2.0-or-later
#include "product.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../engine/codec/crc.hpp"
#include "gf256.hpp"

#ifdef SOFTROCE_HAS_ISAL
#include <isa-l/erasure_code.h>
#endif

namespace softroce {

Product::Product(std::vector<std::uint8_t> coefficients, std::size_t sources,
                 [[maybe_unused]] bool by_tables)
    : coefficients_(std::move(coefficients)),
      sources_(sources),
      results_(coefficients_.size() / sources) {
#ifdef SOFTROCE_HAS_ISAL
  if (by_tables) return;
  constexpr std::size_t kTableBytes = 32;  // ISA-L's, of one coefficient
  isal_tables_.resize(kTableBytes * coefficients_.size());
  ec_init_tables(static_cast<int>(sources_), static_cast<int>(results_), coefficients_.data(),
                 isal_tables_.data());
#endif
}

void Product::run(const std::uint8_t* const* sources, std::uint8_t* const* results,
                  std::size_t bytes) const {
  if (isal_tables_.empty()) {
    run_by_tables(sources, results, bytes);
  } else {
    run_by_isal(sources, results, bytes);
  }
}

void Product::run_by_tables(const std::uint8_t* const* sources, std::uint8_t* const* results,
                            std::size_t bytes) const {
  for (std::size_t row = 0; row < results_; ++row) {
    std::uint8_t* result = results[row];
    std::memset(result, 0, bytes);
    for (std::size_t column = 0; column < sources_; ++column) {
      const auto& multiples = gf256::kProducts[coefficients_[row * sources_ + column]];
      const std::uint8_t* source = sources[column];
      for (std::size_t at = 0; at < bytes; ++at) result[at] ^= multiples[source[at]];
    }
  }
}

#ifdef SOFTROCE_HAS_ISAL

// ISA-L computes a few results at a time, and reads all sources for each few: slices stay cached.
void Product::run_by_isal(const std::uint8_t* const* sources, std::uint8_t* const* results,
                          std::size_t bytes) const {
  constexpr std::size_t kSliceBytes = 16384;
  std::vector<std::uint8_t*> from(sources_), to(results_);
  for (std::size_t at = 0; at < bytes; at += kSliceBytes) {
    // ISA-L writes through none of its sources and tables, but its arguments are not const.
    for (std::size_t i = 0; i < sources_; ++i) from[i] = const_cast<std::uint8_t*>(sources[i]) + at;
    for (std::size_t i = 0; i < results_; ++i) to[i] = results[i] + at;
    ec_encode_data(static_cast<int>(std::min(kSliceBytes, bytes - at)), static_cast<int>(sources_),
                   static_cast<int>(results_), const_cast<std::uint8_t*>(isal_tables_.data()),
                   from.data(), to.data());
  }
  release_upper_halves();
}

#else

void Product::run_by_isal(const std::uint8_t* const*, std::uint8_t* const*, std::size_t) const {}

#endif

}  // namespace softroce
