// SPDX-License-Identifier: GPL-2.0-or-later
// The receiver report: the only input of congestion control and RTT estimation.
//
//   0 echo_stamp_ns  4 echo_delay_ns  8 credit_packets  12 packets  16 ce_packets
//   20 lost_packets  24 loss_bursts  28 marked_paths u16  30 paths u16
//   32 paths x { packets u32, bytes u64 }          all big-endian, all counts since the beginning
//
// lost_packets are numbers that were skipped on paths, and loss_bursts how often some in a row
// were; both may go down, when a packet comes that was taken for lost. 0 without numbers on paths.
//
// marked_paths are those on which a packet was marked since the last report, by bits. Only nscc
// needs them; otherwise there are none.
//
// Where data packets carry no stamps (framing uc_immediate), a report names packets instead: the
// newest to arrive on each path follows, paths x { channel 10 bits, lowest 22 bits of the PSN },
// all ones where none has, and echo_stamp_ns is the path of the last.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "peer.hpp"

namespace softroce {

inline constexpr std::uint32_t kReportFixedBytes = 32;
inline constexpr std::uint32_t kReportPathBytes = 12;

struct Report {
  std::uint32_t echo_stamp_ns = 0;
  std::uint32_t echo_delay_ns = 0;  // from the stamped packet's arrival to this report
  std::uint32_t credit_packets = 0;
  std::uint32_t packets = 0;
  std::uint32_t ce_packets = 0;
  LossCount lost;
  std::uint32_t paths = 0;
  std::uint32_t marked_paths = 0;
  std::array<PathCount, kMaxPaths> arrived{};
  std::array<std::uint32_t, kMaxPaths> newest{};  // codes
};

namespace report_detail {
inline void put32(std::uint8_t* at, std::uint32_t v) {
  v = __builtin_bswap32(v);
  std::memcpy(at, &v, 4);
}
inline void put64(std::uint8_t* at, std::uint64_t v) {
  v = __builtin_bswap64(v);
  std::memcpy(at, &v, 8);
}
inline std::uint32_t get32(const std::uint8_t* at) {
  std::uint32_t v;
  std::memcpy(&v, at, 4);
  return __builtin_bswap32(v);
}
inline std::uint64_t get64(const std::uint8_t* at) {
  std::uint64_t v;
  std::memcpy(&v, at, 8);
  return __builtin_bswap64(v);
}
}  // namespace report_detail

inline std::uint32_t report_bytes(std::uint32_t paths, bool names_packets) {
  return kReportFixedBytes + paths * (kReportPathBytes + (names_packets ? 4 : 0));
}

inline void write_report(const Report& report, bool names_packets, std::vector<std::uint8_t>& out) {
  using namespace report_detail;
  out.resize(report_bytes(report.paths, names_packets));
  put32(&out[0], report.echo_stamp_ns);
  put32(&out[4], report.echo_delay_ns);
  put32(&out[8], report.credit_packets);
  put32(&out[12], report.packets);
  put32(&out[16], report.ce_packets);
  put32(&out[20], report.lost.packets);
  put32(&out[24], report.lost.bursts);
  put32(&out[28], report.marked_paths << 16 | report.paths);
  for (std::uint32_t p = 0; p < report.paths; ++p) {
    std::uint8_t* at = &out[kReportFixedBytes + p * kReportPathBytes];
    put32(at, report.arrived[p].packets);
    put64(at + 4, report.arrived[p].bytes);
  }
  if (!names_packets) return;
  for (std::uint32_t p = 0; p < report.paths; ++p)
    put32(&out[report_bytes(report.paths, false) + 4 * p], report.newest[p]);
}

// False: not a report.
inline bool read_report(const std::uint8_t* body, std::uint32_t bytes, bool names_packets,
                        Report& report) {
  using namespace report_detail;
  if (bytes < kReportFixedBytes) return false;
  report.echo_stamp_ns = get32(body);
  report.echo_delay_ns = get32(body + 4);
  report.credit_packets = get32(body + 8);
  report.packets = get32(body + 12);
  report.ce_packets = get32(body + 16);
  report.lost = {get32(body + 20), get32(body + 24)};
  report.paths = get32(body + 28) & 0xffff;
  report.marked_paths = get32(body + 28) >> 16;
  if (report.paths == 0 || report.paths > kMaxPaths) return false;
  if (bytes != report_bytes(report.paths, names_packets)) return false;
  for (std::uint32_t p = 0; p < report.paths; ++p) {
    const std::uint8_t* at = body + kReportFixedBytes + p * kReportPathBytes;
    report.arrived[p] = {get32(at), get64(at + 4)};
  }
  report.newest.fill(~0U);
  for (std::uint32_t p = 0; names_packets && p < report.paths; ++p)
    report.newest[p] = get32(body + report_bytes(report.paths, false) + 4 * p);
  return true;
}

}  // namespace softroce
