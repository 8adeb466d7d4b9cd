/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who is lost: the one place that decides the fate of a packet on a directed link. Shared by the
 * BPF programs, the native engine and the tests, so that all take the same decision.
 *
 * A decision compares a 64-bit hash with a rule's 64-bit threshold. The hash has one of two keys:
 *
 *   identity  (stream, addresses, kind, operation, step, message, packet index, attempt): the same
 *             packets fail whatever link, path, port, time or transport they take.
 *   index     (stream, n-th packet on the directed link): also for frames without our header.
 */
#ifndef SOFTROCE_LAB_FAULT_H
#define SOFTROCE_LAB_FAULT_H

#include "lab_hash.h"
#include "lab_wire.h"

#define LAB_FAULT_RULES 8                 /* rules on one directed link, tried in order */
#define LAB_CERTAIN 0xffffffffffffffffULL /* threshold of probability 1 */
#define LAB_KIND_NONE 0xff                /* a frame that carries no header of ours */

enum lab_fault_key {
  LAB_KEY_IDENTITY = 0,
  LAB_KEY_INDEX = 1,
};

/* What names a packet. Addresses are numbers in host order. Zeroes where `kind` is none. */
struct lab_identity {
  lab_u32 src;
  lab_u32 dst;
  lab_u32 message;
  lab_u32 index;
  lab_u16 operation;
  lab_u16 step;
  lab_u8 kind; /* enum lab_kind, or LAB_KIND_NONE */
  lab_u8 attempt;
  lab_u16 zero;
};

struct lab_fault_rule {
  lab_u64 stream;
  lab_u64 threshold;
  lab_u32 rule_id;
  lab_u32 key; /* enum lab_fault_key */
};

struct lab_fault_set {
  lab_u32 count;
  lab_u32 uses_index; /* any rule with LAB_KEY_INDEX */
  struct lab_fault_rule rule[LAB_FAULT_RULES];
};

/*
 * A digest of the packet's name. Control and report packets are named by their kind and sequence
 * number alone: what they are about differs between transports.
 */
LAB_PURE lab_u64 lab_identity_digest(const struct lab_identity *id) {
  lab_u64 addresses = (lab_u64)id->src << 32 | id->dst;
  lab_u64 name = (lab_u64)id->kind << 40;
  lab_u64 number = (lab_u64)id->message << 32;

  if (id->kind == LAB_KIND_DATA) {
    name |= (lab_u64)id->attempt << 32 | (lab_u64)id->operation << 16 | id->step;
    number |= id->index;
  }
  return lab_absorb(lab_absorb(lab_absorb(0, addresses), name), number);
}

/* The 64 bits that one rule's stream draws for a packet: `name` is its digest, or its count n. */
LAB_PURE lab_u64 lab_fault_draw(lab_u64 stream, lab_u64 name) {
  return lab_absorb(lab_mix64(stream + LAB_GOLDEN), name);
}

LAB_PURE int lab_fault_hits(lab_u64 draw, lab_u64 threshold) {
  return draw < threshold || threshold == LAB_CERTAIN;
}

/* Whether deciding `id` on a link with these rules takes the link's packet count. */
LAB_PURE int lab_fault_needs_index(const struct lab_fault_set *set, const struct lab_identity *id) {
  return set->uses_index || id->kind == LAB_KIND_NONE;
}

/*
 * The position of the first rule that drops the packet, or -1. `n` counts the packets of this
 * directed link from 0; it is read only if lab_fault_needs_index().
 */
LAB_PURE int lab_fault_decide(const struct lab_fault_set *set, const struct lab_identity *id,
                              lab_u64 n) {
  lab_u64 digest = lab_identity_digest(id);
  lab_u64 nth = lab_mix64(n + LAB_GOLDEN);

  LAB_ROLLED
  for (lab_u32 i = 0; i < LAB_FAULT_RULES; i++) {
    const struct lab_fault_rule *rule = &set->rule[i];
    int by_index = rule->key == LAB_KEY_INDEX || id->kind == LAB_KIND_NONE;

    if (i >= set->count) break;
    if (lab_fault_hits(lab_fault_draw(rule->stream, by_index ? nth : digest), rule->threshold))
      return (int)i;
  }
  return -1;
}

#endif
