/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The least that XDP programs can do to move a frame along a path: no parsing, no counting, no
 * addresses. `lab doctor` compiles it to see whether XDP works, and tests of the compiler do.
 *
 * Compile-time parameter: LAB_PORTS (largest ifindex + 1).
 */
BPF_DEVMAP(plain_egress, LAB_PORTS); /* ingress ifindex -> the one port to leave by */
BPF_XSKMAP(plain_xsks, LAB_PORTS);   /* a host's ifindex -> its AF_XDP socket */

int plain_switch(struct xdp_md *ctx) { return plain_egress.redirect_map(ctx->ingress_ifindex, 0); }

int plain_host(struct xdp_md *ctx) {
  return plain_xsks.redirect_map(ctx->ingress_ifindex, XDP_PASS);
}
