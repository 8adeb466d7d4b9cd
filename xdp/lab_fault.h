/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What happens to a packet on a directed link: the one place that decides it. Shared by the BPF
 * programs, the native engine and the tests, so that all take the same decision.
 *
 * A decision compares a 64-bit hash with a rule's 64-bit threshold. The hash has one of two keys:
 *
 *   identity  (stream, addresses, kind, operation, step, message, packet index, attempt): the same
 *             packets fail whatever link, path, port, time or transport they take.
 *   index     (stream, n-th packet on the directed link): also for frames without our header.
 *
 * Rules are tried in order; a packet that one rule drops never reaches the next. Models with a
 * memory (gemodel, burst, periodic, a gap) count the packets that reach them.
 */
#ifndef SOFTROCE_LAB_FAULT_H
#define SOFTROCE_LAB_FAULT_H

#include "lab_hash.h"
#include "lab_wire.h"

#define LAB_FAULT_RULES 8                 /* rules on one directed link, tried in order */
#define LAB_CERTAIN 0xffffffffffffffffULL /* threshold of probability 1 */
#define LAB_KIND_NONE 0xff                /* a frame that carries no header of ours */
#define LAB_FATE_PASSED 0xffffffffU       /* no rule dropped it */

/* How often a rule with a memory tries to move it on while other CPUs do the same. */
#define LAB_FAULT_TRIES 16

enum lab_fault_key {
  LAB_KEY_IDENTITY = 0,
  LAB_KEY_INDEX = 1,
};

enum lab_fault_model {
  LAB_LOSS_RANDOM = 0,   /* drop below `threshold` */
  LAB_LOSS_GEMODEL = 1,  /* `threshold`: good to bad; a: bad to good; b, c: loss in bad, in good */
  LAB_LOSS_BURST = 2,    /* begin below `threshold`; a: packets of a burst */
  LAB_LOSS_PERIODIC = 3, /* of every a packets, b ones from the c-th on */
  LAB_LINK_DOWN = 4,     /* drop, and say that the link is down */
  LAB_CORRUPT = 5,       /* flip a bit below `threshold` */
  LAB_DUPLICATE = 6,     /* below `threshold` */
  LAB_REORDER = 7,       /* below `threshold`; a: packets after a chosen one that are none */
};

/* What a rule did to a packet; bits of lab_verdict.effects and of struct lab_wire_meta. */
enum lab_effect {
  LAB_EFFECT_DROP = 1,
  LAB_EFFECT_CORRUPT = 2,
  LAB_EFFECT_DUPLICATE = 4,
  LAB_EFFECT_REORDER = 8,
  LAB_EFFECT_DOWN = 16, /* with DROP: for the link is down */
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

/* What a filter may ask of a packet beyond its identity. */
struct lab_packet {
  struct lab_identity id;
  lab_u32 tail;   /* packets of its message from this one on; 0: unknown */
  lab_u32 opcode; /* of the BTH; LAB_NO_OPCODE: none */
  lab_u32 qpn;    /* destination QP on the wire */
  lab_u32 psn;
  lab_u32 relative_qpn; /* its sender's n-th destination QP, from 1; 0: unknown */
  lab_u32 relative_psn; /* from 1 */
};

#define LAB_NO_OPCODE 0x100

enum lab_filter_field {
  LAB_FILTER_KINDS = 1,
  LAB_FILTER_OPCODE = 2,
  LAB_FILTER_QPN = 4,
  LAB_FILTER_RELATIVE_QPN = 8,
  LAB_FILTER_MESSAGE = 16,
  LAB_FILTER_TAIL = 32,
  LAB_FILTER_ITERS = 64,
};

#define LAB_KIND_BIT_OTHER 8 /* in lab_filter.kinds, for LAB_KIND_NONE */

struct lab_filter {
  lab_u32 fields; /* bits of enum lab_filter_field that count */
  lab_u32 kinds;  /* 1 << enum lab_kind */
  lab_u32 opcode;
  lab_u32 qpn; /* of either kind */
  lab_u32 message;
  lab_u32 tail;
  lab_u64 iters; /* bit n-1: the n-th transmission */
};

/* When a rule acts, on the lab's timeline. */
struct lab_window {
  lab_u64 begin_ns;
  lab_u64 length_ns; /* 0: for ever */
  lab_u64 period_ns; /* 0: once */
};

struct lab_fault_rule {
  lab_u64 stream;
  lab_u64 threshold;
  lab_u64 a, b, c; /* by model */
  struct lab_window window;
  struct lab_filter filter;
  lab_u32 rule_id;
  lab_u16 key;   /* enum lab_fault_key */
  lab_u16 model; /* enum lab_fault_model */
};

enum lab_fault_need {
  LAB_NEED_TIME = 1,     /* a rule has a window */
  LAB_NEED_RELATIVE = 2, /* a rule asks for relative numbers */
};

#define LAB_NAME_TUPLES 4

struct lab_fault_set {
  lab_u32 count;
  lab_u32 needs;         /* bits of enum lab_fault_need */
  lab_u64 jitter_stream; /* 0: no jitter */
  lab_u32 jitter_key;
  lab_u32 tuples; /* how many of `tuple` there are */
  lab_u8 tuple[LAB_NAME_TUPLES]; /* enum lab_name_tuple: what the names of this link consist of */
  lab_u32 zero;
  struct lab_fault_rule rule[LAB_FAULT_RULES];
};

/* What a rule remembers, and what became of it. */
struct lab_rule_state {
  lab_u64 memory; /* by model */
  lab_u64 seen;   /* packets that reached the rule while it acted, and passed its filter */
  lab_u64 hits;
  lab_u64 runs; /* of consecutive packets that it hit */
  lab_u64 last; /* `seen` of the last hit, from 1 */
};

struct lab_fault_state {
  lab_u64 packets; /* that met these rules */
  lab_u64 contended; /* decisions taken without moving a rule's memory on */
  struct lab_rule_state rule[LAB_FAULT_RULES];
};

struct lab_verdict {
  lab_u32 rule_id[4]; /* of the rule that dropped, corrupted, duplicated, reordered */
  lab_u32 effects;    /* bits of enum lab_effect */
  lab_u32 jitter;
  lab_u64 corrupt_draw; /* chooses the bit */
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

LAB_PURE int lab_window_acts(const struct lab_window *window, lab_u64 now_ns) {
  lab_u64 since = now_ns - window->begin_ns;

  if (now_ns < window->begin_ns) return 0;
  if (window->period_ns) since %= window->period_ns;
  return !window->length_ns || since < window->length_ns;
}

LAB_PURE int lab_filter_passes(const struct lab_filter *filter, const struct lab_packet *packet) {
  const struct lab_identity *id = &packet->id;
  lab_u32 fields = filter->fields;
  lab_u32 kind = id->kind == LAB_KIND_NONE ? LAB_KIND_BIT_OTHER : 1U << (id->kind & 3);

  if (!fields) return 1;
  if (fields & LAB_FILTER_KINDS && !(filter->kinds & kind)) return 0;
  if (fields & LAB_FILTER_OPCODE && filter->opcode != packet->opcode) return 0;
  if (fields & LAB_FILTER_QPN && filter->qpn != packet->qpn) return 0;
  if (fields & LAB_FILTER_RELATIVE_QPN && filter->qpn != packet->relative_qpn) return 0;
  if (fields & (LAB_FILTER_MESSAGE | LAB_FILTER_TAIL | LAB_FILTER_ITERS) &&
      id->kind != LAB_KIND_DATA)
    return 0;
  if (fields & LAB_FILTER_MESSAGE && filter->message != id->message) return 0;
  if (fields & LAB_FILTER_TAIL && packet->tail > filter->tail) return 0;
  if (fields & LAB_FILTER_ITERS && !(filter->iters >> (id->attempt & 63) & 1)) return 0;
  return 1;
}

/*
 * The models with a memory: a state, and the number of packets that moved it so far, in one word.
 * The count is what the stream draws for, so that a run of states depends on nothing else. Each
 * returns whether the packet is hit. If other CPUs move the word too often meanwhile, the packet
 * is decided by the last state seen, the word stays, and that is counted.
 */
LAB_PURE int lab_gemodel_hits(const struct lab_fault_rule *rule, lab_u64 word, lab_u64 *next) {
  lab_u64 move = lab_fault_draw(rule->stream, lab_mix64((word >> 1) + LAB_GOLDEN));
  lab_u64 fate = lab_mix64(move + LAB_GOLDEN);
  int bad = word & 1;

  *next = ((word >> 1) + 1) << 1 |
          (bad ? !lab_fault_hits(move, rule->a) : lab_fault_hits(move, rule->threshold));
  return lab_fault_hits(fate, bad ? rule->b : rule->c);
}

#define LAB_BURST_BITS 24 /* of the word: packets that the burst still takes */

LAB_PURE int lab_burst_hits(const struct lab_fault_rule *rule, lab_u64 word, lab_u64 *next) {
  lab_u64 left = word & ((1U << LAB_BURST_BITS) - 1);
  lab_u64 n = word >> LAB_BURST_BITS;

  if (!left && lab_fault_hits(lab_fault_draw(rule->stream, lab_mix64(n + LAB_GOLDEN)),
                              rule->threshold))
    left = rule->a;
  *next = (n + 1) << LAB_BURST_BITS | (left ? left - 1 : 0);
  return left != 0;
}

LAB_PURE int lab_gap_hits(const struct lab_fault_rule *rule, lab_u64 word, lab_u64 draw,
                          lab_u64 *next) {
  int hit = word + 1 >= rule->a && lab_fault_hits(draw, rule->threshold);

  *next = hit ? 0 : word + 1;
  return hit;
}

LAB_PURE int lab_memory_hits(const struct lab_fault_rule *rule, struct lab_fault_state *state,
                             struct lab_rule_state *own, lab_u64 draw) {
  lab_u64 word = *(volatile lab_u64 *)&own->memory;
  lab_u64 next = 0, found;
  int hit = 0;

  LAB_ROLLED
  for (int i = 0; i < LAB_FAULT_TRIES; i++) {
    if (rule->model == LAB_LOSS_GEMODEL)
      hit = lab_gemodel_hits(rule, word, &next);
    else if (rule->model == LAB_LOSS_BURST)
      hit = lab_burst_hits(rule, word, &next);
    else
      hit = lab_gap_hits(rule, word, draw, &next);
    found = __sync_val_compare_and_swap(&own->memory, word, next);
    if (found == word) return hit;
    word = found;
  }
  __sync_fetch_and_add(&state->contended, 1);
  return hit;
}

LAB_PURE int lab_rule_hits(const struct lab_fault_rule *rule, struct lab_fault_state *state,
                           struct lab_rule_state *own, lab_u64 draw, lab_u64 seen) {
  if (rule->model == LAB_LOSS_PERIODIC)
    return rule->a && seen >= rule->c && (seen - rule->c) % rule->a < rule->b;
  if (rule->model == LAB_LINK_DOWN) return 1;
  if (rule->model == LAB_LOSS_GEMODEL || rule->model == LAB_LOSS_BURST ||
      (rule->model == LAB_REORDER && rule->a))
    return lab_memory_hits(rule, state, own, draw);
  return lab_fault_hits(draw, rule->threshold);
}

LAB_PURE void lab_note_hit(struct lab_rule_state *own, lab_u64 seen) {
  lab_u64 before = __sync_lock_test_and_set(&own->last, seen + 1);

  __sync_fetch_and_add(&own->hits, 1);
  if (before != seen || !seen) __sync_fetch_and_add(&own->runs, 1);
}

/* The bits that a hit of this model sets. */
LAB_PURE lab_u32 lab_effect_of(lab_u32 model) {
  if (model == LAB_CORRUPT) return LAB_EFFECT_CORRUPT;
  if (model == LAB_DUPLICATE) return LAB_EFFECT_DUPLICATE;
  if (model == LAB_REORDER) return LAB_EFFECT_REORDER;
  return model == LAB_LINK_DOWN ? LAB_EFFECT_DROP | LAB_EFFECT_DOWN : LAB_EFFECT_DROP;
}

/*
 * What `set` does to `packet`, at `now_ns` of the lab's timeline (read only if the set needs it).
 * `state` moves on; it may be shared between CPUs.
 */
LAB_PURE void lab_fault_decide(const struct lab_fault_set *set, struct lab_fault_state *state,
                               const struct lab_packet *packet, lab_u64 now_ns,
                               struct lab_verdict *verdict) {
  lab_u64 digest = lab_identity_digest(&packet->id);
  lab_u64 n = __sync_fetch_and_add(&state->packets, 1);
  lab_u64 nth = lab_mix64(n + LAB_GOLDEN);
  int nameless = packet->id.kind == LAB_KIND_NONE;

  LAB_ROLLED
  for (lab_u32 i = 0; i < LAB_FAULT_RULES; i++) {
    const struct lab_fault_rule *rule = &set->rule[i];
    struct lab_rule_state *own = &state->rule[i];
    lab_u64 draw, seen;
    lab_u32 effect;

    if (i >= set->count) break;
    if (set->needs & LAB_NEED_TIME && !lab_window_acts(&rule->window, now_ns)) continue;
    if (!lab_filter_passes(&rule->filter, packet)) continue;
    draw = lab_fault_draw(rule->stream, rule->key == LAB_KEY_INDEX || nameless ? nth : digest);
    seen = __sync_fetch_and_add(&own->seen, 1);
    if (!lab_rule_hits(rule, state, own, draw, seen)) continue;
    lab_note_hit(own, seen);
    effect = lab_effect_of(rule->model);
    verdict->effects |= effect;
    if (effect & LAB_EFFECT_DROP) {
      verdict->rule_id[0] = rule->rule_id;
      return;
    }
    if (effect == LAB_EFFECT_CORRUPT) {
      verdict->rule_id[1] = rule->rule_id;
      verdict->corrupt_draw = lab_mix64(draw + LAB_GOLDEN);
    } else {
      verdict->rule_id[effect == LAB_EFFECT_DUPLICATE ? 2 : 3] = rule->rule_id;
    }
  }
  if (set->jitter_stream)
    verdict->jitter =
        (lab_u32)(lab_fault_draw(set->jitter_stream,
                                 set->jitter_key == LAB_KEY_INDEX || nameless ? nth : digest) >>
                  32);
}

#endif
