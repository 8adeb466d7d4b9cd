// SPDX-License-Identifier: GPL-2.0-or-later
// How an endpoint of striped messages is set up.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "../codec/gid.hpp"
#include "../congestion/congestion.hpp"
#include "../units.hpp"
#include "coding.hpp"
#include "message_session.hpp"

namespace softroce {

// Parts of recovery by path numbers that an ablation switches off, one by one.
enum Mechanism : std::uint32_t {
  kPathNumbers = 1,        // the numbers themselves: timers find losses
  kProbes = 2,             // behind the last packet
  kProbeRepeats = 4,       // of those that nothing answers
  kJoinedReports = 8,      // reports go with acknowledgements and NACKs
  kReorderingWindow = 16,  // it adapts, else it stays 0
  kPortTrials = 32,        // a silent path tries its first port again
  kPathChoice = 64,        // the path with the fewest packets on their way
  // Parity (tail_parity.hpp) leaves
  kParityIdle = 128,            // only while nothing else may leave,
  kParityUnacknowledged = 256,  // only if no acknowledgement can have come yet,
  kParityUncongested = 512,     // only if the peer reports no congestion marks;
  kParityBursts = 1024,         // and more of it if losses come in bursts
  kSlowPorts = 2048,            // a path that carries less than its share takes another port
};

// Timers and bounds of the session, in nanoseconds; softroce_lab/transports/defaults.py says what
// each is for.
struct SessionTiming {
  std::int64_t t_min_ns = 4'000'000;
  std::int64_t clock_granularity_ns = 4'000'000;
  std::int64_t t_max_ns = 40'000'000;
  std::int64_t srtt_weight = 1;
  std::int64_t rttvar_weight = 1;
  std::int64_t lost_rttvar_weight = 4;
  std::int64_t rto_srtt = 3;
  std::int64_t fixed_rto_ns = 0;       // 0: by SRTT and t_min_ns
  std::int64_t rto_rttvar_weight = 0;  // 0: an RTO may be shorter than the measured one
  std::int64_t reordering_window_least_ns = 50'000;
  std::int64_t sack_interval_least_ns = 1'000'000;
  std::int64_t ack_delay_most_ns = 1'000'000;
  std::int64_t acks_in_batch = 16;
  std::int64_t keepalive_interval_ns = 10'000'000;
  std::int64_t keepalive_interval_most_ns = 40'000'000;
  std::int64_t keepalive_probes = 40;
  std::int64_t eager_rounds = 3;
  std::int64_t most_attempts = 200;
  std::int64_t rnr_retry = 7;
};

// Values of a transport's options by name; times are nanoseconds. Its registry entry declares and
// checks them (softroce_lab/transports/registry.py).
using OptionValue = std::variant<bool, std::int64_t, double, std::string>;
using Options = std::map<std::string, OptionValue, std::less<>>;

struct MessageConfig {
  Gid gid = Gid::of_ipv4(0);           // of the port
  std::uint32_t path_mtu = 2048;       // IB path MTU, bytes; the lab header counts toward it
  std::uint32_t paths = 8;             // UDP source ports in use
  std::uint32_t message_slots = 1024;  // messages outstanding per peer, a power of two;
                                       // the same at both ends
  std::uint32_t first_message_id = 0;  // ids count up from here and wrap
  std::uint8_t connection_epoch = 0;   // the same at both ends; other packets are refused
  bool path_probes = false;   // losses are found by the numbers on paths; the same at both ends
  std::uint32_t without = 0;  // of what belongs to that, by bits of Mechanism: switched off
  std::uint32_t window_packets = 1024;        // the constant window of a sender
  std::uint32_t most_unacked = 128;           // packets of a queue pair of RC, as rdma_rxe
  std::uint32_t receive_ring_packets = 2048;  // first credit, before the port reports its own
  std::uint32_t report_every_packets = 64;
  bool carries_payload = true;  // false: packets have lengths and no bytes, requests no memory
  Time report_least_interval = 100 * kMicrosecond;
  Time initial_rtt = 2 * kMillisecond;
  Time persist_least = 20 * kMillisecond;
  Time packet_lifetime = 1000 * kMillisecond;  // the longest that a packet is on its way
  Time rto_low = 0;   // of a session that reacts to every packet; 0: the paper's share of
                      // `initial_rtt`
  Time rto_high = 0;  // also before an unmeasured peer's closed window counts as lost
  Time timeout = 0;   // of such a session, in place of all it has; 0: its own
  bool timeout_measured = false;  // no timeout of it is shorter than the measured RTO
  std::uint64_t line_rate_bps = 100'000'000'000;  // of the port
  Time base_rtt = 0;                              // of an empty fabric; 0: initial_rtt
  Time cnp_interval = 50 * kMicrosecond;          // dcqcn
  Time target_delay = 0, hop_delay = 0;           // swift; 0: shares of base_rtt
  Time pacing_slack = 0;       // by how much late a paced packet may be and the next keep its time
  std::string framing = "ud";  // the same at both ends
  std::string congestion_control = "bdp";
  std::string schedule = "least-left";  // send_order.hpp
  CodeConfig code;                      // of striped messages
  SessionTiming timing;
  Options options;
  bool carries_operations = false;  // queue pairs of reliable connections use the transport
  // A session (message_session.hpp) by name; "policy": events wait for whoever takes them, and acts
  // by hand.
  std::string transport = std::string(kPolicyTransport);
};

inline CongestionConfig congestion_of(const MessageConfig& config) {
  return {.name = config.congestion_control,
          .window_packets = config.window_packets,
          .most_unacked = config.most_unacked,
          .line_rate_bps = config.line_rate_bps,
          .base_rtt = config.base_rtt != 0 ? config.base_rtt : config.initial_rtt,
          .cnp_interval = config.cnp_interval,
          .target_delay = config.target_delay,
          .hop_delay = config.hop_delay,
          .pacing_slack = config.pacing_slack};
}

}  // namespace softroce
