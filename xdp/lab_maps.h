/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Values of the pinned maps.
 * Ports are keyed by ifindex (unique in the lab), directed links by 2 * link (+ 1 for b to a).
 */
#ifndef SOFTROCE_LAB_MAPS_H
#define SOFTROCE_LAB_MAPS_H

#include "lab_fault.h"
#include "lab_name.h"

#define LAB_GATEWAY 0xa9fe0001U /* 169.254.0.1, every host's next hop; fe80::1 likewise */

/* A host's IPv6 address is this /96 with its IPv4 address behind. */
#define LAB_IPV6_0 0xfd536c61U
#define LAB_IPV6_1 0x62000000U
#define LAB_IPV6_2 0

/*
 * A host's port has shares, one for each process that opens it. The high bits of a queue pair's
 * number say whose it is. Share 0 is the port itself, any other a veth pair in the host's network
 * namespace: frames for its process go in at one end, and the process's socket is at the other.
 */
#define LAB_SHARES 64
#define LAB_SHARE_QPN_BITS 17 /* of 24; half of all numbers are no queue pair of a program */
/* Interfaces of share n: the end of the process at this + 2 * n, the other end behind it. */
#define LAB_FIRST_SHARE_IFINDEX (1 << 24)

#define LAB_PROBE_ETHERTYPE 0x88b5 /* IEEE 802 local experimental 1 */
#define LAB_GROUP_PORTS 64
#define LAB_SNAP_MAX 4096 /* a power of two, above any frame in one page */

enum lab_port_flags {
  LAB_PORT_FATE = 1,     /* the far end is a host: its link's fate is decided here, at ingress */
  LAB_PORT_SPRAY = 2,    /* choose among equal-cost ports per packet */
  LAB_PORT_ADAPTIVE = 4, /* choose the port whose queue holds least */
};

struct lab_port {
  lab_u64 salt; /* of the switch */
  lab_u32 node;
  lab_u32 address; /* of the host at this end or the far one, host order; 0: neither is one */
  lab_u32 rx_link; /* directed link that ends here */
  lab_u32 tx_link; /* directed link that begins here */
  lab_u32 flags;
  lab_u32 first_share; /* of a host's port: LAB_SHARES times its number among them */
  lab_u32 zero;
  lab_u8 mac[6];
  lab_u8 peer_mac[6];
};

struct lab_exact_key {
  lab_u32 node;
  lab_u32 address; /* host order */
};

struct lab_prefix_key {
  lab_u32 bits; /* 32 for the node + length of the prefix */
  lab_u32 node; /* this and the next in network order */
  lab_u32 address;
};

/* The equal-cost ports of a route. */
struct lab_group {
  lab_u32 count;
  lab_u32 port[LAB_GROUP_PORTS];
};

/*
 * `armed` is the generation word of the link's faults: bit 0 names the slot in use, bit 1
 * whether it holds rules or names, bit 2 that the wire stage shapes the link, the rest counts
 * changes. A change writes the idle slot, then this word, so no packet sees half a rule.
 */
struct lab_link {
  lab_u32 armed;
};

/* What is captured on a directed link. softroce-monitor alone writes `snap`, through a mapping. */
struct lab_tap {
  lab_u32 snap; /* bytes of each frame; 0: none */
  lab_u32 zero;
  lab_u64 missed; /* packets that were to be captured and found the ring buffer full */
};

/*
 * The queue of a directed link that the wire stage serves, as the stage knows it. The stage alone
 * writes it, through a mapping; `lb: adaptive` and the engines of hosts (port_pace.hpp) read it.
 */
struct lab_backlog {
  lab_u64 waiting_bytes;
  lab_u64 rate_bps; /* 0: no limit */
  lab_u64 clear_ns; /* CLOCK_MONOTONIC when all that the link has will have left */
};

#define LAB_ARMED_SLOT 1
#define LAB_ARMED_RULES 2
#define LAB_ARMED_SHAPED 4

/* What all links share. */
struct lab_timeline {
  lab_u64 epoch_ns; /* CLOCK_MONOTONIC of its moment 0 */
  lab_u32 learn;    /* whether switches learn flows at the hosts' ports */
  lab_u32 round;    /* a flow learnt in another round is a new one */
};

/* A sender's connection: it numbers QPs and PSNs from 1, in the order of their first use. */
struct lab_flow_key {
  lab_u32 src;
  lab_u32 dst;
  lab_u32 qpn; /* destination QP */
};

struct lab_flow_state {
  lab_u32 round;
  lab_u32 number; /* the sender's n-th, from 1 */
  lab_u32 first_psn;
  lab_u32 newest_tail; /* of lab_tail_is_new() */
};

/* Per port and CPU. "roce" counts are of UDP datagrams to port 4791. */
struct lab_counters {
  lab_u64 rx_packets;
  lab_u64 rx_bytes;
  lab_u64 rx_roce;
  lab_u64 tx_packets; /* handed to the link, after its fate */
  lab_u64 tx_bytes;
  lab_u64 tx_roce;
  lab_u64 to_xsk;      /* handed to the host's AF_XDP socket */
  lab_u64 answered;    /* ARP and probes sent back */
  lab_u64 injected_rx; /* dropped by a rule of the link that ends here */
  lab_u64 injected_tx; /* dropped by a rule of the link that begins here */
  lab_u64 injected_rx_roce;
  lab_u64 injected_tx_roce;
  lab_u64 no_route;
  lab_u64 ttl_exceeded;
  lab_u64 malformed;
  lab_u64 unsupported;   /* neither IP nor ARP or ND for the gateway nor a probe */
  lab_u64 stray_probe;   /* a probe with another token or port */
  lab_u64 spoofed;       /* from a host, with a source that is not its address */
  lab_u64 unwired;       /* the chosen port has no entry in the device map */
  lab_u64 drop_log_lost; /* injected, but the ring buffer was full */
  lab_u64 capture_lost;  /* likewise, to be captured; struct lab_tap has the link */
  lab_u64 to_wire;       /* handed to the wire stage, which counts from there on */
  lab_u64 wire_gone;     /* no socket of the wire stage on the port it arrived on: lost */
  lab_u64 link_down;     /* of the injected ones: the link was down */
  lab_u64 corrupted;     /* a bit was flipped on a link whose fate this port decides */
  lab_u64 duplicated;    /* will be, by the wire stage */
  lab_u64 reordered;
  lab_u64 no_route_roce;
};

#endif
