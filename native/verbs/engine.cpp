// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine.hpp"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>

#include "../../xdp/lab_maps.h"
#include "../engine/striped/config_text.hpp"
#include "../live/port_turn.hpp"
#include "../system/clock.hpp"
#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr std::uint32_t kQuickFrames = 2;   // are handled in no time
constexpr int kLastTurns = 64;              // when the port closes
constexpr long kLastWaitNs = 100'000;       // then, while the port holds back
constexpr std::uint32_t kFirstNumber = 32;  // below are the RNIC's own
constexpr std::uint64_t kMostSkipped = 1 << 12;
constexpr std::uint32_t kNumbersInShare = 1 << LAB_SHARE_QPN_BITS;

MessageConfig config_of(const Settings& settings) {
  MessageConfig config = settings.messages;
  config.gid = settings.gids.front();
  config.path_mtu = settings.path_mtu;
  config.receive_ring_packets = XskConfig{}.receive_frames;
  return config;
}

Greeting greeting_of(const MessageConfig& config) {
  Greeting greeting;
  if (getrandom(&greeting.incarnation, sizeof greeting.incarnation, 0) < 0)
    throw std::system_error(errno, std::generic_category(), "getrandom");
  if (!config.carries_operations) return greeting;
  greeting.transport = config.transport;
  greeting.digest = digest_of(config);
  return greeting;
}

// Queue pairs of one process after another get other numbers, so that packets that are still under
// way to those of a process that was killed find none: the RNIC does not use a number again soon.
std::uint32_t some_number(std::int64_t moment_ns) {
  const auto mixed = static_cast<std::uint64_t>(moment_ns ^ (std::int64_t{getpid()} << 32)) *
                     0x9E3779B97F4A7C15;  // Fibonacci hashing
  return kFirstNumber + static_cast<std::uint32_t>((mixed >> 40) % kMostSkipped);
}

}  // namespace

Engine::Engine(const Settings& settings)
    : settings_(settings), epoch_ns_(monotonic_ns()), rnic_(config_of(settings)) {
  for (std::size_t i = 1; i < settings.gids.size(); ++i) rnic_.add_gid(settings.gids[i]);
  number_queue_pairs(0);
  rnic_.greet(greeting_of(settings.messages), [](const std::string& line) {
    std::fprintf(stderr, "softroce: %s\n", line.c_str());
  });
  if (MessageSession* session = rnic_.messages().session()) session->set_clock(monotonic_ns);
  if (!settings.losses.empty()) log_losses();
}

// What this RNIC is called in folders that have a file of each: `1234.softroce0.ib_write_bw`.
std::string Engine::record_name() const {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  std::ranges::replace(name, '/', '_');
  return std::to_string(getpid()) + "." + settings_.device + "." + name;
}

void Engine::log_losses() {
  try {
    losses_ = std::make_shared<LossLog>(settings_.losses + "/" + record_name(), rnic_, epoch_ns_);
    rnic_.set_event_sink(losses_);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "softroce: losses are not recorded: %s\n", error.what());
  }
}

void Engine::keep_counters() {
  try {
    const int fd = statistics::make_file(settings_.kept + "/" + record_name());
    kept_ = std::make_unique<StatisticsFile>(fd, settings_.rank);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "softroce: counters are not kept: %s\n", error.what());
  }
}

Time Engine::since_epoch() const { return (monotonic_ns() - epoch_ns_) * kNanosecond; }

// ---------------------------------------------------------------- the port

int Engine::open_port() {
  if (orphan_ || broken_) return ENODEV;
  if (port_ || helps_ || settings_.interface.empty()) {
    if (!helps_) start_helper();
    return 0;
  }
  if (const int error = share_.take(settings_.interface)) return error;
  link_is_up_ = share_.grant().up != 0;
  share_fd_ = share_.fd();
  try {
    number_queue_pairs(share_.grant().share);
    open_socket();
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "softroce: the port %s: %s\n", settings_.interface.c_str(), error.what());
    abandon_port();
    return error.code().value() == EBUSY ? EBUSY : ENODEV;
  }
  start_helper();
  return 0;
}

void Engine::number_queue_pairs(std::uint32_t share) {
  const std::uint32_t before = share << LAB_SHARE_QPN_BITS;
  rnic_.number_from(before + some_number(monotonic_ns()), before + kFirstNumber,
                    before + kNumbersInShare);
}

void Engine::open_socket() {
  using wire::QueueMap;
  const ports::Grant& grant = share_.grant();
  port_ = std::make_unique<XskPort>(
      XskConfig{.interface = grant.interface},
      XskPort::Opened{share_.take_given(ports::kSocket), share_.take_given(ports::kFrames)});
  pace_ = std::make_unique<PortPace>(
      std::make_unique<QueueMap>(share_.take_given(ports::kQueues), grant.uplink + 1), grant.uplink,
      epoch_ns_);
  statistics_ = std::make_unique<StatisticsFile>(share_.take_given(ports::kStatistics).release(),
                                                 settings_.rank);
  if (!settings_.kept.empty()) keep_counters();
  port_fd_ = port_->fd();
}

// Those of one port begin alike: telemetry/counters_file.py.
std::string Engine::statistics_path() const {
  const std::uint32_t share = share_.grant().share;
  if (settings_.statistics.empty() || share == 0) return settings_.statistics;
  return settings_.statistics + "@" + std::to_string(share);
}

bool Engine::link_is_up() const {
  if (share_fd_ >= 0 || settings_.interface.empty()) return link_is_up_;
  return PortShare::link_is_up(settings_.interface);
}

void Engine::look_at_link() {
  const auto held = hold();
  const std::optional<bool> up = share_.news();
  share_fd_ = share_.fd();
  if (!up || *up == link_is_up_) return;
  link_is_up_ = *up;
  hand_out_port_event(*this, *up);
}

void Engine::close_port() {
  if (orphan_) return;
  for (int turns = 0; turns < kLastTurns; ++turns) {
    if (turn()) continue;
    if (!holds_back()) break;
    const timespec wait{.tv_sec = 0, .tv_nsec = kLastWaitNs};
    nanosleep(&wait, nullptr);
  }
  stop_helper();
  if (losses_) losses_->forget_all();
  publish();
  abandon_port();
}

void Engine::abandon_port() {
  statistics_.reset();
  kept_.reset();
  port_fd_ = share_fd_ = -1;
  port_.reset();
  pace_.reset();
  share_.give_back();
}

// The program goes on; whoever waits for a completion waits for ever, as with a device that is
// gone.
void Engine::break_down(const char* why) {
  std::fprintf(stderr, "softroce: the port %s: %s\n", settings_.interface.c_str(), why);
  broken_ = true;
  abandon_port();
}

// The mappings and descriptors that the child got are given up; the parent's stay.
void Engine::after_fork_in_child() {
  orphan_ = true;
  helps_ = false;
  rnic_.set_event_sink(nullptr);
  losses_.reset();
  if (wake_fd_ >= 0) ::close(std::exchange(wake_fd_, -1));
  port_.reset();
  share_.give_back();
  statistics_.reset();
  kept_.reset();
  lock_.unlock();
}

// ---------------------------------------------------------------- a turn

bool Engine::poll() {
  const Time at = now();
  polled_at_.store(at, std::memory_order_relaxed);
  if (turn(at)) return true;
  if (holds_back()) sched_yield();  // the receiver may need this CPU in order to acknowledge
  return false;
}

bool Engine::turn(Time at) {
  if (orphan_) return false;
  try {
    return attempt_turn(at);
  } catch (const std::exception& error) {
    break_down(error.what());
    return false;
  }
}

// To read the clock takes as long as all else that a turn without work does: it is read again after
// what takes time alone.
bool Engine::attempt_turn(Time at) {
  bool busy = receive(at);
  busy |= receive_own(at);
  if (rnic_.next_timeout() <= at) rnic_.handle_timeout(at);
  busy |= rnic_.end_turn(at);
  busy |= transmit(at);
  hand_out_async_events(*this);
  if (at >= publish_at_) publish(at);
  return busy;
}

// `at`: when it began, and when it ended.
bool Engine::receive(Time& at) {
  if (!port_) return false;
  std::uint32_t total = 0;
  for (int batch = 0; batch < kReceiveBatches; ++batch) {
    const std::uint32_t n = port_->receive([&](const std::uint8_t* frame, std::uint32_t bytes) {
      counts_.octets_received += bytes;
      take_frame(rnic_, frame, bytes, at);
    });
    total += n;
    if (n > kQuickFrames) at = now();
    if (n < XskPort::kBatch) break;
  }
  counts_.frames_received += total;
  return total != 0;
}

bool Engine::receive_own(Time at) {
  if (own_frames_.empty()) return false;
  const auto frames = std::exchange(own_frames_, {});
  for (const auto& frame : frames)
    take_frame(rnic_, frame.data(), static_cast<std::uint32_t>(frame.size()), at);
  return true;
}

bool Engine::transmit(Time at) {
  if (port_ && port_->unsent() != 0) {
    const XskPort::Flush flushed = port_->flush();
    if (flushed == XskPort::Flush::full) return true;
    if (flushed == XskPort::Flush::down) return lose_batch(rnic_, at);
  }
  return send_batch(at) != 0;
}

std::uint32_t Engine::send_batch(Time at) {
  std::uint32_t sent = 0, committed = 0;
  for (Packet packet; sent < kTransmitBatch; ++sent) {
    if (pace_ && !pace_->has_room(at)) {
      if (rnic_.has_packet()) pace_->hold_back();
      break;
    }
    std::uint8_t* frame = port_ ? port_->next_transmit_frame() : nullptr;
    if (port_ && frame == nullptr) break;
    if (!rnic_.poll_packet(packet, at)) {
      if (pace_) pace_->nothing_waits();
      break;
    }
    packet.destination_mac = settings_.next_hop_mac;
    if (is_own(packet)) {
      keep(packet);
    } else if (port_) {
      const auto bytes = static_cast<std::uint32_t>(encode(packet, settings_.mac, frame));
      counts_.octets_sent += bytes;
      port_->commit(bytes);
      pace_->sent(bytes, at);
      ++committed;
    } else {
      rnic_.counters().add(Counter::tx_link_down);
    }
    rnic_.packet_done(at);
  }
  if (committed != 0) port_->flush();
  counts_.frames_sent += committed;
  return sent;
}

// What the RNIC sends to itself stays here. What is for another process of the host leaves: its
// first switch sends it back.
bool Engine::is_own(const Packet& packet) const {
  return std::ranges::find(rnic_.gids(), packet.destination) != rnic_.gids().end() &&
         packet.destination_qp >> LAB_SHARE_QPN_BITS == share_.grant().share;
}

void Engine::keep(const Packet& packet) {
  std::vector<std::uint8_t> frame(XskPort::kFrameBytes * 2);
  frame.resize(encode(packet, settings_.mac, frame.data()));
  own_frames_.push_back(std::move(frame));
}

void Engine::posted(Time at) {
  if (asleep_.load(std::memory_order_relaxed)) wake_helper();  // to look after it from now on
  if (polls(at)) return;
  try {
    rnic_.end_turn(at);
    transmit(at);
  } catch (const std::exception& error) {
    break_down(error.what());
  }
}

void Engine::publish(Time at) {
  publish_at_ = at + kPublishInterval;
  if (losses_) losses_->write();
  if (!statistics_) return;
  put_socket_counts(port_->statistics(), counts_);
  const std::int64_t now_ns = epoch_ns_ + at / kNanosecond;
  statistics_->publish(rnic_, counts_, now_ns);
  if (kept_) kept_->publish(rnic_, counts_, now_ns, gone_);
}

void Engine::forget_qp(std::uint32_t number) {
  if (losses_) losses_->forget(number);
  const QueuePair* qp = rnic_.find_qp(number);
  if (qp != nullptr && !settings_.kept.empty() && ++qps_gone_ <= statistics::kMostQps)
    statistics::add_qp(*qp, gone_);
}

}  // namespace softroce::verbs
