// SPDX-License-Identifier: GPL-2.0-or-later
#include "erasure_code.hpp"

namespace softroce {
namespace {

// What every processor of today has registers for; at any address.
using Vector = std::uint64_t __attribute__((vector_size(16), aligned(1), may_alias));
constexpr std::size_t kLineBytes = 4 * sizeof(Vector);

const Vector* vectors(const std::uint8_t* bytes) { return reinterpret_cast<const Vector*>(bytes); }

// The exclusive or of some chunks, at least one. The sums of a line stay in four registers: each
// byte is read once, and each byte of the result is written once.
void add_all(std::uint8_t* result, const std::vector<const std::uint8_t*>& sources,
             std::size_t bytes) {
  std::size_t at = 0;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    const Vector* first = vectors(sources[0] + at);
    Vector a = first[0], b = first[1], c = first[2], d = first[3];
    for (std::size_t i = 1; i < sources.size(); ++i) {
      const Vector* next = vectors(sources[i] + at);
      a ^= next[0], b ^= next[1], c ^= next[2], d ^= next[3];
    }
    auto* sum = reinterpret_cast<Vector*>(result + at);
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
  }
  for (; at < bytes; ++at) {
    std::uint8_t sum = 0;
    for (const std::uint8_t* source : sources) sum ^= source[at];
    result[at] = sum;
  }
}

class XorCode final : public ErasureCode {
 public:
  using ErasureCode::ErasureCode;

  void encode(const std::uint8_t* const* data, std::uint8_t* const* parity,
              std::size_t bytes) const override {
    std::vector<const std::uint8_t*> sources;
    for (std::size_t group = 0; group < parity_chunks(); ++group) {
      sources.clear();
      for (std::size_t j = group; j < data_chunks(); j += parity_chunks()) {
        sources.push_back(data[j]);
      }
      add_all(parity[group], sources, bytes);
    }
  }

  bool decodable(const Presence& present) const override {
    for (std::size_t group = 0; group < parity_chunks(); ++group) {
      std::size_t lost = present[data_chunks() + group] ? 0 : 1;
      for (std::size_t j = group; j < data_chunks(); j += parity_chunks()) {
        if (!present[j]) ++lost;
      }
      if (lost > 1) return false;
    }
    return true;
  }

  Decoder decoder(const Presence& present) const override {
    return [this, present](std::uint8_t* const* data, const std::uint8_t* const* parity,
                           std::size_t bytes) {
      std::vector<const std::uint8_t*> sources;
      for (std::size_t lost = 0; lost < data_chunks(); ++lost) {
        if (present[lost]) continue;
        const std::size_t group = lost % parity_chunks();
        sources.assign(1, parity[group]);
        for (std::size_t j = group; j < data_chunks(); j += parity_chunks()) {
          if (j != lost) sources.push_back(data[j]);
        }
        add_all(data[lost], sources, bytes);
      }
    };
  }
};

}  // namespace

std::unique_ptr<ErasureCode> make_xor_code(std::size_t data_chunks, std::size_t parity_chunks) {
  return std::make_unique<XorCode>(data_chunks, parity_chunks);
}

}  // namespace softroce
