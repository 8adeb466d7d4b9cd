// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace softroce {

// Which of the chunks are there: k of data, then m of parity.
using Presence = std::vector<bool>;

// A systematic code: m chunks of parity for k chunks of data, all of equal length. The caller has
// tested k, m and all sizes (softroce_lab/transports/erasure/code.py).
class ErasureCode {
 public:
  ErasureCode(std::size_t data_chunks, std::size_t parity_chunks)
      : k_(data_chunks), m_(parity_chunks) {}
  virtual ~ErasureCode() = default;

  std::size_t data_chunks() const { return k_; }
  std::size_t parity_chunks() const { return m_; }

  virtual void encode(const std::uint8_t* const* data, std::uint8_t* const* parity,
                      std::size_t bytes) const = 0;

  // Whether the data can be had from what is present.
  virtual bool decodable(const Presence& present) const = 0;

  // Writes the data chunks that are not present, and nothing else, for any range of bytes of all
  // chunks. Only if decodable. The code outlives its decoders.
  using Decoder = std::function<void(std::uint8_t* const* data, const std::uint8_t* const* parity,
                                     std::size_t bytes)>;
  virtual Decoder decoder(const Presence& present) const = 0;
  void decode(const Presence& present, std::uint8_t* const* data, const std::uint8_t* const* parity,
              std::size_t bytes) const {
    decoder(present)(data, parity, bytes);
  }

 private:
  std::size_t k_, m_;
};

// Maximum distance separable: any k of the k + m chunks suffice. Reed-Solomon with a Cauchy matrix.
// `by_tables`: computed without ISA-L, as where there is none.
std::unique_ptr<ErasureCode> make_mds_code(std::size_t data_chunks, std::size_t parity_chunks,
                                           bool by_tables);

// Parity i is the exclusive or of all data j with j mod m = i: one loss a group can be restored.
std::unique_ptr<ErasureCode> make_xor_code(std::size_t data_chunks, std::size_t parity_chunks);

}  // namespace softroce
