/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Neighbour discovery for the gateway fe80::1 (RFC 4861, sections 4.3 and 4.4). BPF only. */
#ifndef SOFTROCE_LAB_ND_H
#define SOFTROCE_LAB_ND_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>

#include "lab_hash.h"

#define LAB_ND_SOLICITATION 135
#define LAB_ND_ADVERTISEMENT 136
#define LAB_ND_ROUTER_SOLICITED_OVERRIDE 0xe0000000U
#define LAB_ND_TARGET_LINK_ADDRESS 2 /* option, of one unit of 8 bytes */
#define LAB_ND_HOP_LIMIT 255

struct lab_nd_frame {
  struct ethhdr eth;
  struct ipv6hdr ip;
  lab_u8 type;
  lab_u8 code;
  lab_u16 check;
  lab_u32 flags;
  lab_u32 target[4];
  lab_u8 option;
  lab_u8 option_units;
  lab_u8 option_mac[6];
} __attribute__((packed));

#define LAB_ND_ICMP_BYTES (sizeof(struct lab_nd_frame) - ETH_HLEN - sizeof(struct ipv6hdr))

LAB_PURE int lab_nd_asks_gateway(const struct lab_nd_frame *frame) {
  const lab_u32 *asker = frame->ip.saddr.in6_u.u6_addr32;

  return frame->ip.nexthdr == IPPROTO_ICMPV6 && frame->ip.hop_limit == LAB_ND_HOP_LIMIT &&
         frame->ip.payload_len == bpf_htons(LAB_ND_ICMP_BYTES) &&
         frame->type == LAB_ND_SOLICITATION && frame->target[0] == bpf_htonl(0xfe800000U) &&
         !frame->target[1] && !frame->target[2] && frame->target[3] == bpf_htonl(1) &&
         (asker[0] | asker[1] | asker[2] | asker[3]); /* else: is the address taken? It is not. */
}

/* RFC 1071 over the pseudo-header of RFC 8200, section 8.1, and the message. */
LAB_PURE lab_u16 lab_nd_checksum(struct lab_nd_frame *frame) {
  lab_u32 seed = bpf_htons(LAB_ND_ICMP_BYTES) + bpf_htons(IPPROTO_ICMPV6);
  lab_u64 sum = bpf_csum_diff(0, 0, (void *)&frame->ip.saddr,
                              2 * sizeof(struct in6_addr) + LAB_ND_ICMP_BYTES, seed);

  sum = (sum & 0xffff) + (sum >> 16 & 0xffff);
  return ~(lab_u16)(sum + (sum >> 16));
}

/* Turns the solicitation into an advertisement of the gateway's MAC address. */
LAB_PURE void lab_nd_answer(struct lab_nd_frame *frame, const lab_u8 *mac) {
  __builtin_memcpy(frame->eth.h_dest, frame->eth.h_source, 6);
  __builtin_memcpy(frame->eth.h_source, mac, 6);
  frame->ip.daddr = frame->ip.saddr;
  __builtin_memcpy(&frame->ip.saddr, frame->target, sizeof(frame->target));
  frame->type = LAB_ND_ADVERTISEMENT;
  frame->flags = bpf_htonl(LAB_ND_ROUTER_SOLICITED_OVERRIDE);
  frame->option = LAB_ND_TARGET_LINK_ADDRESS;
  frame->option_units = 1;
  __builtin_memcpy(frame->option_mac, mac, 6);
  frame->check = 0;
  frame->check = lab_nd_checksum(frame);
}

#endif
