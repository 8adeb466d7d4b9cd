// SPDX-License-Identifier: GPL-2.0-or-later
// The soft RNIC: one per host port. Queue pairs, memory, completions, and the message engine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "../codec/packet.hpp"
#include "../counters.hpp"
#include "../prefetch.hpp"
#include "../striped/message_engine.hpp"
#include "../verbs/completion.hpp"
#include "../verbs/memory.hpp"
#include "../verbs/queue_pair.hpp"
#include "greeter.hpp"
#include "operations.hpp"

namespace softroce {

struct RnicLimits {  // struct ibv_device_attr
  std::uint32_t max_qp = 1 << 17;
  std::uint32_t max_qp_wr = 1 << 14;
  std::uint32_t max_sge = 32;
  std::uint32_t max_inline_data = 4096;
  std::uint32_t max_srq_wr = 1 << 15;
  std::uint32_t max_srq = 1 << 16;
};

class Rnic {
 public:
  explicit Rnic(const MessageConfig& config);

  MemoryTable& memory() { return memory_; }
  CompletionQueue& completions() { return completions_; }  // of striped messages
  MessageEngine& messages() { return engine_; }
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  const Gid& gid() const { return config_.gid; }
  const std::vector<Gid>& gids() const { return gids_; }
  const RnicLimits& limits() const { return limits_; }
  std::uint32_t path_mtu() const { return config_.path_mtu; }
  std::uint32_t data_qp() const { return engine_.data_qp(); }
  std::uint32_t recovery_qp() const { return engine_.recovery_qp(); }

  // Q_Key that the endpoint's two QPs demand (IBA 10.2.5).
  void set_qkey(std::uint32_t qkey) { qkey_ = qkey; }

  // Adds a GID to the port's table; returns its index. The first is the port's own address.
  std::uint32_t add_gid(const Gid& gid);

  // This process tells others who it is, and asks those whom its queue pairs are connected to,
  // before they send. Without this call peers are connected by hand. `tell`: of Greeter.
  void greet(const Greeting& greeting, std::function<void(const std::string&)> tell);

  // ---- verbs. They return errno values as the C functions do; EINVAL where there is no such
  // object.

  std::shared_ptr<CompletionQueue> create_cq(std::size_t capacity = CompletionQueue::kUnbounded);
  // As ibv_modify_cq; an event that is held back is let go when its time has come.
  void moderate_cq(const std::shared_ptr<CompletionQueue>& cq, std::uint32_t count, Time period);

  // Queue pairs that are made from now on get numbers from `next` on; behind `end` - 1 comes
  // `first`. The engine's two have theirs before.
  void number_from(std::uint32_t next, std::uint32_t first, std::uint32_t end);
  // Capacities become what was granted. EINVAL: beyond the limits; EBUSY: there is a QP 1 already
  // (QpType::gsi); ENOMEM: no number is left.
  int create_qp(const QpConfig& config, std::uint32_t& number);
  int modify_qp(std::uint32_t number, const QpAttr& attr, std::uint32_t mask, Time now);
  // As of QueuePair; EINVAL, or nothing: there is no such queue pair.
  int keep_unfinished(std::uint32_t number, std::shared_ptr<CompletionQueue> failures);
  std::optional<Unfinished> leave_qp(std::uint32_t number, Time now);
  int destroy_qp(std::uint32_t number);
  const QueuePair* find_qp(std::uint32_t number) const;
  int post_send(std::uint32_t number, SendRequest&& request, Time now);
  int post_sends(std::uint32_t number, std::span<SendRequest> requests, Time now);
  int post_receive(std::uint32_t number, ReceiveRequest&& request, Time now);

  int create_srq(std::uint32_t protection_domain, std::uint32_t max_wr, std::uint32_t max_sge,
                 std::uint32_t& number);
  int modify_srq(std::uint32_t number, std::optional<std::uint32_t> max_wr,
                 std::optional<std::uint32_t> limit);
  int destroy_srq(std::uint32_t number);  // EBUSY: queue pairs use it
  std::shared_ptr<SharedReceiveQueue> find_srq(std::uint32_t number) const;
  int post_srq_receive(std::uint32_t number, ReceiveRequest&& request);
  // Takes the first of its receives away, at most so many.
  std::vector<ReceiveRequest> take_srq_receives(std::uint32_t number, std::size_t most);

  template <typename F>
  void for_each_qp(F take) const {
    for (const auto& [number, qp] : qps_) take(*qp);
  }
  std::size_t qps() const { return qps_.size(); }

  // Sink of all events of queue pairs from now on; null: none.
  void set_event_sink(std::shared_ptr<QpEventSink> sink);

  // Asynchronous events, oldest first; the engine's thread only.
  std::vector<AsyncEvent> take_async_events();
  bool has_async_events() const { return !async_events_.empty(); }

  // Completions and asynchronous events that all queues were given since the beginning; the
  // engine's thread only.
  std::size_t completions_pushed() const { return completions_pushed_; }

  void handle_packet(Packet& packet, Time now);
  // To be followed by packet_done(), when the payload has been read and may change.
  bool poll_packet(Packet& packet, Time now);
  void packet_done(Time now);
  bool has_packet() const {
    return !ready_.empty() || engine_.has_packet() || (greeter_ && greeter_->has_packet());
  }
  void handle_timeout(Time now);
  Time next_timeout() const;
  // At the end of a turn: what the engine and its session have to do. False: nothing.
  bool end_turn(Time now);
  Stops& stops() { return engine_.stops(); }

  // Fetch from memory what the next packet needs: itself, and when that is there, whom the last
  // packet concerned, or, where data of a message comes, its sender.
  void prefetch() const {
    prefetch_lines(&config_, &config_.line_rate_bps);  // what of it is read packet by packet
    prefetch_lines(&qps_, this + 1);
  }
  void prefetch_last() const {
    if (last_found_ != nullptr) prefetch_lines(last_found_, last_found_ + 1);
    engine_.prefetch_next();
  }
  void prefetch_for(const Packet& packet) const {
    if (packet.destination_qp == engine_.data_qp())
      engine_.peers().prefetch(packet);
    else
      prefetch_last();
  }

 private:
  static constexpr std::uint32_t kLastQp = uc_framing::kFirstQp - 1;
  static constexpr std::size_t kSpareTimers = 1 << 10;
  static constexpr std::size_t kMostAsyncEvents = 1 << 12;

  QueuePair* find(std::uint32_t number);
  std::uint32_t new_number();
  void settle(QueuePair& qp, Time now);  // after anything that may have given it something to do
  bool is_striped(const Packet& packet) const {
    return packet.destination_qp == data_qp() || packet.destination_qp == recovery_qp();
  }
  void settle_operations(Time now) {
    if (operations_) [[unlikely]]
      operations_->settle(now);
  }
  void stand_in_line(QueuePair& qp, Time now);
  bool poll_qps(Packet& packet, Time now);
  void handle_cnp(const Packet& packet, Time now);
  void rebuild_timers();
  void fire_qp_timers(Time now);
  void tell(AsyncEvent event);

  MessageConfig config_;
  RnicLimits limits_;
  std::vector<Gid> gids_;
  MemoryTable memory_;
  std::size_t completions_pushed_ = 0;
  CompletionQueue completions_{completions_pushed_};
  Counters counters_;
  std::uint32_t qkey_ = 0;
  std::deque<AsyncEvent> async_events_;
  std::shared_ptr<QpEventSink> event_sink_;
  QpHome home_;
  bool notifies_;  // senders, of congestion marks
  std::uint32_t first_qp_ = kRecoveryQpNumber + 1, end_qp_ = kLastQp + 1;  // numbers to give
  std::uint32_t next_qp_ = first_qp_, next_srq_ = 1;
  std::unordered_map<std::uint32_t, std::unique_ptr<QueuePair>> qps_;
  std::unordered_map<std::uint32_t, std::shared_ptr<SharedReceiveQueue>> srqs_;
  std::deque<QueuePair*> ready_;  // QPs with packets, which take turns
  QueuePair* last_found_ = nullptr;
  QueuePair* leaving_ = nullptr;  // whose packet was polled and is not done
  struct Timer {
    Time at;
    std::uint32_t qp;
    bool operator>(const Timer& other) const { return at > other.at; }
  };
  // A QP stands here once, no later than its next timeout; when its turn comes, it may stand again.
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<std::shared_ptr<CompletionQueue>> moderated_;
  MessageEngine engine_;
  std::unique_ptr<Greeter> greeter_;        // null: peers are connected by hand
  std::unique_ptr<Operations> operations_;  // null: reliable connections have packets of their own
};

}  // namespace softroce
