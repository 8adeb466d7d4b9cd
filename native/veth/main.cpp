// SPDX-License-Identifier: GPL-2.0-or-later
// softroce-veth NEAR FAR BYTES SECONDS MAP
//
// RC WRITEs of BYTES from the interface NEAR to FAR, the two ends of a veth pair, for SECONDS. MAP
// is where an XSKMAP may be pinned, on a bpffs. Prints bytes a second.
//
// softroce-veth NEAR FAR MAP
//
// Pins the XSKMAP there, keyed by interface, and lets both ends send what they receive to its
// sockets, until the programs are detached and MAP is removed.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "../endpoint/perf.hpp"
#include "../live/host.hpp"
#include "../system/clock.hpp"

namespace {

using namespace softroce;

constexpr std::uint32_t kPathMtu = 2048;
constexpr std::uint32_t kMapEntries = 256;  // interfaces
constexpr std::uint32_t kSlots = 8;         // messages in memory, as in `lab bench verbs`
constexpr std::uint32_t kDepth = 128;
constexpr std::uint32_t kAccess = kLocalWrite | kRemoteWrite;
constexpr std::chrono::seconds kLastWait{20};

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

std::uint64_t mac_of(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/address");
  std::string text;
  file >> text;
  std::erase(text, ':');
  return std::stoull(text, nullptr, 16);
}

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

class End {
 public:
  End(const std::string& interface, std::uint32_t address, const std::string& map,
      std::int64_t epoch_ns, int cpu, std::uint64_t bytes)
      : memory_(bytes) {
    config_.messages.gid = Gid::of_ipv4(address);
    config_.messages.path_mtu = kPathMtu;
    config_.port.interface = interface;
    config_.port.ifindex = if_nametoindex(interface.c_str());
    config_.port.xsks_map_path = map;
    config_.port.generic = true;
    config_.mac = mac_of(interface);
    config_.epoch_ns = epoch_ns;
    config_.cpu = cpu;
    host_ = std::make_unique<Host>(config_);
    host_->start();
    host_->call([this](Rnic& rnic, Time) {
      key_ = rnic.memory().add(memory_.data(), memory_.size(), kAccess);
      queue_ = rnic.create_cq();
      const QpConfig qp{.type = QpType::rc,
                        .protection_domain = 0,
                        .cap = {kDepth, 1, 1, 1, 0},
                        .send_cq = queue_,
                        .receive_cq = queue_};
      done(rnic.create_qp(qp, number_), "create a queue pair");
    });
  }

  void connect(const End& peer) {
    host_->call([&](Rnic& rnic, Time now) {
      QpAttr attr;
      attr.state = QpState::init;
      attr.access = kAccess;
      done(
          rnic.modify_qp(number_, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccess, now),
          "INIT");
      attr.state = QpState::rtr;
      attr.path_mtu = kPathMtu;
      attr.dest_qp = peer.number_;
      attr.address.destination = peer.config_.messages.gid;
      attr.address.mac = peer.config_.mac;
      attr.timeout = 19;  // 2 s: nothing is lost here, and an emulated guest may stand still
      attr.retry_count = attr.rnr_retry = 7;
      done(rnic.modify_qp(number_, attr,
                          kAttrState | kAttrAddress | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn |
                              kAttrMaxDestReads | kAttrMinRnrTimer,
                          now),
           "RTR");
      attr.state = QpState::rts;
      done(rnic.modify_qp(number_, attr,
                          kAttrState | kAttrSqPsn | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry |
                              kAttrMaxReads,
                          now),
           "RTS");
    });
  }

  PerfResult write(const End& peer, std::uint32_t bytes, std::chrono::nanoseconds duration) {
    PerfConfig config;
    config.bytes = bytes;
    config.slots = kSlots;
    config.depth = kDepth;
    config.signal_every = 1;
    config.duration = duration.count() * kNanosecond;
    config.send_address = reinterpret_cast<std::uintptr_t>(memory_.data());
    config.lkey = key_;
    config.qp = number_;
    config.remote_address = reinterpret_cast<std::uintptr_t>(peer.memory_.data());
    config.rkey = peer.key_;
    const auto run = make_perf_stream(config, queue_);
    host_->run(run);
    if (!run->wait(duration + kLastWait)) throw std::runtime_error("it does not end");
    return run->result();
  }

 private:
  static void done(int error, const char* what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
  }

  std::vector<std::uint8_t> memory_;
  HostConfig config_;
  std::unique_ptr<Host> host_;  // after the memory that it may touch
  std::uint32_t key_ = 0, number_ = 0;
  std::shared_ptr<CompletionQueue> queue_;
};

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

void measure(const std::string& near, const std::string& far, std::uint32_t bytes, double seconds,
             const std::string& pinned) {
  lead_to_sockets(near, far, pinned);
  const std::int64_t epoch_ns = monotonic_ns();
  const std::uint64_t memory = std::uint64_t{bytes} * kSlots;
  End source(near, 0x0A090001, pinned, epoch_ns, 0, memory);
  End target(far, 0x0A090002, pinned, epoch_ns, 1, memory);
  source.connect(target);
  target.connect(source);
  const auto duration = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  const PerfResult result = source.write(target, bytes, duration);
  unlink(pinned.c_str());
  if (result.end != PerfEnd::done)
    throw std::runtime_error("it failed, status " +
                             std::to_string(static_cast<int>(result.status)));
  const double elapsed_s = static_cast<double>(result.ended_at - result.began_at) / 1e12;
  std::printf("%.0f\n", static_cast<double>(result.completed * bytes) / elapsed_s);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 4) return lead_to_sockets(argv[1], argv[2], argv[3]), 0;
    if (argc != 6) throw std::runtime_error("softroce-veth NEAR FAR [BYTES SECONDS] MAP");
    measure(argv[1], argv[2], static_cast<std::uint32_t>(std::stoul(argv[3])), std::stod(argv[4]),
            argv[5]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softroce-veth: %s\n", error.what());
    return 1;
  }
}
