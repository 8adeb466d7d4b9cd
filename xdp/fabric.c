/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fabric: `switch_port` runs on every port of a switch, `host_port` on every uplink of a host,
 * `share_in` and `share_out` on the two ends of a share of such an uplink (lab_maps.h).
 * Compiled by bcc and loaded once per lab; everything that differs between ports is in the maps.
 *
 * Compile-time parameters: LAB_NAMES (packets that can be named), LAB_FLOWS (connections with
 * relative numbers), LAB_RECORDS (0: the kernel has no ring buffers; what would go into them counts
 * as lost), LAB_DROP_PAGES and LAB_CAPTURE_PAGES (their sizes, powers of two). How large the other
 * maps are depends on the lab and is set when they are created (xdp.py), so that one compilation
 * serves all labs.
 *
 * The fate of the link A->B is decided where the packet first enters it: at A's egress if
 * A is a switch, else at B's ingress. XDP cannot hold a frame, so one that enters a shaped link, or
 * came over one from a host, goes to the wire stage with its verdict in front (lab_shape.h).
 */
#include "lab_maps.h"
#include "lab_nd.h"
#include "lab_parse.h"
#include "lab_records.h"
#include "lab_shape.h"

#define ARP_REQUEST 1 /* RFC 826 */
#define ARP_REPLY 2

#define LAB_NO_LINK (~0U)
#define LAB_GSI_QP 1 /* IBA 3.5.3.3 */
#define LAB_LOOKS 8  /* of lb: adaptive at queues */

/* Stand for those sizes: largest ifindex + 1, ports of hosts, their shares, directed links,
 * prefixes. */
#define LAB_PORTS 1
#define LAB_HOST_PORTS 1
#define LAB_ALL_SHARES 1
#define LAB_LINKS 1
#define LAB_ROUTES 1

BPF_ARRAY(ports, struct lab_port, LAB_PORTS);
BPF_PERCPU_ARRAY(counters, struct lab_counters, LAB_PORTS);
BPF_DEVMAP(egress, LAB_PORTS);
BPF_XSKMAP(xsks, LAB_PORTS);        /* of a host's port: its RNIC; of a switch's: the wire stage */
BPF_DEVMAP(shares, LAB_ALL_SHARES); /* the fabric's end of each */
BPF_XSKMAP(share_xsks, LAB_ALL_SHARES);    /* the process's socket */
BPF_DEVMAP(share_uplinks, LAB_HOST_PORTS); /* the ports of hosts */
BPF_ARRAY(token, u64, 1);                  /* the lab's number, in its probes */
BPF_ARRAY(probe_seen, u64, LAB_PORTS);

BPF_HASH(exact_routes, struct lab_exact_key, struct lab_group, LAB_ROUTES);
BPF_LPM_TRIE(prefix_routes, struct lab_prefix_key, struct lab_group, LAB_ROUTES);

BPF_ARRAY(links, struct lab_link, LAB_LINKS);
BPF_ARRAY(fault_sets, struct lab_fault_set, 2 * LAB_LINKS); /* 2 * directed link + slot */
BPF_ARRAY(fault_states, struct lab_fault_state, 2 * LAB_LINKS);
BPF_HASH(names, struct lab_name_key, struct lab_named, LAB_NAMES);
BPF_ARRAY(timeline, struct lab_timeline, 1);
BPF_TABLE("lru_hash", struct lab_flow_key, struct lab_flow_state, flows, LAB_FLOWS);
/* Tails of RC messages that were sent again: whatever the value. */
BPF_TABLE("lru_hash", struct lab_tail_key, u32, tails_again, LAB_FLOWS);
BPF_ARRAY(flow_counts, u64, LAB_PORTS); /* connections of the host at a port */
/* Bytes that wait in a directed link's queue; the wire stage writes them through a mapping. */
BPF_F_TABLE("array", u32, struct lab_backlog, queues, LAB_LINKS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", u32, struct lab_tap, taps, LAB_LINKS, BPF_F_MMAPABLE);

/* A capture is put together here, because its size varies and a reservation's may not. */
struct capture_buffer {
  struct lab_capture head;
  u8 data[LAB_SNAP_MAX];
};
BPF_PERCPU_ARRAY(capture_scratch, struct capture_buffer, 1);

/* What is being decided. In a map, because the verifier forgets what it holds: on the stack every
 * value that a rule may set would be one more state to follow through all that comes behind. */
struct decision {
  struct lab_frame frame;
  struct lab_packet packet;
  struct lab_verdict verdict;
  struct lab_wire_meta wire;
  struct lab_flow_state flow; /* of the packet, if it was learnt here; number 0: it was not */
  u32 tail_is_new;            /* if it was learnt here: LAB_KIND_BIT_TAIL, or 0 */
  u64 corrupt_draw[2];        /* on the uplink, on the link; 0: none */
  u64 least_bytes;
};
BPF_PERCPU_ARRAY(decisions, struct decision, 1);

#if LAB_RECORDS
BPF_RINGBUF_OUTPUT(drops, LAB_DROP_PAGES);
BPF_RINGBUF_OUTPUT(captures, LAB_CAPTURE_PAGES);
#endif

struct probe {
  struct ethhdr eth;
  u32 token[2];
  u32 ifindex;
  u8 hop;
} __attribute__((packed));

struct arp_frame {
  struct ethhdr eth;
  u16 hardware;
  u16 protocol;
  u8 lengths[2];
  u16 operation;
  u8 sender_mac[6];
  u32 sender;
  u8 target_mac[6];
  u32 target;
} __attribute__((packed));

#if LAB_RECORDS
static inline void log_effect(const struct decision *on, u32 link, u32 rule_id, u32 effect,
                              struct lab_counters *count) {
  struct lab_drop *drop = drops.ringbuf_reserve(sizeof(*drop));
  const struct lab_packet *packet = &on->packet;

  if (!drop) {
    count->drop_log_lost++;
    return;
  }
  drop->time_ns = bpf_ktime_get_ns();
  drop->directed_link = link;
  drop->rule_id = rule_id;
  drop->src = packet->id.src;
  drop->dst = packet->id.dst;
  drop->message = packet->id.message;
  drop->index = packet->id.index;
  drop->operation = packet->id.operation;
  drop->step = packet->id.step;
  drop->kind = packet->id.kind;
  drop->attempt = packet->id.attempt;
  drop->sport = on->frame.flow.sport;
  drop->psn = packet->psn;
  drop->qpn = packet->qpn;
  drop->length = on->frame.length;
  drop->effect = effect;
  drops.ringbuf_submit(drop, 0);
}

static inline void log_effects(const struct decision *on, u32 link, struct lab_counters *count) {
  LAB_ROLLED
  for (u32 i = 0; i < 4; i++) {
    u32 effect = on->verdict.effects & lab_effects_of_slot(i);

    if (effect) log_effect(on, link, on->verdict.rule_id[i], effect, count);
  }
}

static inline void capture(struct xdp_md *ctx, const struct decision *on, u32 snap, u32 link,
                           struct lab_tap *tap, struct lab_counters *count) {
  int first = 0;
  struct capture_buffer *buffer = capture_scratch.lookup(&first);
  u32 length = on->frame.length;
  u32 bytes = length < snap ? length : snap;

  if (!buffer) return;
  /* 1 ... LAB_SNAP_MAX, in the one form that both compiler and verifier leave standing. */
  bytes = ((bytes - 1) & (LAB_SNAP_MAX - 1)) + 1;
  buffer->head.time_ns = bpf_ktime_get_ns();
  buffer->head.directed_link = link;
  buffer->head.length = length;
  buffer->head.captured = bytes;
  buffer->head.effects = on->verdict.effects;
  __builtin_memcpy(buffer->head.rule_id, on->verdict.rule_id, sizeof(buffer->head.rule_id));
  if (bpf_xdp_load_bytes(ctx, 0, buffer->data, bytes) ||
      captures.ringbuf_output(buffer, sizeof(buffer->head) + bytes, 0)) {
    __sync_fetch_and_add(&tap->missed, 1);
    count->capture_lost++;
  }
}

#else
static inline void log_effects(const struct decision *on, u32 link, struct lab_counters *count) {
  count->drop_log_lost++;
}

static inline void capture(struct xdp_md *ctx, const struct decision *on, u32 snap, u32 link,
                           struct lab_tap *tap, struct lab_counters *count) {
  count->capture_lost++;
}
#endif

/* The moment on the lab's timeline. 0: it has none. */
static inline int lab_moment(u64 *now_ns) {
  int first = 0;
  struct lab_timeline *shared = timeline.lookup(&first);

  if (!shared) return 0;
  *now_ns = bpf_ktime_get_ns() - shared->epoch_ns;
  return 1;
}

/* Notes whether this is a tail that its connection sends for the first time. */
static inline void learn_tail(struct decision *on, struct lab_flow_state *flow,
                              const struct lab_flow_key *from, u32 psn) {
  struct lab_tail_key key = {.src = from->src, .dst = from->dst, .qpn = from->qpn, .psn = psn};
  u32 again = 1;

  on->tail_is_new = 0;
  if (!lab_ends_rc_message(on->frame.headers.bth.opcode)) return;
  if (lab_tail_is_new(&flow->newest_tail, psn)) {
    on->tail_is_new = LAB_KIND_BIT_TAIL;
    tails_again.delete(&key);
  } else {
    tails_again.update(&key, &again);
  }
}

/* At a host's port, where all its packets pass: numbers a connection on its first packet. */
static inline void learn_flow(struct xdp_md *ctx, struct decision *on, u32 ingress) {
  int first = 0;
  struct lab_timeline *shared = timeline.lookup(&first);
  struct lab_frame *frame = &on->frame;
  struct lab_flow_key key = {.src = frame->flow.src, .dst = frame->flow.dst};
  struct lab_flow_state fresh = {}, *known;
  u64 *total;
  u32 psn;

  if (!shared || !*(volatile u32 *)&shared->learn || !lab_take_roce(ctx, frame)) return;
  key.qpn = bpf_ntohl(frame->headers.bth.qpn) & LAB_24_BITS;
  psn = bpf_ntohl(frame->headers.bth.psn) & LAB_24_BITS;
  known = flows.lookup(&key);
  if (known && known->round == shared->round) {
    learn_tail(on, known, &key, psn);
    on->flow = *known;
    return;
  }
  total = flow_counts.lookup(&ingress);
  if (!total) return;
  fresh.round = shared->round;
  fresh.number = __sync_fetch_and_add(total, 1) + 1;
  fresh.first_psn = psn;
  learn_tail(on, &fresh, &key, psn);
  flows.update(&key, &fresh);
  on->flow = fresh;
}

static inline void number_relatively(struct decision *on) {
  struct lab_packet *packet = &on->packet;
  struct lab_flow_key key = {.src = packet->id.src, .dst = packet->id.dst, .qpn = packet->qpn};
  struct lab_flow_state *known = on->flow.number ? &on->flow : flows.lookup(&key);

  if (!known) return;
  packet->relative_qpn = known->number;
  packet->relative_psn = ((packet->psn - known->first_psn) & LAB_24_BITS) + 1;
}

/* A tail that its host's switch did not see again yet is on its first transmission. */
static inline void know_tail(struct decision *on) {
  struct lab_packet *packet = &on->packet;
  struct lab_tail_key key = {.src = packet->id.src, .dst = packet->id.dst, .qpn = packet->qpn};

  key.psn = packet->psn;
  if (on->flow.number)
    packet->kind_bit |= on->tail_is_new;
  else if (lab_ends_rc_message(packet->opcode) && !tails_again.lookup(&key))
    packet->kind_bit |= LAB_KIND_BIT_TAIL;
}

/* Whether a packet that goes by one of the link's names is to be dropped, if the link is up. */
static inline int hits_name(const struct lab_fault_set *set, u32 slot, struct decision *on,
                            u64 now_ns) {
  struct lab_name_key key = {.link_slot = slot};

  if (set->needs & LAB_NEED_DOWN && lab_link_is_down(set, now_ns, &on->verdict)) return 0;
  LAB_ROLLED
  for (u32 i = 0; i < LAB_NAME_TUPLES; i++) {
    struct lab_named *named;

    if (i >= set->tuples) break;
    if (!lab_name_of(&on->packet, set->tuple[i], &key) || !lab_name_maybe(set, &key)) continue;
    named = names.lookup(&key);
    if (named && lab_named_hits(named, &on->packet, set->needs & LAB_NEED_TIME, now_ns)) {
      on->verdict.effects = LAB_EFFECT_DROP;
      on->verdict.rule_id[0] = named->rule_id;
      return 1;
    }
  }
  return 0;
}

/* Where the ICRC of a RoCE packet, else a checksum of layer 4, begins to cover it. */
static inline u32 covered_from(const struct lab_frame *frame) {
  return frame->l4_offset + (frame->roce ? 8 + sizeof(struct lab_bth) : 0);
}

/* What the rules in `slot` do to this frame. */
static inline void decide(struct xdp_md *ctx, u32 link, u32 slot, struct decision *on,
                          struct lab_counters *count) {
  struct lab_fault_set *set = fault_sets.lookup(&slot);
  struct lab_fault_state *state = fault_states.lookup(&slot);
  u64 now_ns = 0;

  if (!set || !state) return;
  lab_parse_roce(ctx, &on->frame, &on->packet);
  /* What its uplink cuts is whole here still: the wire stage cuts. */
  if (on->wire.flags & LAB_WIRE_UPLINK)
    on->packet.trimmed |= on->wire.uplink.effects / LAB_EFFECT_CUT & 1;
  if (set->needs & LAB_NEED_TIME && !lab_moment(&now_ns)) return;
  if (set->needs & LAB_NEED_RELATIVE) number_relatively(on);
  if (set->needs & LAB_NEED_TAIL) know_tail(on);
  if (!hits_name(set, slot, on, now_ns))
    lab_fault_decide(set, state, &on->packet, now_ns, &on->verdict);
  /* A frame that has no bit to flip is not corrupted, whatever its rule drew. */
  on->verdict.effects &=
      ~LAB_EFFECT_CORRUPT | -(u32)lab_less(covered_from(&on->frame), on->frame.ip_end);
  if (on->verdict.effects) log_effects(on, link, count);
}

/* What a directed link does to this frame: captured, logged and counted, but not yet done. */
static inline u32 meet(struct xdp_md *ctx, u32 link, struct decision *on,
                       struct lab_counters *count) {
  struct lab_link *state = links.lookup(&link);
  struct lab_tap *tap = taps.lookup(&link);
  u32 armed, snap, effects;

  __builtin_memset(&on->verdict, 0, sizeof(on->verdict));
  on->verdict.rule_id[0] = LAB_FATE_PASSED;
  if (!state || !tap) return 0;
  armed = *(volatile u32 *)&state->armed;
  snap = *(volatile u32 *)&tap->snap;
  if (armed & LAB_ARMED_RULES) decide(ctx, link, 2 * link + (armed & LAB_ARMED_SLOT), on, count);
  if (snap) capture(ctx, on, snap, link, tap, count);
  effects = on->verdict.effects;
  if (effects) {
    count->link_down += effects / LAB_EFFECT_DOWN & 1;
    count->corrupted += effects / LAB_EFFECT_CORRUPT & 1;
    count->duplicated += effects / LAB_EFFECT_DUPLICATE & 1;
    count->reordered += effects / LAB_EFFECT_REORDER & 1;
  }
  return armed;
}

/* Flips one of the bits that are covered. */
static inline void corrupt(struct xdp_md *ctx, u32 begin, u32 end, u64 draw) {
  u32 bytes = end - begin;
  u32 bit;
  u8 byte;

  if (begin >= end || begin >= LAB_SNAP_MAX || bytes > LAB_SNAP_MAX) return;
  bit = (u32)(((draw >> 32) * (u64)(8 * bytes)) >> 32);
  if (bpf_xdp_load_bytes(ctx, begin + bit / 8, &byte, 1)) return;
  byte ^= 1 << (bit & 7);
  bpf_xdp_store_bytes(ctx, begin + bit / 8, &byte, 1);
}

/* A probe comes back over its link once; who sent it then notes that the link works. */
static inline int handle_probe(struct xdp_md *ctx, struct lab_counters *count) {
  struct probe *probe = (void *)(long)ctx->data;
  u32 port = ctx->ingress_ifindex, only = 0;
  u64 *ours = token.lookup(&only), theirs;

  if (!ours || (void *)(probe + 1) > (void *)(long)ctx->data_end) {
    count->malformed++;
    return XDP_DROP;
  }
  theirs = (u64)bpf_ntohl(probe->token[0]) << 32 | bpf_ntohl(probe->token[1]);
  if (theirs == *ours && probe->hop == 0) {
    probe->hop = 1;
    count->answered++;
    return XDP_TX;
  }
  if (theirs == *ours && probe->hop == 1 && bpf_ntohl(probe->ifindex) == port)
    probe_seen.update(&port, &theirs);
  else
    count->stray_probe++;
  return XDP_DROP;
}

/* Replies to "who has the gateway?"; every other ARP frame ends here. */
static inline int answer_arp(struct xdp_md *ctx, const struct lab_port *port,
                             struct lab_counters *count) {
  struct arp_frame *frame = (void *)(long)ctx->data;

  if ((void *)(frame + 1) > (void *)(long)ctx->data_end) {
    count->malformed++;
    return XDP_DROP;
  }
  if (frame->operation != bpf_htons(ARP_REQUEST) || frame->target != bpf_htonl(LAB_GATEWAY)) {
    count->unsupported++;
    return XDP_DROP;
  }
  frame->operation = bpf_htons(ARP_REPLY);
  frame->target = frame->sender;
  frame->sender = bpf_htonl(LAB_GATEWAY);
  __builtin_memcpy(frame->target_mac, frame->sender_mac, 6);
  __builtin_memcpy(frame->sender_mac, port->mac, 6);
  __builtin_memcpy(frame->eth.h_dest, frame->eth.h_source, 6);
  __builtin_memcpy(frame->eth.h_source, port->mac, 6);
  count->answered++;
  return XDP_TX;
}

/* Replies to a neighbour solicitation for the gateway; every other ND message ends here. */
static inline int answer_nd(struct xdp_md *ctx, const struct lab_port *port,
                            struct lab_counters *count) {
  struct lab_nd_frame *frame = (void *)(long)ctx->data;

  if ((void *)(frame + 1) > (void *)(long)ctx->data_end || !lab_nd_asks_gateway(frame)) {
    count->unsupported++;
    return XDP_DROP;
  }
  lab_nd_answer(frame, port->mac);
  count->answered++;
  return XDP_TX;
}

/* Longest prefix match. A host route is the longest there is, so the hash table goes first. */
static inline struct lab_group *route(u32 node, u32 address) {
  struct lab_exact_key exact = {.node = node, .address = address};
  struct lab_group *group = exact_routes.lookup(&exact);
  struct lab_prefix_key prefix = {
      .bits = 64, .node = bpf_htonl(node), .address = bpf_htonl(address)};

  return group ? group : prefix_routes.lookup(&prefix);
}

/*
 * The port whose queue holds least, the first of several from `start` on. Of more than 8 ports it
 * examines 8 that begin at a random one: little is lost by that (Mitzenmacher, "The power of two
 * choices in randomized load balancing"), and the verifier follows each step to the end.
 */
static inline u32 least_queue(const struct lab_group *group, u32 start, struct decision *on) {
  u32 way = start;

  on->least_bytes = ~0ULL;
  on->wire.port = 0;
  LAB_ROLLED
  for (u32 i = 0; i < LAB_LOOKS; i++) {
    u32 port = group->port[way & (LAB_GROUP_PORTS - 1)];
    struct lab_port *out = ports.lookup(&port);
    u32 link = out ? out->tx_link : LAB_NO_LINK;
    struct lab_backlog *queue = queues.lookup(&link);
    volatile u64 *bytes = queue ? &queue->waiting_bytes : 0;

    way = (way + 1) % (group->count | !group->count);
    if (!bytes || *bytes >= on->least_bytes) continue;
    on->least_bytes = *bytes;
    on->wire.port = port;
  }
  return on->wire.port;
}

/* The ifindex of the port that this frame leaves by; 0: none. */
static inline u32 next_hop(const struct lab_port *in, const struct lab_frame *frame, u64 n,
                           struct decision *on) {
  struct lab_group *group = route(in->node, frame->flow.dst);
  u32 hash, way;

  if (!group) return 0;
  hash = in->flags & (LAB_PORT_SPRAY | LAB_PORT_ADAPTIVE) ? lab_spray_hash(in->salt, n)
                                                          : lab_route_hash(in->salt, &frame->flow);
  way = lab_route_choose(hash, group->count);
  if (in->flags & LAB_PORT_ADAPTIVE && group->count > 1) return least_queue(group, way, on);
  /* Below group->count, at most that many. Masked, for a compiler may compare what `way` is made
   * of instead, and then the verifier learns nothing of `way`. */
  return group->port[way & (LAB_GROUP_PORTS - 1)];
}

/* One hop less, and the addresses of the next link. RFC 1624, equation 3: the TTL is the high byte
 * of its 16-bit word. 0: the frame has no hop left. */
static inline int rewrite(struct xdp_md *ctx, const struct lab_port *out, u32 ipv6) {
  struct ethhdr *eth = lab_data(ctx);
  struct ipv6hdr *ip6 = (void *)(eth + 1);
  struct iphdr *ip = (void *)(eth + 1);
  u32 check;

  if ((void *)(ip + 1) > lab_data_end(ctx)) return 0;
  __builtin_memcpy(eth->h_dest, out->peer_mac, 6);
  __builtin_memcpy(eth->h_source, out->mac, 6);
  if (ipv6) { /* its hop limit lies within the first 20 bytes, too */
    if (ip6->hop_limit <= 1) return 0;
    ip6->hop_limit--;
    return 1;
  }
  if (ip->ttl <= 1) return 0;
  check = ip->check + bpf_htons(0x0100);
  ip->check = (u16)(check + (check >= 0xffff));
  ip->ttl--;
  return 1;
}

/* To the wire stage, by the socket of the port that the frame arrived on. */
static inline int to_wire(struct xdp_md *ctx, const struct lab_wire_meta *verdicts,
                          struct lab_counters *count) {
  struct lab_wire_meta *meta;

  if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) goto gone;
  meta = (void *)(long)ctx->data_meta;
  if ((void *)(meta + 1) > (void *)(long)ctx->data) goto gone;
  *meta = *verdicts;
  if (xsks.redirect_map(ctx->ingress_ifindex, XDP_DROP) != XDP_REDIRECT) goto gone;
  count->to_wire++;
  return XDP_REDIRECT;

gone:
  count->wire_gone++;
  return XDP_DROP;
}

static inline int to_egress(const struct decision *on, struct lab_counters *count) {
  u32 port = on->wire.port;

  if (egress.redirect_map(port, 0) != XDP_REDIRECT) {
    count->unwired++;
    return XDP_DROP;
  }
  count->tx_packets++;
  count->tx_bytes += on->frame.length;
  count->tx_roce += on->frame.roce;
  return XDP_REDIRECT;
}

/* Starts on a frame. Returns its EtherType; 0: malformed. */
static inline u16 open_frame(struct xdp_md *ctx, struct lab_frame *frame,
                             struct lab_counters *count) {
  struct ethhdr *eth = lab_data(ctx);

  frame->length = ctx->data_end - ctx->data;
  count->rx_packets++;
  count->rx_bytes += frame->length;
  return (void *)(eth + 1) > lab_data_end(ctx) ? 0 : eth->h_proto;
}

/* A frame that a host sends to itself crosses no link. It comes to the switch only because a port
 * cannot turn round what it sends. */
static inline void uncount(const struct lab_frame *frame, struct lab_counters *count) {
  count->rx_packets--;
  count->rx_bytes -= frame->length;
  count->rx_roce -= frame->roce;
}

/* What chooses the bit to flip; never 0. */
static inline u64 corrupt_draw(const struct decision *on) {
  return lab_mix64(on->verdict.draw[LAB_SLOT_CORRUPT] + LAB_GOLDEN) | 1;
}

/* The uplink of a host ends here, so its fate is decided here. 0: the frame is lost. */
static inline int cross_uplink(struct decision *on, u32 armed, struct lab_counters *count) {
  if (on->verdict.effects & LAB_EFFECT_DROP) {
    count->injected_rx++;
    count->injected_rx_roce += on->frame.roce;
    return 0;
  }
  if (on->verdict.effects & LAB_EFFECT_CORRUPT) on->corrupt_draw[0] = corrupt_draw(on);
  if (armed & LAB_ARMED_SHAPED) {
    on->wire.flags |= LAB_WIRE_UPLINK;
    on->wire.uplink.effects = on->verdict.effects;
    on->wire.uplink.jitter = on->verdict.jitter;
  }
  return 1;
}

/* Onto the link that begins at a switch. 0: lost, now or after an uplink that is shaped. */
static inline int enter_link(struct decision *on, struct lab_counters *count) {
  on->wire.link.effects = on->verdict.effects;
  on->wire.link.jitter = on->verdict.jitter;
  if (on->verdict.effects & LAB_EFFECT_CORRUPT) on->corrupt_draw[1] = corrupt_draw(on);
  if (!(on->verdict.effects & LAB_EFFECT_DROP)) return 1;
  count->injected_tx++;
  count->injected_tx_roce += on->frame.roce;
  return 0;
}

static inline void corrupt_twice(struct xdp_md *ctx, const struct decision *on) {
  u32 begin = covered_from(&on->frame);

  LAB_ROLLED
  for (u32 leg = 0; leg < 2; leg++)
    if (on->corrupt_draw[leg]) corrupt(ctx, begin, on->frame.ip_end, on->corrupt_draw[leg]);
}

/* A switch's work on an IP frame: the fate on the uplink, the route, the fate on the next link. */
static inline int carry(struct xdp_md *ctx, const struct lab_port *in, struct decision *on,
                        struct lab_counters *arrived) {
  struct lab_counters *count = arrived;
  u32 link = in->rx_link, armed = 0, port;
  struct lab_port *out;

  LAB_ROLLED
  for (u32 leg = 0; leg < 2; leg++) {
    if (!leg && !(in->flags & LAB_PORT_FATE)) continue;
    if (leg) {
      port = on->wire.port = next_hop(in, &on->frame, arrived->rx_packets, on);
      if (!port) {
        arrived->no_route++;
        arrived->no_route_roce += on->frame.roce;
        return XDP_DROP;
      }
      out = ports.lookup(&port);
      count = counters.lookup(&port);
      if (!out || !count) return XDP_ABORTED;
      if (!rewrite(ctx, out, on->frame.ipv6)) {
        arrived->ttl_exceeded++;
        return XDP_DROP;
      }
      link = out->tx_link;
    }
    armed = meet(ctx, link, on, count);
    if (!leg && !cross_uplink(on, armed, count)) return XDP_DROP;
  }
  if (!enter_link(on, count) && !(on->wire.flags & LAB_WIRE_UPLINK)) return XDP_DROP;
  corrupt_twice(ctx, on);
  if (on->wire.flags & LAB_WIRE_UPLINK || armed & LAB_ARMED_SHAPED)
    return to_wire(ctx, &on->wire, arrived);
  return to_egress(on, count);
}

int switch_port(struct xdp_md *ctx) {
  int first = 0;
  u32 ingress = ctx->ingress_ifindex;
  struct lab_port *in = ports.lookup(&ingress);
  struct lab_counters *count = counters.lookup(&ingress);
  struct decision *on = decisions.lookup(&first);
  u16 ethertype;

  if (!in || !count || !on) return XDP_ABORTED;
  on->wire.arrival_ns = bpf_ktime_get_ns();
  on->corrupt_draw[0] = on->corrupt_draw[1] = 0;
  on->flow.number = 0;
  ethertype = open_frame(ctx, &on->frame, count);
  if (ethertype == bpf_htons(ETH_P_ARP)) return answer_arp(ctx, in, count);
  if (ethertype == bpf_htons(LAB_PROBE_ETHERTYPE)) return handle_probe(ctx, count);
  if (ethertype && !lab_is_ip(ethertype)) {
    count->unsupported++;
    return XDP_DROP;
  }
  if (!ethertype || !lab_parse_ip(ctx, &on->frame, ethertype)) {
    count->malformed++;
    return XDP_DROP;
  }
  if (on->frame.ipv6 && !on->frame.flow.dst) return answer_nd(ctx, in, count);
  count->rx_roce += on->frame.roce;
  on->wire.flags = on->frame.roce ? LAB_WIRE_ROCE : 0;
  if (in->flags & LAB_PORT_FATE) { /* a host may not use another's source address: RFC 2827 */
    if (on->frame.flow.src != in->address) {
      count->spoofed++;
      return XDP_DROP;
    }
    if (on->frame.flow.dst == in->address) { /* from one of its processes to another */
      uncount(&on->frame, count);
      return XDP_TX;
    }
    learn_flow(ctx, on, ingress);
  }
  return carry(ctx, in, on, count);
}

/* RoCE goes to the socket of the process that has the queue pair, if there is one; all the rest is
 * the kernel's. So is queue pair 1, the general services interface: the host's connection manager
 * has it. */
int host_port(struct xdp_md *ctx) {
  u32 ingress = ctx->ingress_ifindex;
  struct lab_port *in = ports.lookup(&ingress);
  struct lab_counters *count = counters.lookup(&ingress);
  struct lab_frame frame;
  u16 ethertype;
  u32 qpn, share;

  if (!in || !count) return XDP_ABORTED;
  ethertype = open_frame(ctx, &frame, count);
  if (ethertype == bpf_htons(LAB_PROBE_ETHERTYPE)) return handle_probe(ctx, count);
  if (!lab_is_ip(ethertype) || !lab_parse_ip(ctx, &frame, ethertype)) return XDP_PASS;
  count->rx_roce += frame.roce;
  if (frame.flow.src == in->address) uncount(&frame, count);
  if (!frame.roce || frame.flow.dst != in->address) return XDP_PASS;
  if (!lab_load_qpn(ctx, &frame, &qpn) || qpn == LAB_GSI_QP) return XDP_PASS;
  share = qpn >> LAB_SHARE_QPN_BITS;
  if (!share || share >= LAB_SHARES ||
      shares.redirect_map(in->first_share + share, 0) != XDP_REDIRECT)
    if (xsks.redirect_map(ingress, XDP_PASS) != XDP_REDIRECT) return XDP_PASS;
  count->to_xsk++;
  return XDP_REDIRECT;
}

/* At the process's end of a share. */
int share_in(struct xdp_md *ctx) {
  return share_xsks.redirect_map((ctx->ingress_ifindex - LAB_FIRST_SHARE_IFINDEX) / 2, XDP_DROP);
}

/* At the other end: what the process sends leaves by the port. */
int share_out(struct xdp_md *ctx) {
  u32 share = (ctx->ingress_ifindex - LAB_FIRST_SHARE_IFINDEX) / 2;

  return share_uplinks.redirect_map(share / LAB_SHARES, XDP_DROP);
}
