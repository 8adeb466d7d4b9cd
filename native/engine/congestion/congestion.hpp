// SPDX-License-Identifier: GPL-2.0-or-later
// Congestion control: how many packets may be in flight to a peer, and when the next one may leave.
// A registry by name; docs/explanation/transports.md has the sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../units.hpp"

namespace softroce {

struct CongestionConfig {
  std::string name = "bdp";
  std::uint32_t window_packets = 1024;            // one bandwidth-delay product: the most
  std::uint32_t most_unacked = 128;               // of a queue pair of RC, whatever the window
  std::uint64_t line_rate_bps = 100'000'000'000;  // of the port
  Time base_rtt = 2 * kMillisecond;               // of the fabric while its queues are empty
  Time cnp_interval = 50 * kMicrosecond;          // dcqcn: least time between two CNPs of a flow
  Time target_delay = 0, hop_delay = 0;           // swift; 0: shares of base_rtt
  Time pacing_slack = 0;                          // by how much late a paced packet may be and
                                                  // the next one still keep its time
};

struct RateSample {  // from one receiver report or acknowledgement
  Time rtt;          // without the time that the receiver held it; 0: not measured
  std::uint32_t delivered_packets;
  std::uint32_t ce_packets;
  std::uint32_t hops = 0;  // switches on the way back
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;

  // ---- read for each packet, and changed by nothing but the calls below
  std::uint32_t window_packets() const { return window_packets_; }
  Time next_send() const { return next_send_; }    // no packet of the flow may leave before
  bool is_paced() const { return paced_; }         // needs `on_sent`
  bool measures_rtt() const { return measures_; }  // needs samples of each acknowledgement

  // ---- what happened
  virtual void on_sent(std::uint32_t /*frame_bytes*/, Time /*now*/) {}
  virtual void on_report(const RateSample& /*sample*/, Time /*now*/) {}
  virtual void on_cnp(Time /*now*/) {}
  virtual void on_loss(Time /*now*/) {}     // found by a gap
  virtual void on_trimmed(Time /*now*/) {}  // a queue cut off a packet's payload
  virtual void on_timeout(Time /*now*/) {}  // nothing was received

  // ---- for those who watch
  struct Figures {
    std::uint64_t rate_bps = 0;    // 0: not limited by a rate
    std::uint64_t target_bps = 0;  // dcqcn
    double alpha = 0;              // dcqcn
    double window = 0;             // packets
    Time target_delay = 0;         // swift
  };
  virtual Figures figures(Time now) = 0;

 protected:
  CongestionControl(std::uint32_t window_packets, bool paced, bool measures)
      : window_packets_(window_packets), paced_(paced), measures_(measures) {}

  std::uint32_t window_packets_;
  Time next_send_ = 0;

 private:
  const bool paced_, measures_;
};

// Throws std::invalid_argument: an unknown name (the message lists the known ones), or a line rate
// or base RTT of nothing.
std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config);
std::vector<std::string> congestion_control_names();

// Of `grants` (native/engine/striped/grants.hpp): its name; what a sender may have in flight that
// the receiver puts off; and the part of a window that it has by itself, three quarters of a
// bandwidth-delay product. A window is 1.5 of these and eight packets.
inline constexpr std::string_view kGrants = "grants";
inline constexpr std::uint32_t kTrickled = 8;
inline std::uint32_t granted_share(std::uint32_t window_packets) {
  const std::uint32_t products = std::max(window_packets, 8U) - 8;
  return std::max(products / 2, std::min(window_packets, kTrickled));
}

// Whether receivers notify senders of congestion marks (CNPs, IBA annex A17.9).
bool sends_cnps(std::string_view congestion_control);

std::unique_ptr<CongestionControl> make_dcqcn(const CongestionConfig& config);
std::unique_ptr<CongestionControl> make_nscc(const CongestionConfig& config);
std::unique_ptr<CongestionControl> make_swift(const CongestionConfig& config);

// The notification point of one flow (Zhu et al., SIGCOMM 2015, section 3.1).
class NotificationPoint {
 public:
  // Whether the current mark triggers a CNP: none was sent for so long.
  bool marked(Time now, Time interval) {
    if (now < silent_until_) return false;
    silent_until_ = now + interval;
    return true;
  }

 private:
  Time silent_until_ = 0;
};

}  // namespace softroce
