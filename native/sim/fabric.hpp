// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated fabric: host ports with the soft RNIC, switches with the XDP programs' decisions,
// links with the wire stage's queues, and a clock that goes from event to event.
//
// Packets that arrive at one moment do so in the order of a draw (arrive_at), behind what hosts do
// at that moment, in the order in which it was scheduled. Nothing depends on addresses of memory,
// hashing order or the machine's clock. Its driver runs it until a host has an event, acts on that
// host, and runs it on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../xdp/lab_records.h"
#include "../endpoint/endpoint.hpp"
#include "../endpoint/recoveries.hpp"
#include "../engine/ring.hpp"
#include "../engine/rnic/rnic.hpp"
#include "../wire/wheel.hpp"
#include "fates.hpp"
#include "flight.hpp"
#include "link.hpp"
#include "repairs.hpp"
#include "rnic_limits.hpp"
#include "samples.hpp"
#include "slab.hpp"
#include "tap.hpp"

namespace softroce::sim {

using PortIndex = std::uint32_t;
using SwitchIndex = std::uint32_t;

enum class LoadBalancing : std::uint8_t { flow, spray, adaptive };

struct PortConfig {
  MessageConfig messages;
  std::uint64_t mac = 0;
  RnicModel rnic{};
};

struct NamedPacket {
  std::uint32_t tuple, first, second;
  lab_named named;
};

struct SwitchTotals {  // what it received less the others it forwarded
  std::uint64_t received = 0;
  std::uint64_t no_route = 0;
  std::uint64_t ttl_exceeded = 0;
};

// In front of an RNIC: packets that arrived, those that it was given, and those it sent.
struct PortTotals {
  std::uint64_t held = 0;  // sent by the engine, and still being processed
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t corrupted = 0;  // of the received, refused for their ICRC
};

class Fabric {
 public:
  // `tie_key`: of the draws among packets that arrive at the same moment.
  Fabric(LoadBalancing load_balancing, std::uint64_t tie_key)
      : load_balancing_(load_balancing), tie_key_(tie_key) {}
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // ---- building; indices count up from 0
  PortIndex add_port(const PortConfig& config);
  SwitchIndex add_switch(std::uint64_t salt);
  LinkIndex add_link_to_port(PortIndex far, std::uint64_t near_mac, std::uint64_t far_mac);
  LinkIndex add_link_to_switch(SwitchIndex far, std::uint64_t near_mac, std::uint64_t far_mac);
  void set_uplink(PortIndex port, LinkIndex link);
  // Equal-cost links of a switch, and, for each port's address, which of those sets leads there;
  // kNoGroup: none does.
  static constexpr std::uint32_t kNoGroup = UINT32_MAX;
  void set_routes(SwitchIndex at, const std::vector<std::vector<LinkIndex>>& groups,
                  std::span<const std::uint32_t> group_of_port);
  void shape(LinkIndex link, const lab_shape& shape);
  void set_rules(LinkIndex link, const lab_fault_set& set, std::span<const NamedPacket> named);
  // The host's clock interrupts stand still from `begin` on for `length`: timers fire late.
  void stall_timers(PortIndex port, Time begin, Time length);
  // From now on packets of these links are seen, as they enter them.
  void capture(std::vector<TappedLink> links, std::uint32_t snap_bytes, std::vector<RuleText> rules,
               Tap::Sink sink);

  // From now on what is done about losses is recorded.
  void record_recoveries();
  // From now on samples are taken of links and ports, all of which are there.
  void record_samples();
  // Before the first packet: the key of each fate that rules decide is kept, beside drops();
  void keep_fates();
  // or these happen, by key (fates.hpp), and rules draw for nothing.
  void replay_fates(std::span<const std::uint64_t> keys, std::span<const std::uint32_t> rules,
                    std::span<const std::uint32_t> effects);

  // ---- running
  Time now() const { return now_; }
  // True: `attention()` has ports whose RNIC has events or new completions. False: it is `until`,
  // or, if that is kNever, nothing will happen any more; or `most_events` have happened, and the
  // clock stands `paused()` before the next.
  bool run(Time until, std::uint64_t most_events = UINT64_MAX);
  bool paused() const { return paused_; }
  const std::vector<PortIndex>& attention() const { return attention_; }

  Endpoint& endpoint(PortIndex port) { return ports_.at(port); }

  // ---- what it came to
  std::vector<LinkTotals> link_totals() const;  // of each, in the order of their indices
  // Packets, and their bytes, that are on a link, waiting or under way.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> on_links() const;
  const Rules* rules(LinkIndex link) const { return links_.at(link).rules.get(); }
  std::vector<SwitchTotals> switch_totals() const;  // of each, in the order of their indices
  const PortTotals& port_totals(PortIndex port) const { return ports_.at(port).totals; }
  const RnicPipeline& pipeline(PortIndex port) const { return ports_.at(port).pipeline; }
  std::size_t in_flight() const { return flights_.in_flight() - off_links_; }
  std::uint64_t hops() const { return hops_; }
  const std::vector<lab_drop>& drops() const { return drops_; }
  // Null: they are not kept.
  const Fates* fates() const { return fates_.get(); }
  const Repairs& repairs() const { return repairs_; }
  // Null: they are not recorded.
  const Recoveries* recoveries() const { return recoveries_.get(); }
  std::vector<Recovery> take_recoveries() {
    return recoveries_ == nullptr ? std::vector<Recovery>() : recoveries_->take();
  }
  // Null: none are taken.
  const Samples* samples() const { return samples_.get(); }
  // Null: nothing is captured.
  Tap* tap() { return tap_.get(); }

 private:
  struct Ways {
    Time waiting = 0;               // for so long a frame of a flow would wait
    bool another_has_room = false;  // it would wait at most half as long
  };
  struct PlannedFlow {
    std::uint32_t planned_for = 0;  // these routes
    std::uint32_t destination = 0;
    std::uint16_t source_port = 0;
    Plan plan{};
  };
  class Port final : public DirectEndpoint {
   public:
    Port(Fabric& fabric, PortIndex index, const PortConfig& config)
        : index_(index),
          mac(config.mac),
          address(number_of(config.messages.gid)),
          pipeline(config.rnic),
          fabric_(fabric),
          rnic_(config.messages) {}
    Rnic& rnic() override { return rnic_; }
    Time now() const override { return fabric_.now_; }
    void submit(Action action) override {
      action(rnic_, fabric_.now_);
      fabric_.touch(*this);
    }
    void call(Action action) override { submit(std::move(action)); }

    PortIndex index_;
    std::uint64_t mac;
    std::uint32_t address;
    RnicPipeline pipeline;
    Time to_send = 0;  // what all that the RNIC holds will take of the link
    LinkIndex uplink = 0;
    std::uint32_t tie_salt = 0;  // of the packets that it sends
    Time wake_at = kNever;
    Time stalls_at = kNever, stalls_until = kNever;
    Time timers_run(Time at) const {
      return at < stalls_at || at >= stalls_until ? at : stalls_until;
    }
    void prefetch() const {
      prefetch_lines(this, &planned_);
      rnic_.prefetch();
    }
    void prefetch_last() const { rnic_.prefetch_last(); }
    void prefetch_for(const Packet& packet) const { rnic_.prefetch_for(packet); }
    std::size_t pushed_seen = 0;  // completions that were reported
    Ways ways;                    // of a flow that was stopped
    Time ways_good_until = 0;
    bool touched = false;
    bool omniscient = false;  // its transport gets every loss reported
    // Reasons to examine what arrives: that, lost packets that it lacks, duplicated ones under way.
    std::uint32_t reasons = 0;
    PortTotals totals;
    // The plans of flows that it sent to not long ago.
    PlannedFlow& planned(std::uint32_t destination, std::uint16_t source_port) {
      return planned_[(8 * destination + source_port) % kPlannedFlows];
    }

   private:
    static constexpr std::size_t kPlannedFlows = 64;
    std::array<PlannedFlow, kPlannedFlows> planned_{};
    Fabric& fabric_;
    Rnic rnic_;

   public:                        // behind what every packet touches
    Ring<FlightIndex> processed;  // of what the RNIC holds: it waits for the link
  };
  struct Group {
    std::uint32_t first = 0;  // in Switch::links
    std::uint32_t ways = 0;
  };
  struct Switch {
    std::uint64_t salt = 0;
    std::uint64_t no_route = 0, ttl_exceeded = 0;
    std::vector<std::uint16_t> group_of_port;  // the last group has no way
    std::vector<Group> groups;
    std::vector<LinkIndex> links;
  };
  struct End {  // of a directed link
    std::uint32_t to_host : 1 = 0;
    std::uint32_t index : 31 = 0;  // of the port, or the switch
  };
  // `enter`: a packet that was sent comes out of its RNIC; `come`: one that arrived does. `ghost`:
  // a lost one reaches the end of a link, or its host; `feedback`: of an omniscient transport.
  enum class EventKind : std::uint32_t { arrival, wake, step, enter, come, ghost, feedback };
  struct Event {
    Event() = default;
    Event(EventKind what, std::uint32_t of) : kind(what), subject(of) {}

    EventKind kind : 3;
    std::uint32_t subject : 29;
  };
  struct RelativeFlow {
    std::uint32_t number;
    std::uint32_t first_psn;
    std::uint32_t newest_tail;  // of lab_tail_is_new()
  };

  void touch(Port& port);
  void serve_touched();
  void serve(Port& port);
  void transmit(Port& port);
  void wake_later(Port& port);
  Time may_send_at(const Port& port) const;
  Stop cause(Port& port);
  Ways examine(const Port& port, const StoppedFlow& of) const;
  Time waiting_on(LinkIndex link) const;
  Time waiting_behind(End end, const lab_flow& flow, PortIndex destination, Time most) const;
  void note_attention(Port& port);
  void prepare(Flight& flight, Load& load);
  void plan(Port& port, Flight& flight, const lab_flow& flow);
  void look_ahead();
  void sample();
  void prefetch_next(FlightIndex index) const;
  std::uint32_t port_of(std::uint32_t address) const;

  void send_processed(Port& port);
  void come_out(FlightIndex index, Port& port);
  void enter(FlightIndex index, LinkIndex onto);
  void enter_crooked(FlightIndex index, LinkIndex onto);
  void trim(FlightIndex index, LinkIndex onto);
  bool meet_rules(FlightIndex index, Link& link, LinkIndex number, lab_leg& leg);
  void queue(FlightIndex index, LinkIndex onto, const lab_leg& leg, bool copy);
  void fly(FlightIndex index, LinkIndex onto, Time arrival, bool marked);
  void arrive_at(Time at, Event event);  // of a packet or a ghost
  void queue_stepwise(FlightIndex index, LinkIndex onto, const lab_leg& leg, bool copy);
  void depart(LinkIndex from);
  void step(LinkIndex link);
  void arrive(FlightIndex index);
  void reach(FlightIndex index, Port& port);
  void deliver(FlightIndex index, Port& port);
  void forward(FlightIndex index, Switch& at);
  const Group& group_to(const Switch& at, std::uint32_t destination) const {
    return at
        .groups[destination == kNowhere ? at.groups.size() - 1 : at.group_of_port[destination]];
  }
  static LinkIndex choose_for_flow(const Switch& at, const Group& group, const lab_flow& flow);
  LinkIndex choose(const Switch& at, const Group& group, FlightIndex index);
  LinkIndex add_link(End far, std::uint64_t near_mac, std::uint64_t far_mac);
  void discard(FlightIndex index) { flights_.release(index); }

  // Of lost packets, losses.cpp. `onto`: the link that was to carry it; kNowhere: none, any more.
  static std::optional<PacketName> name_of(const Load& load);
  static bool is_first(const PacketName& name, const Packet& packet) {
    return name.striped ? packet.lab.attempt == 0 : !packet.sent_before;
  }
  void lose(FlightIndex index, LinkIndex onto, DropCause cause);
  void note_cut(Load& load);
  void note_sent_again(const Load& load, const Port& port);
  void note_unruled(const Load& load, LinkIndex onto, DropCause cause);
  Recovery recovery_of(const Load& load) const;
  void note_duplicate(Load& load);
  bool resolve_copy(Load& load, bool arrived);
  void note_loss(const PacketName& name, const Load& load, DropCause cause);
  void note_restored(Port& port, std::uint32_t sender, std::uint32_t id, std::uint32_t index,
                     Time now);
  bool has_payload(const PacketName& name, Port& port) const;
  void examine(Load& load, Port& port);
  // Of omniscient transports, ghosts.cpp.
  void begin_ghost(FlightIndex index, LinkIndex onto);
  void move_ghost(FlightIndex index);
  void send_feedback(Port& port);
  void hand_feedback(FlightIndex index);
  Time propagation(const Port& from, Flight& flight, const lab_flow& flow) const;
  lab_packet describe(const Load& load) const;          // as rules see it
  lab_packet describe_as_sent(const Load& load) const;  // with what its sender knows besides
  void learn(Load& load);
  void log(FlightIndex index, LinkIndex link, std::uint32_t rule, std::uint32_t effect);
  // Of fates that are known, fates.cpp.
  void name_fate(Load& load);
  std::uint32_t hop_of(FlightIndex index);
  std::uint64_t fate_key(FlightIndex index);
  void replay_fate(FlightIndex index, Rules* rules, std::uint64_t now_ns, lab_verdict& verdict);
  void decide(FlightIndex index, Rules* rules, lab_verdict& verdict);
  bool hits_name(Rules& rules, const lab_packet& packet, std::uint64_t now_ns,
                 lab_verdict& verdict);

  LoadBalancing load_balancing_;
  std::uint64_t tie_key_;
  Time now_ = 0;
  Time sample_at_ = kNever;  // or when something happens after it
  bool paused_ = false;
  static constexpr int kTieBits = 11;  // what events have room for
  wire::Wheel<Event, 10, kTieBits> wheel_;
  Slab<Port> ports_;
  std::vector<Switch> switches_;
  std::uint32_t routes_ = 1;  // counts their changes
  Slab<Link> links_;
  std::vector<End> ends_;                   // of the links
  std::vector<std::uint64_t> received_by_;  // links, for lb: spray and adaptive
  Flights flights_;
  std::uint32_t least_address_ = 0;
  std::vector<std::uint32_t> port_of_address_;  // from least_address_ on
  std::vector<PortIndex> attention_;
  std::vector<PortIndex> touched_, serving_;
  std::vector<wire::Departure> departures_;
  std::uint64_t hops_ = 0;

  std::vector<lab_drop> drops_;
  Repairs repairs_;
  std::unique_ptr<Recoveries> recoveries_;
  std::unique_ptr<Fates> fates_;
  std::unique_ptr<Samples> samples_;
  Copies copies_;
  std::size_t off_links_ = 0;  // flights that are no packets: ghosts, and feedback
  std::unique_ptr<Tap> tap_;

  bool learns_ = false;                                         // a rule looks at connections
  std::unordered_map<std::uint64_t, RelativeFlow> flows_;       // by destination QP and addresses
  std::unordered_map<std::uint32_t, std::uint32_t> spoken_to_;  // flows by source address
};

}  // namespace softroce::sim
