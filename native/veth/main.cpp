// SPDX-License-Identifier: GPL-2.0-or-later
// softroce-veth NEAR FAR MAP
//
// Pins an XSKMAP at MAP on a bpffs, keyed by interface, and lets NEAR and FAR, the two ends of a
// veth pair, send what they receive to its sockets, until the programs are detached and MAP is
// removed.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "../system/descriptor.hpp"

namespace {

using softroce::checked;

constexpr std::uint32_t kMapEntries = 256;  // interfaces

// Sends every frame of an interface to its socket: bpf_redirect_map(&xsks, ctx->ingress_ifindex,
// XDP_PASS).
int load_program(int map) {
  const auto insn = [](std::uint8_t code, std::uint8_t dst, std::uint8_t src, std::int16_t off,
                       std::int32_t imm) {
    bpf_insn made{};
    made.code = code;
    made.dst_reg = dst & 15;
    made.src_reg = src & 15;
    made.off = off;
    made.imm = imm;
    return made;
  };
  const std::array program = {
      insn(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, offsetof(xdp_md, ingress_ifindex), 0),
      insn(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
      insn(0, 0, 0, 0, 0),
      insn(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS),
      insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map),
      insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
  return checked(bpf_prog_load(BPF_PROG_TYPE_XDP, "veth_to_xsk", "GPL", program.data(),
                               program.size(), nullptr),
                 "load the XDP program");
}

void lead_to_sockets(const std::string& near, const std::string& far, const std::string& pinned) {
  const int map = checked(
      bpf_map_create(BPF_MAP_TYPE_XSKMAP, "xsks", sizeof(int), sizeof(int), kMapEntries, nullptr),
      "create an XSKMAP");
  unlink(pinned.c_str());
  checked(bpf_obj_pin(map, pinned.c_str()), "pin the XSKMAP");
  const int program = load_program(map);
  for (const std::string& interface : {near, far})
    checked(bpf_xdp_attach(static_cast<int>(if_nametoindex(interface.c_str())), program,
                           XDP_FLAGS_SKB_MODE, nullptr),
            "attach the XDP program");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("softroce-veth NEAR FAR MAP");
    lead_to_sockets(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softroce-veth: %s\n", error.what());
    return 1;
  }
}
