// SPDX-License-Identifier: GPL-2.0-or-later
// `dcp`: Li et al., "Revisiting RDMA Reliability for Lossy Fabrics", SIGCOMM 2025. [sim] is the
// authors' simulator (github.com/ColdPorridge/DCP-Simulation, rdma-hw.cc).
//
// From [sim]:
//
// - A switch with a full queue trims a packet: it cuts off the payload. The receiver returns the
//   header to the sender (ReceiveHT_dest).
// - The sender appends the packet's number to a retransmission queue, which is first in, first out
//   (ReceiveHT_src). A new packet leaves only if this queue is empty (GetNxtPacket).
// - The receiver answers each data packet by the cumulative acknowledgement, in whatever order
//   packets arrive (ReceiveUdp). The sender infers no loss from the order. So reordering costs
//   nothing.
// - The sender keeps the cumulative acknowledgement of a message, and no bitmap of the packets that
//   arrived.
// - A timer of 8 ms (retran_timeout in ring-allreduce.cc) starts again at each transmission
//   (GetNxtPacket). When it ends, the message restarts: the sender sends it again (SenderTimeout).
//
// This project's rules:
//
// - Each message has its own timer, as a flow has in [sim]. The messages to a peer share one
//   retransmission queue.
// - A restart retransmits the packets from the cumulative acknowledgement to the last packet that
//   was sent. Packets in the retransmission queue keep their places. In [sim] a restart begins at
//   the first packet of the message, and empties the queue.
// - The timeout is at least two SRTTs to the peer, so that an answer can arrive before it ends.
//   Before an RTT is measured, it is at least two base RTTs. It backs off after restarts in a row
//   without progress, as the session's timers do.
// - The sender ignores a returned header if it belongs to an older transmission, or if the packet
//   already waits in the retransmission queue. [sim] has no duplicates, and no headers that outlast
//   a restart.
// - The receiver has room for all packets of a posted message, so it returns trimmed headers only.
//   In [sim] it also returns the header of a packet beyond its bitmap.
// - Packets take all paths in turn. In [sim] switches choose the path.
// - Congestion control is the lab's.
#include <algorithm>
#include <deque>

#include "../engine/mutant.hpp"
#include "packet_session.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

class Dcp final : public PacketSession {
 public:
  explicit Dcp(MessageEngine& engine)
      : PacketSession(engine), restart_ns_(option<std::int64_t>("restart_timeout")) {}

  void posted(SendMessage& message) override;
  void packet_sent(SendMessage& message, std::uint32_t packet, Time now) override;
  void connection_timer_ended(PeerIndex peer, Time now) override;

 private:
  static constexpr Nanoseconds kLeastRtts = 2;

  struct Flow {  // a message
    PeerIndex peer = 0;
    std::uint32_t cumulative = 0;  // packets [0, cumulative) have arrived
    std::uint32_t restarts = 0;    // in a row, without progress
    Nanoseconds sent_ns = 0;       // the last transmission
    Bitmap queued;                 // packets that wait in the retransmission queue
  };
  struct Entry {
    Handle message = kNoHandle;  // the message may be over
    std::uint32_t packet = 0;    // the entry is valid only while Flow::queued has the packet
    RetransmitReason why{};
  };
  // The engine gets one packet at a time, because it would send several in the order of indices.
  struct Queue {
    std::deque<Entry> entries;
    bool engine_has_front = false;

    bool is_front(Handle message, std::uint32_t packet) const {
      return engine_has_front && entries.front().message == message &&
             entries.front().packet == packet;
    }
    void pop() {
      entries.pop_front();
      engine_has_front = false;
    }
  };

  Flow& flow_of(Handle message) { return flows_[index_of(message)]; }
  Queue& queue_of(PeerIndex peer) {
    if (peer >= queues_.size()) queues_.resize(peer + 1);
    return queues_[peer];
  }
  Nanoseconds timeout_ns(PeerIndex index) const;
  void advance(SendMessage& message, Flow& flow, std::uint32_t cumulative);
  void queue_again(const SendMessage& message, std::uint32_t packet, RetransmitReason why);
  void hand_over(PeerIndex peer);
  void restart(SendMessage& message, RetransmitReason why);
  void resume(SendMessage& message);

  // ---- hooks of the session
  bool answers_trimming() const override { return true; }
  Feedback out_of_order(const ReceiveMessage&, std::uint32_t) const override { return {}; }
  void feedback_known(SendMessage& message, const Feedback& feedback) override;
  void payload_lost(SendMessage& message, const Feedback& feedback) override;
  void receiver_ready(SendMessage& message) override { resume(message); }
  void check_send(SendMessage& message) override;
  void paused(SendMessage& message) override;
  void over(Handle message) override;

  const Nanoseconds restart_ns_;
  std::deque<Flow> flows_;    // by the handle's index
  std::deque<Queue> queues_;  // by peer
};

// ---------------------------------------------------------------- feedback

void Dcp::feedback_known(SendMessage& message, const Feedback& feedback) {
  advance(message, flow_of(message.handle), feedback.cumulative);
  if (feedback.cumulative == message.count)
    finish_send(message);
  else if (message.paused)
    resume(message);
}

void Dcp::advance(SendMessage& message, Flow& flow, std::uint32_t cumulative) {
  if (cumulative <= flow.cumulative) return;
  if (flow.restarts != 0) {
    flow.restarts = 0;
    set_timer(message, flow.sent_ns + timeout_ns(message.peer));
  }
  Queue& queue = queue_of(message.peer);
  bool front_is_done = false;
  for (; flow.cumulative < cumulative; ++flow.cumulative) {
    if (!flow.queued.clear(flow.cumulative)) continue;
    front_is_done |= queue.is_front(message.handle, flow.cumulative);
    engine().forget_retransmit(message, flow.cumulative);
  }
  if (!front_is_done) return;
  queue.pop();
  hand_over(message.peer);
}

void Dcp::payload_lost(SendMessage& message, const Feedback& feedback) {
  Flow& flow = flow_of(message.handle);
  advance(message, flow, feedback.cumulative);
  if (message.paused) return;
  queue_again(message, feedback.packet, RetransmitReason::trimmed);
  hand_over(message.peer);
}

// ---------------------------------------------------------------- the retransmission queue

void Dcp::queue_again(const SendMessage& message, std::uint32_t packet, RetransmitReason why) {
  if (flow_of(message.handle).queued.set(packet))
    queue_of(message.peer).entries.push_back({message.handle, packet, why});
}

void Dcp::hand_over(PeerIndex peer) {
  Queue& queue = queue_of(peer);
  while (!queue.engine_has_front && !queue.entries.empty()) {
    const Entry next = queue.entries.front();
    SendMessage* message = engine().find_send(next.message);
    if (message != nullptr && flow_of(next.message).queued.test(next.packet)) {
      about(message->key);
      queue.engine_has_front = Session::retransmit(*message, next.packet, next.why);
      if (queue.engine_has_front) return;
      flow_of(next.message).queued.clear(next.packet);  // the peer is silent
    }
    queue.entries.pop_front();
  }
}

// ---------------------------------------------------------------- sending

void Dcp::posted(SendMessage& message) {
  const std::uint32_t index = index_of(message.handle);
  if (index >= flows_.size()) flows_.resize(index + 1);
  Flow& flow = flows_[index];
  flow.peer = message.peer;
  flow.cumulative = flow.restarts = 0;
  flow.queued.reset(message.count);
}

void Dcp::packet_sent(SendMessage& message, std::uint32_t packet, Time now) {
  set_now(now);
  Flow& flow = flow_of(message.handle);
  flow.sent_ns = now_ns();
  if (message.timer_at == kNever) set_timer(message, now_ns() + timeout_ns(message.peer));
  Queue& queue = queue_of(message.peer);
  if (!queue.is_front(message.handle, packet) || mutated(Mutant::dcp_front_kept)) return;
  flow.queued.clear(packet);
  queue.pop();
  hand_over(message.peer);
}

// The next packet of the queue goes to the engine when the connection timer ends, which is at once.
// It does not go here, because the caller may be iterating over all messages.
void Dcp::over(Handle handle) {
  if ((handle & kReceiveTag) != 0) return;
  const PeerIndex peer = flow_of(handle).peer;
  Queue& queue = queue_of(peer);
  if (!queue.engine_has_front || queue.entries.front().message != handle) return;
  queue.pop();
  engine().set_connection_timer(peer, now());
}

void Dcp::connection_timer_ended(PeerIndex peer, Time now) {
  set_now(now);
  hand_over(peer);
}

// ---------------------------------------------------------------- restarts

Nanoseconds Dcp::timeout_ns(PeerIndex index) const {
  return timeout_or(index, std::max(restart_ns_, kLeastRtts * rtt(index).srtt_ns));
}

void Dcp::check_send(SendMessage& message) {
  if (message.paused) {
    probe_receiver(message);
    return set_timer(message, now_ns() + timing().t_max_ns);
  }
  Flow& flow = flow_of(message.handle);
  if (flow.cumulative == message.next) return;  // the next packet starts the timer
  const Nanoseconds interval_ns = timeout_ns(message.peer);
  const Nanoseconds due_ns = flow.sent_ns + backed_off_ns(interval_ns, flow.restarts);
  if (now_ns() < due_ns) return set_timer(message, due_ns);
  engine().write_off(message.peer, now() - interval_ns * kNanosecond);
  set_timer(message, now_ns() + backed_off_ns(interval_ns, ++flow.restarts));
  if (!mutated(Mutant::dcp_restart_ignored)) restart(message, RetransmitReason::timeout);
}

void Dcp::restart(SendMessage& message, RetransmitReason why) {
  const Handle handle = message.handle;
  const PeerIndex peer = message.peer;
  for (std::uint32_t packet = flow_of(handle).cumulative; packet < message.next; ++packet) {
    if (message.sent[packet].tries() < timing().most_attempts) {
      queue_again(message, packet, why);
    } else {
      Session::retransmit(message, packet, why);  // gives up, unless the peer is silent
      if (engine().find_send(handle) == nullptr) return;
    }
  }
  hand_over(peer);
}

// ---------------------------------------------------------------- receiver not ready

void Dcp::paused(SendMessage& message) {
  Flow& flow = flow_of(message.handle);
  for (std::uint32_t packet = flow.cumulative; packet < message.next; ++packet)
    if (!queue_of(message.peer).is_front(message.handle, packet)) flow.queued.clear(packet);
}

// Retransmits all packets that were sent, because the receiver has refused them.
void Dcp::resume(SendMessage& message) {
  pause(message, false);
  set_timer(message, now_ns() + timeout_ns(message.peer));
  restart(message, RetransmitReason::rnr_nak);
}

}  // namespace

Transport dcp_transport() {
  return {.name = "dcp",
          .make = make<Dcp>,
          .framings = {"ud"},
          .options = {path_picker_option(kPickTurns),
                      {.name = "restart_timeout",
                       .usual = std::int64_t{8'000'000},
                       .help = "the least time without a transmission of a message after which "
                               "the message starts again; it is 2 RTTs otherwise",
                       .unit = "time",
                       .least = 1000,
                       .most = 1e10}},
          .has_rto = true};
}

}  // namespace softroce
