/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * In place of a host's program while `benchmarks/wire.py` measures: notes when each frame arrived,
 * by the number that the frame carries, and takes it off the wire.
 *
 * Compile-time parameters: LAB_STAMPS (numbers from 0), LAB_INDEX_OFFSET and LAB_STAMP_OFFSET
 * (where in a frame its number and the moment it was sent lie).
 */
#include <uapi/linux/bpf.h>

#include "lab_records.h"

#define IP_TOS_OFFSET 15
#define BPF_F_MMAPABLE_ 1024 /* bcc's own bpf.h may be older than the flag */

BPF_F_TABLE("array", u32, struct lab_stamp, stamps, LAB_STAMPS, BPF_F_MMAPABLE_);

int stamp_port(struct xdp_md *ctx) {
  u64 now_ns = bpf_ktime_get_ns();
  u8 *frame = (u8 *)(long)ctx->data;
  struct lab_stamp *stamp;
  u32 index;

  if (frame + LAB_STAMP_OFFSET + sizeof(u64) > (u8 *)(long)ctx->data_end) return XDP_PASS;
  index = bpf_ntohl(*(u32 *)(frame + LAB_INDEX_OFFSET));
  stamp = stamps.lookup(&index);
  if (!stamp) return XDP_DROP;
  stamp->sent_ns = *(u64 *)(frame + LAB_STAMP_OFFSET);
  stamp->arrived_ns = now_ns;
  stamp->tos = frame[IP_TOS_OFFSET];
  stamp->copies++;
  return XDP_DROP;
}
