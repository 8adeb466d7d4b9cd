// SPDX-License-Identifier: GPL-2.0-or-later
// The message engine: striped messages over one data QP and one recovery QP, whatever the number
// of peers. It cuts, places, counts and reports. What to resend and when to look is not its
// business: it tells a recovery policy what happened (events) and does what the policy says.
//
// Sans-IO: packets and time come in by `handle_*`, packets leave by `poll_packet`, and
// `next_timeout` says when `handle_timeout` wants to be called.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../codec/gid.hpp"
#include "../codec/packet.hpp"
#include "../counters.hpp"
#include "../prefetch.hpp"
#include "../ring.hpp"
#include "../verbs/completion.hpp"
#include "../verbs/memory.hpp"
#include "../verbs/qp_event.hpp"
#include "active_peers.hpp"
#include "event.hpp"
#include "framing.hpp"
#include "packet_transport.hpp"
#include "peer.hpp"
#include "report.hpp"

namespace softroce {

struct MessageConfig {
  Gid gid = Gid::of_ipv4(0);                  // of the port
  std::uint32_t path_mtu = 2048;              // IB path MTU, bytes; our header counts toward it
  std::uint32_t paths = 8;                    // UDP source ports in use
  std::uint32_t message_slots = 1024;         // messages outstanding per peer, a power of two;
                                              // the same at both ends
  std::uint32_t first_message_id = 0;         // ids count up from here and wrap
  std::uint32_t window_packets = 1024;        // one bandwidth-delay product
  std::uint32_t receive_ring_packets = 2048;  // first credit, before the port reports its own
  std::uint32_t report_every_packets = 64;
  Time report_least_interval = 100 * kMicrosecond;
  Time initial_rtt = 2 * kMillisecond;
  Time persist_least = 20 * kMillisecond;
  std::string congestion_control = "bdp";
  // "policy" hands events to a recovery policy; else a packet-reactive transport recovers, and ends
  // sends itself (packet_transport.hpp). Zero: derived from `initial_rtt`.
  std::string transport = std::string(kPolicyTransport);
  Time rto_low = 0;
  Time rto_high = 0;
  std::uint32_t retry_limit = 40;
  std::uint32_t rnr_retry = 7;
  bool spray = false;  // such a transport's packets take all paths, not one a message
  std::uint64_t line_rate_bps = 100'000'000'000;  // of the port
  Time base_rtt = 0;                              // of an empty fabric; 0: initial_rtt
  Time cnp_interval = 50 * kMicrosecond;          // dcqcn
  Time target_delay = 0, hop_delay = 0;           // swift; 0: shares of base_rtt
  Time pacing_slack = 0;        // by how much late a paced packet may be and the next keep its time
  bool carries_payload = true;  // false: packets have lengths and no bytes, requests no memory
  std::string framing = "ud";   // the same at both ends
};

CongestionConfig congestion_of(const MessageConfig& config);

class MessageEngine final : private TransportHost {
 public:
  MessageEngine(const MessageConfig& config, MemoryTable& memory, CompletionQueue& completions,
                Counters& counters, std::uint32_t data_qp, std::uint32_t recovery_qp);

  // ---- control plane; throws EAFNOSUPPORT, EISCONN (std::system_error)
  PeerIndex connect(const PeerAddress& address);

  // ---- work requests; the caller has pinned the memory (MemoryTable::pin)
  struct WorkRequest {
    PeerIndex peer;
    MessageKey key;
    std::uint8_t* base;
    std::uint32_t length;
    std::uint32_t memory_key;
    std::uint64_t wr_id;
  };
  // False: no such peer, its queue is full (message_slots), or another message of this key is
  // under way (a receive: posted and not begun). A key names one message at a time.
  bool post_send(const WorkRequest& request, Time now);
  bool post_receive(const WorkRequest& request, Time now);
  void flush(Time now);  // every work request ends in IBV_WC_WR_FLUSH_ERR

  // ---- what arrives, what leaves
  void handle_packet(Packet& packet, Time now);
  bool has_channel(std::uint32_t qp) const {  // one of the framing uc_immediate
    return framing_ != Framing::ud &&
           qp - uc_framing::kFirstQp < peers_.size() * uc_framing::kChannels;
  }
  void handle_channel_packet(Packet& packet, Time now);  // to one of these
  bool handle_cnp(const Packet& packet, Time now);       // false: it slows nobody
  bool poll_packet(Packet& packet, Time now);
  void handle_timeout(Time now);
  Time next_timeout() const { return timers_.empty() ? kNever : timers_.top().at; }
  bool has_packet() const;
  void prefetch_next() const {  // the peer whom the next packet goes to
    if (data_ring_.empty()) return;
    const Peer& next = peers_[data_ring_.front()];
    prefetch_lines(&next, &next + 1);
  }
  void set_receive_credit(std::uint32_t free_frames) { credit_ = free_frames; }

  // ---- events, and the actions of a policy; an action that names a stale handle is refused
  std::deque<Event>& events() { return events_; }
  // Something waits for whoever drives the endpoint: events, or what a native transport completed.
  bool has_news() const {
    return transport_ == nullptr ? !events_.empty() : completions_.size() != 0;
  }
  void resend(Handle send, std::span<const std::uint32_t> indices, bool urgent, Time now);
  void pause(Handle send, bool paused);
  void control(PeerIndex peer, std::vector<std::uint8_t> body);
  void look_at(Handle message, Time at);
  void look_at_peer(PeerIndex peer, Time at);
  void complete_send(Handle send, WcStatus status, Time now);
  void fail_receive(Handle receive, WcStatus status, Time now);
  void set_path_weights(PeerIndex peer, const std::array<std::uint16_t, kMaxPaths>& weights);

  // ---- snapshots, from any thread
  auto& sends() { return sends_; }
  auto& receives() { return receives_; }
  struct PeerState {
    Time srtt, rttvar;                // measured from here; 0 unknown
    Time remote_srtt, remote_rttvar;  // as the peer's packets tell
    Time heard_at;                    // -1: never
    std::uint32_t reported_packets;   // of data, that it says have arrived
    std::uint32_t newest_stamp_ns;    // of its packets that arrived,
    Time newest_stamp_at;             // and when; -1: none has
    Time lateness;                    // usual, of its data packets
    double receive_bytes_per_second;
  };
  PeerState peer_state(PeerIndex index);  // throws std::out_of_range
  // The engine's thread only; throws std::out_of_range.
  CongestionControl::Figures congestion_figures(PeerIndex index, Time now) {
    return peers_.at(index).congestion->figures(now);
  }
  // Data packets ever sent to the peer on each path, modulo 2^32; throws std::out_of_range.
  std::array<std::uint32_t, kMaxPaths> sent_on_paths(PeerIndex index);
  std::uint32_t chunk_bytes() const { return chunk_bytes_; }
  std::uint32_t control_bytes() const { return config_.path_mtu - LAB_HDR_BYTES; }
  const MessageConfig& config() const { return config_; }
  void set_event_sink(QpEventSink* sink) { event_sink_ = sink; }  // null: nobody reads the log

 private:
  struct PeerKey {
    PeerIndex peer;
    MessageKey key;
    bool operator==(const PeerKey&) const = default;
  };
  struct PeerKeyHash {
    std::size_t operator()(const PeerKey& k) const {
      const std::uint64_t name =
          std::uint64_t{k.key.operation} << 48 | std::uint64_t{k.key.step} << 32 | k.key.message;
      return std::hash<std::uint64_t>()(name * 0x9E3779B97F4A7C15ULL ^ k.peer);
    }
  };
  struct Source {
    Gid gid;
    std::uint32_t qp = ~0U;  // no QP's number
    bool operator==(const Source&) const = default;
  };
  struct Found {
    Source source;
    PeerIndex peer = 0;
  };
  struct SourceHash {
    std::size_t operator()(const Source& s) const {
      const std::uint64_t name = s.gid.high * 3 ^ s.gid.low ^ std::uint64_t{s.qp} << 40;
      return std::hash<std::uint64_t>()(name * 0x9E3779B97F4A7C15ULL);
    }
  };
  enum class TimerKind : std::uint8_t {
    look,       // a policy's time to look at a message
    peer_look,  // a policy's time to look at a peer
    report,     // a quarter of an RTT after the first unreported packet
    persist,    // a closed window, and nothing heard
    clear,      // cleared messages of which no packet has come
    transport,  // a packet-reactive transport's
    pace,       // congestion control lets the next packet go
  };
  struct Timer {
    Time at;
    std::uint64_t sequence;  // ties go in the order of arming
    TimerKind kind;
    Handle subject;
    bool operator>(const Timer& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };
  struct Echo {  // what a report tells of when packets were sent that arrived
    std::int64_t newest_ns = -1;
    Time rtt = 0;
    bool overtaken = false;  // by a newer report
  };
  static constexpr std::size_t kMostControlOut = 1 << 12;  // each may hold a whole packet's body
  struct ControlOut {
    PeerIndex peer;
    std::vector<std::uint8_t> body;
    std::uint32_t listener = LAB_CONTROL_POLICY;
  };
  struct SmallControl {  // what a transport says, once a packet: nothing is allocated for it
    PeerIndex peer;
    std::uint8_t path;
    std::uint8_t size;
    std::array<std::uint8_t, kMostSmallBody> body;
  };

  Peer* find_peer(const Packet& packet);
  void note_arrival(Peer& peer, const Packet& packet, Time now);
  void handle_data(Peer& peer, const Packet& packet, Time now);
  void handle_control(Peer& peer, const Packet& packet, Time now);
  void handle_report(Peer& peer, const Packet& packet, Time now);
  ReceiveMessage* open_message(Peer& peer, ReceiveSlot& slot, const LabHeader& lab, Time now);
  ReceiveMessage* refuse(Peer& peer, ReceiveSlot& slot, const LabHeader& lab, Counter why,
                         EventKind event, Time now);
  void tell_rarely(Peer& peer, ReceiveSlot& slot, const LabHeader& lab, EventKind event, Time now);
  void complete_receive(ReceiveMessage& message, WcStatus status, Time now);
  static std::uint32_t take_id(Peer& peer);
  void begin(ReceiveMessage& message, Time now);

  // ---- what a packet-reactive transport asks
  SendMessage* find_send(Handle send) override;
  ReceiveMessage* find_receive(Handle receive) override;
  Time heard_at(PeerIndex peer) const override { return peers_[peer].heard_at; }
  void say(PeerIndex peer, std::uint8_t path, std::span<const std::uint8_t> body) override;
  void resend(SendMessage& message, std::uint32_t packet, Time now) override;
  void forget_resend(SendMessage& message, std::uint32_t packet) override;
  void forget_resends(SendMessage& message) override;
  void allow(SendMessage& message, std::uint32_t limit) override;
  void pause(SendMessage& message, bool paused) override;
  bool echoed(PeerIndex peer, std::uint32_t stamp_ns, Time now) override;
  void write_off(PeerIndex peer, Time sent_up_to) override;
  void end(SendMessage& message, WcStatus status, Time now) override;
  void end(ReceiveMessage& message, WcStatus status, Time now) override;
  void sender_gave_up(PeerIndex peer, std::uint32_t id, const MessageKey& key, WcStatus status,
                      Time now) override;
  void wake_at(Time at, Handle subject) override { arm(at, TimerKind::transport, subject); }

  bool poll_small_control(Packet& packet, Time now);
  void send_control(Peer& peer, Packet& packet, Time now);  // the body is in `scratch_`
  void queue_resend(SendMessage& message, bool urgent = false);
  void queue_first_pass(SendMessage& message);
  bool poll_cnp(Packet& packet);
  bool poll_control(Packet& packet, Time now);
  bool poll_report(Packet& packet, Time now);
  bool poll_resend(Packet& packet, Time now);
  bool poll_data(Packet& packet, Time now);
  void build_data(Peer& peer, SendMessage& message, std::uint32_t index, bool resend, Time now,
                  Packet& packet);
  void address_packet(Peer& peer, bool recovery, Time now, Packet& packet);
  void fill_report(Peer& peer, Time now);
  bool read_echo(const Peer& peer, const Report& report, Time now, Echo& echo) const;
  void finish_if_drained(SendMessage& message, Time now);
  bool window_closed(const Peer& peer) const;
  bool may_send(const Peer& peer, Time now) const;
  void wait_to_send(Peer& peer, Time now);
  void notify_congestion(Peer& peer, Time now);
  void arm_persist(Peer& peer, Time now);
  void make_ready(Peer& peer);

  // Of the framing uc_immediate, message_channels.cpp.
  void wait_for_clearance(Peer& peer, SendMessage& message, Time now);
  void start_if_cleared(Peer& peer, std::uint32_t id, Time now);
  void leave_channel(Peer& peer, const SendMessage& message, Time now);
  void give_slots(Peer& peer, Time now);
  void say_clearance(Peer& peer, const std::vector<Cleared>& receives);
  void arm_clearance(Peer& peer, Time now);
  void repeat_clearance(Peer& peer, Time now);
  void handle_clearance(Peer& peer, const Packet& packet, Time now);
  bool read_channel_echo(const Peer& peer, const Report& report, Time now, Echo& echo) const;
  void note_channel(Peer& peer, const Packet& packet, Time now);
  void address_channel_packet(Peer& peer, const SendMessage& message, Time now, Packet& packet);
  std::uint32_t slot_of(std::uint32_t id) const { return id & (config_.message_slots - 1); }

  void queue_report(Peer& peer);
  std::uint32_t credit_for(Time now);
  void arm(Time at, TimerKind kind, Handle subject);
  void fire(const Timer& timer, Time now);
  void fire_look(Handle message, Time armed_for, Time now);
  template <typename Message>
  void emit_about(EventKind kind, const Message& message, Time now);
  void emit(Event event);
  void note_resend(const SendMessage& message, std::span<const std::uint32_t> indices, Time now);
  void complete(const WorkCompletion& completion);

  MessageConfig config_;
  Framing framing_;
  std::uint32_t chunk_bytes_;
  MemoryTable& memory_;
  CompletionQueue& completions_;
  Counters& counters_;
  QpEventSink* event_sink_ = nullptr;
  std::uint32_t data_qp_;
  std::uint32_t recovery_qp_;
  std::uint32_t data_psn_ = 0;
  std::uint32_t recovery_psn_ = 0;
  std::uint32_t credit_;
  ActivePeers active_;

  std::mutex peers_lock_;  // against a snapshot while a peer is being added
  std::deque<Peer> peers_;
  std::vector<Time> peer_look_at_;
  std::unordered_map<Source, PeerIndex, SourceHash> peer_by_source_;
  std::array<Found, 8> found_lately_;  // by the first bits of the hash

  Pool<SendMessage, 0> sends_;
  Pool<ReceiveMessage, kReceiveTag> receives_;
  std::unordered_set<PeerKey, PeerKeyHash> sending_;         // sends outstanding
  std::unordered_map<PeerKey, Handle, PeerKeyHash> posted_;  // receives not opened yet

  std::unique_ptr<PacketTransport> transport_;  // null: a policy recovers
  bool notifies_;                               // senders, of congestion marks
  std::deque<PeerIndex> cnp_queue_;
  std::deque<ControlOut> control_queue_;
  Ring<SmallControl> small_controls_;
  std::deque<PeerIndex> report_queue_;
  std::deque<PeerIndex> resend_ring_;
  std::deque<PeerIndex> data_ring_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::uint64_t timer_sequence_ = 0;
  std::deque<Event> events_;
  std::vector<std::uint8_t> scratch_;  // body of the packet just polled
};

}  // namespace softroce
