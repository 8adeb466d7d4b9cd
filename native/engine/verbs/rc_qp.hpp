// SPDX-License-Identifier: GPL-2.0-or-later
// Reliable connection (IBA 9.7): a requester and a responder that know each other's PSNs. Recovery
// is go-back-N, as the specification and Linux's rxe have it: the responder takes packets in order
// only and reports once what it misses; the requester sends again from there.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "connected_qp.hpp"

namespace softroce {

// AETH syndromes, IBA 9.7.5.2.1 (table 43).
inline constexpr std::uint8_t kAckUnlimited = 0x1F;  // no credits are counted
inline constexpr std::uint8_t kRnrNak = 0x20;        // or a code of table 45
inline constexpr std::uint8_t kNakSequence = 0x60, kNakInvalid = 0x61, kNakAccess = 0x62,
                              kNakOperation = 0x63;

class RcQp final : public ConnectedQp {
 public:
  RcQp(std::uint32_t number, QpConfig config, QpHome& home);

  bool has_packet(Time now) const override {
    return cnp_queued_ || response_is_ready(now) || sendable(now);
  }
  std::optional<Stop> why_stopped(Time now) const override;
  bool is_draining() const override { return !sends_.empty() && sends_.front().begun; }
  std::optional<std::uint32_t> expected_psn() const override { return expected_psn_; }
  std::optional<std::uint32_t> next_psn() const override { return next_psn_; }
  // Packets of requests that are not acknowledged, and how many there may be.
  std::uint32_t outstanding() const {
    return static_cast<std::uint32_t>(psn_distance(sent_psn_, unacked_psn_));
  }
  std::uint32_t window() const { return static_cast<std::uint32_t>(std::max(window_, 0)); }
  void handle_packet(const Packet& packet, Time now) override;
  bool poll_packet(Packet& packet, Time now) override;
  Time next_timeout() const override;
  void handle_timeout(Time now) override;

 private:
  static constexpr std::uint32_t kMostPackets = 1 << 23;           // half of all PSNs, IBA 9.7.2
  static constexpr std::uint32_t kMostUnacked = kMostPackets - 1;  // PSNs compare by their distance
  static constexpr std::uint32_t kAckRequestEvery = 32;            // packets, at most

  void entered(QpState from, Time now) override;
  int check_send(const SendRequest& request) const override;

  // ---- requester, rc_requester.cpp
  void reset_requester();
  bool sendable(Time now) const;
  bool may_begin(const Send& send) const;
  std::uint32_t cursor_psn() const;
  void begin(Send& send, Time now);
  bool poll_request(Packet& packet, Time now);
  bool write_request(const Send& send, Packet& packet);
  void advance(const Send& send, Time now);
  void refuse(Send& send, Time now);  // at the cursor; it ends when those before it have ended
  void handle_response(const Packet& packet, const OpcodeTraits& traits, Time now);
  void handle_acknowledge(const Packet& packet, Time now);
  void handle_nak(const Packet& packet, Time now);
  void handle_rnr(const Packet& packet, Time now);
  void handle_result(const Packet& packet, const OpcodeTraits& traits, Time now);
  bool result_fits(const Send& send, const Packet& packet, const OpcodeTraits& traits) const;
  bool store_result(const Send& send, const Packet& packet);
  Send* oldest_unanswered();
  bool is_outstanding(std::uint32_t psn) const;
  void acknowledged(std::uint32_t psn, Time now);  // up to and with this one
  void take_credits(const Packet& packet);
  void go_back(std::uint32_t psn, RetransmitReason reason, Time now);
  void seek(std::uint32_t psn);
  bool acknowledged_before(std::uint32_t psn, Time now);
  void progressed(std::uint32_t unacked, Time now);
  bool wants_acknowledge(Time now) const;
  void set_window(Time now);
  std::uint32_t capped(std::uint32_t window_packets) const;
  void stamp(const Packet& packet, Time now);
  void probe_ended(std::uint32_t unacked, Time now);
  void sample(std::uint32_t unacked, Time now);
  void retry(RetransmitReason reason, Time now);
  void fail_request(std::uint32_t psn, WcStatus status, Time now);
  void set_timer(Time now);
  bool postpone_timer(Time now);
  void check_drained();

  // ---- responder, rc_responder.cpp
  struct Resource {  // what a READ or an atomic returned, to return it again (IBA 9.7.5.1.3)
    bool used = false, atomic = false;
    std::uint32_t first_psn = 0, packets = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0, length = 0;
    std::uint64_t original = 0;  // of an atomic
  };
  struct Response {
    enum class Kind : std::uint8_t { acknowledge, nak, read, atomic } kind;
    std::uint32_t psn, msn;
    std::uint8_t syndrome = kAckUnlimited;
    std::size_t resource = 0;
    bool again = false;  // was sent before
    std::uint32_t first_psn = 0;
    // Of a READ: what is left.
    bool begun = false;
    std::uint64_t remote_address = 0;
    std::uint32_t left = 0;

    bool is_result() const { return kind == Kind::read || kind == Kind::atomic; }
  };
  void reset_responder(Time now);
  void handle_request(const Packet& packet, const OpcodeTraits& traits, Time now);
  void handle_duplicate(const Packet& packet, const OpcodeTraits& traits, Time now);
  void acknowledge_duplicate(std::uint32_t psn);
  void execute(const Packet& packet, const OpcodeTraits& traits, Time now);
  void execute_read(const Packet& packet, Time now);
  void execute_atomic(const Packet& packet, Time now);
  void answer_fault(Fault fault, std::uint32_t psn, Time now);
  Resource* take_resource(std::size_t& index);
  bool is_answering(std::size_t resource) const;
  bool has_result_behind(std::uint32_t psn) const;
  std::optional<std::size_t> resource_of(std::uint32_t psn) const;
  void respond(const Response& response);
  void acknowledge(std::uint32_t psn);
  void nak(std::uint8_t syndrome, std::uint32_t psn);
  void nak_and_fail(std::uint8_t syndrome, Counter counter, WcStatus receive_status,
                    AsyncEventType event, std::uint32_t psn, Time now);
  bool poll_response(Packet& packet, Time now);
  void note_response(const Response& response, Time now);
  bool response_is_ready(Time now) const {
    if (responses_.empty()) return false;
    return responses_.front().kind != Response::Kind::read || !is_paced(now);
  }
  bool write_read_response(Response& response, Packet& packet, Time now);

  // Requester. PSNs [unacked, sent) are outstanding; what comes next on the wire is packet
  // `cursor_packet_` of send `cursor_`.
  std::uint32_t next_psn_ = 0, unacked_psn_ = 0, sent_psn_ = 0;
  std::size_t cursor_ = 0;
  std::uint32_t cursor_packet_ = 0;
  std::uint32_t unanswered_ = 0;  // READs and atomics that were begun
  std::int32_t window_;           // of packets that are not acknowledged
  std::uint32_t since_ack_request_ = 0, ack_request_every_;
  Time ack_requested_at_ = 0;
  struct Stamp {
    std::uint32_t psn = ~0U;  // no PSN
    Time at = 0;
  };
  // When each of the last packets was sent, by PSN, if congestion control measures: none
  // retransmitted.
  std::vector<Stamp> stamps_;
  // The round trip of one packet at a time that requests an acknowledgement.
  Stamp probe_{.at = kNever};  // kNever: none is under way
  Time rtt_ = 0, least_rtt_ = kNever;
  std::uint32_t hops_ = 0;          // that the last response came over
  std::uint32_t sequence_ = 0;      // SSN of the send begun last
  std::uint32_t credit_limit_ = 0;  // SSN up to which the peer has receives
  bool credited_ = false;           // the peer counts
  std::uint8_t retries_left_ = 0, rnr_left_ = 0;
  bool went_back_ = false;       // since anything was acknowledged
  std::uint32_t ahead_psn_ = 0;  // the latest that came before what is awaited
  bool nak_is_news_ = true;      // and not of what was sent before
  Time retransmit_at_ = kNever;
  Time rnr_until_ = kNever;  // kNever: not waiting

  // Responder.
  std::uint32_t expected_psn_ = 0, msn_ = 0;
  std::uint32_t executed_psn_ = 0;  // of the last SEND or WRITE
  // The last duplicate of a SEND or WRITE whose acknowledgement is left to a result behind it.
  std::optional<std::uint32_t> left_to_result_;
  bool nak_sent_ = false;  // and what was missed has not come yet
  bool received_ = false;  // anything in RTR
  bool parting_ = false;   // the last NAK is to leave, though the QP is in error
  std::vector<Resource> resources_;
  std::size_t next_resource_ = 0;
  std::deque<Response> responses_;
  bool response_next_ = false;  // the last packet was a request
};

}  // namespace softroce
