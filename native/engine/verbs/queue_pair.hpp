// SPDX-License-Identifier: GPL-2.0-or-later
// What queue pairs of all services have in common: states, attributes, queues, completions.
//
// Sans-IO, as the RNIC is: packets and time come in, packets leave by `poll_packet`, and
// `next_timeout` is the time of the next `handle_timeout` call. A posted request names memory by
// keys that are resolved at use: regions may go at any time, and what used them then
// ends in error.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../codec/packet.hpp"
#include "../congestion/congestion.hpp"
#include "../counters.hpp"
#include "../stops.hpp"
#include "../units.hpp"
#include "completion.hpp"
#include "memory.hpp"
#include "qp_event.hpp"
#include "qp_state.hpp"
#include "receive_queue.hpp"
#include "work_request.hpp"

namespace softroce {

// Asynchronous events (IBA 11.6.3): events of a resource outside any call.
enum class AsyncEventType : std::uint8_t {  // values of enum ibv_event_type
  cq_err = 0,
  qp_fatal = 1,
  qp_req_err = 2,
  qp_access_err = 3,
  comm_est = 4,
  sq_drained = 5,
  srq_limit_reached = 15,
  qp_last_wqe_reached = 16,
};

struct AsyncEvent {
  AsyncEventType type{};
  std::uint32_t number = 0;  // of the QP, the shared receive queue or the completion queue
};

struct QpCapacities {  // struct ibv_qp_cap
  std::uint32_t max_send_wr = 1, max_recv_wr = 1;
  std::uint32_t max_send_sge = 1, max_recv_sge = 1;
  std::uint32_t max_inline_data = 0;
};

struct QpConfig {
  QpType type = QpType::ud;
  std::uint32_t protection_domain = 0;
  QpCapacities cap{};
  std::shared_ptr<CompletionQueue> send_cq{}, receive_cq{};
  std::shared_ptr<SharedReceiveQueue> srq{};
  bool signal_all = false;
};

// What a queue pair uses of its RNIC.
struct QpHome {
  MemoryTable& memory;
  Counters& counters;
  const std::vector<Gid>& gids;  // of the port, by index
  std::uint32_t port_mtu;        // largest path MTU, bytes
  bool carries_payload;          // false: memory is neither needed nor resolved
  std::function<void(AsyncEvent)> tell;
  CongestionConfig congestion;
  QpEventSink* events = nullptr;  // sink of the event log; usually none
};

// What a queue pair whose requests may go on elsewhere keeps instead of flushing it.
struct UnfinishedSend {
  SendRequest request;
  bool begun = false;  // a packet of it has left
};

struct Unfinished {
  std::vector<UnfinishedSend> sends{};  // in the order of posting
  std::vector<ReceiveRequest> receives{};
  // Since the queue pair was made or left: messages that consumed a receive of the peer and are
  // acknowledged, and those that consumed one here.
  std::uint64_t notified = 0, received = 0;
  std::uint32_t next_psn = 0;      // the first that no request has used
  std::uint32_t expected_psn = 0;  // of the next request of the peer
};

struct Keeper {
  Unfinished unfinished{};
  std::shared_ptr<CompletionQueue> failures;  // gets what ended in error, and nothing flushed
};

// What a send's completion is called.
WcOpcode completed_opcode(WrOpcode opcode);

class QueuePair {
 public:
  QueuePair(std::uint32_t number, QpConfig config, QpHome& home);
  virtual ~QueuePair() = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  std::uint32_t number() const { return number_; }
  QpState state() const { return state_; }
  const QpConfig& config() const { return config_; }
  const QpAttr& attributes() const { return attr_; }
  const QpCounters& counters() const { return counters_; }
  virtual bool is_draining() const { return false; }  // in SQD, and not all has ended yet
  // A completion queue overran: the QP is to fail as soon as what it is doing is done.
  bool is_doomed() const { return doomed_ && state_ != QpState::err; }
  // To the state of error, by the QP's own doing; an event for those who listen (IBA 11.6.3.2),
  // where no completion reports it.
  void fail(Time now);
  void fail(AsyncEventType event, Time now);
  bool has_turn = false;  // stands in the RNIC's queue of QPs with packets
  bool stopped = false;   // of `Stops`
  Time timer = kNever;    // the RNIC's: when this QP stands in its queue of timers

  // As ibv_modify_qp: 0 or EINVAL.
  int modify(const QpAttr& attr, std::uint32_t mask, Time now);
  // As ibv_post_send and ibv_post_recv: 0, EINVAL, ENOMEM, EOPNOTSUPP. What is wrong with memory or
  // peer is reported by the completion.
  int post_send(SendRequest&& request, Time now);
  // All of them, or none if one is refused.
  int post_sends(std::span<SendRequest> requests, Time now);
  int post_receive(ReceiveRequest&& request, Time now);
  // 0, or the errno value of what is wrong with a request, whatever state the queue pair is in.
  int what_is_wrong(const SendRequest& request) const;
  // How many requests are posted and not over.
  std::size_t outstanding_sends() const { return sends_.size() + behind_; }

  // From now on requests that do not succeed are kept, for another queue pair to carry out, instead
  // of being flushed; `failures` gets the completion of the one that failed. EOPNOTSUPP: not RC.
  int keep_unfinished(std::shared_ptr<CompletionQueue> failures);
  // To the state of error, so that nothing more is executed; returns what was kept, and forgets it.
  Unfinished leave(Time now);

  virtual void handle_packet(const Packet& packet, Time now) = 0;
  // A congestion notification from its peer. False: it slows nothing.
  virtual bool handle_cnp(const Packet& /*packet*/, Time /*now*/) { return false; }
  // Nothing: only a window that never changes limits it.
  virtual std::optional<CongestionControl::Figures> congestion_figures(Time /*now*/) const {
    return std::nullopt;
  }
  // Of RC: the PSN of the next request that it takes.
  virtual std::optional<std::uint32_t> expected_psn() const { return std::nullopt; }
  // Of RC: the first PSN that no request has used.
  virtual std::optional<std::uint32_t> next_psn() const { return std::nullopt; }
  // Its peer's packet came with a congestion mark.
  virtual void note_mark(const Packet& /*packet*/, Time /*now*/) {}
  // False: nothing to send just now. The payload may change after `packet_done`.
  virtual bool poll_packet(Packet& packet, Time now) = 0;
  virtual void packet_done(Time /*now*/) {}
  virtual bool has_packet(Time now) const = 0;
  // What holds back the requests it has, while it has no packet; nothing: it has none.
  virtual std::optional<Stop> why_stopped(Time /*now*/) const { return std::nullopt; }
  StoppedFlow flow() const;  // of its packets to a connected peer
  virtual Time next_timeout() const { return kNever; }
  virtual void handle_timeout(Time /*now*/) {}

 protected:
  // A request that was carried out without a packet.
  struct LocalEnd {
    WorkCompletion completion;
    bool signaled = false;
  };

  struct Send {
    SendRequest request;
    std::uint64_t bytes = 0;
    WcStatus status = WcStatus::success;  // else how it is going to end, when its turn comes
    // Of connected services, when the first packet is sent:
    bool begun = false;
    std::uint32_t first_psn = 0, packets = 0;
    std::uint32_t retransmitted = 0;  // packets sent again
    Time posted_at = 0, first_at = 0;
    std::uint32_t answered = 0;  // packets of a READ's or an atomic's response that are here
    std::uint32_t sequence = 0;  // SSN, IBA 9.7.7.2
    std::unique_ptr<std::deque<LocalEnd>> behind;  // what completes right after it
    std::uint32_t last_psn() const { return (first_psn + packets - 1) & kPsnMask; }
    bool is_answered() const { return !request.reads_remote() || answered == packets; }
  };

  // ---- what is counted and logged
  void count(Counter which, std::uint64_t amount = 1) {
    counters_.add(which, amount);
    home_.counters.add(which, amount);
  }
  // A packet out of the engine, or one that the QP takes.
  void count_packet(Counter which, const Packet& packet) {
    count(which);
    const bool out = which == Counter::tx_connected || which == Counter::tx_ud;
    count(out ? Counter::tx_payload_bytes : Counter::rx_payload_bytes, packet.payload_bytes);
  }
  void drop(Counter why, const Packet& packet, Time now);
  bool logged() const { return home_.events != nullptr; }
  void note(QpEvent event, Time now);  // only if `logged`
  void note_psns(QpEventKind kind, std::uint8_t code, std::uint32_t psn, std::uint32_t last_psn,
                 Time now) {
    if (logged()) [[unlikely]]
      note({.kind = kind, .code = code, .psn = psn, .last_psn = last_psn}, now);
  }

  // ---- what the services do
  virtual void entered(QpState from, Time now) = 0;  // `state_`
  virtual int check_send(const SendRequest& request) const = 0;

  // ---- packets
  void address(Packet& packet, const AddressVector& to) const;
  std::uint16_t source_port() const {
    return static_cast<std::uint16_t>(LAB_UDP_SPORT_BASE | (number_ & 0x3FFF));
  }
  // Makes `bytes` from `offset` of what a request sends the packet's payload. False: its memory may
  // not be read, and the packet is as it was.
  bool load(const SendRequest& request, std::uint64_t offset, std::uint32_t bytes, Packet& packet);
  // Whether all the memory that elements name may be written.
  bool may_scatter(std::span<const ScatterGather> targets) const;
  // Puts bytes to `offset` of the memory that elements name. False: they may not be written.
  bool scatter(std::span<const ScatterGather> targets, std::uint64_t offset,
               const std::uint8_t* bytes, std::uint32_t count) {
    return scatter(targets, offset, bytes, count, config_.protection_domain);
  }

  // ---- receives
  std::optional<ReceiveRequest> take_receive();
  void put_back(ReceiveRequest&& receive);  // what was taken last
  bool has_receive() const;
  // The same as `scatter`, into a receive, whose keys are of its queue's protection domain.
  bool fill(const ReceiveRequest& receive, std::uint64_t offset, const std::uint8_t* bytes,
            std::uint32_t count);
  void complete_receive(const ReceiveRequest& receive, WorkCompletion completion, Time now);
  void fail_receive(const ReceiveRequest& receive, WcStatus status, Time now);

  // ---- ends
  void complete_send(const Send& send, WcStatus status, Time now);
  void fail_sends(WcStatus status, Time now);  // the oldest ends in `status`, the rest is flushed
  void flush_sends(Time now);
  void flush_receives(Time now);
  void stop_sending(WcStatus status, Time now);  // only the send queue stops, IBA 10.3.1.6
  void tell(AsyncEventType event) { home_.tell({event, number_}); }

  std::uint32_t number_;
  QpConfig config_;
  QpHome& home_;
  QpState state_ = QpState::reset;
  QpAttr attr_;
  std::deque<Send> sends_;

 private:
  QpCounters counters_;
  bool acceptable(const QpAttr& attr, std::uint32_t mask) const;
  void take(const QpAttr& attr, std::uint32_t mask);
  // 0, or the errno value of why this request is not posted behind `before` others.
  int why_refused(const SendRequest& request, std::size_t before) const;
  void take_send(SendRequest&& request, Time now);
  void carry_out(const SendRequest& request, Time now);
  void complete_local(const LocalEnd& end, WcStatus before, Time now);
  void enter(QpState state, Time now);
  const std::uint8_t* gather(const SendRequest& request, std::uint64_t offset, std::uint32_t bytes);
  void push(CompletionQueue& queue, const WorkCompletion& completion);
  void note_state(QpState from, Time now);
  void count_end(const WorkCompletion& completion);
  void note_end(const WorkCompletion& completion, bool signaled, Time now);
  bool scatter(std::span<const ScatterGather> targets, std::uint64_t offset,
               const std::uint8_t* bytes, std::uint32_t count, std::uint32_t protection_domain);

  ReceiveQueue receives_;
  std::unique_ptr<Keeper> keeper_;  // usually none
  bool doomed_ = false;
  std::size_t behind_ = 0;             // `LocalEnd` that wait for a send
  std::vector<std::uint8_t> scratch_;  // a payload that was in several places
};

std::unique_ptr<QueuePair> make_ud_qp(std::uint32_t number, QpConfig config, QpHome& home);
std::unique_ptr<QueuePair> make_uc_qp(std::uint32_t number, QpConfig config, QpHome& home);
std::unique_ptr<QueuePair> make_rc_qp(std::uint32_t number, QpConfig config, QpHome& home);

}  // namespace softroce
