// SPDX-License-Identifier: GPL-2.0-or-later
#include "message_engine.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "../mutant.hpp"
#include "ud_framing.hpp"

namespace softroce {
namespace {

constexpr std::size_t kMostEvents = 1 << 12;  // waiting for a policy that lags, with bodies
constexpr std::size_t kMostSmallControls = 1 << 16;
constexpr Time kTellInterval = kMillisecond;  // between events of packets without effect

std::uint32_t saturate_ns(Time time) {
  return static_cast<std::uint32_t>(std::min<Time>(time / kNanosecond, UINT32_MAX));
}

// Stands for all of a peer's QPs in the table of sources: no packet comes from it.
constexpr std::uint32_t kAnyQp = 1 << 24;

}  // namespace

CongestionConfig congestion_of(const MessageConfig& config) {
  return {.name = config.congestion_control,
          .window_packets = config.window_packets,
          .line_rate_bps = config.line_rate_bps,
          .base_rtt = config.base_rtt != 0 ? config.base_rtt : config.initial_rtt,
          .cnp_interval = config.cnp_interval,
          .target_delay = config.target_delay,
          .hop_delay = config.hop_delay,
          .pacing_slack = config.pacing_slack};
}

MessageEngine::MessageEngine(const MessageConfig& config, MemoryTable& memory,
                             CompletionQueue& completions, Counters& counters,
                             std::uint32_t data_qp, std::uint32_t recovery_qp)
    : config_(config),
      framing_(framing_named(config.framing)),
      chunk_bytes_(chunk_bytes_of(framing_, config.path_mtu)),
      memory_(memory),
      completions_(completions),
      counters_(counters),
      data_qp_(data_qp),
      recovery_qp_(recovery_qp),
      credit_(config.receive_ring_packets),
      notifies_(sends_cnps(config.congestion_control)) {
  if (!std::has_single_bit(config.message_slots))
    throw std::invalid_argument("message_slots must be a power of two");
  if (config.paths == 0 || config.paths > kMaxPaths)
    throw std::invalid_argument("paths must be 1 to 16");
  if (config.window_packets == 0 || config.window_packets > FlightLog::kMostInFlight)
    throw std::invalid_argument("window_packets must be 1 to 1048576");
  if (!std::has_single_bit(config.path_mtu) || config.path_mtu < 256 || config.path_mtu > 4096)
    throw std::invalid_argument("path_mtu must be 256, 512, 1024, 2048 or 4096");
  if (framing_ == Framing::uc_immediate && config.message_slots > uc_framing::kMostSlots)
    throw std::invalid_argument("message_slots must be at most 1024: an immediate has 10 bits");
  make_congestion_control(congestion_of(config));  // is all of it known?
  transport_ = make_packet_transport(config.transport,
                                     {.base_rtt = config.initial_rtt,
                                      .rto_low = config.rto_low,
                                      .rto_high = config.rto_high,
                                      .bdp_packets = config.window_packets,
                                      .retry_limit = config.retry_limit,
                                      .rnr_retry = config.rnr_retry,
                                      .message_slots = config.message_slots},
                                     *this);
  if (transport_ != nullptr && framing_ != Framing::ud)
    throw std::invalid_argument("transport " + config.transport + " needs the framing ud");
}

PeerIndex MessageEngine::connect(const PeerAddress& address) {
  const auto index = static_cast<PeerIndex>(peers_.size());
  if (address.gid.is_ipv4() != config_.gid.is_ipv4())
    throw std::system_error(EAFNOSUPPORT, std::generic_category(), "connect");
  if (framing_ == Framing::uc_immediate && index >= uc_framing::kMostPeers)
    throw std::system_error(ENOMEM, std::generic_category(), "connect: no channels are left");
  for (const std::uint32_t qp : {address.data_qp, address.recovery_qp})
    if (!peer_by_source_.emplace(Source{address.gid, qp}, index).second)
      throw std::system_error(EISCONN, std::generic_category(), "connect");
  const std::lock_guard lock(peers_lock_);
  Peer& peer =
      peers_.emplace_back(index, address, config_.message_slots, config_.paths,
                          config_.window_packets, make_congestion_control(congestion_of(config_)));
  peer_by_source_.emplace(Source{address.gid, kAnyQp}, index);
  peer.next_id = config_.first_message_id;
  peer.credit_packets = config_.receive_ring_packets;
  if (framing_ == Framing::uc_immediate) {
    peer.channels =
        std::make_unique<Channels>(index, config_.first_message_id, config_.message_slots);
    peer.flight.keep_codes();
  }
  peer_look_at_.push_back(kNever);
  return index;
}

// ---------------------------------------------------------------- events

void MessageEngine::emit(Event event) {
  if (event_sink_ != nullptr) [[unlikely]]
    event_sink_->note({.kind = QpEventKind::message,
                       .code = static_cast<std::uint8_t>(event.kind),
                       .qp = event.kind == EventKind::control ? recovery_qp_ : data_qp_,
                       .at = event.at,
                       .bytes = event.body.empty() ? event.length : event.body.size(),
                       .peer = event.peer,
                       .packets = event.count,
                       .key = event.key});
  if (transport_ == nullptr) events_.push_back(std::move(event));
}

void MessageEngine::complete(const WorkCompletion& completion) {
  if (event_sink_ != nullptr) [[unlikely]]
    event_sink_->note({.kind = QpEventKind::completion,
                       .code = static_cast<std::uint8_t>(completion.status),
                       .from = static_cast<std::uint8_t>(completion.opcode),
                       .qp = data_qp_,
                       .at = completion.completed_at,
                       .wr_id = completion.wr_id,
                       .bytes = completion.byte_len,
                       .peer = completion.peer,
                       .packets = completion.packets,
                       .key = completion.key});
  completions_.push(completion);
}

template <typename Message>
void MessageEngine::emit_about(EventKind kind, const Message& message, Time now) {
  emit({.kind = kind,
        .peer = message.peer,
        .message = message.handle,
        .at = now,
        .key = message.key,
        .id = message.id,
        .length = message.length,
        .count = message.count});
}

// ---------------------------------------------------------------- work requests

// An id whose slot is free: the receiver has done with what used the slot before.
std::uint32_t MessageEngine::take_id(Peer& peer) {
  const auto mask = static_cast<std::uint32_t>(peer.send_slots.size()) - 1;
  while (peer.send_slots[peer.next_id & mask] && !mutated(Mutant::slot_reused_early))
    ++peer.next_id;
  peer.send_slots[peer.next_id & mask] = true;
  return peer.next_id++;
}

bool MessageEngine::post_send(const WorkRequest& request, Time now) {
  if (request.peer >= peers_.size()) return false;
  Peer& peer = peers_[request.peer];
  if (peer.sends_outstanding >= config_.message_slots) return false;
  if (peer.channels && packets_of(request.length, chunk_bytes_) > uc_framing::kMostPackets)
    return false;
  if (!sending_.insert({request.peer, request.key}).second) return false;
  SendMessage& message = sends_.acquire();
  // No lock is held meanwhile: nobody knows the new handle before the event.
  message.peer = request.peer;
  message.key = request.key;
  message.id = peer.channels ? peer.next_id++ : take_id(peer);
  ++peer.sends_outstanding;
  message.base = request.base;
  message.length = request.length;
  message.count = packets_of(request.length, chunk_bytes_);
  message.memory_key = request.memory_key;
  message.wr_id = request.wr_id;
  message.next = 0;
  message.resend.reset(message.count);
  message.resend_pending = 0;
  message.resend_cursor = 0;
  message.in_send_queue = !peer.channels;
  message.in_resend_queue = false;
  message.paused = false;
  message.cleared = !peer.channels;
  message.sent.assign(message.count, {});
  message.look_at = kNever;
  message.posted_at = now;
  message.first_at = 0;
  message.resent = 0;
  if (transport_ != nullptr) {
    message.path = config_.spray ? kAnyPath : peer.schedule.next();
    transport_->send_posted(message);
  }
  if (!peer.channels) {
    peer.sends.push_back(message.handle);
    make_ready(peer);
  }
  emit_about(EventKind::send_posted, message, now);
  if (peer.channels) wait_for_clearance(peer, message, now);
  return true;
}

bool MessageEngine::post_receive(const WorkRequest& request, Time now) {
  const PeerKey key{request.peer, request.key};
  if (request.peer >= peers_.size() || posted_.contains(key)) return false;
  Peer& peer = peers_[request.peer];
  if (peer.channels && packets_of(request.length, chunk_bytes_) > uc_framing::kMostPackets)
    return false;
  ReceiveMessage& message = receives_.acquire();
  // No lock is held meanwhile: nobody knows the new handle before the event.
  message.peer = request.peer;
  message.key = request.key;
  message.open = false;
  message.id = peer.channels ? peer.channels->next_receive_id++ : 0;
  message.base = request.base;
  message.capacity = request.length;
  message.length = request.length;
  message.count = packets_of(request.length, chunk_bytes_);
  message.memory_key = request.memory_key;
  message.wr_id = request.wr_id;
  message.bitmap.reset(message.count);
  message.received = 0;
  message.highest = 0;
  message.duplicates = 0;
  message.look_at = kNever;
  message.posted_at = now;
  message.first_at = 0;
  message.last_at = 0;
  posted_.emplace(key, message.handle);
  if (transport_ != nullptr) transport_->receive_posted(message, now);
  emit_about(EventKind::receive_posted, message, now);
  if (peer.channels) {
    peer.channels->slotless.push_back(message.handle);
    give_slots(peer, now);
  }
  return true;
}

void MessageEngine::flush(Time now) {
  sends_.for_each([&](SendMessage& m) { complete_send(m.handle, WcStatus::wr_flush_err, now); });
  receives_.for_each(
      [&](ReceiveMessage& m) { fail_receive(m.handle, WcStatus::wr_flush_err, now); });
}

// ---------------------------------------------------------------- what arrives

Peer* MessageEngine::find_peer(const Packet& packet) {
  const Source source{packet.source, packet.source_qp};
  Found& lately = found_lately_[SourceHash()(source) >> 61];
  if (source != lately.source) {
    const auto found = peer_by_source_.find(source);
    if (found == peer_by_source_.end()) return nullptr;
    lately = {source, found->second};
  }
  return &peers_[lately.peer];
}

void MessageEngine::handle_packet(Packet& packet, Time now) {
  Peer* peer = find_peer(packet);
  if (peer == nullptr) return counters_.add(Counter::rx_unknown_peer);
  if (!ud_framing::open(packet) || packet.lab.path >= kMaxPaths)
    return counters_.add(Counter::rx_bad_header);
  const LabHeader& lab = packet.lab;
  // As address_packet does it: from QP to QP of one kind, the first sending of data on the data
  // QPs, all the rest on the recovery QPs.
  const bool recovery = packet.destination_qp == recovery_qp_;
  if ((packet.source_qp == peer->address.recovery_qp) != recovery)
    return counters_.add(Counter::rx_bad_header);
  if (lab.kind == LAB_KIND_DATA && framing_ == Framing::ud) return handle_data(*peer, packet, now);
  if (lab.kind == LAB_KIND_DATA || !recovery || lab.trimmed)
    return counters_.add(Counter::rx_bad_header);
  if (lab.length != packet.payload_bytes || lab.count != 1 || lab.index != 0)
    return counters_.add(Counter::rx_bad_header);
  if (peer->channels) {  // whose data packets do not tell them
    relaxed_store(peer->remote_srtt_ns, lab.srtt_ns);
    relaxed_store(peer->remote_rttvar_ns, lab.rttvar_ns);
    if (lab.kind == LAB_KIND_CONTROL && lab.message_id == LAB_CONTROL_CLEAR)
      return handle_clearance(*peer, packet, now);
  }
  if (lab.kind == LAB_KIND_CONTROL) return handle_control(*peer, packet, now);
  handle_report(*peer, packet, now);
}

void MessageEngine::note_arrival(Peer& peer, const Packet& packet, Time now) {
  const LabHeader& lab = packet.lab;
  relaxed_store(peer.heard_at, now);
  peer.arrived[lab.path].packets += 1;
  peer.arrived[lab.path].bytes += packet.payload_bytes;
  ++peer.arrived_packets;
  if (packet.congestion_experienced()) {
    ++peer.ce_packets;
    if (notifies_) notify_congestion(peer, now);
  }
  // The rate is that of arrivals between two reports; the pause before the first is not in it.
  if (peer.unreported == 0) peer.rate_since = now;
  peer.bytes_since_rate = peer.unreported == 0 ? 0 : peer.bytes_since_rate + packet.payload_bytes;
  active_.note(peer.active_epoch, now);
  if (peer.channels) {
    note_channel(peer, packet, now);
  } else {
    if (peer.newest_data.at >= 0)
      peer.lateness.sample(kNanosecond *
                           std::max(stamp_distance(peer.newest_data.stamp_ns, lab.stamp_ns), 0));
    peer.newest.note(lab.stamp_ns, now);
    peer.newest_data.note(lab.stamp_ns, now);
    relaxed_store(peer.remote_srtt_ns, lab.srtt_ns);
    relaxed_store(peer.remote_rttvar_ns, lab.rttvar_ns);
  }

  if (++peer.unreported >= config_.report_every_packets) return queue_report(peer);
  if (peer.unreported == 1 && !peer.report_queued) {
    const Time quarter = Time{peer.remote_srtt_ns} * kNanosecond / 4;
    peer.report_at = now + std::max(quarter, config_.report_least_interval);
    arm(peer.report_at, TimerKind::report, peer.index);
  }
}

void MessageEngine::handle_data(Peer& peer, const Packet& packet, Time now) {
  const LabHeader& lab = packet.lab;
  if (lab.count != packets_of(lab.length, chunk_bytes_))
    return counters_.add(Counter::rx_bad_count);
  if (lab.index >= lab.count) return counters_.add(Counter::rx_bad_index);
  if (lab.trimmed && packet.payload_bytes == 0) return counters_.add(Counter::rx_trimmed);
  const std::uint32_t bytes = packet_bytes(lab.index, lab.count, lab.length, chunk_bytes_);
  if (lab.trimmed || packet.payload_bytes != bytes) return counters_.add(Counter::rx_bad_length);
  counters_.add(Counter::rx_data);

  ReceiveSlot& slot = peer.receive_slots[slot_of(lab.message_id)];
  const bool opened = slot.state == ReceiveSlot::State::open && slot.id == lab.message_id;
  ReceiveMessage* message = opened ? receives_.find(slot.message) : nullptr;
  if (message != nullptr && (lab.length != message->length ||
                             MessageKey{lab.operation, lab.step, lab.message} != message->key))
    return counters_.add(Counter::rx_inconsistent);
  // Before it is known whether the packet has any effect: the sender's window holds those of
  // messages that are complete or that nobody expects too, until a report accounts for them.
  note_arrival(peer, packet, now);
  if (message == nullptr) message = open_message(peer, slot, lab, now);
  if (message == nullptr) return;
  if (!message->open) begin(*message, now);

  relaxed_store(message->last_at, now);
  if (!mutated(Mutant::bit_skipped) && !message->bitmap.set(lab.index)) {
    if (mutated(Mutant::duplicate_counts)) ++message->received;
    relaxed_store(message->duplicates, message->duplicates + 1);
    counters_.add(Counter::rx_duplicate);
    if (transport_ != nullptr) transport_->packet_arrived(*message, lab, now);
    return;
  }
  const bool skipped = mutated(Mutant::bytes_skipped) && lab.index + 1 == lab.count;
  if (config_.carries_payload && packet.payload != nullptr && bytes != 0 && !skipped)
    std::memcpy(message->base + std::uint64_t{lab.index} * chunk_bytes_, packet.payload, bytes);
  counters_.add(Counter::rx_placed);
  relaxed_store(message->highest, std::max(message->highest, lab.index));
  relaxed_store(message->received, message->received + 1);
  if (transport_ != nullptr) transport_->packet_arrived(*message, lab, now);
  const bool early = mutated(Mutant::one_too_early) && message->count > 1;
  if (message->received == message->count - early) {
    slot.state = ReceiveSlot::State::complete;
    complete_receive(*message, WcStatus::success, now);
    if (peer.channels) give_slots(peer, now);
  } else if (lab.index + 1 == lab.count) {
    emit_about(EventKind::tail_seen, *message, now);
  }
}

ReceiveMessage* MessageEngine::open_message(Peer& peer, ReceiveSlot& slot, const LabHeader& lab,
                                            Time now) {
  using State = ReceiveSlot::State;
  const auto newer = static_cast<std::int32_t>(lab.message_id - slot.id);
  if (slot.state != State::empty && newer < 0) {
    counters_.add(Counter::rx_stale_generation);
    return nullptr;
  }
  if ((slot.state == State::complete || slot.state == State::failed) && newer == 0) {
    counters_.add(Counter::rx_duplicate);
    if (transport_ != nullptr && slot.state == State::complete)
      transport_->packet_refused(peer.index, lab, Refusal::complete);
    else
      tell_rarely(peer, slot, lab, EventKind::late_packet, now);
    return nullptr;
  }
  // A transport's sender uses a slot again when what used it has failed there.
  if (slot.state == State::open && transport_ != nullptr)
    fail_receive(slot.message, WcStatus::retry_exc_err, now);
  if (slot.state == State::open) {
    counters_.add(Counter::rx_slot_busy);
    return nullptr;
  }
  const MessageKey key{lab.operation, lab.step, lab.message};
  const auto found = posted_.find({peer.index, key});
  if (found == posted_.end())
    return refuse(peer, slot, lab, Counter::rx_no_recv, EventKind::no_receive, now);
  ReceiveMessage* message = receives_.find(found->second);
  if (lab.length > message->capacity)
    return refuse(peer, slot, lab, Counter::rx_message_too_long, EventKind::too_long, now);

  {
    const std::lock_guard lock(message->lock);
    message->id = lab.message_id;
    message->length = lab.length;
    message->count = lab.count;
  }
  slot = {.state = State::open, .id = lab.message_id, .message = message->handle};
  return message;
}

// With its first packet, of which everything is known.
void MessageEngine::begin(ReceiveMessage& message, Time now) {
  posted_.erase({message.peer, message.key});
  {
    const std::lock_guard lock(message.lock);
    message.open = true;
    message.first_at = now;
  }
  emit_about(EventKind::first_packet, message, now);
}

ReceiveMessage* MessageEngine::refuse(Peer& peer, ReceiveSlot& slot, const LabHeader& lab,
                                      Counter why, EventKind event, Time now) {
  counters_.add(why);
  tell_rarely(peer, slot, lab, event, now);
  return nullptr;
}

void MessageEngine::tell_rarely(Peer& peer, ReceiveSlot& slot, const LabHeader& lab,
                                EventKind event, Time now) {
  const bool told = slot.told_at >= 0 && slot.told_id == lab.message_id;
  const Time interval = transport_ != nullptr ? config_.initial_rtt : kTellInterval;
  if (told && now - slot.told_at < interval) return;
  if (events_.size() >= kMostEvents) return counters_.add(Counter::rx_event_overflow);
  slot.told_id = lab.message_id;
  slot.told_at = now;
  if (transport_ != nullptr) {
    const Refusal why = event == EventKind::no_receive ? Refusal::no_receive
                        : event == EventKind::too_long ? Refusal::too_long
                                                       : Refusal::failed;
    transport_->packet_refused(peer.index, lab, why);
  }
  emit({.kind = event,
        .peer = peer.index,
        .at = now,
        .key = {lab.operation, lab.step, lab.message},
        .id = lab.message_id,
        .length = lab.length,
        .count = lab.count});
}

void MessageEngine::complete_receive(ReceiveMessage& message, WcStatus status, Time now) {
  complete({.wr_id = message.wr_id,
            .status = status,
            .opcode = WcOpcode::recv,
            .byte_len = message.length,
            .qp_num = data_qp_,
            .peer = message.peer,
            .key = message.key,
            .packets = message.count,
            .duplicates = message.duplicates,
            .posted_at = message.posted_at,
            .first_at = message.first_at,
            .completed_at = now});
  if (status == WcStatus::success) emit_about(EventKind::receive_complete, message, now);
  if (config_.carries_payload) memory_.unpin(message.memory_key);
  receives_.release(message);
}

void MessageEngine::handle_control(Peer& peer, const Packet& packet, Time now) {
  relaxed_store(peer.heard_at, now);
  peer.newest.note(packet.lab.stamp_ns, now);
  if (transport_ != nullptr) {
    const std::span body(packet.payload, packet.payload_bytes);
    const bool valid = transport_->control_arrived(peer.index, body, now);
    counters_.add(valid ? Counter::rx_control : Counter::rx_bad_control);
    return make_ready(peer);
  }
  if (events_.size() >= kMostEvents) return counters_.add(Counter::rx_event_overflow);
  counters_.add(Counter::rx_control);
  Event event{.kind = EventKind::control, .peer = peer.index, .at = now};
  event.body.assign(packet.payload, packet.payload + packet.payload_bytes);
  emit(std::move(event));
}

void MessageEngine::handle_report(Peer& peer, const Packet& packet, Time now) {
  Report report;
  if (!read_report(packet.payload, packet.payload_bytes, peer.channels != nullptr, report))
    return counters_.add(Counter::rx_bad_report);
  Echo echo;
  if (!(peer.channels ? read_channel_echo(peer, report, now, echo)
                      : read_echo(peer, report, now, echo)))
    return counters_.add(Counter::rx_bad_report);
  counters_.add(Counter::rx_report);
  relaxed_store(peer.heard_at, now);
  peer.newest.note(packet.lab.stamp_ns, now);
  if (echo.overtaken) return;
  peer.echoed_ns = echo.newest_ns;
  if (peer.flight.echo(echo.newest_ns) != 0) peer.rtt.sample(echo.rtt);
  peer.credit_packets = report.credit_packets;
  const auto since = [](std::uint32_t newer, std::uint32_t older) {
    return static_cast<std::int32_t>(newer - older) < 0 ? 0 : newer - older;
  };
  peer.congestion->on_report({.rtt = echo.rtt,
                              .delivered_packets = since(report.packets, peer.reported_packets),
                              .ce_packets = since(report.ce_packets, peer.reported_ce),
                              .hops = packet.hops()},
                             now);
  relaxed_store(peer.reported_packets, report.packets);
  peer.reported_ce = report.ce_packets;
  make_ready(peer);
}

// False: the report contradicts what was sent.
bool MessageEngine::read_echo(const Peer& peer, const Report& report, Time now, Echo& echo) const {
  const std::int64_t age_ns = stamp_distance(stamp_of(now), report.echo_stamp_ns);
  echo.newest_ns = now / kNanosecond - age_ns;
  echo.rtt = (age_ns - report.echo_delay_ns) * kNanosecond;
  echo.overtaken = echo.newest_ns < peer.echoed_ns;
  return echo.rtt >= 0 && echo.rtt <= kStampHorizon && echo.newest_ns <= peer.flight.newest_ns();
}

// ---------------------------------------------------------------- what leaves

bool MessageEngine::has_packet() const {
  return !control_queue_.empty() || !small_controls_.empty() || !report_queue_.empty() ||
         !resend_ring_.empty() || !data_ring_.empty() || !cnp_queue_.empty();
}

bool MessageEngine::poll_packet(Packet& packet, Time now) {
  return poll_cnp(packet) || poll_small_control(packet, now) || poll_control(packet, now) ||
         poll_report(packet, now) || poll_resend(packet, now) || poll_data(packet, now);
}

void MessageEngine::address_packet(Peer& peer, bool recovery, Time now, Packet& packet) {
  packet.destination_mac = peer.address.mac;
  packet.source = config_.gid;
  packet.destination = peer.address.gid;
  packet.qkey = peer.address.qkey;
  packet.destination_qp = recovery ? peer.address.recovery_qp : peer.address.data_qp;
  packet.source_qp = recovery ? recovery_qp_ : data_qp_;
  packet.psn = recovery ? recovery_psn_++ : data_psn_++;
  packet.lab.stamp_ns = stamp_of(now);
  packet.lab.srtt_ns = saturate_ns(peer.rtt.srtt);
  packet.lab.rttvar_ns = saturate_ns(peer.rtt.rttvar);
  ud_framing::close(packet);
}

bool MessageEngine::poll_control(Packet& packet, Time now) {
  if (control_queue_.empty()) return false;
  ControlOut out = std::move(control_queue_.front());
  control_queue_.pop_front();
  Peer& peer = peers_[out.peer];
  scratch_ = std::move(out.body);
  packet.lab = {.kind = LAB_KIND_CONTROL,
                .path = peer.schedule.next(),
                .message = peer.control_sequence++,
                .message_id = out.listener,
                .length = static_cast<std::uint32_t>(scratch_.size())};
  send_control(peer, packet, now);
  return true;
}

void MessageEngine::send_control(Peer& peer, Packet& packet, Time now) {
  packet.payload = scratch_.data();
  packet.payload_bytes = packet.lab.length;
  address_packet(peer, true, now, packet);
  if (packet.lab.message_id == LAB_CONTROL_CLEAR) return counters_.add(Counter::tx_clear);
  counters_.add(Counter::tx_control);
  if (event_sink_ != nullptr) [[unlikely]]
    event_sink_->note({.kind = QpEventKind::control_sent,
                       .qp = recovery_qp_,
                       .at = now,
                       .bytes = packet.lab.length,
                       .peer = peer.index});
}

bool MessageEngine::poll_report(Packet& packet, Time now) {
  if (report_queue_.empty()) return false;
  Peer& peer = peers_[report_queue_.front()];
  report_queue_.pop_front();
  peer.report_queued = false;
  fill_report(peer, now);
  packet.lab = {.kind = LAB_KIND_REPORT,
                .path = peer.schedule.next(),
                .message = peer.control_sequence++,
                .length = static_cast<std::uint32_t>(scratch_.size())};
  packet.payload = scratch_.data();
  packet.payload_bytes = packet.lab.length;
  address_packet(peer, true, now, packet);
  counters_.add(Counter::tx_report);
  return true;
}

void MessageEngine::fill_report(Peer& peer, Time now) {
  Report report{
      .echo_stamp_ns = peer.channels ? peer.channels->last_path : peer.newest_data.stamp_ns,
      .echo_delay_ns = saturate_ns(now - peer.newest_data.at),
      .credit_packets = credit_for(now),
      .packets = peer.arrived_packets,
      .ce_packets = peer.ce_packets,
      .paths = config_.paths,
      .arrived = peer.arrived};
  if (peer.channels) report.newest = peer.channels->newest;
  write_report(report, peer.channels != nullptr, scratch_);
  peer.unreported = 0;
  peer.report_at = kNever;
  const Time span = peer.newest_data.at - peer.rate_since;
  if (span > 0 && peer.bytes_since_rate != 0) {
    const double rate =
        static_cast<double>(peer.bytes_since_rate) * 1e12 / static_cast<double>(span);
    const double before = peer.receive_bytes_per_second;
    relaxed_store(peer.receive_bytes_per_second, before == 0 ? rate : before + (rate - before) / 8);
  }
}

// The free frames of the ring are shared among those who use it.
std::uint32_t MessageEngine::credit_for(Time now) {
  return credit_ / std::max(active_.count(now), 1U);
}

bool MessageEngine::window_closed(const Peer& peer) const {
  const std::uint64_t window =
      std::min({peer.congestion->window_packets(), peer.credit_packets, peer.flight.capacity()});
  return peer.flight.in_flight() >= window;
}

bool MessageEngine::may_send(const Peer& peer, Time now) const {
  return !window_closed(peer) && peer.congestion->next_send() <= now;
}

void MessageEngine::wait_to_send(Peer& peer, Time now) {
  if (window_closed(peer)) return arm_persist(peer, now);
  const Time next = peer.congestion->next_send();
  if (peer.pace_at <= next) return;
  peer.pace_at = next;
  if (!mutated(Mutant::pace_not_armed)) arm(next, TimerKind::pace, peer.index);
}

bool MessageEngine::poll_resend(Packet& packet, Time now) {
  while (!resend_ring_.empty()) {
    Peer& peer = peers_[resend_ring_.front()];
    if (peer.resends.empty() || !may_send(peer, now)) {
      if (!peer.resends.empty()) wait_to_send(peer, now);
      peer.in_resend_ring = false;
      resend_ring_.pop_front();
      continue;
    }
    SendMessage* message = sends_.find(peer.resends.front());
    if (message == nullptr || message->resend_pending == 0) {
      if (message != nullptr) message->in_resend_queue = false;
      peer.resends.pop_front();
      continue;
    }
    std::uint32_t index = message->resend.take_next(message->resend_cursor);
    if (index == message->resend.bits()) index = message->resend.take_next(0);
    message->resend_cursor = index + 1 < message->count ? index + 1 : 0;
    relaxed_store(message->resend_pending, message->resend_pending - 1);
    build_data(peer, *message, index, true, now, packet);
    finish_if_drained(*message, now);
    return true;
  }
  return false;
}

bool MessageEngine::poll_data(Packet& packet, Time now) {
  while (!data_ring_.empty()) {
    Peer& peer = peers_[data_ring_.front()];
    if (peer.sends.empty() || !may_send(peer, now)) {
      if (!peer.sends.empty()) wait_to_send(peer, now);
      peer.in_data_ring = false;
      data_ring_.pop_front();
      continue;
    }
    SendMessage* message = sends_.find(peer.sends.front());
    if (message == nullptr || message->paused || message->next == message->count ||
        message->next >= message->limit) {
      if (message != nullptr) message->in_send_queue = false;
      peer.sends.pop_front();
      continue;
    }
    const std::uint32_t index = message->next;
    if (index == 0) message->first_at = now;
    build_data(peer, *message, index, false, now, packet);
    relaxed_store(message->next, index + 1);
    if (message->next == message->count) {
      message->in_send_queue = false;
      peer.sends.pop_front();
      // Peers take turns message by message.
      data_ring_.pop_front();
      data_ring_.push_back(peer.index);
    }
    finish_if_drained(*message, now);
    return true;
  }
  return false;
}

void MessageEngine::build_data(Peer& peer, SendMessage& message, std::uint32_t index, bool resend,
                               Time now, Packet& packet) {
  const Sent before = message.sent[index];
  const std::uint8_t attempt = before.attempts();
  const std::uint8_t path = message.path != kAnyPath ? message.path
                            : resend                 ? peer.schedule.next_other(before.path())
                                                     : peer.schedule.next();
  const int counted = mutated(Mutant::attempt_not_counted) ? attempt : attempt + 1;
  const auto attempts = static_cast<std::uint8_t>(std::min(counted, UINT8_MAX));
  relaxed_store(message.sent[index], Sent(now / kNanosecond, path, attempts));
  packet.lab = {.kind = LAB_KIND_DATA,
                .path = path,
                .attempt = attempt,
                .operation = message.key.operation,
                .step = message.key.step,
                .message = message.key.message,
                .message_id = message.id,
                .index = index,
                .count = message.count,
                .length = message.length};
  const bool neighbour = mutated(Mutant::resend_of_neighbour) && resend && index != 0;
  if (config_.carries_payload)
    packet.payload = message.base + std::uint64_t{index - neighbour} * chunk_bytes_;
  packet.payload_bytes = packet_bytes(index, message.count, message.length, chunk_bytes_);
  relaxed_store(peer.sent_on[path], peer.sent_on[path] + 1);
  if (peer.channels) {
    address_channel_packet(peer, message, now, packet);
  } else {
    address_packet(peer, resend, now, packet);
    peer.flight.sent(now / kNanosecond);
  }
  if (peer.congestion->is_paced()) peer.congestion->on_sent(frame_bytes(packet), now);
  counters_.add(Counter::tx_data);
  if (resend) {
    ++message.resent;
    counters_.add(Counter::tx_resent);
  }
  if (transport_ != nullptr) transport_->packet_sent(message, index, resend, now);
}

void MessageEngine::finish_if_drained(SendMessage& message, Time now) {
  if (message.next != message.count || message.resend_pending != 0) return;
  emit_about(EventKind::sent, message, now);
}

void MessageEngine::make_ready(Peer& peer) {
  if (!peer.resends.empty() && !peer.in_resend_ring) {
    peer.in_resend_ring = true;
    resend_ring_.push_back(peer.index);
  }
  if (!peer.sends.empty() && !peer.in_data_ring) {
    peer.in_data_ring = true;
    data_ring_.push_back(peer.index);
  }
  if (!window_closed(peer)) peer.persist_at = kNever;
}

void MessageEngine::queue_report(Peer& peer) {
  if (peer.report_queued) return;
  peer.report_queued = true;
  report_queue_.push_back(peer.index);
}

// ---------------------------------------------------------------- congestion notification

void MessageEngine::notify_congestion(Peer& peer, Time now) {
  if (!peer.notification.marked(now, config_.cnp_interval) || peer.cnp_queued) return;
  peer.cnp_queued = true;
  cnp_queue_.push_back(peer.index);
}

bool MessageEngine::poll_cnp(Packet& packet) {
  if (cnp_queue_.empty()) return false;
  Peer& peer = peers_[cnp_queue_.front()];
  cnp_queue_.pop_front();
  peer.cnp_queued = false;
  packet.destination_mac = peer.address.mac;
  packet.source = config_.gid;
  packet.destination = peer.address.gid;
  packet.source_port = static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE + peer.schedule.next());
  make_cnp(packet, peer.address.data_qp);
  counters_.add(Counter::tx_cnp);
  return true;
}

// It tells the flow by its address alone: a CNP has no DETH.
bool MessageEngine::handle_cnp(const Packet& packet, Time now) {
  const auto found = peer_by_source_.find(Source{packet.source, kAnyQp});
  if (!notifies_ || found == peer_by_source_.end()) return false;
  peers_[found->second].congestion->on_cnp(now);
  return true;
}

// ---------------------------------------------------------------- time

void MessageEngine::arm(Time at, TimerKind kind, Handle subject) {
  timers_.push({at, timer_sequence_++, kind, subject});
}

// A closed window that no report opens again would be for ever: after this long without an echo,
// what is in flight counts as lost (its resend is the policy's business).
void MessageEngine::arm_persist(Peer& peer, Time now) {
  if (peer.persist_at != kNever) return;
  peer.persist_at = now + std::max(4 * peer.rtt.srtt, config_.persist_least);
  if (!mutated(Mutant::persist_not_armed)) arm(peer.persist_at, TimerKind::persist, peer.index);
}

void MessageEngine::handle_timeout(Time now) {
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    fire(timer, now);
  }
}

// Timers are re-armed lazily: one that no longer agrees with its subject is void.
void MessageEngine::fire(const Timer& timer, Time now) {
  switch (timer.kind) {
    case TimerKind::look:
      fire_look(timer.subject, timer.at, now);
      break;
    case TimerKind::peer_look:
      if (peer_look_at_[timer.subject] == timer.at) {
        peer_look_at_[timer.subject] = kNever;
        emit({.kind = EventKind::peer_look,
              .peer = static_cast<PeerIndex>(timer.subject),
              .at = now});
      }
      break;
    case TimerKind::report:
      if (Peer& peer = peers_[timer.subject]; peer.report_at == timer.at && peer.unreported != 0)
        queue_report(peer);
      break;
    case TimerKind::clear:
      if (Peer& peer = peers_[timer.subject]; peer.channels->clear_at == timer.at)
        repeat_clearance(peer, now);
      break;
    case TimerKind::transport:
      transport_->woken(timer.subject, timer.at, now);
      break;
    case TimerKind::persist:
      if (Peer& peer = peers_[timer.subject]; peer.persist_at == timer.at) {
        peer.persist_at = kNever;
        peer.flight.forgive();
        peer.credit_packets = std::max(peer.credit_packets, 1U);
        counters_.add(Counter::window_forgiven);
        peer.congestion->on_timeout(now);
        make_ready(peer);
      }
      break;
    case TimerKind::pace:
      if (Peer& peer = peers_[timer.subject]; peer.pace_at == timer.at) {
        peer.pace_at = kNever;
        make_ready(peer);
      }
      break;
  }
}

void MessageEngine::fire_look(Handle handle, Time armed_for, Time now) {
  const auto look = [&](auto* message) {
    if (message == nullptr || message->look_at != armed_for) return;
    message->look_at = kNever;
    emit_about(EventKind::look, *message, now);
  };
  handle& kReceiveTag ? look(receives_.find(handle)) : look(sends_.find(handle));
}

// ---------------------------------------------------------------- a policy's actions

void MessageEngine::note_resend(const SendMessage& message, std::span<const std::uint32_t> indices,
                                Time now) {
  if (event_sink_ == nullptr || indices.empty()) [[likely]]
    return;
  const auto [first, last] = std::ranges::minmax(indices);
  event_sink_->note({.kind = QpEventKind::message_resend,
                     .qp = recovery_qp_,
                     .at = now,
                     .psn = first,
                     .last_psn = last,
                     .peer = message.peer,
                     .packets = static_cast<std::uint32_t>(indices.size()),
                     .key = message.key});
}

void MessageEngine::resend(Handle send, std::span<const std::uint32_t> indices, bool urgent,
                           Time now) {
  SendMessage* message = sends_.find(send);
  if (message == nullptr) return counters_.add(Counter::stale_action);
  note_resend(*message, indices, now);
  if (message->resend_pending == 0 && !indices.empty()) message->resend_cursor = indices[0];
  for (const std::uint32_t index : indices)
    if (index < message->next && message->resend.set(index))
      relaxed_store(message->resend_pending, message->resend_pending + 1);
  if (message->resend_pending == 0) return;
  peers_[message->peer].congestion->on_loss(now);
  queue_resend(*message, urgent);
}

// Of the same peer an urgent message goes before all others, and the peer before all other peers.
// In both queues a name that stands there twice does no harm: it is passed over when there is
// nothing to do for it.
void MessageEngine::queue_resend(SendMessage& message, bool urgent) {
  Peer& peer = peers_[message.peer];
  if (urgent) {
    peer.resends.push_front(message.handle);
    peer.in_resend_ring = true;
    resend_ring_.push_front(peer.index);
  } else if (!message.in_resend_queue) {
    peer.resends.push_back(message.handle);
  }
  message.in_resend_queue = true;
  make_ready(peer);
}

void MessageEngine::pause(Handle send, bool paused) {
  SendMessage* message = sends_.find(send);
  if (message == nullptr) return counters_.add(Counter::stale_action);
  pause(*message, paused);
}

void MessageEngine::pause(SendMessage& message, bool paused) {
  if (message.paused == paused) return;
  relaxed_store(message.paused, paused);
  if (!paused) queue_first_pass(message);
}

void MessageEngine::queue_first_pass(SendMessage& message) {
  if (!message.cleared || message.in_send_queue || message.next == message.count) return;
  message.in_send_queue = true;
  Peer& peer = peers_[message.peer];
  peer.sends.push_front(message.handle);
  make_ready(peer);
}

void MessageEngine::control(PeerIndex peer, std::vector<std::uint8_t> body) {
  if (peer >= peers_.size() || body.size() > control_bytes() ||
      control_queue_.size() >= kMostControlOut)
    return counters_.add(Counter::stale_action);
  control_queue_.push_back({peer, std::move(body)});
}

void MessageEngine::look_at(Handle handle, Time at) {
  const auto set = [&](auto* message) {
    if (message == nullptr) return counters_.add(Counter::stale_action);
    message->look_at = at;
    if (at != kNever && !mutated(Mutant::look_not_armed)) arm(at, TimerKind::look, handle);
  };
  handle& kReceiveTag ? set(receives_.find(handle)) : set(sends_.find(handle));
}

void MessageEngine::look_at_peer(PeerIndex peer, Time at) {
  if (peer >= peers_.size()) return counters_.add(Counter::stale_action);
  peer_look_at_[peer] = at;
  if (at != kNever && !mutated(Mutant::peer_look_not_armed)) arm(at, TimerKind::peer_look, peer);
}

void MessageEngine::complete_send(Handle send, WcStatus status, Time now) {
  SendMessage* message = sends_.find(send);
  if (message == nullptr) return counters_.add(Counter::stale_action);
  complete({.wr_id = message->wr_id,
            .status = status,
            .opcode = WcOpcode::send,
            .byte_len = message->length,
            .qp_num = data_qp_,
            .peer = message->peer,
            .key = message->key,
            .packets = message->count,
            .resent = message->resent,
            .posted_at = message->posted_at,
            .first_at = message->first_at,
            .completed_at = now});
  if (config_.carries_payload) memory_.unpin(message->memory_key);
  sending_.erase({message->peer, message->key});
  Peer& peer = peers_[message->peer];
  --peer.sends_outstanding;
  if (message->cleared) peer.send_slots[slot_of(message->id)] = false;
  if (peer.channels) leave_channel(peer, *message, now);
  sends_.release(*message);
}

void MessageEngine::fail_receive(Handle receive, WcStatus status, Time now) {
  ReceiveMessage* message = receives_.find(receive);
  if (message == nullptr) return counters_.add(Counter::stale_action);
  Peer& peer = peers_[message->peer];
  ReceiveSlot& slot = peer.receive_slots[slot_of(message->id)];
  if (!message->open) posted_.erase({message->peer, message->key});
  if (slot.state == ReceiveSlot::State::open && slot.message == receive)
    slot.state = ReceiveSlot::State::failed;  // what is still on its way is late
  complete_receive(*message, status, now);
  if (peer.channels) give_slots(peer, now);
}

void MessageEngine::set_path_weights(PeerIndex peer,
                                     const std::array<std::uint16_t, kMaxPaths>& weights) {
  if (peer >= peers_.size()) return counters_.add(Counter::stale_action);
  peers_[peer].schedule.set_weights(weights);
}

// ---------------------------------------------------------------- what a transport asks

SendMessage* MessageEngine::find_send(Handle send) {
  return send == kNoHandle ? nullptr : sends_.find(send);
}

ReceiveMessage* MessageEngine::find_receive(Handle receive) { return receives_.find(receive); }

void MessageEngine::say(PeerIndex peer, std::uint8_t path, std::span<const std::uint8_t> body) {
  if (small_controls_.size() >= kMostSmallControls)
    return counters_.add(Counter::rx_event_overflow);
  SmallControl& out = small_controls_.push();
  out.peer = peer;
  out.path = path < config_.paths ? path : kAnyPath;
  out.size = static_cast<std::uint8_t>(body.size());
  std::memcpy(out.body.data(), body.data(), body.size());
}

bool MessageEngine::poll_small_control(Packet& packet, Time now) {
  if (small_controls_.empty()) return false;
  const SmallControl& out = small_controls_.front();
  Peer& peer = peers_[out.peer];
  scratch_.assign(out.body.begin(), out.body.begin() + out.size);
  packet.lab = {.kind = LAB_KIND_CONTROL,
                .path = out.path != kAnyPath ? out.path : peer.schedule.next(),
                .message = peer.control_sequence++,
                .message_id = LAB_CONTROL_POLICY,
                .length = out.size};
  small_controls_.pop();
  send_control(peer, packet, now);
  return true;
}

void MessageEngine::resend(SendMessage& message, std::uint32_t packet, Time now) {
  if (!message.resend.set(packet)) return;
  note_resend(message, {&packet, 1}, now);
  relaxed_store(message.resend_pending, message.resend_pending + 1);
  peers_[message.peer].congestion->on_loss(now);
  queue_resend(message);
}

void MessageEngine::forget_resend(SendMessage& message, std::uint32_t packet) {
  if (message.resend.clear(packet))
    relaxed_store(message.resend_pending, message.resend_pending - 1);
}

void MessageEngine::forget_resends(SendMessage& message) {
  message.resend.reset(message.count);
  relaxed_store(message.resend_pending, 0U);
}

void MessageEngine::allow(SendMessage& message, std::uint32_t limit) {
  const bool held = message.next >= message.limit;
  message.limit = limit;
  if (held && limit > message.next && !message.paused) queue_first_pass(message);
}

bool MessageEngine::echoed(PeerIndex index, std::uint32_t stamp_ns, Time now) {
  Peer& peer = peers_[index];
  const std::int64_t age_ns = stamp_distance(stamp_of(now), stamp_ns);
  const std::int64_t echo_ns = now / kNanosecond - age_ns;
  if (age_ns < 0 || echo_ns > peer.flight.newest_ns()) return false;
  if (peer.flight.echo(echo_ns) != 0 && age_ns * kNanosecond <= kStampHorizon)
    peer.rtt.sample(age_ns * kNanosecond);
  return true;
}

void MessageEngine::write_off(PeerIndex index, Time sent_up_to) {
  Peer& peer = peers_[index];
  peer.flight.echo(sent_up_to / kNanosecond);
  make_ready(peer);
}

void MessageEngine::end(SendMessage& message, WcStatus status, Time now) {
  complete_send(message.handle, status, now);
}

void MessageEngine::end(ReceiveMessage& message, WcStatus status, Time now) {
  fail_receive(message.handle, status, now);
}

void MessageEngine::sender_gave_up(PeerIndex index, std::uint32_t id, const MessageKey& key,
                                   WcStatus status, Time now) {
  using State = ReceiveSlot::State;
  Peer& peer = peers_[index];
  ReceiveSlot& slot = peer.receive_slots[id & (config_.message_slots - 1)];
  const auto newer = slot.state == State::empty ? 1 : static_cast<std::int32_t>(id - slot.id);
  if (slot.state == State::open && newer >= 0) fail_receive(slot.message, status, now);
  if (newer <= 0) return;
  // It never began here. What of it is still on its way will be late.
  slot.state = State::failed;
  slot.id = id;
  const auto found = posted_.find({index, key});
  if (found != posted_.end()) fail_receive(found->second, status, now);
}

MessageEngine::PeerState MessageEngine::peer_state(PeerIndex index) {
  const std::lock_guard lock(peers_lock_);
  const Peer& peer = peers_.at(index);
  return {.srtt = relaxed_load(peer.rtt.srtt),
          .rttvar = relaxed_load(peer.rtt.rttvar),
          .remote_srtt = Time{relaxed_load(peer.remote_srtt_ns)} * kNanosecond,
          .remote_rttvar = Time{relaxed_load(peer.remote_rttvar_ns)} * kNanosecond,
          .heard_at = relaxed_load(peer.heard_at),
          .reported_packets = relaxed_load(peer.reported_packets),
          .newest_stamp_ns = relaxed_load(peer.newest.stamp_ns),
          .newest_stamp_at = relaxed_load(peer.newest.at),
          .lateness = peer.lateness.usual(),
          .receive_bytes_per_second = relaxed_load(peer.receive_bytes_per_second)};
}

std::array<std::uint32_t, kMaxPaths> MessageEngine::sent_on_paths(PeerIndex index) {
  const std::lock_guard lock(peers_lock_);
  const Peer& peer = peers_.at(index);
  std::array<std::uint32_t, kMaxPaths> sent{};
  for (std::size_t p = 0; p < sent.size(); ++p) sent[p] = relaxed_load(peer.sent_on[p]);
  return sent;
}

}  // namespace softroce
