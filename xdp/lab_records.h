/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the XDP programs write into ring buffers, in the machine's byte order.
 *
 *   drops     struct lab_drop. softroce-monitor appends them to drops.bin, which begins with
 *             struct lab_file_header.
 *   captures  struct lab_capture, each followed by `captured` bytes of the frame, unpadded.
 *             softroce-monitor writes them into the requested captures, as pcapng.
 */
#ifndef SOFTROCE_LAB_RECORDS_H
#define SOFTROCE_LAB_RECORDS_H

#include "lab_fault.h"

#define LAB_DROPS_MAGIC "LABDROP3"

struct lab_file_header {
  char magic[8];
  lab_u32 header_bytes; /* of this header */
  lab_u32 record_bytes; /* of a record's fixed part */
};

/* A packet that the injector dropped, or did something else to: one record for each effect. */
struct lab_drop {
  lab_u64 time_ns; /* CLOCK_MONOTONIC */
  lab_u32 directed_link;
  lab_u32 rule_id;
  lab_u32 src; /* IPv4, host order */
  lab_u32 dst;
  lab_u32 message; /* this and the next five: zero without a lab header */
  lab_u32 index;
  lab_u16 operation;
  lab_u16 step;
  lab_u16 attempt;
  lab_u8 kind; /* enum lab_kind, or LAB_KIND_NONE */
  lab_u8 zero;
  lab_u16 sport;  /* UDP or TCP source port, else 0 */
  lab_u16 effect; /* enum lab_effect, one bit; DOWN beside DROP */
  lab_u32 psn;    /* of the BTH; this and the next: zero without one */
  lab_u32 qpn;
  lab_u32 length; /* bytes of the frame, Ethernet header included */
};

/* When a numbered frame of `benchmarks/wire.py` was sent and arrived (stamps.c). */
struct lab_stamp {
  lab_u64 sent_ns;
  lab_u64 arrived_ns;
  lab_u32 copies;
  lab_u32 tos;
};

/* A packet at the point where the fate of a directed link is decided. */
struct lab_capture {
  lab_u64 time_ns; /* CLOCK_MONOTONIC */
  lab_u32 directed_link;
  lab_u32 length;     /* bytes of the frame */
  lab_u32 captured;   /* bytes that follow */
  lab_u32 effects;    /* bits of enum lab_effect; the bytes are those before */
  lab_u32 rule_id[4]; /* of the rules that did it, by enum lab_verdict_slot */
};

#endif
