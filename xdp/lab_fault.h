/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What happens to a packet on a directed link: the one place that decides it. Shared by the BPF
 * programs, the native engine and the tests, so that all take the same decision.
 *
 * A decision compares a 64-bit hash with a rule's 64-bit threshold. The hash has one of two keys:
 *
 *   identity  (stream, addresses, kind, operation, step, message, packet index, attempt): the same
 *             packets fail whatever link, path, port, time or transport they take.
 *   index     (stream, n-th packet on the directed link): also for frames without the lab header.
 *
 * Rules are tried in order; a packet that one rule drops or cuts never reaches the next. Models
 * that count (gemodel, burst, periodic, a gap) count the packets that reach them.
 */
#ifndef SOFTROCE_LAB_FAULT_H
#define SOFTROCE_LAB_FAULT_H

#include "lab_hash.h"
#include "lab_tail.h"
#include "lab_wire.h"

#define LAB_FAULT_RULES 8                 /* rules on one directed link, tried in order */
#define LAB_CERTAIN 0xffffffffffffffffULL /* threshold of probability 1 */
#define LAB_KIND_NONE 0xff                /* a frame without the lab header */
#define LAB_FATE_PASSED 0xffffffffU       /* no rule dropped it */

enum lab_fault_key {
  LAB_KEY_IDENTITY = 0,
  LAB_KEY_INDEX = 1,
};

enum lab_fault_model {
  LAB_LOSS_RANDOM = 0,   /* drop below `threshold` */
  LAB_LOSS_GEMODEL = 1,  /* `threshold`: good to bad; a: bad to good; b, c: loss in bad, in good */
  LAB_LOSS_BURST = 2,    /* begin below `threshold`; a: packets of a burst */
  LAB_LOSS_PERIODIC = 3, /* of every a packets, b ones from the c-th on */
  LAB_LINK_DOWN = 4,     /* as random; its effect is "link down" */
  LAB_CORRUPT = 5,       /* flip a bit below `threshold` */
  LAB_DUPLICATE = 6,     /* below `threshold` */
  LAB_REORDER = 7,       /* below `threshold`; a: the first a-1, and so after each, are none */
  LAB_CUT = 8,           /* below `threshold`; a packet without a payload to cut is dropped */
};

/* What a rule did to a packet; bits of lab_verdict.effects and of struct lab_wire_meta. */
enum lab_effect {
  LAB_EFFECT_DROP = 1,
  LAB_EFFECT_CORRUPT = 2,
  LAB_EFFECT_DUPLICATE = 4,
  LAB_EFFECT_REORDER = 8,
  LAB_EFFECT_DOWN = 16, /* with DROP: for the link is down */
  LAB_EFFECT_BAD = 32,  /* with DROP: by a gemodel in its bad state */
  LAB_EFFECT_CUT = 64,  /* trimmed: its payload is gone, its headers go on; never with DROP */
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
  lab_u8 zero;
  lab_u16 attempt;
};

/* What a filter may match of a packet beyond its identity. */
struct lab_packet {
  struct lab_identity id;
  lab_u32 kind_bit; /* 1 << enum lab_kind, or LAB_KIND_BIT_OTHER; with _TAIL, _PROBE or not */
  lab_u32 tail;     /* packets of its message from this one on; 0: no lab header */
  lab_u32 opcode;   /* of the BTH; LAB_NO_OPCODE: none */
  lab_u32 qpn;      /* destination QP on the wire */
  lab_u32 psn;
  lab_u32 relative_qpn; /* its sender's n-th destination QP, from 1; 0: unknown */
  lab_u32 relative_psn; /* from 1 */
  lab_u32 trimmed;      /* 1: its payload was cut before */
};

#define LAB_NO_OPCODE 0x100
#define LAB_KIND_BIT_OTHER 8
#define LAB_KIND_BIT_TAIL 16 /* the last packet of an RC message, sent for the first time */
#define LAB_KIND_BIT_PROBE 32
#define LAB_KIND_BIT_PARITY 64
#define LAB_KIND_BITS_WHOLE (1 << LAB_KIND_DATA | LAB_KIND_BIT_PARITY) /* with a payload to cut */

/* The packets that a rule matches. Masks are all ones where the number beside them counts. */
struct lab_filter {
  lab_u64 iters; /* bit n-1: the n-th transmission */
  lab_u32 kinds; /* kind_bits */
  lab_u32 tail;  /* the last so many packets of a message; all ones: any */
  lab_u32 opcode, opcode_mask;
  lab_u32 qpn, qpn_mask;
  lab_u32 relative_qpn, relative_qpn_mask;
  lab_u32 message, message_mask;
};

/* When a rule acts, on the lab's timeline. */
struct lab_window {
  lab_u64 begin_ns;
  lab_u64 length_ns; /* 0: for ever */
  lab_u64 period_ns; /* 0: once */
};

struct lab_fault_rule {
  lab_u64 stream; /* lab_stream() of it */
  lab_u64 threshold;
  lab_u64 a, b, c; /* by model */
  struct lab_window window;
  struct lab_filter filter;
  lab_u32 rule_id;
  lab_u32 effects; /* of a hit */
  lab_u16 slot;    /* in the verdict: enum lab_verdict_slot */
  lab_u16 key;     /* enum lab_fault_key */
  lab_u32 model;   /* enum lab_fault_model */
};

enum lab_fault_need {
  LAB_NEED_TIME = 1,     /* a rule has a window */
  LAB_NEED_RELATIVE = 2, /* a rule uses relative numbers */
  LAB_NEED_FILTER = 4,   /* a rule does not match every packet */
  LAB_NEED_DOWN = 8,     /* the link has names, and goes down at times of the first rules */
  LAB_NEED_TAIL = 16,    /* a rule matches the last packets of RC messages */
};

#define LAB_NAME_TUPLES 4
#define LAB_NAME_BITS 10 /* of a name's hash: which bit of lab_fault_set.named it sets */

struct lab_fault_set {
  lab_u32 count;
  lab_u32 needs;         /* bits of enum lab_fault_need */
  lab_u64 jitter_stream; /* likewise; 0: no jitter */
  lab_u32 jitter_key;
  lab_u32 tuples;                /* how many of `tuple` there are */
  lab_u8 tuple[LAB_NAME_TUPLES]; /* enum lab_name_tuple: what the names of this link consist of */
  lab_u32 names_digest;          /* differs where names differ; nothing in BPF reads it */
  lab_u64 named[(1 << LAB_NAME_BITS) / 64]; /* a Bloom filter of the link's names */
  struct lab_fault_rule rule[LAB_FAULT_RULES];
};

/* What a rule remembers, and what became of it. */
struct lab_rule_state {
  lab_u64 chain; /* of gemodel and burst: state, and steps taken */
  lab_u64 seen;  /* packets that reached the rule while it acted, and passed its filter */
  lab_u64 hits;
  lab_u64 runs; /* of consecutive packets that it hit */
  lab_u64 last; /* `seen` of the last hit, from 1 */
};

struct lab_fault_state {
  lab_u64 packets;   /* that these rules were applied to */
  lab_u64 contended; /* steps of a chain that another CPU took at the same time */
  struct lab_rule_state rule[LAB_FAULT_RULES];
};

enum lab_verdict_slot {
  LAB_SLOT_DROP = 0,
  LAB_SLOT_CORRUPT = 1,
  LAB_SLOT_DUPLICATE = 2,
  LAB_SLOT_REORDER = 3,
};

/* The effects that have a slot. */
LAB_PURE lab_u32 lab_effects_of_slot(lab_u32 slot) {
  return slot ? 1U << slot : LAB_EFFECT_DROP | LAB_EFFECT_DOWN | LAB_EFFECT_CUT;
}

/* What becomes of a packet, by slot: which rule did it, and by what draw. */
struct lab_verdict {
  lab_u64 draw[4];
  lab_u32 rule_id[4];
  lab_u32 effects; /* bits of enum lab_effect */
  lab_u32 jitter;
  lab_u64 name[2]; /* what rules draw for, by enum lab_fault_key */
  lab_u64 step;    /* between two steps of lab_fault_decide() */
};

/* Whether packets of the kind are named by message, index and attempt. Without a branch. */
LAB_PURE lab_u32 lab_kind_is_named(lab_u32 kind) { return !(kind & ~LAB_KIND_PARITY); }

/*
 * A digest of the packet's name. Control and report packets are named by their kind and sequence
 * number alone: what they are about differs between transports.
 */
LAB_PURE lab_u64 lab_identity_digest(const struct lab_identity *id) {
  lab_u64 addresses = (lab_u64)id->src << 32 | id->dst;
  lab_u64 name = (lab_u64)id->kind << 40;
  lab_u64 number = (lab_u64)id->message << 32;

  if (lab_kind_is_named(id->kind)) {
    name |= (lab_u64)id->attempt << 32 | (lab_u64)id->operation << 16 | id->step;
    number |= id->index;
  }
  return lab_absorb(lab_absorb(lab_absorb(0, addresses), name), number);
}

/* A path probe is a control packet, too. Without a branch: see lab_less(). */
LAB_PURE lab_u32 lab_kind_bit(lab_u32 kind) {
  lab_u32 probe = kind >> 1 & kind & 1, parity = kind >> 2 & 1;

  return (1U ^ parity) << (kind & 3 & ~(probe << 1)) | probe * LAB_KIND_BIT_PROBE |
         parity * LAB_KIND_BIT_PARITY;
}

/* A rule's stream as it is used: mixed once, when the rule is laid out. */
LAB_PURE lab_u64 lab_stream(lab_u64 stream) { return lab_mix64(stream + LAB_GOLDEN); }

/* The 64 bits that a rule's stream draws for a packet: `name` is its digest, or its count n. */
LAB_PURE lab_u64 lab_fault_draw(lab_u64 mixed_stream, lab_u64 name) {
  return lab_absorb(mixed_stream, name);
}

/* 1 if a < b, else 0, without a branch: each would double what the verifier has to follow. */
LAB_PURE lab_u64 lab_less(lab_u64 a, lab_u64 b) { return ((~a & b) | (~(a ^ b) & (a - b))) >> 63; }

/* 1 unless `word` is 0, without a branch. */
LAB_PURE lab_u64 lab_nonzero(lab_u64 word) { return (word | -word) >> 63; }

/* Whether draw < threshold, or the threshold is certainty. The largest draw counts as the one
 * below, so that certainty needs no case of its own. */
LAB_PURE lab_u64 lab_fault_hits(lab_u64 draw, lab_u64 threshold) {
  return lab_less(draw - 1 + lab_nonzero(draw + 1), threshold);
}

LAB_PURE int lab_window_acts(const struct lab_window *window, lab_u64 now_ns) {
  lab_u64 since = now_ns - window->begin_ns;

  if (now_ns < window->begin_ns) return 0;
  if (window->period_ns) since %= window->period_ns;
  return !window->length_ns || since < window->length_ns;
}

/* Whether the link is down, which goes before everything, its names too. Only if the set needs it:
 * else the rules find out themselves, which come behind the names. */
LAB_PURE lab_u64 lab_link_is_down(const struct lab_fault_set *set, lab_u64 now_ns,
                                  struct lab_verdict *verdict) {
  verdict->step = 0;
  LAB_ROLLED
  for (lab_u32 i = 0; i < LAB_FAULT_RULES; i++) {
    if (i >= set->count || set->rule[i].model != LAB_LINK_DOWN) break;
    verdict->step |= lab_window_acts(&set->rule[i].window, now_ns);
  }
  return *(volatile lab_u64 *)&verdict->step;
}

/* Whether `iters` hold the transmission after `before` others; beyond the 64th, "every" does. */
LAB_PURE lab_u64 lab_iters_hold(lab_u64 iters, lab_u64 before) {
  lab_u64 listed = iters >> (before & 63) & (1 ^ lab_nonzero(before >> 6));

  return (listed & 1) | (1 ^ lab_nonzero(~iters));
}

LAB_PURE int lab_filter_passes(const struct lab_filter *filter, const struct lab_packet *packet) {
  lab_u64 differs = (filter->opcode ^ packet->opcode) & filter->opcode_mask;

  differs |= (filter->qpn ^ packet->qpn) & filter->qpn_mask;
  differs |= (filter->relative_qpn ^ packet->relative_qpn) & filter->relative_qpn_mask;
  differs |= (filter->message ^ packet->id.message) & filter->message_mask;
  differs |= 1 ^ lab_nonzero(filter->kinds & packet->kind_bit);
  differs |= lab_less(filter->tail, packet->tail);
  differs |= 1 ^ lab_iters_hold(filter->iters, packet->id.attempt);
  return !differs;
}

/*
 * Chains: a state, and the number of steps so far, in one word. The stream draws for the number of
 * the step, so that a run of states depends on nothing else. Each returns whether the packet is
 * hit: 0, or 1 and perhaps LAB_EFFECT_BAD. If two CPUs take a step at the same moment both decide
 * by it, and that is counted.
 */
LAB_PURE lab_u64 lab_gemodel_hits(const struct lab_fault_rule *rule, lab_u64 word, lab_u64 *next) {
  lab_u64 move = lab_fault_draw(rule->stream, lab_mix64((word >> 1) + LAB_GOLDEN));
  lab_u64 fate = lab_mix64(move + LAB_GOLDEN);
  lab_u64 bad = -(word & 1); /* all ones, or none */
  lab_u64 moves = lab_fault_hits(move, (rule->a & bad) | (rule->threshold & ~bad));

  *next = ((word >> 1) + 1) << 1 | ((word & 1) ^ moves);
  return -lab_fault_hits(fate, (rule->b & bad) | (rule->c & ~bad)) & (1 | (LAB_EFFECT_BAD & bad));
}

#define LAB_BURST_BITS 24 /* of the word: packets that the burst still takes */

LAB_PURE lab_u64 lab_burst_hits(const struct lab_fault_rule *rule, lab_u64 word, lab_u64 *next) {
  lab_u64 left = word & ((1U << LAB_BURST_BITS) - 1);
  lab_u64 n = word >> LAB_BURST_BITS;
  lab_u64 begins =
      lab_fault_hits(lab_fault_draw(rule->stream, lab_mix64(n + LAB_GOLDEN)), rule->threshold);

  left |= rule->a & -(begins & (1 ^ lab_nonzero(left)));
  *next = (n + 1) << LAB_BURST_BITS | (left - lab_nonzero(left));
  return lab_nonzero(left);
}

LAB_PURE lab_u64 lab_chain_hits(const struct lab_fault_rule *rule, struct lab_fault_state *state,
                                struct lab_rule_state *own) {
  lab_u64 word = *(volatile lab_u64 *)&own->chain;
  lab_u64 next = 0;
  lab_u64 hit = rule->model == LAB_LOSS_GEMODEL ? lab_gemodel_hits(rule, word, &next)
                                                : lab_burst_hits(rule, word, &next);

  if (__sync_val_compare_and_swap(&own->chain, word, next) != word)
    __sync_fetch_and_add(&state->contended, 1);
  return hit;
}

LAB_PURE lab_u64 lab_rule_hits(const struct lab_fault_rule *rule, struct lab_fault_state *state,
                               struct lab_rule_state *own, lab_u64 draw, lab_u64 seen) {
  lab_u32 model = rule->model;

  if (model == LAB_LOSS_GEMODEL || model == LAB_LOSS_BURST) return lab_chain_hits(rule, state, own);
  if (model == LAB_LOSS_PERIODIC)
    return rule->a && seen >= rule->c && (seen - rule->c) % rule->a < rule->b;
  if (model == LAB_REORDER && seen + 1 - own->last < rule->a) return 0;
  return lab_fault_hits(draw, rule->threshold);
}

/* Packets before this one. Two CPUs may count as one, unless the model goes by the count. */
LAB_PURE lab_u64 lab_count_seen(struct lab_rule_state *own, lab_u32 model) {
  lab_u64 seen;

  if (model == LAB_LOSS_PERIODIC) return __sync_fetch_and_add(&own->seen, 1);
  seen = *(volatile lab_u64 *)&own->seen;
  *(volatile lab_u64 *)&own->seen = seen + 1;
  return seen;
}

LAB_PURE void lab_note_hit(struct lab_rule_state *own, lab_u64 seen) {
  lab_u64 before = __sync_lock_test_and_set(&own->last, seen + 1);

  __sync_fetch_and_add(&own->hits, 1);
  __sync_fetch_and_add(&own->runs, lab_nonzero(before ^ seen) | (1 ^ lab_nonzero(seen)));
}

/* What a rule that hits a packet does to it: one without a payload to cut is dropped. */
LAB_PURE lab_u32 lab_effects_on(const struct lab_fault_rule *rule,
                                const struct lab_packet *packet) {
  lab_u32 cuts = rule->effects / LAB_EFFECT_CUT & 1;
  lab_u32 whole = (lab_u32)lab_nonzero(packet->kind_bit & LAB_KIND_BITS_WHOLE);

  return rule->effects ^ ((LAB_EFFECT_CUT | LAB_EFFECT_DROP) & -(cuts & ~whole));
}

/* What the rules draw for: the packet's digest, or its number among those that they apply to. */
LAB_PURE void lab_name_draws(struct lab_fault_state *state, const struct lab_packet *packet,
                             struct lab_verdict *verdict) {
  lab_u64 nth = lab_mix64(__sync_fetch_and_add(&state->packets, 1) + LAB_GOLDEN);

  verdict->name[LAB_KEY_INDEX] = nth;
  verdict->name[LAB_KEY_IDENTITY] =
      packet->id.kind == LAB_KIND_NONE ? nth : lab_identity_digest(&packet->id);
}

LAB_PURE void lab_draw_jitter(const struct lab_fault_set *set, struct lab_verdict *verdict) {
  if (set->jitter_stream)
    verdict->jitter =
        (lab_u32)(lab_fault_draw(set->jitter_stream, verdict->name[set->jitter_key & 1]) >> 32);
}

/*
 * What `set` does to `packet`, at `now_ns` of the lab's timeline (read only if the set needs it).
 * `state` moves on; it may be shared between CPUs. The verdict comes in blank.
 */
LAB_PURE void lab_fault_decide(const struct lab_fault_set *set, struct lab_fault_state *state,
                               const struct lab_packet *packet, lab_u64 now_ns,
                               struct lab_verdict *verdict) {
  lab_name_draws(state, packet, verdict);
  LAB_ROLLED
  for (lab_u32 i = 0; i < LAB_FAULT_RULES; i++) {
    const struct lab_fault_rule *rule = &set->rule[i];
    struct lab_rule_state *own = &state->rule[i];
    lab_u64 draw, seen;
    lab_u32 slot = rule->slot & 3;

    if (i >= set->count) break;
    verdict->step = !(set->needs & LAB_NEED_FILTER) || lab_filter_passes(&rule->filter, packet);
    if (set->needs & LAB_NEED_TIME) verdict->step &= lab_window_acts(&rule->window, now_ns);
    if (rule->effects & LAB_EFFECT_CUT) verdict->step &= 1 ^ packet->trimmed;
    if (!*(volatile lab_u64 *)&verdict->step) continue;
    draw = lab_fault_draw(rule->stream, verdict->name[rule->key & 1]);
    seen = lab_count_seen(own, rule->model);
    verdict->step = lab_rule_hits(rule, state, own, draw, seen);
    if (!*(volatile lab_u64 *)&verdict->step) continue;
    lab_note_hit(own, seen);
    verdict->effects |= lab_effects_on(rule, packet) | ((lab_u32)verdict->step & LAB_EFFECT_BAD);
    verdict->rule_id[slot] = rule->rule_id;
    verdict->draw[slot] = draw;
    if (rule->effects & (LAB_EFFECT_DROP | LAB_EFFECT_CUT)) break;
  }
  lab_draw_jitter(set, verdict);
}

#endif
