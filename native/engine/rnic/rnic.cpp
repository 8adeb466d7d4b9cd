// SPDX-License-Identifier: GPL-2.0-or-later
#include "rnic.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "../../../xdp/lab_maps.h"

namespace softroce {

Rnic::Rnic(const MessageConfig& config)
    : config_(config),
      gids_{config.gid},
      home_{memory_,
            counters_,
            gids_,
            config_.path_mtu,
            config_.carries_payload,
            [this](AsyncEvent event) { tell(event); },
            congestion_of(config)},
      notifies_(sends_cnps(config.congestion_control)),
      engine_(config_, memory_, completions_, counters_, kDataQpNumber, kRecoveryQpNumber) {
  if (config_.carries_operations) operations_ = std::make_unique<Operations>(engine_, gids_);
}

void Rnic::set_event_sink(std::shared_ptr<QpEventSink> sink) {
  home_.events = sink.get();
  engine_.set_event_sink(sink.get());
  event_sink_ = std::move(sink);
}

std::uint32_t Rnic::add_gid(const Gid& gid) {
  gids_.push_back(gid);
  return static_cast<std::uint32_t>(gids_.size() - 1);
}

// ---------------------------------------------------------------- completion queues and events

std::shared_ptr<CompletionQueue> Rnic::create_cq(std::size_t capacity) {
  return std::make_shared<CompletionQueue>(completions_pushed_, capacity);
}

void Rnic::moderate_cq(const std::shared_ptr<CompletionQueue>& cq, std::uint32_t count,
                       Time period) {
  cq->moderate(count, period);
  std::erase(moderated_, cq);
  if (count > 1 && period != 0) moderated_.push_back(cq);
}

// Beyond the bound the newest are lost, as those of a device whose consumer sleeps.
void Rnic::tell(AsyncEvent event) {
  if (async_events_.size() < kMostAsyncEvents) async_events_.push_back(event);
  ++completions_pushed_;
}

std::vector<AsyncEvent> Rnic::take_async_events() {
  std::vector<AsyncEvent> taken(async_events_.begin(), async_events_.end());
  async_events_.clear();
  return taken;
}

// ---------------------------------------------------------------- queue pairs

// Numbers are not used again, so that packets in flight to a destroyed QP find none.
void Rnic::number_from(std::uint32_t next, std::uint32_t first, std::uint32_t end) {
  next_qp_ = next;
  first_qp_ = first;
  end_qp_ = end;
  const std::uint32_t before = first & ~((1U << LAB_SHARE_QPN_BITS) - 1);
  engine_.set_qps(before | kDataQpNumber, before | kRecoveryQpNumber);
}

void Rnic::greet(const Greeting& greeting, std::function<void(const std::string&)> tell) {
  qkey_ = greeting.qkey();
  greeter_ = std::make_unique<Greeter>(engine_, counters_, greeting, std::move(tell));
  if (operations_) operations_->set_greeter(greeter_.get());
}

// A number comes again when all others have been used.
std::uint32_t Rnic::new_number() {
  for (;;) {
    const std::uint32_t number = next_qp_;
    next_qp_ = number + 1 == end_qp_ ? first_qp_ : number + 1;
    if (!qps_.contains(number)) return number;
  }
}

int Rnic::create_qp(const QpConfig& config, std::uint32_t& number) {
  const QpCapacities& cap = config.cap;
  if (!config.send_cq || !config.receive_cq) return EINVAL;
  if (cap.max_send_wr > limits_.max_qp_wr || cap.max_recv_wr > limits_.max_qp_wr ||
      cap.max_send_sge > limits_.max_sge || cap.max_recv_sge > limits_.max_sge ||
      cap.max_inline_data > limits_.max_inline_data)
    return EINVAL;
  if (qps_.size() >= std::min<std::size_t>(limits_.max_qp, end_qp_ - first_qp_)) return ENOMEM;
  number = new_number();
  auto& qp = qps_[number];
  switch (config.type) {
    case QpType::rc:
      qp = operations_ ? operations_->make_qp(number, config, home_)
                       : make_rc_qp(number, config, home_);
      break;
    case QpType::uc:
      qp = make_uc_qp(number, config, home_);
      break;
    default:
      qp = make_ud_qp(number, config, home_);
  }
  return 0;
}

QueuePair* Rnic::find(std::uint32_t number) {
  if (last_found_ != nullptr && last_found_->number() == number) return last_found_;
  const auto found = qps_.find(number);
  if (found == qps_.end()) return nullptr;
  return last_found_ = found->second.get();
}

const QueuePair* Rnic::find_qp(std::uint32_t number) const {
  const auto found = qps_.find(number);
  return found == qps_.end() ? nullptr : found->second.get();
}

int Rnic::modify_qp(std::uint32_t number, const QpAttr& attr, std::uint32_t mask, Time now) {
  QueuePair* qp = find(number);
  if (qp == nullptr) return EINVAL;
  const int error = qp->modify(attr, mask, now);
  settle(*qp, now);
  return error;
}

int Rnic::keep_unfinished(std::uint32_t number, std::shared_ptr<CompletionQueue> failures) {
  QueuePair* qp = find(number);
  return qp == nullptr ? EINVAL : qp->keep_unfinished(std::move(failures));
}

std::optional<Unfinished> Rnic::leave_qp(std::uint32_t number, Time now) {
  QueuePair* qp = find(number);
  if (qp == nullptr) return std::nullopt;
  Unfinished left = qp->leave(now);
  settle(*qp, now);
  return left;
}

int Rnic::destroy_qp(std::uint32_t number) {
  QueuePair* qp = find(number);
  if (qp == nullptr) return EINVAL;
  std::erase(ready_, qp);
  if (leaving_ == qp) leaving_ = nullptr;
  stops().go_on(qp->stopped);
  if (operations_) operations_->forget(number);
  last_found_ = nullptr;
  qps_.erase(number);
  return 0;
}

int Rnic::post_send(std::uint32_t number, SendRequest&& request, Time now) {
  QueuePair* qp = find(number);
  if (qp == nullptr) return EINVAL;
  const int error = qp->post_send(std::move(request), now);
  settle(*qp, now);
  return error;
}

int Rnic::post_sends(std::uint32_t number, std::span<SendRequest> requests, Time now) {
  QueuePair* qp = find(number);
  if (qp == nullptr) return EINVAL;
  const int error = qp->post_sends(requests, now);
  settle(*qp, now);
  return error;
}

int Rnic::post_receive(std::uint32_t number, ReceiveRequest&& request, Time now) {
  QueuePair* qp = find(number);
  if (qp == nullptr) return EINVAL;
  const int error = qp->post_receive(std::move(request), now);
  settle(*qp, now);
  return error;
}

void Rnic::settle(QueuePair& qp, Time now) {
  if (operations_ && operations_->carries(qp.number())) {
    operations_->wake(qp.number());
    return operations_->settle(now);
  }
  if (qp.is_doomed()) qp.fail(AsyncEventType::qp_fatal, now);
  stand_in_line(qp, now);
  const Time due = qp.next_timeout();
  if (due >= qp.timer) return;
  qp.timer = due;
  timers_.push({due, qp.number()});
  if (timers_.size() > 2 * qps_.size() + kSpareTimers) rebuild_timers();
}

// Without those that a QP left behind when it chose an earlier moment, or went.
void Rnic::rebuild_timers() {
  timers_ = {};
  for (const auto& [number, qp] : qps_)
    if (qp->timer != kNever) timers_.push({qp->timer, number});
}

void Rnic::stand_in_line(QueuePair& qp, Time now) {
  if (qp.has_turn) return;
  if (!qp.has_packet(now)) {
    if (const auto why = qp.why_stopped(now)) return stops().stop(qp.stopped, *why, qp.flow());
    return stops().go_on(qp.stopped);
  }
  stops().go_on(qp.stopped);
  qp.has_turn = true;
  ready_.push_back(&qp);
}

// ---------------------------------------------------------------- shared receive queues

int Rnic::create_srq(std::uint32_t protection_domain, std::uint32_t max_wr, std::uint32_t max_sge,
                     std::uint32_t& number) {
  if (max_wr == 0 || max_wr > limits_.max_srq_wr || max_sge > limits_.max_sge) return EINVAL;
  if (srqs_.size() >= limits_.max_srq) return ENOMEM;
  number = next_srq_++;
  srqs_[number] = std::make_shared<SharedReceiveQueue>(
      SharedReceiveQueue{number, protection_domain, ReceiveQueue(max_wr, max_sge)});
  return 0;
}

std::shared_ptr<SharedReceiveQueue> Rnic::find_srq(std::uint32_t number) const {
  const auto found = srqs_.find(number);
  return found == srqs_.end() ? nullptr : found->second;
}

int Rnic::modify_srq(std::uint32_t number, std::optional<std::uint32_t> max_wr,
                     std::optional<std::uint32_t> limit) {
  const auto srq = find_srq(number);
  if (!srq) return EINVAL;
  const std::uint32_t room = max_wr.value_or(srq->queue.max_requests());
  if (room == 0 || room > limits_.max_srq_wr || limit.value_or(0) > room) return EINVAL;
  if (!srq->queue.resize(room)) return EINVAL;
  if (limit) srq->limit = *limit;
  return 0;
}

int Rnic::destroy_srq(std::uint32_t number) {
  const auto srq = find_srq(number);
  if (!srq) return EINVAL;
  const bool used = std::ranges::any_of(
      qps_, [&srq](const auto& entry) { return entry.second->config().srq == srq; });
  if (used) return EBUSY;
  srqs_.erase(number);
  return 0;
}

int Rnic::post_srq_receive(std::uint32_t number, ReceiveRequest&& request) {
  const auto srq = find_srq(number);
  const int error = srq ? srq->queue.post(std::move(request)) : EINVAL;
  if (operations_ && error == 0) operations_->receives_posted();
  return error;
}

std::vector<ReceiveRequest> Rnic::take_srq_receives(std::uint32_t number, std::size_t most) {
  std::vector<ReceiveRequest> taken;
  const auto srq = find_srq(number);
  while (srq && taken.size() < most) {
    auto each = srq->queue.take();
    if (!each) break;
    taken.push_back(std::move(*each));
  }
  if (srq && !taken.empty() && srq->is_short()) tell({AsyncEventType::srq_limit_reached, number});
  return taken;
}

// ---------------------------------------------------------------- packets

// The checks in the order of IBA 9.6.1 (packet header validation).
void Rnic::handle_packet(Packet& packet, Time now) {
  if (std::ranges::find(gids_, packet.destination) == gids_.end())
    return counters_.add(Counter::rx_not_ours);
  if (packet.congestion_experienced()) counters_.add(Counter::rx_ce);
  if (packet.opcode == kCnpOpcode) return handle_cnp(packet, now);
  const bool striped = is_striped(packet);
  if (striped && packet.opcode != LAB_BTH_OPCODE_UD_SEND_ONLY)
    return counters_.add(Counter::rx_bad_opcode);
  const bool channel = engine_.has_channel(packet.destination_qp);
  QueuePair* qp = striped ? nullptr : find(packet.destination_qp);
  if (!striped && !channel && qp == nullptr) return counters_.add(Counter::rx_unknown_qp);
  // The low 15 bits are the partition; the top bit marks full members, who communicate with all.
  if ((packet.pkey & 0x7FFF) != (kDefaultPkey & 0x7FFF))
    return counters_.add(Counter::rx_wrong_pkey);
  if (qp != nullptr) {
    if (notifies_ && packet.congestion_experienced()) qp->note_mark(packet, now);
    qp->handle_packet(packet, now);
    return settle(*qp, now);
  }
  if (channel) return engine_.handle_channel_packet(packet, now);
  if (greeter_ && packet.qkey == Greeter::kQkey) {
    if (greeter_->handle_packet(packet, now) && operations_) operations_->wake_blocked();
    return settle_operations(now);
  }
  if (packet.qkey != qkey_) return counters_.add(Counter::rx_wrong_qkey);
  engine_.handle_packet(packet, now);
  settle_operations(now);
}

// The reaction point (IBA annex A17.9.4). Whom it does not slow, it does not concern.
void Rnic::handle_cnp(const Packet& packet, Time now) {
  counters_.add(Counter::rx_cnp);
  const bool striped = is_striped(packet);
  QueuePair* qp = striped ? nullptr : find(packet.destination_qp);
  const bool slowed = striped         ? engine_.handle_cnp(packet, now)
                      : qp != nullptr ? qp->handle_cnp(packet, now)
                                      : false;
  if (!slowed) counters_.add(Counter::rx_cnp_ignored);
  if (qp != nullptr) settle(*qp, now);
}

bool Rnic::poll_packet(Packet& packet, Time now) {
  packet = kBlankPacket;
  return (greeter_ && greeter_->poll_packet(packet)) || poll_qps(packet, now) ||
         engine_.poll_packet(packet, now);
}

bool Rnic::poll_qps(Packet& packet, Time now) {
  for (std::size_t tries = ready_.size(); tries != 0; --tries) {
    QueuePair& qp = *ready_.front();
    ready_.pop_front();
    qp.has_turn = false;
    if (qp.poll_packet(packet, now)) {
      leaving_ = &qp;
      return true;
    }
    settle(qp, now);
  }
  return false;
}

void Rnic::packet_done(Time now) {
  settle_operations(now);
  QueuePair* qp = std::exchange(leaving_, nullptr);
  if (qp == nullptr) return;
  qp->packet_done(now);
  settle(*qp, now);
}

// ---------------------------------------------------------------- time

void Rnic::handle_timeout(Time now) {
  fire_qp_timers(now);
  for (const auto& cq : moderated_) cq->handle_timeout(now);
  engine_.handle_timeout(now);
  if (greeter_ && greeter_->handle_timeout(now) && operations_) operations_->wake_blocked();
  settle_operations(now);
}

bool Rnic::end_turn(Time now) {
  const bool acted = engine_.end_turn(now);
  settle_operations(now);
  return acted;
}

void Rnic::fire_qp_timers(Time now) {
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    QueuePair* qp = find(timer.qp);
    if (qp == nullptr || qp->timer != timer.at) continue;
    qp->timer = kNever;
    if (qp->next_timeout() <= now) qp->handle_timeout(now);
    settle(*qp, now);
  }
}

Time Rnic::next_timeout() const {
  Time next = engine_.next_timeout();
  if (!timers_.empty()) next = std::min(next, timers_.top().at);
  if (greeter_) next = std::min(next, greeter_->next_timeout());
  for (const auto& cq : moderated_) next = std::min(next, cq->event_due());
  return next;
}

}  // namespace softroce
