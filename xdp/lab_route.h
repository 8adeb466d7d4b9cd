/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which of the equal-cost ports a packet leaves by. Shared by the BPF programs, the simulated
 * fabric and the tests.
 */
#ifndef SOFTROCE_LAB_ROUTE_H
#define SOFTROCE_LAB_ROUTE_H

#include "lab_hash.h"

/* The key of a flow at a switch. Numbers in host order; ports 0 where there are none. */
struct lab_flow {
  lab_u32 src;
  lab_u32 dst;
  lab_u16 sport;
  lab_u16 dport;
  lab_u8 proto;
};

/* `salt` differs per switch: with equal salts the second tier would repeat the first one's choice
 * and use only a part of its paths (hash polarisation). */
LAB_PURE lab_u32 lab_route_hash(lab_u64 salt, const struct lab_flow *flow) {
  lab_u64 addresses = (lab_u64)flow->src << 32 | flow->dst;
  lab_u64 ports = (lab_u64)flow->proto << 32 | (lab_u64)flow->sport << 16 | flow->dport;

  return (lab_u32)(lab_absorb(lab_absorb(salt, addresses), ports) >> 32);
}

/* For `lb: spray`: a hash of the n-th packet that a port received. */
LAB_PURE lab_u32 lab_spray_hash(lab_u64 salt, lab_u64 n) {
  return (lab_u32)(lab_absorb(salt, n) >> 32);
}

/* Maps a hash to 0 ... ways-1 without division (Lemire's multiply-shift). */
LAB_PURE lab_u32 lab_route_choose(lab_u32 hash, lab_u32 ways) {
  return (lab_u32)((lab_u64)hash * ways >> 32);
}

#endif
