// SPDX-License-Identifier: GPL-2.0-or-later
#include "uet_session.hpp"

#include <algorithm>

#include "../engine/mutant.hpp"

namespace softroce {
namespace {

constexpr Nanoseconds kRtoRtts = 2;
constexpr Nanoseconds kMostDoubled = 16;  // a doubled timeout, in timeouts
constexpr Nanoseconds kTrimmingRto = 100'000, kUsualRto = 5'000'000;

}  // namespace

UetSession::UetSession(MessageEngine& engine)
    : ConnectionSession(engine, number_of<std::size_t>(engine.config(), "psn_window"),
                        coalescing_by_bytes(engine)),
      has_trimming_(option<bool>("trimming")),
      rto_init_ns_(option<std::int64_t>("rto_init") != 0 ? option<std::int64_t>("rto_init")
                   : has_trimming_                       ? kTrimmingRto
                                                         : kUsualRto) {}

void UetSession::payload_cut(Connection& connection, Psn psn, bool) {
  if (mutated(Mutant::trimmed_acknowledged))
    connection.at(psn).is_done = true;
  else
    retransmit_early(connection, psn, RetransmitReason::trimmed);
}

// ---------------------------------------------------------------- the timer

Nanoseconds UetSession::rto_ns(PeerIndex index) const {
  return timeout_or(index, std::max(rto_init_ns_, kRtoRtts * rtt(index).srtt_ns));
}

Nanoseconds UetSession::wait_ns(const Record& record, Nanoseconds rto_ns, std::uint32_t) const {
  const std::int64_t timeouts = std::int64_t{record.transmissions} - 1 - record.early;
  return backed_off(rto_ns, timeouts, std::max(timing().t_max_ns, kMostDoubled * rto_ns));
}

// ---------------------------------------------------------------- options

std::vector<Option> UetSession::options(std::string_view path_picker) {
  return {{.name = "trimming",
           .usual = true,
           .help = "whether trimmed packets are answered by NACKs and retransmitted"},
          {.name = "rto_init",
           .usual = std::int64_t{0},
           .help = "the retransmission timeout, if two SRTTs are shorter; 0: 100 us with "
                   "`trimming`, 5 ms without",
           .unit = "time",
           .least = 0,
           .most = 8e9},
          {.name = "psn_window",
           .usual = std::int64_t{128},
           .help = "packets to a peer from the oldest unacknowledged one on",
           .least = 1,
           .most = 4096},
          acknowledged_bytes_option(),
          coalescing_time_option(),
          path_picker_option(path_picker)};
}

}  // namespace softroce
