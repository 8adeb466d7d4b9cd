// SPDX-License-Identifier: GPL-2.0-or-later
// library_frames NAMESPACE INTERFACE ADDRESS FRAMES SEED
//
// A process that uses libibverbs.so.1 of native/verbs: a live RC connection, a UC and a UD queue
// pair. From INTERFACE in the network namespace NAMESPACE, a path, come FRAMES frames of a peer
// that sends anything at all, besides those of an honest one. Both have ADDRESS, which is IPv4. It
// ends with 1, and prints the reason, if memory is written that was never granted, if memory grows,
// or if the connection cannot be brought up again and used.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "../engine/codec/codec.hpp"
#include "../system/clock.hpp"
#include "../system/descriptor.hpp"
#include "live_peer.hpp"
#include "number.hpp"

namespace {

using namespace softroce;
using namespace softroce::fuzz;

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::uint32_t kBatch = 32;  // frames in a system call; the port's ring holds far more
constexpr std::uint64_t kCheckEvery = 4096, kProveEvery = 65536;
constexpr std::uint64_t kWarmUp = 200'000;  // frames, after which memory does not grow
constexpr std::size_t kMostGrowthBytes = 64 << 20;
constexpr int kProofTurns = 200'000;
constexpr std::size_t kSource = 14 + 12;       // of an IPv4 packet in a frame
constexpr std::size_t kMostFrameBytes = 2200;  // of the interface
constexpr std::size_t kWindowBegin = kRegionBytes / 4, kWindowBytes = kRegionBytes / 4;
constexpr int kRemoteAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void need(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(getpagesize());
}

void enter(const Descriptor& netns) {
  checked(setns(netns.get(), CLONE_NEWNET), "enter a network namespace");
}

Descriptor opened(const char* path) { return Descriptor(checked(open(path, O_RDONLY), path)); }

// Another host's end of a cable.
class Wire {
 public:
  Wire(const char* netns, const char* interface) {
    const Descriptor home = opened("/proc/thread-self/ns/net");
    enter(opened(netns));
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = __builtin_bswap16(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
    const int yes = 1, buffer = 16 << 20;
    need(fd_ >= 0 && bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
         "no packet socket at the interface");
    setsockopt(fd_, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes);
    setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    setsockopt(fd_, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
    enter(home);
  }
  ~Wire() { close(fd_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void add(Frame frame) {
    if (frame.size() < ETH_HLEN) frame.resize(ETH_HLEN);  // the kernel takes none that are shorter
    if (frame.size() > kMostFrameBytes) frame.resize(kMostFrameBytes);
    waiting_.push_back(std::move(frame));
  }
  void flush() {
    std::array<iovec, kBatch> parts;
    std::array<mmsghdr, kBatch> messages{};
    for (std::size_t at = 0; at < waiting_.size();) {
      unsigned count = 0;
      for (; count < kBatch && at + count < waiting_.size(); ++count) {
        Frame& frame = waiting_[at + count];
        parts[count] = {frame.data(), frame.size()};
        messages[count].msg_hdr.msg_iov = &parts[count];
        messages[count].msg_hdr.msg_iovlen = 1;
      }
      const int sent = sendmmsg(fd_, messages.data(), count, 0);
      if (sent < 0 && errno != EAGAIN && errno != ENOBUFS)
        throw std::system_error(errno, std::generic_category(), "sendmmsg");
      if (sent > 0) at += static_cast<std::size_t>(sent);
    }
    waiting_.clear();
  }
  // False: there is none.
  bool receive(Frame& frame) {
    frame.resize(kMostFrameBytes);
    const ssize_t bytes = recv(fd_, frame.data(), frame.size(), 0);
    if (bytes < 0) return false;
    frame.resize(static_cast<std::size_t>(bytes));
    return true;
  }

 private:
  int fd_ = -1;
  std::vector<Frame> waiting_;
};

// Memory between guards that the library knows.
struct Registered {
  Registered(ibv_pd* pd_, int access_)
      : pd(pd_), access(access_), bytes(kGuardBytes + kRegionBytes + kGuardBytes, kGuard) {
    renew();
  }
  // The key may have been invalidated.
  void renew() {
    if (mr != nullptr) ibv_dereg_mr(mr);
    mr = ibv_reg_mr(pd, data(), kRegionBytes, access);
    need(mr != nullptr, "memory is not registered");
  }
  std::uint8_t* data() { return bytes.data() + kGuardBytes; }
  Memory memory() { return {reinterpret_cast<std::uintptr_t>(data()), mr->rkey}; }
  bool is_untouched(std::size_t first, std::size_t last) const {
    for (std::size_t i = first; i < last; ++i)
      if (bytes[i] != kGuard) return false;
    return true;
  }
  bool guards_stand() const {
    return is_untouched(0, kGuardBytes) && is_untouched(kGuardBytes + kRegionBytes, bytes.size());
  }
  ibv_pd* pd;
  int access;
  Frame bytes;
  ibv_mr* mr = nullptr;
};

// What uses the library.
class Victim {
 public:
  explicit Victim(Random& random) : random_(random) {
    ibv_device** list = ibv_get_device_list(nullptr);
    context_ = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    need(context_ != nullptr, "no device");
    ibv_free_device_list(list);
    pd_ = ibv_alloc_pd(context_);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 1000;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    cq_ = ibv_create_cq_ex(context_, &attr);
    need(pd_ != nullptr && cq_ != nullptr && ibv_query_gid(context_, 1, 0, &gid_) == 0,
         "the device cannot be used");
    constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
    for (const int access : {kLocal | kRemoteAccess, int{IBV_ACCESS_REMOTE_READ}, kLocal, kLocal,
                             kLocal | IBV_ACCESS_MW_BIND})
      regions_.push_back(std::make_unique<Registered>(pd_, access));
    for (std::size_t i = 0; i < kTypes.size(); ++i) qps_[i] = make(kTypes[i]);
  }

  // Connects to the queue pair of the peer, and tells what a peer can know.
  void connect(const Side& peer, std::array<Target, 3>& targets) {
    if (window_ != nullptr) ibv_dealloc_mw(window_);
    for (auto& region : regions_) region->renew();
    psn_ = below(random_, 1 << 24);
    for (std::size_t i = 0; i < qps_.size(); ++i) {
      bring_up(*qps_[i], kTypes[i], peer);
      Target& target = targets[i];
      target.gid = Gid::of_ipv4(load_ip());
      target.peer = peer.rnic.gid();
      target.qp = qps_[i]->qp_num;
      target.service = kServices[i];
      target.qkey = kQkey;
      target.next_request = peer.psn;
      target.next_response = psn_;
      target.regions.clear();
      for (auto& region : regions_) target.regions.push_back(region->memory());
    }
    const Memory window = bind_window();
    for (auto& target : targets) target.regions.push_back(window);
  }
  std::uint32_t number() const { return qps_[0]->qp_num; }
  std::uint32_t psn() const { return psn_; }
  Gid gid() const { return Gid::of_ipv4(load_ip()); }
  std::uint8_t* open() { return regions_[0]->data(); }
  Memory memory() { return regions_[0]->memory(); }

  void work(const Memory& there) {
    for (ibv_qp* qp : qps_)
      if (below(random_, 2)) post_receive(qp);
    if (below(random_, 2)) post_send(there);
  }
  // Turns the engine.
  void poll(int turns = 8) {
    std::array<ibv_wc, 64> wc;
    while (turns-- > 0)
      if (below(random_, 2))
        need(ibv_poll_cq(ibv_cq_ex_to_cq(cq_), wc.size(), wc.data()) >= 0,
             "a completion queue cannot be polled");
      else
        poll_extended();
  }
  bool broken() const {
    for (ibv_qp* qp : qps_) {
      ibv_qp_attr attr;
      ibv_qp_init_attr init;
      if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) != 0 || attr.qp_state != IBV_QPS_RTS)
        return true;
    }
    return false;
  }
  void check() const {
    for (const auto& region : regions_)
      need(region->guards_stand(), "memory outside a region was written");
    need(regions_[1]->is_untouched(0, regions_[1]->bytes.size()),
         "a region without write was written");
    need(regions_[2]->is_untouched(0, regions_[2]->bytes.size()),
         "a region without access was written");
    const Registered& windowed = *regions_[4];
    need(
        windowed.is_untouched(0, kGuardBytes + kWindowBegin) &&
            windowed.is_untouched(kGuardBytes + kWindowBegin + kWindowBytes, windowed.bytes.size()),
        "a region was written outside its window");
  }

 private:
  static constexpr std::array kTypes = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  static constexpr std::array<std::uint8_t, 3> kServices = {0x00, 0x20, 0x60};

  static constexpr std::uint64_t kOperations =
      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |
      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
      IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

  std::uint32_t load_ip() const { return load32(gid_.raw + 12); }

  void poll_extended() {
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq_, &attr) != 0) return;
    do {
      if (cq_->status == IBV_WC_SUCCESS) {
        ibv_wc_read_opcode(cq_);
        ibv_wc_read_byte_len(cq_);
        ibv_wc_read_imm_data(cq_);
      }
    } while (ibv_next_poll(cq_) == 0);
    ibv_end_poll(cq_);
  }

  ibv_qp* make(ibv_qp_type type) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_);
    init.qp_type = type;
    init.cap = {64, 64, 3, 3, 128};
    init.pd = pd_;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = type == IBV_QPT_RC ? kOperations : IBV_QP_EX_WITH_SEND;
    ibv_qp* qp = ibv_create_qp_ex(context_, &init);
    need(qp != nullptr, "no queue pair");
    return qp;
  }

  void bring_up(ibv_qp& qp, ibv_qp_type type, const Side& peer) {
    const bool reliable = type == IBV_QPT_RC, connected = type != IBV_QPT_UD;
    ibv_qp_attr attr{};
    const auto to = [&](ibv_qp_state state, int mask) {
      attr.qp_state = state;
      need(ibv_modify_qp(&qp, &attr, mask | IBV_QP_STATE) == 0, "a queue pair is not modified");
    };
    attr.port_num = 1;
    attr.qp_access_flags = kRemoteAccess;
    attr.qkey = kQkey;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp;
    attr.rq_psn = peer.psn;
    attr.sq_psn = psn_;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 10;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid_;
    store32(attr.ah_attr.grh.dgid.raw + 12, static_cast<std::uint32_t>(peer.rnic.gid().low));
    to(IBV_QPS_RESET, 0);
    to(IBV_QPS_INIT,
       IBV_QP_PKEY_INDEX | IBV_QP_PORT | (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY));
    to(IBV_QPS_RTR,
       (connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) |
           (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    to(IBV_QPS_RTS, IBV_QP_SQ_PSN | (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                              : 0));
  }

  // The only way to a part of the last region; a frame may invalidate it.
  Memory bind_window() {
    window_ = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    need(window_ != nullptr, "no window");
    const Memory memory{reinterpret_cast<std::uintptr_t>(regions_[4]->data()) + kWindowBegin,
                        ibv_inc_rkey(window_->rkey)};
    ibv_send_wr request{}, *bad = nullptr;
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw.mw = window_;
    request.bind_mw.rkey = memory.key;
    request.bind_mw.bind_info = {regions_[4]->mr, memory.address, kWindowBytes, kRemoteAccess};
    need(ibv_post_send(qps_[0], &request, &bad) == 0, "a window is not bound");
    return memory;
  }

  ibv_sge local(std::uint32_t most) {
    Registered& scratch = *regions_[3];
    const std::uint32_t length = below(random_, most + 1);
    return {
        reinterpret_cast<std::uintptr_t>(scratch.data()) + below(random_, kRegionBytes - length),
        length, scratch.mr->lkey};
  }
  void post_receive(ibv_qp* qp) {
    std::array<ibv_sge, 2> to = {local(4000), local(4000)};
    ibv_recv_wr request{}, *bad = nullptr;
    request.sg_list = to.data();
    request.num_sge = 2;
    ibv_post_recv(qp, &request, &bad);
  }
  void post_send(const Memory& there) {
    static constexpr std::array kOpcodes = {IBV_WR_SEND,
                                            IBV_WR_SEND_WITH_IMM,
                                            IBV_WR_SEND_WITH_INV,
                                            IBV_WR_RDMA_READ,
                                            IBV_WR_RDMA_WRITE,
                                            IBV_WR_RDMA_WRITE_WITH_IMM,
                                            IBV_WR_ATOMIC_CMP_AND_SWP,
                                            IBV_WR_ATOMIC_FETCH_AND_ADD};
    std::array<ibv_sge, 2> from = {local(3000), local(3000)};
    ibv_send_wr request{}, *bad = nullptr;
    request.opcode = kOpcodes[below(random_, kOpcodes.size())];
    request.sg_list = from.data();
    request.num_sge = 2;
    request.send_flags = below(random_, 2) ? IBV_SEND_SIGNALED : 0;
    const std::uint64_t address = there.address + 8 * below(random_, 64);
    if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
        request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      from[0].addr = reinterpret_cast<std::uintptr_t>(regions_[3]->data());
      from[0].length = 8;
      request.num_sge = 1;
      request.wr.atomic.remote_addr = address;
      request.wr.atomic.rkey = there.key;
    } else {
      request.wr.rdma.remote_addr = address;
      request.wr.rdma.rkey = there.key;
    }
    if (request.opcode == IBV_WR_SEND_WITH_INV) request.invalidate_rkey = below(random_, 1 << 20);
    if (below(random_, 2))
      ibv_post_send(qps_[0], &request, &bad);
    else
      build(request);
  }
  // The same by ibv_wr_*.
  void build(const ibv_send_wr& request) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(qps_[0]);
    const std::uint64_t address = request.wr.rdma.remote_addr;
    const std::uint32_t key = request.wr.rdma.rkey;
    ibv_wr_start(qp);
    qp->wr_flags = request.send_flags;
    switch (request.opcode) {
      case IBV_WR_SEND:
        ibv_wr_send(qp);
        break;
      case IBV_WR_SEND_WITH_IMM:
        ibv_wr_send_imm(qp, 0);
        break;
      case IBV_WR_SEND_WITH_INV:
        ibv_wr_send_inv(qp, request.invalidate_rkey);
        break;
      case IBV_WR_RDMA_READ:
        ibv_wr_rdma_read(qp, key, address);
        break;
      case IBV_WR_RDMA_WRITE:
        ibv_wr_rdma_write(qp, key, address);
        break;
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        ibv_wr_rdma_write_imm(qp, key, address, 0);
        break;
      case IBV_WR_ATOMIC_CMP_AND_SWP:
        ibv_wr_atomic_cmp_swp(qp, request.wr.atomic.rkey, request.wr.atomic.remote_addr, 0, 1);
        break;
      default:
        ibv_wr_atomic_fetch_add(qp, request.wr.atomic.rkey, request.wr.atomic.remote_addr, 1);
    }
    ibv_wr_set_sge_list(qp, static_cast<std::size_t>(request.num_sge), request.sg_list);
    ibv_wr_complete(qp);
  }

  Random& random_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq_ex* cq_ = nullptr;
  ibv_mw* window_ = nullptr;
  ibv_gid gid_{};
  std::uint32_t psn_ = 0;
  std::array<ibv_qp*, 3> qps_{};
  std::vector<std::unique_ptr<Registered>> regions_;  // open, readable, closed, scratch
};

class Attack {
 public:
  Attack(const char* netns, const char* interface, std::uint32_t address, std::uint64_t seed)
      : random_(seed), wire_(netns, interface), peer_(address, random_) {
    connect();
  }

  void run(std::uint64_t frames) {
    std::size_t before = 0;
    for (std::uint64_t sent = 0; sent < frames; sent += kBatch) {
      work();
      for (std::uint32_t i = 0; i < kBatch; ++i)
        wire_.add(forger_.lie(targets_[below(random_, 4) ? 0 : below(random_, targets_.size())]));
      wire_.flush();
      victim_.poll();
      if (sent % kCheckEvery == 0) check();
      if (sent % kProveEvery == 0) prove();
      if (sent >= kWarmUp && before == 0) before = resident_bytes();
    }
    check();
    prove();
    need(before == 0 || resident_bytes() < before + kMostGrowthBytes, "memory grows");
  }
  std::uint64_t connections() const { return connections_; }

 private:
  Time now() const { return (monotonic_ns() - epoch_ns_) * kNanosecond; }

  void connect() {
    peer_.psn = below(random_, 1 << 24);
    victim_.connect(peer_, targets_);
    peer_.connect(victim_.gid(), victim_.number(), victim_.psn(), now());
    ++connections_;
  }

  void work() {
    victim_.work(peer_.open.memory());
    if (below(random_, 2)) peer_.post_receive(now());
    if (below(random_, 2)) peer_.post_send(victim_.memory(), now());
    pump(8, true);
    if (peer_.rnic.next_timeout() <= now()) peer_.rnic.handle_timeout(now());
    peer_.cq->poll(1000);
    peer_.rnic.take_async_events();
    if (victim_.broken() || peer_.broken()) connect();
  }

  // Frames between the honest peer and the victim; some are lost.
  void pump(int most, bool lossy) {
    Packet packet;
    for (int n = 0; n < most && peer_.rnic.poll_packet(packet, now()); ++n) {
      Frame frame(kMostPathMtu + kMostOverheadBytes);
      frame.resize(encode(packet, 1, frame.data()));
      peer_.rnic.packet_done(now());
      forger_.saw(targets_[0], packet, frame);
      if (!lossy || below(random_, 16) != 0) wire_.add(std::move(frame));
    }
    wire_.flush();
    victim_.poll();
    for (Frame frame; wire_.receive(frame);) {
      if (decode(frame.data(), frame.size(), packet)) continue;  // of the kernel, such as ICMP
      peer_.rnic.handle_packet(packet, now());
      // Sent back: a switch drops what has another host's address as its source.
      std::swap_ranges(&frame[kSource], &frame[kSource + 4], &frame[kSource + 4]);
      forger_.saw(std::move(frame));
    }
  }

  void check() const {
    victim_.check();
    peer_.check();
  }

  // The connection, established again, carries a WRITE of known bytes.
  void prove() {
    connect();
    peer_.cq->poll(1000);
    const std::uint64_t value = random_();
    std::memcpy(peer_.scratch.data(), &value, sizeof value);
    SendRequest request{.wr_id = 77, .opcode = WrOpcode::rdma_write, .flags = kSignaled};
    request.sources = {{peer_.scratch.address(), sizeof value, peer_.scratch.key}};
    const Memory there = victim_.memory();
    request.remote_address = there.address + 512;
    request.rkey = there.key;
    need(peer_.rnic.post_send(peer_.qp, std::move(request), now()) == 0,
         "a fresh connection takes no request");
    std::vector<WorkCompletion> completions;
    for (int turns = 0; turns < kProofTurns && completions.empty(); ++turns) {
      pump(64, false);
      if (peer_.rnic.next_timeout() <= now()) peer_.rnic.handle_timeout(now());
      completions = peer_.cq->poll(1000);
    }
    need(completions.size() == 1 && completions[0].wr_id == 77 &&
             completions[0].status == WcStatus::success &&
             std::memcmp(victim_.open() + 512, &value, sizeof value) == 0,
         "a fresh connection does not work");
  }

  Random random_;
  const std::int64_t epoch_ns_ = monotonic_ns();
  Wire wire_;
  Victim victim_{random_};
  Side peer_;
  Forger forger_{random_};
  std::array<Target, 3> targets_;  // the victim's RC, UC and UD queue pairs
  std::uint64_t connections_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t frames = 0, seed = 0;
  in_addr address{};
  if (argc != 6 || inet_pton(AF_INET, argv[3], &address) != 1 || !parse(argv[4], frames) ||
      !parse(argv[5], seed)) {
    std::fprintf(stderr, "usage: library_frames NAMESPACE INTERFACE ADDRESS FRAMES SEED\n");
    return 2;
  }
  try {
    Attack attack(argv[1], argv[2], ntohl(address.s_addr), seed);
    attack.run(frames);
    std::printf("%llu frames, %llu connections\n", static_cast<unsigned long long>(frames),
                static_cast<unsigned long long>(attack.connections()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "library_frames %s %s: %s\n", argv[4], argv[5], error.what());
    return 1;
  }
  return 0;
}
