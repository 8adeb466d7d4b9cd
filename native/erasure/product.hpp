// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softroce {

// A matrix over GF(2^8) times chunks, byte by byte: what encoding and decoding are.
class Product {
 public:
  // Coefficients of one result after the other. `by_tables`: even where ISA-L is.
  Product(std::vector<std::uint8_t> coefficients, std::size_t sources, bool by_tables);

  // No result may be a source.
  void run(const std::uint8_t* const* sources, std::uint8_t* const* results,
           std::size_t bytes) const;

 private:
  void run_by_tables(const std::uint8_t* const* sources, std::uint8_t* const* results,
                     std::size_t bytes) const;
  void run_by_isal(const std::uint8_t* const* sources, std::uint8_t* const* results,
                   std::size_t bytes) const;

  std::vector<std::uint8_t> coefficients_;
  std::size_t sources_, results_;
  std::vector<std::uint8_t> isal_tables_;  // empty: without ISA-L
};

}  // namespace softroce
