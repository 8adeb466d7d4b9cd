// SPDX-License-Identifier: GPL-2.0-or-later
// A reliable connection whose operations travel as striped messages. Any transport may carry them:
// packets are placed as they arrive, in any order. What operations *do* happens in the order of
// their numbers, and once (IBA 9.7): receives are completed, atomics are executed, memory is read
// for READs, and keys are invalidated.
//
// Within its own work the engine asks for places and memory alone. What has ended is told by
// `ended`, and only `advance` begins messages: neither is called from within that work.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "connected_qp.hpp"
#include "message_carrier.hpp"

namespace softroce {

class StripedQp final : public ConnectedQp {
 public:
  StripedQp(std::uint32_t number, QpConfig config, QpHome& home, MessageCarrier& carrier)
      : ConnectedQp(number, std::move(config), home), carrier_(carrier) {}
  ~StripedQp() override { give_back_shared(); }

  // ---- packets: it has none of its own, and takes none
  void handle_packet(const Packet& packet, Time now) override {
    drop(Counter::rx_bad_opcode, packet, now);
  }
  bool handle_cnp(const Packet& /*packet*/, Time /*now*/) override { return false; }
  void note_mark(const Packet& /*packet*/, Time /*now*/) override {}
  bool poll_packet(Packet& /*packet*/, Time /*now*/) override { return false; }
  bool has_packet(Time /*now*/) const override { return false; }
  bool is_draining() const override { return !progress_.empty(); }

  // ---- from within the engine's work
  // Of a request of which a packet has come, from the peer at this address.
  Place place_for(const Packet& packet, Time now);
  // Why there is no place for it; an RNR NAK tells the peer.
  std::uint8_t why_unready(const MessageKey& key);
  void count_rnr_nak() { count(Counter::rnr_nak_retry_err); }
  bool is_connected() const { return state_ >= QpState::rtr && state_ != QpState::err; }
  bool is_next(const MessageKey& key) const;
  // Of a message that was begun, after regions have changed. Null: it may not be used any more, and
  // the operation fails.
  const std::uint8_t* source_of(const MessageKey& key);
  std::uint8_t* target_of(const MessageKey& key, WcStatus& why_not);

  // Until the retries of an RC requester are used up (IBA 9.7.6.1.3); kNever: they never are.
  Time retry_time() const;

  // ---- between
  void ended(MessageEnd&& end);
  // Ends all of its messages, before it is destroyed, too.
  void part(Time now);
  // Does what can be done: begins sends, takes what has arrived, ends what is over.
  void advance(Time now);

 private:
  // Bytes of messages that are kept apart, at most, beside one message.
  static constexpr std::uint64_t kMostApart = 64 << 20;
  // As many sends as a queue pair may have outstanding.
  static constexpr std::int64_t kMostAhead = 1 << 14;

  struct Progress {        // of a send that was begun
    bool arrived = false;  // its request
    // Bytes that are together only here: of its request, and of its result.
    std::unique_ptr<std::uint8_t[]> request{}, result{};
  };

  // What arrived, or comes; numbers count on beyond 32 bits here.
  struct Arrival {
    enum class State : std::uint8_t { awaits_receive, comes, whole, abandoned };
    State state = State::comes;
    OperationHeader header{};
    std::uint32_t message_id = 0;
    std::uint32_t length = 0;
    std::uint32_t packets = 0;
    Time first_at = 0;
    std::unique_ptr<std::uint8_t[]> staging{};  // where its bytes are, if not in place
    std::vector<std::uint8_t> held{};           // those of its last packet
  };

  struct Result {
    std::int64_t number = 0;  // of its request
    OperationHeader header{};
    std::uint32_t length = 0;
    std::unique_ptr<std::uint8_t[]> bytes{};  // what it sends, if that is not in place
    WcStatus status = WcStatus::success;  // else all that the peer gets, and the connection fails
    bool begun = false;
  };

  // What ends the connection when the operations before it have taken effect.
  struct PlannedFault {
    std::int64_t number = 0;
    WcStatus receive_status{};  // of the receive that the operation took, if any
    AsyncEventType event{};
  };

  void entered(QpState from, Time now) override;
  int check_send(const SendRequest& request) const override;
  void fail_peer(WcStatus status, AsyncEventType event, Time now);

  // ---- requester, striped_requester.cpp
  void reset_requester();
  void begin_sends(Time now);
  bool may_begin(const Send& send) const;
  bool is_too_much(const Send& send) const;
  bool begin(Send& send, Time now);
  const std::uint8_t* source_of(const SendRequest& request, std::uint64_t bytes,
                                Progress& progress);
  std::uint8_t* result_target(const SendRequest& request, std::uint64_t bytes, Progress& progress);
  OperationHeader header_of(const Send& send) const;
  Patience patience() const;
  std::optional<std::size_t> find_send(std::uint32_t number) const;
  void request_ended(const MessageEnd& end);
  void result_ended(const MessageEnd& end);
  bool end_sends(Time now);

  // ---- responder, striped_responder.cpp
  void reset_responder();
  void give_back_taken(Time now);
  void give_back_shared();
  std::int64_t full_number(std::uint32_t number) const {
    return next_ + static_cast<std::int32_t>(number - static_cast<std::uint32_t>(next_));
  }
  Arrival* find_arrival(std::uint32_t number);
  std::int64_t receive_number(const OperationHeader& header) const;
  bool take_receives(const OperationHeader& header);
  std::optional<WcStatus> why_refused(const Packet& packet, std::int64_t number);
  Place open(Arrival& arrival, std::int64_t number);
  bool is_too_much(std::int64_t number, std::uint32_t length) const;
  void count_refusal(WcStatus status);
  std::uint8_t* target_of(Arrival& arrival);
  std::uint8_t* place_in(const ScatterGather& target, std::uint32_t length);
  bool may_fill(const ReceiveRequest& receive, std::uint32_t length);
  std::uint8_t* written_memory(const Arrival& arrival);
  std::uint8_t* request_target(std::uint32_t number, WcStatus& why_not);
  const std::uint8_t* result_source(std::uint32_t number);
  const std::uint8_t* source_of(Result& result);
  Place refuse(std::int64_t number, WcStatus status, WcStatus receive_status, AsyncEventType event);
  void give_receives(Time now);
  void request_arrived(MessageEnd&& end);
  bool take_effects(Time now);
  bool take_effect(Arrival& arrival, Time now);
  void take_fault(Time now);
  bool put_in_place(Arrival& arrival);
  bool finish_receive(Arrival& arrival, Time now);
  void execute_read(const Arrival& arrival);
  void execute_atomic(Arrival& arrival);
  void send_results(Time now);
  bool fail_result(std::int64_t number, const OperationHeader& header, WcStatus status, Time now);

  MessageCarrier& carrier_;
  WcStatus parting_status_ = WcStatus::retry_exc_err;  // of the peer's messages, when this fails

  // Requester.
  std::deque<Progress> progress_;                     // of the first of sends_
  std::uint32_t next_number_ = 0, next_receive_ = 0;  // of the next operation
  std::uint32_t unanswered_ = 0;                      // READs and atomics without their result

  // Responder.
  std::int64_t next_ = 0;  // the first operation that has not taken effect
  std::map<std::int64_t, Arrival> arrivals_;
  std::int64_t first_taken_ = 0;  // the number of the first of these
  std::deque<ReceiveRequest> taken_;
  std::deque<Result> results_;  // to be sent, or on their way
  std::optional<PlannedFault> fault_;
  bool received_ = false;  // anything in RTR
};

}  // namespace softroce
