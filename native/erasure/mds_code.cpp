// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <utility>

#include "erasure_code.hpp"
#include "gf256.hpp"
#include "product.hpp"

namespace softroce {
namespace {

// Row k + i of ISA-L's gf_gen_cauchy1_matrix: 1 / (x + y) with x = k + i, y = j. All x and y
// differ, so that every square part of it can be inverted. A Vandermonde matrix lacks that.
std::uint8_t coefficient(std::size_t k, std::size_t parity, std::size_t data) {
  return gf256::kInverses[static_cast<std::uint8_t>((k + parity) ^ data)];
}

std::vector<std::uint8_t> cauchy_matrix(std::size_t k, std::size_t m) {
  std::vector<std::uint8_t> matrix;
  matrix.reserve(k * m);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < k; ++j) matrix.push_back(coefficient(k, i, j));
  }
  return matrix;
}

// Gauss-Jordan on `rows` rows of `width` bytes each, whose first `rows` columns have an inverse:
// afterwards they are the identity matrix.
void solve(std::vector<std::uint8_t>& matrix, std::size_t rows, std::size_t width) {
  for (std::size_t column = 0; column < rows; ++column) {
    std::size_t pivot = column;
    while (matrix[pivot * width + column] == 0) ++pivot;
    std::swap_ranges(&matrix[pivot * width], &matrix[pivot * width] + width,
                     &matrix[column * width]);
    const auto& scaled = gf256::kProducts[gf256::kInverses[matrix[column * width + column]]];
    std::uint8_t* own = &matrix[column * width];
    for (std::size_t at = 0; at < width; ++at) own[at] = scaled[own[at]];
    for (std::size_t row = 0; row < rows; ++row) {
      if (row == column) continue;
      std::uint8_t* other = &matrix[row * width];
      const auto& multiples = gf256::kProducts[other[column]];
      for (std::size_t at = 0; at < width; ++at) other[at] ^= multiples[own[at]];
    }
  }
}

class MdsCode final : public ErasureCode {
 public:
  MdsCode(std::size_t k, std::size_t m, bool by_tables)
      : ErasureCode(k, m), by_tables_(by_tables), encoding_(cauchy_matrix(k, m), k, by_tables) {}

  void encode(const std::uint8_t* const* data, std::uint8_t* const* parity,
              std::size_t bytes) const override {
    encoding_.run(data, parity, bytes);
  }

  bool decodable(const Presence& present) const override {
    const auto count = std::count(present.begin(), present.end(), true);
    return static_cast<std::size_t>(count) >= data_chunks();
  }

  Decoder decoder(const Presence& present) const override;

 private:
  bool by_tables_;
  Product encoding_;
};

// With lost data L and as many parity rows P: sum over L of c d = parity + sum over the present of
// c d. Solved for L, every lost chunk is a sum over the present data and P.
ErasureCode::Decoder MdsCode::decoder(const Presence& present) const {
  const std::size_t k = data_chunks();
  std::vector<std::size_t> lost, columns, parities;
  for (std::size_t j = 0; j < k; ++j) (present[j] ? columns : lost).push_back(j);
  for (std::size_t i = 0; parities.size() < lost.size(); ++i) {
    if (present[k + i]) parities.push_back(i);
  }
  const std::size_t rows = lost.size(), width = rows + k;
  if (rows == 0) return [](auto...) {};
  std::vector<std::uint8_t> matrix;  // of a row: lost | present | parities
  matrix.reserve(rows * width);
  for (std::size_t row = 0; row < rows; ++row) {
    for (const std::size_t j : lost) matrix.push_back(coefficient(k, parities[row], j));
    for (const std::size_t j : columns) matrix.push_back(coefficient(k, parities[row], j));
    for (std::size_t other = 0; other < rows; ++other) matrix.push_back(other == row ? 1 : 0);
  }
  solve(matrix, rows, width);

  std::vector<std::uint8_t> decoding;
  decoding.reserve(rows * k);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::uint8_t* solved = &matrix[row * width] + rows;
    decoding.insert(decoding.end(), solved, solved + k);
  }
  return [lost, columns, parities, product = Product(std::move(decoding), k, by_tables_)](
             std::uint8_t* const* data, const std::uint8_t* const* parity, std::size_t bytes) {
    std::vector<const std::uint8_t*> sources;
    std::vector<std::uint8_t*> results;
    for (const std::size_t j : columns) sources.push_back(data[j]);
    for (const std::size_t i : parities) sources.push_back(parity[i]);
    for (const std::size_t j : lost) results.push_back(data[j]);
    product.run(sources.data(), results.data(), bytes);
  };
}

}  // namespace

std::unique_ptr<ErasureCode> make_mds_code(std::size_t data_chunks, std::size_t parity_chunks,
                                           bool by_tables) {
  return std::make_unique<MdsCode>(data_chunks, parity_chunks, by_tables);
}

}  // namespace softroce
