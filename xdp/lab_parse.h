/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads a frame's headers. BPF only. What is read is kept as numbers and offsets, never as pointers
 * into the frame: these would make every kind of frame one more state that the verifier follows to
 * the end, and each change of the frame's bytes by a helper voids them.
 */
#ifndef SOFTROCE_LAB_PARSE_H
#define SOFTROCE_LAB_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "lab_maps.h"
#include "lab_route.h"

#define LAB_IP_FRAGMENT 0x3fff /* more fragments, or an offset */

struct lab_bth { /* IBA 9.2 */
  lab_u8 opcode;
  lab_u8 flags;
  lab_u16 pkey;
  lab_u32 qpn; /* 8 reserved bits above */
  lab_u32 psn; /* acknowledge request and 7 reserved bits above */
} __attribute__((packed));

struct lab_roce_headers {
  struct lab_bth bth;
  lab_u8 deth[8];
  struct lab_hdr hdr;
} __attribute__((packed));

#define LAB_24_BITS 0xffffff

struct lab_frame {
  struct lab_flow flow;
  lab_u32 length;
  lab_u32 ipv6;
  lab_u32 l4_offset; /* bytes before the header behind IP */
  lab_u32 ip_end;    /* bytes up to the end of the IP packet: padding may follow */
  lab_u32 roce;
  struct lab_roce_headers headers; /* what was last read of them */
};

LAB_PURE void *lab_data(struct xdp_md *ctx) { return (void *)(long)ctx->data; }
LAB_PURE void *lab_data_end(struct xdp_md *ctx) { return (void *)(long)ctx->data_end; }

/* An IPv4 header, with options, that fits its frame. 0: malformed. */
LAB_PURE int lab_take_ip(struct xdp_md *ctx, struct lab_frame *frame) {
  struct iphdr *ip = lab_data(ctx) + ETH_HLEN;
  lab_u32 header, total;

  if ((void *)(ip + 1) > lab_data_end(ctx) || ip->version != 4) return 0;
  header = ip->ihl * 4;
  total = bpf_ntohs(ip->tot_len);
  if (header < sizeof(*ip) || total < header || ETH_HLEN + total > frame->length) return 0;
  frame->ipv6 = 0;
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
  lab_u64 differs = word[0] ^ bpf_htonl(LAB_IPV6_0);

  differs |= word[1] ^ bpf_htonl(LAB_IPV6_1);
  differs |= word[2] ^ bpf_htonl(LAB_IPV6_2);
  return bpf_ntohl(word[3]) & ~(lab_u32)-lab_nonzero(differs);
}

/* An IPv6 header that fits its frame; extension headers are payload. 0: malformed. */
LAB_PURE int lab_take_ip6(struct xdp_md *ctx, struct lab_frame *frame) {
  struct ipv6hdr *ip = lab_data(ctx) + ETH_HLEN;
  lab_u32 total;

  if ((void *)(ip + 1) > lab_data_end(ctx) || ip->version != 6) return 0;
  total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
  if (ETH_HLEN + total > frame->length) return 0;
  frame->ipv6 = 1;
  frame->flow.src = lab_address6(&ip->saddr);
  frame->flow.dst = lab_address6(&ip->daddr);
  /* A route does not depend on the IP version: an echo takes the same path over both. */
  frame->flow.proto = ip->nexthdr == IPPROTO_ICMPV6 ? IPPROTO_ICMP : ip->nexthdr;
  frame->l4_offset = ETH_HLEN + sizeof(*ip);
  frame->ip_end = ETH_HLEN + total;
  return 1;
}

/* Ports of TCP and UDP; RoCEv2 is UDP to port 4791. Returns 0 if the header is cut off. */
LAB_PURE int lab_take_ports(struct xdp_md *ctx, struct lab_frame *frame) {
  lab_u8 proto = frame->flow.proto;
  lab_u16 ports[4];

  frame->flow.sport = frame->flow.dport = 0;
  frame->roce = 0;
  if (proto != IPPROTO_UDP && proto != IPPROTO_TCP) return 1;
  if (bpf_xdp_load_bytes(ctx, frame->l4_offset, ports, sizeof(ports))) return 0;
  frame->flow.sport = bpf_ntohs(ports[0]);
  frame->flow.dport = bpf_ntohs(ports[1]);
  frame->roce = proto == IPPROTO_UDP && frame->flow.dport == LAB_ROCE_UDP_PORT;
  return 1;
}

/* Everything up to the ports, of a frame with this EtherType. 0: malformed. */
LAB_PURE int lab_parse_ip(struct xdp_md *ctx, struct lab_frame *frame, lab_u16 ethertype) {
  if (ethertype == bpf_htons(ETH_P_IP)) {
    if (!lab_take_ip(ctx, frame)) return 0;
  } else if (!lab_take_ip6(ctx, frame)) {
    return 0;
  }
  return lab_take_ports(ctx, frame);
}

LAB_PURE int lab_is_ip(lab_u16 ethertype) {
  return ethertype == bpf_htons(ETH_P_IP) || ethertype == bpf_htons(ETH_P_IPV6);
}

/* Reads the BTH, and what may be a DETH and the lab header. 0: there is no BTH. */
LAB_PURE int lab_take_roce(struct xdp_md *ctx, struct lab_frame *frame) {
  lab_u32 at = frame->l4_offset + 8;

  if (!frame->roce) return 0;
  if (!bpf_xdp_load_bytes(ctx, at, &frame->headers, sizeof(frame->headers))) return 1;
  frame->headers.hdr.version_kind = 0;
  return !bpf_xdp_load_bytes(ctx, at, &frame->headers.bth, sizeof(frame->headers.bth));
}

/* The destination's queue pair. 0: there is no BTH. */
LAB_PURE int lab_load_qpn(struct xdp_md *ctx, const struct lab_frame *frame, lab_u32 *qpn) {
  struct lab_bth bth;

  if (bpf_xdp_load_bytes(ctx, frame->l4_offset + 8, &bth, sizeof(bth))) return 0;
  *qpn = bpf_ntohl(bth.qpn) & LAB_24_BITS;
  return 1;
}

/* Whether the lab header is of a version that names packets: both versions name them alike. */
LAB_PURE int lab_names_packet(const struct lab_hdr *hdr) {
  lab_u32 version = hdr->version_kind >> 4;

  return version == LAB_HDR_VERSION || version == LAB_OPERATION_VERSION;
}

/* What names the packet, all but its relative numbers. */
LAB_PURE void lab_parse_roce(struct xdp_md *ctx, struct lab_frame *frame,
                             struct lab_packet *packet) {
  const struct lab_hdr *hdr = &frame->headers.hdr;
  const struct lab_bth *bth = &frame->headers.bth;
  struct lab_identity *id = &packet->id;

  __builtin_memset(packet, 0, sizeof(*packet));
  id->src = frame->flow.src;
  id->dst = frame->flow.dst;
  id->kind = LAB_KIND_NONE;
  packet->kind_bit = LAB_KIND_BIT_OTHER;
  packet->opcode = LAB_NO_OPCODE;
  if (!lab_take_roce(ctx, frame)) return;
  packet->opcode = bth->opcode;
  packet->qpn = bpf_ntohl(bth->qpn) & LAB_24_BITS;
  packet->psn = bpf_ntohl(bth->psn) & LAB_24_BITS;
  if (bth->opcode != LAB_BTH_OPCODE_UD_SEND_ONLY || !lab_names_packet(hdr)) return;
  packet->trimmed = hdr->version_kind / LAB_HDR_TRIMMED & 1;
  id->kind = hdr->version_kind & LAB_HDR_KIND;
  packet->kind_bit = lab_kind_bit(id->kind);
  id->attempt = bpf_ntohs(hdr->attempt);
  id->operation = bpf_ntohs(hdr->operation);
  id->step = bpf_ntohs(hdr->step);
  id->message = bpf_ntohl(hdr->message);
  id->index = bpf_ntohl(hdr->index);
  packet->tail = (bpf_ntohl(hdr->code_count) & LAB_COUNT_MASK) - id->index;
}

#endif
