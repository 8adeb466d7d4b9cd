// SPDX-License-Identifier: GPL-2.0-or-later
// Erasure codes over the rows of numpy arrays, without copies.
// softroce_lab/transports/erasure/code.py has tested the arrays' shapes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "../erasure/erasure_code.hpp"
#include "../transport/sdr_model.hpp"
#include "bindings.hpp"

#ifdef SOFTROCE_HAS_ISAL
#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>
#endif

namespace softroce {
namespace {

template <typename Byte>
using Chunks = nb::ndarray<Byte, nb::ndim<2>, nb::device::cpu>;
using Flags = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Byte>
std::vector<Byte*> rows(const Chunks<Byte>& chunks) {
  std::vector<Byte*> result(chunks.shape(0));
  for (std::size_t row = 0; row < result.size(); ++row) {
    result[row] = chunks.data() + static_cast<std::int64_t>(row) * chunks.stride(0);
  }
  return result;
}

Presence presence(const Flags& flags) {
  return Presence(flags.data(), flags.data() + flags.shape(0));
}

void encode_rows(const ErasureCode& code, const Chunks<const std::uint8_t>& data,
                 const Chunks<std::uint8_t>& parity) {
  const auto from = rows(data);
  const auto to = rows(parity);
  const nb::gil_scoped_release release;
  code.encode(from.data(), to.data(), data.shape(1));
}

void decode_rows(const ErasureCode& code, const Flags& flags, const Chunks<std::uint8_t>& data,
                 const Chunks<const std::uint8_t>& parity) {
  const Presence present = presence(flags);
  const auto to = rows(data);
  const auto from = rows(parity);
  const nb::gil_scoped_release release;
  code.decode(present, to.data(), from.data(), data.shape(1));
}

// What `sdr_auto` compares.
std::vector<double> sdr_expected_ns(
    std::int64_t message_bytes, std::int64_t chunk_bytes, std::int64_t chunk_packets, double loss,
    double rtt_ns, double bandwidth_bps, double beta,
    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& codes) {
  std::vector<CodeShape> shapes;
  for (const auto& [k, m] : codes) shapes.push_back({k, m});
  return sdr_model::expected_ns({.message_bytes = message_bytes,
                                 .chunk_bytes = chunk_bytes,
                                 .chunk_packets = chunk_packets,
                                 .loss = loss,
                                 .rtt_ns = rtt_ns,
                                 .bandwidth_bps = bandwidth_bps,
                                 .beta = beta},
                                shapes);
}

#ifdef SOFTROCE_HAS_ISAL

// What tests and `benchmarks/ec.py` compare with: ISA-L's functions alone, with its own matrix.
nb::bytes isal_tables(int k, int m) {
  std::vector<std::uint8_t> matrix(static_cast<std::size_t>((k + m) * k));
  std::vector<std::uint8_t> tables(static_cast<std::size_t>(32 * k * m));
  gf_gen_cauchy1_matrix(matrix.data(), k + m, k);
  ec_init_tables(k, m, matrix.data() + k * k, tables.data());
  return nb::bytes(tables.data(), tables.size());
}

void isal_encode(const nb::bytes& tables, const Chunks<std::uint8_t>& data,
                 const Chunks<std::uint8_t>& parity) {
  auto from = rows(data), to = rows(parity);
  auto* coefficients = static_cast<std::uint8_t*>(const_cast<void*>(tables.data()));
  ec_encode_data(static_cast<int>(data.shape(1)), static_cast<int>(from.size()),
                 static_cast<int>(to.size()), coefficients, from.data(), to.data());
}

// Parity i of data j with j mod m = i. Its arrays begin at multiples of 32 bytes.
void isal_xor(const Chunks<std::uint8_t>& data, const Chunks<std::uint8_t>& parity) {
  const auto from = rows(data), to = rows(parity);
  for (std::size_t group = 0; group < to.size(); ++group) {
    std::vector<void*> vectors;
    for (std::size_t j = group; j < from.size(); j += to.size()) vectors.push_back(from[j]);
    vectors.push_back(to[group]);
    xor_gen(static_cast<int>(vectors.size()), static_cast<int>(data.shape(1)), vectors.data());
  }
}

#endif

}  // namespace

void bind_erasure(nb::module_& m) {
  nb::class_<ErasureCode>(m, "ErasureCode")
      .def("encode", &encode_rows, nb::arg("data").noconvert(), nb::arg("parity").noconvert())
      .def(
          "decodable",
          [](const ErasureCode& code, const Flags& flags) {
            return code.decodable(presence(flags));
          },
          nb::arg("present").noconvert())
      .def("decode", &decode_rows, nb::arg("present").noconvert(), nb::arg("data").noconvert(),
           nb::arg("parity").noconvert());
  m.def("make_mds_code", &make_mds_code, nb::arg("data_chunks"), nb::arg("parity_chunks"),
        nb::arg("by_tables") = false);
  m.def("make_xor_code", &make_xor_code);
  m.def("sdr_expected_ns", &sdr_expected_ns, nb::arg("message_bytes"), nb::arg("chunk_bytes"),
        nb::arg("chunk_packets"), nb::arg("loss"), nb::arg("rtt_ns"), nb::arg("bandwidth_bps"),
        nb::arg("beta"), nb::arg("codes"),
        "mean completion times with each (k, m), and at the end that of selective repeat");
#ifdef SOFTROCE_HAS_ISAL
  m.def("isal_tables", &isal_tables);
  m.def("isal_encode", &isal_encode, nb::arg("tables"), nb::arg("data").noconvert(),
        nb::arg("parity").noconvert());
  m.def("isal_xor", &isal_xor, nb::arg("data").noconvert(), nb::arg("parity").noconvert());
#endif
}

}  // namespace softroce
