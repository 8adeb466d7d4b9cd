/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packets that are hit by name: "the third packet of message 7, on its first transmission". A
 * link's names lie in a hash table, so that a thousand of them cost a packet no more than one.
 * The fields that a name consists of are its tuple; a link has few different tuples, and each is
 * one lookup (tuple space search: Srinivasan, Suri, Varghese, SIGCOMM 1999).
 */
#ifndef SOFTROCE_LAB_NAME_H
#define SOFTROCE_LAB_NAME_H

#include "lab_fault.h"

enum lab_name_tuple {
  LAB_NAME_MESSAGE = 1,  /* message, packet */
  LAB_NAME_RELATIVE = 2, /* relative QP number, relative PSN */
  LAB_NAME_ABSOLUTE = 3, /* QP number, PSN */
};

struct lab_name_key {
  lab_u32 link_slot; /* 2 * directed link + slot */
  lab_u32 tuple;     /* enum lab_name_tuple */
  lab_u32 first;     /* message, or QP number */
  lab_u32 second;    /* packet, or PSN */
};

struct lab_named {
  lab_u64 iters; /* bit n-1: the n-th transmission; all bits: every one */
  lab_u64 seen;  /* transmissions so far, of packets that do not carry their number */
  lab_u64 hits;
  struct lab_window window;
  lab_u32 rule_id;
  lab_u32 zero;
};

/* The key of `packet` in names of this tuple; 0: the packet has no such name. */
LAB_PURE int lab_name_of(const struct lab_packet *packet, lab_u32 tuple, struct lab_name_key *key) {
  key->tuple = tuple;
  if (tuple == LAB_NAME_MESSAGE) {
    key->first = packet->id.message;
    key->second = packet->id.index;
    return packet->id.kind == LAB_KIND_DATA;
  }
  key->first = tuple == LAB_NAME_RELATIVE ? packet->relative_qpn : packet->qpn;
  key->second = tuple == LAB_NAME_RELATIVE ? packet->relative_psn : packet->psn;
  return packet->opcode != LAB_NO_OPCODE && (tuple == LAB_NAME_ABSOLUTE || packet->relative_qpn);
}

/*
 * 0: the link certainly has no such name, which is so of nearly all packets. It spares them the
 * hash table, whose buckets a packet finds in no cache.
 */
LAB_PURE int lab_name_maybe(const struct lab_fault_set *set, const struct lab_name_key *key) {
  lab_u64 name = ((lab_u64)key->first << 32 | key->second) + key->tuple;
  lab_u32 bit = name * LAB_GOLDEN >> (64 - LAB_NAME_BITS);

  return set->named[bit >> 6 & ((1 << LAB_NAME_BITS) / 64 - 1)] >> (bit & 63) & 1;
}

/* Whether this transmission of a packet that has the name is to be dropped. Counts it. */
LAB_PURE int lab_named_hits(struct lab_named *named, const struct lab_packet *packet, int timed,
                            lab_u64 now_ns) {
  lab_u64 before = packet->id.attempt;

  if (timed && !lab_window_acts(&named->window, now_ns)) return 0;
  if (packet->id.kind == LAB_KIND_NONE) before = __sync_fetch_and_add(&named->seen, 1);
  if (!lab_iters_hold(named->iters, before)) return 0;
  __sync_fetch_and_add(&named->hits, 1);
  return 1;
}

#endif
