/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reads a frame's headers through one bounded cursor. BPF only. */
#ifndef SOFTROCE_LAB_PARSE_H
#define SOFTROCE_LAB_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "lab_maps.h"
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
  struct iphdr *ip; /* one of the two */
  struct ipv6hdr *ip6;
  struct lab_flow flow;
  lab_u32 length;
  lab_u32 l4_offset; /* bytes before the header behind IP */
  lab_u32 ip_end;    /* bytes up to the end of the IP packet: padding may follow */
  lab_u32 roce;
};

/* An IPv4 header, with options, that fits its frame. 0: malformed. */
LAB_PURE int lab_take_ip(struct lab_frame *frame) {
  lab_u8 *start = frame->cursor.pos;
  struct iphdr *ip = lab_take(&frame->cursor, sizeof(*ip));
  lab_u32 header, total;

  if (!ip || ip->version != 4 || ip->ihl < 5) return 0;
  header = ip->ihl * 4;
  total = bpf_ntohs(ip->tot_len);
  if (!lab_take(&frame->cursor, header - sizeof(*ip))) return 0;
  if (total < header || start + total > frame->cursor.end) return 0;
  frame->ip = ip;
  frame->flow.src = bpf_ntohl(ip->saddr);
  frame->flow.dst = bpf_ntohl(ip->daddr);
  frame->flow.proto = ip->frag_off & bpf_htons(LAB_IP_FRAGMENT) ? 0 : ip->protocol;
  frame->l4_offset = ETH_HLEN + header;
  frame->ip_end = ETH_HLEN + total;
  return 1;
}

/* The IPv4 address behind the lab's prefix, in host order; 0: another address. */
LAB_PURE lab_u32 lab_address6(const struct in6_addr *address) {
  const lab_u32 *word = address->in6_u.u6_addr32;

  if (word[0] != bpf_htonl(LAB_IPV6_0) || word[1] != bpf_htonl(LAB_IPV6_1) ||
      word[2] != bpf_htonl(LAB_IPV6_2))
    return 0;
  return bpf_ntohl(word[3]);
}

/* An IPv6 header that fits its frame; extension headers are payload. 0: malformed. */
LAB_PURE int lab_take_ip6(struct lab_frame *frame) {
  lab_u8 *start = frame->cursor.pos;
  struct ipv6hdr *ip = lab_take(&frame->cursor, sizeof(*ip));
  lab_u32 total;

  if (!ip || ip->version != 6) return 0;
  total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
  if (start + total > frame->cursor.end) return 0;
  frame->ip6 = ip;
  frame->flow.src = lab_address6(&ip->saddr);
  frame->flow.dst = lab_address6(&ip->daddr);
  frame->flow.proto = ip->nexthdr;
  frame->l4_offset = ETH_HLEN + sizeof(*ip);
  frame->ip_end = ETH_HLEN + total;
  return 1;
}

/* Ports of TCP and UDP; RoCEv2 is UDP to port 4791. Returns 0 if the header is cut off. */
LAB_PURE int lab_take_ports(struct lab_frame *frame) {
  lab_u8 proto = frame->flow.proto;
  lab_u16 *ports;

  if (proto != IPPROTO_UDP && proto != IPPROTO_TCP) return 1;
  ports = lab_take(&frame->cursor, 8);
  if (!ports) return 0;
  frame->flow.sport = bpf_ntohs(ports[0]);
  frame->flow.dport = bpf_ntohs(ports[1]);
  frame->roce = proto == IPPROTO_UDP && frame->flow.dport == LAB_ROCE_UDP_PORT;
  return 1;
}

LAB_PURE int lab_is_ip(const struct lab_frame *frame) {
  return frame->eth->h_proto == bpf_htons(ETH_P_IP) ||
         frame->eth->h_proto == bpf_htons(ETH_P_IPV6);
}

/* Everything up to the ports, of an IP frame whose Ethernet header is taken. 0: malformed. */
LAB_PURE int lab_parse_ip(struct lab_frame *frame) {
  frame->ip = 0;
  frame->ip6 = 0;
  frame->flow.sport = frame->flow.dport = 0;
  frame->roce = 0;
  if (frame->eth->h_proto == bpf_htons(ETH_P_IP)) {
    if (!lab_take_ip(frame)) return 0;
  } else if (!lab_take_ip6(frame)) {
    return 0;
  }
  return lab_take_ports(frame);
}

/* What names the packet, all but its relative numbers. */
LAB_PURE void lab_parse_roce(const struct lab_frame *frame, struct lab_packet *packet) {
  struct lab_cursor cursor = frame->cursor;
  struct lab_bth *bth = frame->roce ? lab_take(&cursor, sizeof(*bth)) : 0;
  struct lab_identity *id = &packet->id;
  struct lab_hdr *hdr;

  __builtin_memset(packet, 0, sizeof(*packet));
  id->src = frame->flow.src;
  id->dst = frame->flow.dst;
  id->kind = LAB_KIND_NONE;
  packet->opcode = LAB_NO_OPCODE;
  if (!bth) return;
  packet->opcode = bth->opcode;
  packet->qpn = bpf_ntohl(bth->qpn) & LAB_24_BITS;
  packet->psn = bpf_ntohl(bth->psn) & LAB_24_BITS;
  if (bth->opcode != LAB_BTH_OPCODE_UD_SEND_ONLY || !lab_take(&cursor, LAB_DETH_BYTES)) return;
  hdr = lab_take(&cursor, LAB_HDR_BYTES);
  if (!hdr || hdr->version_kind >> 4 != LAB_HDR_VERSION) return;
  id->kind = hdr->version_kind & 0xf;
  id->attempt = hdr->attempt;
  id->operation = bpf_ntohs(hdr->operation);
  id->step = bpf_ntohs(hdr->step);
  id->message = bpf_ntohl(hdr->message);
  id->index = bpf_ntohl(hdr->index);
  packet->tail = bpf_ntohl(hdr->count) - id->index;
}

#endif
