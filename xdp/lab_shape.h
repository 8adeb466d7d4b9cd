/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between the XDP programs, the wire stage and whoever configures it. A switch's program decides
 * fate and route of a frame; if it then enters a shaped link, or came over one from a host, the
 * frame goes to the wire stage by the AF_XDP socket of the port that it arrived on, with this in
 * front of it (bpf_xdp_adjust_meta). softroce_lab/faults/layout.py packs a shape.
 */
#ifndef SOFTROCE_LAB_SHAPE_H
#define SOFTROCE_LAB_SHAPE_H

#include "lab_fault.h"

/* One link's part of the verdict. */
struct lab_leg {
  lab_u32 effects; /* LAB_EFFECT_CUT, _DUPLICATE, _REORDER; DROP: gone at the end of the leg */
  lab_u32 jitter;  /* 32 random bits */
};

struct lab_wire_meta {
  lab_u64 arrival_ns;    /* CLOCK_MONOTONIC, when the program saw the frame */
  lab_u32 port;          /* ifindex to leave by */
  lab_u32 flags;         /* enum lab_wire_flags */
  struct lab_leg uplink; /* over the link that the frame arrived on; only with LAB_WIRE_UPLINK */
  struct lab_leg link;   /* over the link that it leaves by */
};

enum lab_wire_flags {
  LAB_WIRE_UPLINK = 1, /* it has not been delayed on the link it arrived on, which is shaped */
  LAB_WIRE_ROCE = 2,
};

enum lab_distribution {
  LAB_UNIFORM = 0,
  LAB_NORMAL = 1,
  LAB_PARETO = 2,
};

struct lab_delay {
  lab_u64 delay_ns;
  lab_u64 jitter_ns;
  lab_u32 distribution; /* enum lab_distribution */
  lab_u32 preserve;     /* jitter never reorders packets */
  struct lab_window window;
};

struct lab_queue {
  lab_u64 rate_bps;      /* 0: no limit */
  lab_u64 limit_bytes;   /* this and the next five: LAB_CERTAIN for none */
  lab_u64 limit_packets; /* waiting, not counting the one in transmission */
  lab_u64 ecn_bytes;
  lab_u64 ecn_packets;
  lab_u64 trim_bytes;   /* with `trim`: frames beyond this are cut; without these two, beyond the */
  lab_u64 trim_packets; /* limit */
  lab_u32 trim;
  lab_u32 trim_share; /* of the rate that cut frames get while others wait, in parts per million */
  struct lab_window window;
};

#define LAB_SHAPE_PARTS 4

/* Of the parts whose windows act, the last one counts. */
struct lab_shape {
  lab_u64 reorder_extra_ns; /* what a reordered packet waits longer; 0: it skips the delay */
  lab_u32 delays;
  lab_u32 queues;
  struct lab_delay delay[LAB_SHAPE_PARTS];
  struct lab_queue queue[LAB_SHAPE_PARTS];
};

#endif
