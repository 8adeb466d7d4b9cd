// SPDX-License-Identifier: GPL-2.0-or-later
#include "host.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "../engine/striped/uc_framing.hpp"
#include "../system/clock.hpp"
#include "moderation.hpp"
#include "port_turn.hpp"

namespace softroce {
namespace {

constexpr std::size_t kRingEntries = 1 << 12;
constexpr std::int64_t kLongestSleepNs = kPublishInterval / kNanosecond;
constexpr std::uint8_t kOtherKind = 0xFF;  // LAB_KIND_NONE: a packet without the lab's header
constexpr std::int64_t kDownSleepNs = 1'000'000;  // while frames wait for the interface to be up
constexpr unsigned long kTimerSlackNs = 1'000;
constexpr auto kCallTimeout = std::chrono::seconds(5);

int make_event_fd() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

void signal_fd(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);  // full is as good as set
}

// Yields to other threads of this CPU, those of a lower priority too, which sched_yield does not: a
// real-time thread that waits for the engine would wait for ever.
void rest() {
  constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 20'000};
  nanosleep(&kWait, nullptr);
}

void drain_fd(int fd) {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
}

}  // namespace

Host::Host(const HostConfig& config)
    : config_(config),
      port_(config.port),
      pace_(
          config.queues_map.empty() ? nullptr : std::make_unique<wire::QueueMap>(config.queues_map),
          config.uplink, config.epoch_ns),
      rnic_(config.messages),
      actions_(kRingEntries),
      call_ring_(kRingEntries),
      action_fd_(make_event_fd()),
      event_fd_(make_event_fd()),
      completion_fd_(make_event_fd()),
      policy_(dynamic_cast<PythonPolicy*>(rnic_.messages().session())) {
  if (policy_ != nullptr) policy_->run_beside();
  if (MessageSession* session = rnic_.messages().session()) session->set_clock(monotonic_ns);
}

Host::~Host() {
  stop();
  for (const int fd : {action_fd_, event_fd_, completion_fd_}) ::close(fd);
}

Time Host::now() const { return (monotonic_ns() - config_.epoch_ns) * kNanosecond; }

void Host::start() {
  if (thread_.joinable()) return;
  if (!port_.is_open()) throw std::runtime_error("a host that was closed does not start again");
  if (!config_.statistics.empty()) {
    statistics_ = std::make_unique<StatisticsFile>(config_.statistics);
    publish_at_ = now();
  }
  const std::lock_guard lock(submitters_);
  stopping_ = false;
  running_ = true;
  thread_ = std::thread(&Host::live, this);
}

void Host::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  signal_fd(action_fd_);
  thread_.join();
  statistics_.reset();
  publish_at_ = kNever;
}

void Host::close() {
  stop();
  port_.close();
}

std::string Host::failure() const {
  const std::lock_guard lock(failure_lock_);
  return failure_;
}

void Host::submit(Action action) {
  const std::lock_guard lock(submitters_);
  if (!running_) return action(rnic_, now());
  while (!actions_.push(action)) rest();  // the engine takes all of them until it has the lock
  // Either the engine sees this action before it sleeps, or it is seen to be asleep here: that
  // takes a fence on both sides, as processors let a load overtake the store before it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_relaxed)) signal_fd(action_fd_);
}

void Host::call(Action action) {
  auto done = std::make_shared<std::promise<void>>();
  auto result = done->get_future();
  submit([done, action = std::move(action)](Rnic& rnic, Time now) {
    try {
      action(rnic, now);
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  if (result.wait_for(kCallTimeout) != std::future_status::ready)
    throw std::system_error(ETIMEDOUT, std::generic_category(), "the engine does not answer");
  result.get();
}

std::vector<HookCall> Host::take_calls(bool begins) {
  std::vector<HookCall> calls;
  if (!begins) return calls;
  drain_fd(event_fd_);
  for (HookCall call; call_ring_.pop(call);) calls.push_back(std::move(call));
  return calls;
}

// ---------------------------------------------------------------- the engine's thread

void Host::live() {
  stay_on_cpu(config_.cpu);
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  pauses_.sleep(monotonic_ns(), 0);
  attempt([this] {
    while (!stopping_)
      if (!turn()) sleep();
  });
  pauses_.turn(monotonic_ns());
  retire();
  signal_fd(event_fd_);
  signal_fd(completion_fd_);
}

void Host::attempt(const std::function<void()>& what) {
  try {
    what();
  } catch (const std::exception& error) {
    const std::lock_guard lock(failure_lock_);
    if (failure_.empty()) failure_ = error.what();
  }
}

// What was submitted still runs here; what is submitted from now on runs where it comes from. A
// submitter that has the lock may be waiting for room among the actions.
void Host::retire() {
  std::unique_lock lock(submitters_, std::defer_lock);
  for (; !lock.try_lock(); rest()) attempt([this] { run_actions(); });
  while (!actions_.empty()) attempt([this] { run_actions(); });
  running_ = false;
}

// One turn: whatever can be done now. False: there was nothing to do.
bool Host::turn() {
  const Time began = now();
  pauses_.turn(config_.epoch_ns + began / kNanosecond);
  if (began >= publish_at_) [[unlikely]]
    publish(began);
  bool busy = run_actions();
  busy |= receive(busy ? now() : began);
  fire_timers(now());
  busy |= recover();
  busy |= hand_over();  // before the long part of a turn: decisions wait for them
  busy |= transmit(now());
  if (busy) turn_length_.add((now() - began) / kNanosecond);
  return busy;
}

// Each at its own time: it may have been submitted long after the turn began, on a busy machine.
bool Host::run_actions() {
  bool any = false;
  for (Action action; actions_.pop(action); any = true) action(rnic_, now());
  return any;
}

bool Host::receive(Time began) {
  std::uint32_t total = 0;
  Time at = began;
  for (int batch = 0; batch < kReceiveBatches; ++batch) {
    rnic_.messages().set_receive_credit(port_.free_receive_frames());
    const std::uint32_t n = port_.receive([&](const std::uint8_t* frame, std::uint32_t bytes) {
      octets_received_ += bytes;
      take_frame(rnic_, frame, bytes, at);
      if (rnic_.messages().knows_loss()) [[unlikely]]
        recover();  // at once, though more frames wait
    });
    total += n;
    if (n < XskPort::kBatch) break;
    at = now();
  }
  if (total != 0) last_receive_ = at;
  frames_received_.fetch_add(total, std::memory_order_relaxed);
  return total != 0;
}

bool Host::transmit(Time at) {
  if (port_.unsent() != 0) {
    const XskPort::Flush flushed = port_.flush();
    if (flushed == XskPort::Flush::full) return true;
    if (flushed == XskPort::Flush::down) return lose_batch(rnic_, at);
  }
  std::uint32_t sent = 0;
  Packet packet;
  while (sent < kTransmitBatch) {
    if (!pace_.has_room(at)) {
      if (rnic_.has_packet()) pace_.hold_back();
      break;
    }
    std::uint8_t* frame = port_.next_transmit_frame();
    if (frame == nullptr) break;
    if (!rnic_.poll_packet(packet, at)) {
      pace_.nothing_waits();
      break;
    }
    const auto bytes = static_cast<std::uint32_t>(encode(packet, config_.mac, frame));
    octets_sent_ += bytes;
    if (recoveries_ != nullptr && (packet.lab.attempt != 0 || packet.sent_before)) [[unlikely]]
      note_sent_again(packet, at);
    port_.commit(bytes);
    pace_.sent(bytes, at);
    rnic_.packet_done(at);
    ++sent;
  }
  if (sent != 0) port_.flush();
  frames_sent_.fetch_add(sent, std::memory_order_relaxed);
  return sent != 0;
}

void Host::note_sent_again(const Packet& packet, Time at) {
  const bool channel =
      packet.opcode == uc_framing::kOpcode && packet.destination_qp >= uc_framing::kFirstQp;
  const bool striped = packet.has_lab_header || channel;
  if (striped ? packet.lab.kind != LAB_KIND_DATA || packet.lab.attempt == 0 : !packet.sent_before)
    return;
  Recovery record{.time_ns = at / kNanosecond,
                  .source = packet.source.ipv4(),
                  .destination = packet.destination.ipv4(),
                  .host = packet.source.ipv4(),
                  .packets = 1};
  record.event = RecoveryKind::sent_again;
  record.sport = packet.source_port;
  if (striped) {
    record.message = packet.lab.message;
    record.index = record.last_index = packet.lab.index;
    record.operation = packet.lab.operation;
    record.step = packet.lab.step;
    record.attempt = packet.lab.attempt;
    record.packet_kind = LAB_KIND_DATA;
  } else {
    record.qpn = packet.destination_qp;
    record.psn = record.last_psn = packet.psn & kPsnMask;
    record.packet_kind = kOtherKind;
  }
  recoveries_->add(record);
}

void Host::record_recoveries() {
  recoveries_ = std::make_unique<Recoveries>();
  recovery_sink_ = std::make_shared<RecoverySink>(
      *recoveries_, static_cast<std::uint32_t>(config_.messages.gid.low));
  rnic_.set_event_sink(recovery_sink_);
}

void Host::set_event_sink(std::shared_ptr<QpEventSink> sink) {
  if (recovery_sink_ == nullptr) return rnic_.set_event_sink(std::move(sink));
  recovery_sink_->next = std::move(sink);
}

void Host::fire_timers(Time at) {
  const Time due = rnic_.next_timeout();
  if (due > at) return;
  timer_lateness_.add((at - due) / kNanosecond);
  rnic_.handle_timeout(at);
  if (rnic_.messages().knows_loss()) recover();
}

// Handles what happened, and notes how long the oldest loss waited until its retransmission was
// queued.
bool Host::recover() {
  MessageEngine& messages = rnic_.messages();
  const Time known_at = messages.loss_known_at();
  if (!rnic_.end_turn(now())) return false;
  if (known_at != kNever && decision_lateness_ns_.size() < kMostLateness)
    decision_lateness_ns_.push_back(static_cast<std::uint32_t>((now() - known_at) / kNanosecond));
  return true;
}

bool Host::hand_over() {
  const std::size_t completions = rnic_.completions_pushed();
  if (completions != completions_seen_) {
    completions_seen_ = completions;
    signal_fd(completion_fd_);
  }
  if (policy_ == nullptr) return false;
  auto& calls = policy_->calls();
  bool any = false;
  while (!calls.empty() && call_ring_.push(calls.front())) {
    calls.pop_front();
    any = true;
  }
  if (any) signal_fd(event_fd_);
  return any;
}

PortCounts Host::port_counts() {
  PortCounts counts{.frames_sent = frames_sent(),
                    .frames_received = frames_received(),
                    .octets_sent = octets_sent_,
                    .octets_received = octets_received_};
  put_socket_counts(port_.statistics(), counts);
  return counts;
}

void Host::publish(Time at) {
  publish_at_ = at + kPublishInterval;
  statistics_->publish(rnic_, port_counts(), config_.epoch_ns + at / kNanosecond);
}

// Nothing is due before, unless something arrives or is submitted.
Time Host::next_due() const {
  const Time timer = rnic_.next_timeout();
  return rnic_.has_packet() ? std::min(timer, pace_.wakes_at()) : timer;
}

void Host::doze() {
  const Time due = next_due();
  const std::int64_t left_ns = due == kNever ? kModerationNs : (due - now()) / kNanosecond;
  const timespec wait{.tv_sec = 0, .tv_nsec = std::clamp<std::int64_t>(left_ns, 0, kModerationNs)};
  nanosleep(&wait, nullptr);
}

void Host::sleep() {
  if (now() - last_receive_ < kFlowingNs * kNanosecond) return doze();
  asleep_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see submit
  if (actions_.empty() && !stopping_) {
    const Time due = next_due();
    const std::int64_t longest_ns = port_.unsent() != 0 ? kDownSleepNs : kLongestSleepNs;
    const std::int64_t wait_ns =
        due == kNever ? longest_ns
                      : std::clamp<std::int64_t>((due - now()) / kNanosecond, 0, longest_ns);
    pollfd fds[] = {{.fd = port_.fd(), .events = POLLIN, .revents = 0},
                    {.fd = action_fd_, .events = POLLIN, .revents = 0}};
    const timespec timeout{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
    pauses_.sleep(monotonic_ns(), wait_ns);
    ppoll(fds, 2, &timeout, nullptr);
  }
  asleep_.store(false, std::memory_order_relaxed);
  drain_fd(action_fd_);
}

}  // namespace softroce
