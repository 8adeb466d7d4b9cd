// SPDX-License-Identifier: GPL-2.0-or-later
#include "reporter.hpp"

#include <algorithm>
#include <utility>

#include "report.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kLeastReported = 8;  // packets, or half of a window that is smaller
constexpr std::uint32_t kNsccReported = 4;   // packets: 16 KiB, as in the simulator of the UEC
constexpr Time kDelayOfRtt = 2;              // of packets that no other message reports

// Whether the message ends with so many packets: its acknowledgement takes the report along.
bool ends_within(const LabHeader& lab, std::uint32_t packets) {
  return lab.index + packets >= lab.count;
}

}  // namespace

void Reporter::note_arrival(Peer& peer, const Packet& packet, Time now) {
  const LabHeader& lab = packet.lab;
  relaxed_store(peer.last_received_at, now);
  peer.arrived[lab.path].packets += 1;
  peer.arrived[lab.path].bytes += packet.payload_bytes;
  ++peer.arrived_packets;
  if (packet.congestion_experienced()) {
    ++peer.ce_packets;
    if (is_nscc_) peer.marked_paths |= 1U << lab.path;
    if (notifies_) notify_congestion(peer, now);
  }
  // The rate is that of arrivals between two reports; the pause before the first is not in it.
  if (peer.unreported == 0) peer.rate_since = now;
  peer.bytes_since_rate = peer.unreported == 0 ? 0 : peer.bytes_since_rate + packet.payload_bytes;
  active_.note(peer.active_epoch, now);
  if (peer.channels) {
    if (peer.channels->note(packet)) relaxed_store(peer.newest_data.at, now);
  } else {
    note_stamps(peer, lab, now);
  }

  ++peer.unreported;
  const std::uint32_t due = peer.report_due != 0 ? peer.report_due : packets_of_a_report_;
  const bool waits = joins_ && peer.unreported < 2 * due && ends_within(lab, due);
  if (peer.unreported >= due && !waits) return queue_report(peer);
  // If reports go with other messages, parity waits for one: often its message is acknowledged.
  const bool asks = lab.kind == LAB_KIND_DATA || !joins_;
  if (asks && peer.report_at == kNever && !peer.report_queued) {
    peer.report_at = report_due_at(peer, now);
    peer.report_by = report_due_at(peer, peer.report_at);
    state_.timers.arm(peer.report_at, TimerKind::report, peer.index);
  }
}

// Where reports go with other messages, those of their own are few: a quarter of what the peer may
// have in flight opens with each. That is the window, or the credit that it knows of.
std::uint32_t Reporter::most_unreported(std::uint32_t credit) const {
  const std::uint32_t most = state_.config.report_every_packets;
  if (is_nscc_) return std::min(kNsccReported, most);
  if (!joins_) return most;
  const std::uint32_t window = std::min(state_.config.window_packets, credit);
  const std::uint32_t least = std::min({kLeastReported, std::max(window / 2, 1U), most});
  return std::clamp(window / 4, least, most);
}

Time Reporter::report_delay(const Peer& peer) const {
  const Time srtt = Time{peer.remote_srtt_ns} * kNanosecond;
  if (!delays_) return srtt / 4;
  return kDelayOfRtt * (srtt != 0 ? srtt : state_.config.initial_rtt);
}

void Reporter::append_report(Peer& peer, std::vector<std::uint8_t>& body, std::size_t most,
                             Time now) {
  if (!joins_ || (peer.unreported == 0 && !has_news_of_credit(peer))) return;
  if (body.size() + report_bytes(state_.config.paths, false) > most) return;
  fill_report(peer, now);
  body.insert(body.end(), body_.begin(), body_.end());
}

// Of what was trimmed nothing is reported, but others may fill the last link now: the sender must
// know its credit before it retransmits.
bool Reporter::has_news_of_credit(const Peer& peer) {
  return peer.newest_data.at >= 0 && peer.arrivals != nullptr && !peer.arrivals->trimmed.empty();
}

void Reporter::note_stamps(Peer& peer, const LabHeader& lab, Time now) {
  if (peer.newest_data.at >= 0)
    peer.reordering_extent.sample(
        kNanosecond * std::max(stamp_distance(peer.newest_data.stamp_ns, lab.stamp_ns), 0));
  peer.newest.note(lab.stamp_ns, now);
  peer.newest_data.note(lab.stamp_ns, now);
  relaxed_store(peer.remote_srtt_ns, lab_time_ns(lab.srtt));
  relaxed_store(peer.remote_rttvar_ns, lab_time_ns(lab.rttvar));
}

void Reporter::report_fired(Peer& peer, Time armed_for) {
  if (peer.report_at != armed_for || peer.unreported == 0) return;
  // While packets come, they count, but not for long: the sender's timers wait for reports.
  const Time due = std::min(report_due_at(peer, peer.newest_data.at), peer.report_by);
  if (!delays_ || due <= armed_for) return queue_report(peer);
  peer.report_at = due;
  state_.timers.arm(due, TimerKind::report, peer.index);
}

Time Reporter::report_due_at(const Peer& peer, Time since) const {
  return since + std::max(report_delay(peer), state_.config.report_least_interval);
}

void Reporter::queue_report(Peer& peer) {
  if (peer.report_queued) return;
  peer.report_queued = true;
  reports_.push_back(peer.index);
}

bool Reporter::poll_report(Packet& packet, Time now) {
  while (!reports_.empty()) {
    Peer& peer = state_.peers[reports_.front()];
    reports_.pop_front();
    peer.report_queued = false;
    if (peer.unreported == 0 && joins_) continue;  // it went with another message
    put_report(peer, packet, now);
    return true;
  }
  return false;
}

void Reporter::put_report(Peer& peer, Packet& packet, Time now) {
  fill_report(peer, now);
  packet.lab = {.kind = LAB_KIND_REPORT,
                .path = peer.control_path(),
                .message = peer.control_sequence++,
                .length = static_cast<std::uint32_t>(body_.size())};
  packet.payload = body_.data();
  packet.payload_bytes = packet.lab.length;
  state_.address(peer, true, now, packet);
  state_.counters.add(Counter::tx_report);
}

void Reporter::fill_report(Peer& peer, Time now) {
  Report report{
      .echo_stamp_ns = peer.channels ? peer.channels->last_path : peer.newest_data.stamp_ns,
      .echo_delay_ns = saturate_ns(now - peer.newest_data.at),
      .credit_packets = credit_for(peer, now),
      .packets = peer.arrived_packets,
      .ce_packets = peer.ce_packets,
      .lost = lost_from(peer, now),
      .paths = state_.config.paths,
      .marked_paths = std::exchange(peer.marked_paths, 0),
      .arrived = peer.arrived};
  peer.report_due = most_unreported(report.credit_packets);
  if (peer.channels) report.newest = peer.channels->newest;
  write_report(report, peer.channels != nullptr, body_);
  peer.unreported = 0;
  peer.report_at = kNever;
  measure_rate(peer);
}

LossCount Reporter::lost_from(Peer& peer, Time now) const {
  if (peer.arrivals == nullptr) return {};
  return peer.arrivals->confirmed_lost(now, state_.srtt_from(peer));
}

// Of what arrived since the last report; the pause before the first packet is not in it.
void Reporter::measure_rate(Peer& peer) {
  const Time span = peer.newest_data.at - peer.rate_since;
  if (span > 0 && peer.bytes_since_rate != 0) {
    const double rate =
        static_cast<double>(peer.bytes_since_rate) * 1e12 / static_cast<double>(span);
    const double before = peer.receive_bytes_per_second;
    relaxed_store(peer.receive_bytes_per_second, before == 0 ? rate : before + (rate - before) / 8);
  }
  peer.bytes_since_rate = 0;  // each is counted once: a report may tell nothing but a new credit
}

// The free frames of the ring are shared among those who use it.
std::uint32_t Reporter::credit_for(Peer& peer, Time now) {
  const bool marked = std::exchange(peer.reported_marks, peer.ce_packets) != peer.ce_packets;
  return std::min(credit_ / std::max(active_.count(now), 1U),
                  state_.grants.window_for(peer, marked, now));
}

void Reporter::notify_congestion(Peer& peer, Time now) {
  if (!peer.notification.marked(now, state_.config.cnp_interval) || peer.cnp_queued) return;
  peer.cnp_queued = true;
  cnps_.push_back(peer.index);
}

bool Reporter::poll_cnp(Packet& packet) {
  if (cnps_.empty()) return false;
  Peer& peer = state_.peers[cnps_.front()];
  cnps_.pop_front();
  peer.cnp_queued = false;
  packet.destination_mac = peer.address.mac;
  packet.source = state_.config.gid;
  packet.destination = peer.address.gid;
  packet.source_port =
      static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + peer.ports.of(peer.schedule.next()));
  make_cnp(packet, peer.address.data_qp);
  state_.counters.add(Counter::tx_cnp);
  return true;
}

}  // namespace softroce
