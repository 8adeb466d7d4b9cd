/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Values of the pinned maps. softroce_lab/fabric/xdp_layout.py holds the same layouts.
 * Ports are keyed by ifindex (unique in the lab), directed links by 2 * link (+ 1 for b to a).
 */
#ifndef SOFTROCE_LAB_MAPS_H
#define SOFTROCE_LAB_MAPS_H

#include "lab_fault.h"

#define LAB_GATEWAY 0xa9fe0001U    /* 169.254.0.1, every host's next hop */
#define LAB_PROBE_ETHERTYPE 0x88b5 /* IEEE 802 local experimental 1 */
#define LAB_GROUP_PORTS 64
#define LAB_SNAP_MAX 4096 /* a power of two, above any frame in one page */

enum lab_port_flags {
  LAB_PORT_FATE = 1,  /* the far end is a host: its link's fate is decided here, at ingress */
  LAB_PORT_SPRAY = 2, /* choose among equal-cost ports per packet */
};

struct lab_port {
  lab_u64 salt; /* of the switch */
  lab_u32 node;
  lab_u32 address; /* of the host at this end or the far one, host order; 0: neither is one */
  lab_u32 rx_link; /* directed link that ends here */
  lab_u32 tx_link; /* directed link that begins here */
  lab_u32 flags;
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
 * `armed` is the generation word of the link's faults: bit 0 names the slot in use, bit 1 says
 * that it holds rules, the rest counts changes. A change writes the idle slot, then this word, so
 * no packet sees half a rule. `snap` is the number of bytes to capture of each frame; 0: none.
 */
struct lab_link {
  lab_u32 armed;
  lab_u32 snap;
};

#define LAB_ARMED_SLOT 1
#define LAB_ARMED_RULES 2

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
  lab_u64 unsupported;   /* neither IPv4 nor ARP for the gateway nor a probe */
  lab_u64 stray_probe;   /* a probe with another token or port */
  lab_u64 spoofed;       /* from a host, with a source that is not its address */
  lab_u64 unwired;       /* the chosen port has no entry in the device map */
  lab_u64 drop_log_lost; /* injected, but the ring buffer was full */
  lab_u64 capture_lost;
};

#endif
