/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The last packet of an RC message: a SEND or an RDMA WRITE whose opcode has LAST or ONLY. It has
 * no number of its transmission, but retransmissions have the PSN of the first one (IBA 9.7.5.1),
 * and a requester sends new PSNs in ascending order. So a tail is a retransmission if its
 * connection sent that PSN or a later one as a tail before. Where the sender's packets enter the
 * fabric all of them pass, so it is found there, for all links.
 */
#ifndef SOFTROCE_LAB_TAIL_H
#define SOFTROCE_LAB_TAIL_H

#include "lab_hash.h"

#define LAB_RC_TAILS 0xc00f3cU /* bit n: opcode n of RC ends a SEND or a WRITE (IBA 9.2.1) */
#define LAB_TAIL_SENT 0x1000000U
#define LAB_PSN_MASK 0xffffffU

/* Of a sender's destination QP: which tails were sent more than once. */
struct lab_tail_key {
  lab_u32 src;
  lab_u32 dst;
  lab_u32 qpn;
  lab_u32 psn;
};

LAB_PURE lab_u32 lab_ends_rc_message(lab_u32 opcode) {
  return opcode < 32 && LAB_RC_TAILS >> (opcode & 31) & 1;
}

/*
 * Whether the connection sends the tail with this PSN for the first time, by 24-bit serial
 * arithmetic. `*newest` is its newest tail: LAB_TAIL_SENT and the PSN, or 0 before the first one.
 */
LAB_PURE lab_u32 lab_tail_is_new(lab_u32 *newest, lab_u32 psn) {
  lab_u32 behind = (psn - *newest - 1) & LAB_PSN_MASK; /* 0: the next PSN */

  if (*newest & LAB_TAIL_SENT && behind >= (LAB_PSN_MASK + 1) / 2) return 0;
  *newest = psn | LAB_TAIL_SENT;
  return 1;
}

#endif
