/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fabric: `switch_port` runs on every port of a switch, `host_port` on every uplink of a host.
 * Compiled and loaded once per lab by bcc; everything that differs between ports is in the maps.
 *
 * Compile-time parameters: LAB_TOKEN (the lab's probe token), LAB_PORTS (largest ifindex + 1),
 * LAB_LINKS (directed links), LAB_ROUTES (prefixes), LAB_DROP_PAGES and LAB_CAPTURE_PAGES (sizes of
 * the ring buffers, powers of two).
 *
 * The fate of the link A->B is decided where the lab first sees the packet on it: at A's egress if
 * A is a switch, else at B's ingress.
 */
#include "lab_maps.h"
#include "lab_parse.h"
#include "lab_records.h"

#define ARP_REQUEST 1 /* RFC 826 */
#define ARP_REPLY 2

BPF_ARRAY(ports, struct lab_port, LAB_PORTS);
BPF_PERCPU_ARRAY(counters, struct lab_counters, LAB_PORTS);
BPF_DEVMAP(egress, LAB_PORTS);
BPF_XSKMAP(xsks, LAB_PORTS);
BPF_ARRAY(probe_seen, u64, LAB_PORTS);

BPF_HASH(exact_routes, struct lab_exact_key, struct lab_group, LAB_ROUTES);
BPF_LPM_TRIE(prefix_routes, struct lab_prefix_key, struct lab_group, LAB_ROUTES);

BPF_ARRAY(links, struct lab_link, LAB_LINKS);
BPF_ARRAY(fault_sets, struct lab_fault_set, 2 * LAB_LINKS); /* 2 * directed link + slot */
BPF_ARRAY(link_index, u64, LAB_LINKS);

/* A capture is put together here, because its size varies and a reservation's may not. */
struct capture_buffer {
  struct lab_capture head;
  u8 data[LAB_SNAP_MAX];
};
BPF_PERCPU_ARRAY(capture_scratch, struct capture_buffer, 1);
BPF_RINGBUF_OUTPUT(drops, LAB_DROP_PAGES);
BPF_RINGBUF_OUTPUT(captures, LAB_CAPTURE_PAGES);

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

static inline void log_drop(const struct lab_frame *frame, const struct lab_identity *id,
                            const struct lab_bth *bth, u32 link, u32 rule_id,
                            struct lab_counters *count) {
  struct lab_drop *drop = drops.ringbuf_reserve(sizeof(*drop));

  if (!drop) {
    count->drop_log_lost++;
    return;
  }
  drop->time_ns = bpf_ktime_get_ns();
  drop->directed_link = link;
  drop->rule_id = rule_id;
  drop->src = id->src;
  drop->dst = id->dst;
  drop->message = id->message;
  drop->index = id->index;
  drop->operation = id->operation;
  drop->step = id->step;
  drop->kind = id->kind;
  drop->attempt = id->attempt;
  drop->sport = frame->flow.sport;
  drop->psn = bth ? bpf_ntohl(bth->psn) & LAB_24_BITS : 0;
  drop->qpn = bth ? bpf_ntohl(bth->qpn) & LAB_24_BITS : 0;
  drop->length = frame->length;
  drop->zero = 0;
  drops.ringbuf_submit(drop, 0);
}

static inline void capture(struct xdp_md *ctx, u32 length, u32 snap, u32 link, u32 fate,
                           struct lab_counters *count) {
  int first = 0;
  struct capture_buffer *buffer = capture_scratch.lookup(&first);
  u32 bytes = length < snap ? length : snap;

  if (!buffer) return;
  /* 1 ... LAB_SNAP_MAX, in the one form that both compiler and verifier leave standing. */
  bytes = ((bytes - 1) & (LAB_SNAP_MAX - 1)) + 1;
  buffer->head.time_ns = bpf_ktime_get_ns();
  buffer->head.directed_link = link;
  buffer->head.fate = fate;
  buffer->head.length = length;
  buffer->head.captured = bytes;
  if (bpf_xdp_load_bytes(ctx, 0, buffer->data, bytes) ||
      captures.ringbuf_output(buffer, sizeof(buffer->head) + bytes, 0))
    count->capture_lost++;
}

/* The rule that drops this frame on `link`, or LAB_FATE_PASSED; logs the drop. */
static inline u32 decide(const struct lab_frame *frame, u32 link, u32 armed,
                         struct lab_counters *count) {
  u32 slot = 2 * link + (armed & LAB_ARMED_SLOT);
  struct lab_fault_set *set = fault_sets.lookup(&slot);
  u64 *counter = link_index.lookup(&link);
  struct lab_identity id;
  struct lab_bth *bth;
  u64 n = 0;
  int hit;

  if (!set || !counter) return LAB_FATE_PASSED;
  bth = lab_parse_roce(frame, &id);
  if (lab_fault_needs_index(set, &id)) n = __sync_fetch_and_add(counter, 1);
  hit = lab_fault_decide(set, &id, n);
  if (hit < 0 || hit >= LAB_FAULT_RULES) return LAB_FATE_PASSED;
  log_drop(frame, &id, bth, link, set->rule[hit].rule_id, count);
  return set->rule[hit].rule_id;
}

/* Whether `link` loses this frame. Captures it if asked to, lost or not. */
static inline int loses(struct xdp_md *ctx, const struct lab_frame *frame, u32 link,
                        struct lab_counters *count) {
  struct lab_link *state = links.lookup(&link);
  u32 fate = LAB_FATE_PASSED;
  u32 armed, snap;

  if (!state) return 0;
  armed = *(volatile u32 *)&state->armed;
  snap = *(volatile u32 *)&state->snap;
  if (armed & LAB_ARMED_RULES) fate = decide(frame, link, armed, count);
  if (snap) capture(ctx, frame->length, snap, link, fate, count);
  return fate != LAB_FATE_PASSED;
}

/* A probe comes back over its link once; who sent it then notes that the link works. */
static inline int handle_probe(struct xdp_md *ctx, struct lab_counters *count) {
  struct probe *probe = (void *)(long)ctx->data;
  u32 port = ctx->ingress_ifindex;
  u64 token;

  if ((void *)(probe + 1) > (void *)(long)ctx->data_end) {
    count->malformed++;
    return XDP_DROP;
  }
  token = (u64)bpf_ntohl(probe->token[0]) << 32 | bpf_ntohl(probe->token[1]);
  if (token == LAB_TOKEN && probe->hop == 0) {
    probe->hop = 1;
    count->answered++;
    return XDP_TX;
  }
  if (token == LAB_TOKEN && probe->hop == 1 && bpf_ntohl(probe->ifindex) == port)
    probe_seen.update(&port, &token);
  else
    count->stray_probe++;
  return XDP_DROP;
}

/* Answers "who has the gateway?"; every other ARP frame ends here. */
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

/* Longest prefix match. A host route is the longest there is, so the hash table goes first. */
static inline struct lab_group *route(u32 node, u32 address) {
  struct lab_exact_key exact = {.node = node, .address = address};
  struct lab_group *group = exact_routes.lookup(&exact);
  struct lab_prefix_key prefix = {
      .bits = 64, .node = bpf_htonl(node), .address = bpf_htonl(address)};

  return group ? group : prefix_routes.lookup(&prefix);
}

/* The ifindex of the port that this frame leaves by; 0: none. */
static inline u32 next_hop(const struct lab_port *in, const struct lab_frame *frame, u64 n) {
  struct lab_group *group = route(in->node, frame->flow.dst);
  u32 hash, way;

  if (!group) return 0;
  hash = in->flags & LAB_PORT_SPRAY ? lab_spray_hash(in->salt, n)
                                    : lab_route_hash(in->salt, &frame->flow);
  way = lab_route_choose(hash, group->count);
  return way < LAB_GROUP_PORTS ? group->port[way] : 0;
}

/* One hop less. RFC 1624, equation 3: the TTL is the high byte of its 16-bit word. */
static inline void decrement_ttl(struct iphdr *ip) {
  u32 check = ip->check + bpf_htons(0x0100);

  ip->check = (u16)(check + (check >= 0xffff));
  ip->ttl--;
}

/* Puts a routed frame onto its next link. */
static inline int forward(struct xdp_md *ctx, struct lab_frame *frame, u32 port) {
  struct lab_port *out = ports.lookup(&port);
  struct lab_counters *count = counters.lookup(&port);
  int action;

  if (!out || !count) return XDP_ABORTED;
  decrement_ttl(frame->ip);
  __builtin_memcpy(frame->eth->h_dest, out->peer_mac, 6);
  __builtin_memcpy(frame->eth->h_source, out->mac, 6);
  if (loses(ctx, frame, out->tx_link, count)) {
    count->injected_tx++;
    count->injected_tx_roce += frame->roce;
    return XDP_DROP;
  }
  action = egress.redirect_map(port, 0);
  if (action != XDP_REDIRECT) {
    count->unwired++;
    return XDP_DROP;
  }
  count->tx_packets++;
  count->tx_bytes += frame->length;
  count->tx_roce += frame->roce;
  return XDP_REDIRECT;
}

/* Starts on a frame: its cursor behind the Ethernet header. 0: malformed. */
static inline int open_frame(struct xdp_md *ctx, struct lab_frame *frame,
                             struct lab_counters *count) {
  frame->cursor.pos = (void *)(long)ctx->data;
  frame->cursor.end = (void *)(long)ctx->data_end;
  frame->length = ctx->data_end - ctx->data;
  count->rx_packets++;
  count->rx_bytes += frame->length;
  frame->eth = lab_take(&frame->cursor, sizeof(*frame->eth));
  return frame->eth != 0;
}

int switch_port(struct xdp_md *ctx) {
  u32 ingress = ctx->ingress_ifindex;
  struct lab_port *in = ports.lookup(&ingress);
  struct lab_counters *count = counters.lookup(&ingress);
  struct lab_frame frame;
  u32 port;

  if (!in || !count) return XDP_ABORTED;
  if (!open_frame(ctx, &frame, count)) goto malformed;
  if (frame.eth->h_proto == bpf_htons(ETH_P_ARP)) return answer_arp(ctx, in, count);
  if (frame.eth->h_proto == bpf_htons(LAB_PROBE_ETHERTYPE)) return handle_probe(ctx, count);
  if (frame.eth->h_proto != bpf_htons(ETH_P_IP)) {
    count->unsupported++;
    return XDP_DROP;
  }
  if (!lab_parse_ip(&frame)) goto malformed;
  count->rx_roce += frame.roce;
  if (in->flags & LAB_PORT_FATE) { /* a host may not speak in another's name: RFC 2827 */
    if (frame.flow.src != in->address) {
      count->spoofed++;
      return XDP_DROP;
    }
    if (loses(ctx, &frame, in->rx_link, count)) {
      count->injected_rx++;
      count->injected_rx_roce += frame.roce;
      return XDP_DROP;
    }
  }
  if (frame.ip->ttl <= 1) {
    count->ttl_exceeded++;
    return XDP_DROP;
  }
  port = next_hop(in, &frame, count->rx_packets);
  if (!port) {
    count->no_route++;
    return XDP_DROP;
  }
  return forward(ctx, &frame, port);

malformed:
  count->malformed++;
  return XDP_DROP;
}

/* RoCE goes to the host's own socket if one is bound; all the rest is the kernel's. */
int host_port(struct xdp_md *ctx) {
  u32 ingress = ctx->ingress_ifindex;
  struct lab_port *in = ports.lookup(&ingress);
  struct lab_counters *count = counters.lookup(&ingress);
  struct lab_frame frame;

  if (!in || !count) return XDP_ABORTED;
  if (!open_frame(ctx, &frame, count)) return XDP_PASS;
  if (frame.eth->h_proto == bpf_htons(LAB_PROBE_ETHERTYPE)) return handle_probe(ctx, count);
  if (frame.eth->h_proto != bpf_htons(ETH_P_IP) || !lab_parse_ip(&frame)) return XDP_PASS;
  count->rx_roce += frame.roce;
  if (in->flags & LAB_PORT_FATE && loses(ctx, &frame, in->rx_link, count)) {
    count->injected_rx++;
    count->injected_rx_roce += frame.roce;
    return XDP_DROP;
  }
  if (!frame.roce || frame.flow.dst != in->address) return XDP_PASS;
  if (xsks.redirect_map(ingress, XDP_PASS) != XDP_REDIRECT) return XDP_PASS;
  count->to_xsk++;
  return XDP_REDIRECT;
}
