/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reads a frame's headers through one bounded cursor. BPF only. */
#ifndef SOFTROCE_LAB_PARSE_H
#define SOFTROCE_LAB_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>

#include "lab_fault.h"
#include "lab_route.h"

#define LAB_IP_FRAGMENT 0x3fff /* more fragments, or an offset */

struct lab_cursor {
  lab_u8 *pos;
  lab_u8 *end;
};

struct lab_bth { /* IBA 9.2 */
  lab_u8 opcode;
  lab_u8 flags;
  lab_u16 pkey;
  lab_u32 qpn; /* 8 reserved bits above */
  lab_u32 psn; /* acknowledge request and 7 reserved bits above */
} __attribute__((packed));

#define LAB_DETH_BYTES 8
#define LAB_24_BITS 0xffffff

/* The next `bytes` of the frame, or null if it ends before. */
LAB_PURE void *lab_take(struct lab_cursor *cursor, lab_u32 bytes) {
  lab_u8 *here = cursor->pos;

  if (here + bytes > cursor->end) return 0;
  cursor->pos = here + bytes;
  return here;
}

struct lab_frame {
  struct lab_cursor cursor; /* behind the UDP header, if `roce` */
  struct ethhdr *eth;
  struct iphdr *ip;
  struct lab_flow flow;
  lab_u32 length;
  lab_u32 roce;
};

/* An IPv4 header, with options, that fits its frame. */
LAB_PURE struct iphdr *lab_take_ip(struct lab_cursor *cursor) {
  lab_u8 *start = cursor->pos;
  struct iphdr *ip = lab_take(cursor, sizeof(*ip));

  if (!ip || ip->version != 4 || ip->ihl < 5) return 0;
  if (!lab_take(cursor, (ip->ihl - 5) * 4)) return 0;
  if (bpf_ntohs(ip->tot_len) < ip->ihl * 4 || start + bpf_ntohs(ip->tot_len) > cursor->end)
    return 0;
  return ip;
}

/* Ports of TCP and UDP; RoCEv2 is UDP to port 4791. Returns 0 if the header is cut off. */
LAB_PURE int lab_take_ports(struct lab_frame *frame) {
  lab_u8 proto = frame->flow.proto;
  lab_u16 *ports;

  if ((proto != IPPROTO_UDP && proto != IPPROTO_TCP) ||
      frame->ip->frag_off & bpf_htons(LAB_IP_FRAGMENT))
    return 1;
  ports = lab_take(&frame->cursor, 8);
  if (!ports) return 0;
  frame->flow.sport = bpf_ntohs(ports[0]);
  frame->flow.dport = bpf_ntohs(ports[1]);
  frame->roce = proto == IPPROTO_UDP && frame->flow.dport == LAB_ROCE_UDP_PORT;
  return 1;
}

/* Everything up to the ports, of an IPv4 frame whose Ethernet header is taken. 0: malformed. */
LAB_PURE int lab_parse_ip(struct lab_frame *frame) {
  frame->ip = lab_take_ip(&frame->cursor);
  if (!frame->ip) return 0;
  frame->flow.src = bpf_ntohl(frame->ip->saddr);
  frame->flow.dst = bpf_ntohl(frame->ip->daddr);
  frame->flow.proto = frame->ip->protocol;
  frame->flow.sport = frame->flow.dport = 0;
  frame->roce = 0;
  return lab_take_ports(frame);
}

/* What names the packet, and its BTH (null if it has none). */
LAB_PURE struct lab_bth *lab_parse_roce(const struct lab_frame *frame, struct lab_identity *id) {
  struct lab_cursor cursor = frame->cursor;
  struct lab_bth *bth = frame->roce ? lab_take(&cursor, sizeof(*bth)) : 0;
  struct lab_hdr *hdr;

  __builtin_memset(id, 0, sizeof(*id));
  id->src = frame->flow.src;
  id->dst = frame->flow.dst;
  id->kind = LAB_KIND_NONE;
  if (!bth || bth->opcode != LAB_BTH_OPCODE_UD_SEND_ONLY || !lab_take(&cursor, LAB_DETH_BYTES))
    return bth;
  hdr = lab_take(&cursor, LAB_HDR_BYTES);
  if (!hdr || hdr->version_kind >> 4 != LAB_HDR_VERSION) return bth;
  id->kind = hdr->version_kind & 0xf;
  id->attempt = hdr->attempt;
  id->operation = bpf_ntohs(hdr->operation);
  id->step = bpf_ntohs(hdr->step);
  id->message = bpf_ntohl(hdr->message);
  id->index = bpf_ntohl(hdr->index);
  return bth;
}

#endif
