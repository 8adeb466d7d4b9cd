/* SPDX-License-Identifier: GPL-2.0-or-later
 * What completions have in them, and what work requests do: queue pairs of one RNIC, with each
 * other. */
#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "checks.h"
#include "connection.h"

enum { BYTES = 64, GRH_BYTES = 40, QKEY = 0x1234, MOST_INLINE = 16, MANY = 40 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static struct ibv_mr *mr;
/* What is sent, and what is received or written to. */
static struct { _Alignas(8) unsigned char from[BYTES], to[GRH_BYTES + BYTES]; } memory;

static struct ibv_qp *create(enum ibv_qp_type type, struct ibv_cq *to, int signal_all) {
  struct ibv_qp_init_attr init = {.send_cq = to,
                                  .recv_cq = to,
                                  .cap = {4, 4, 1, 1, MOST_INLINE},
                                  .qp_type = type,
                                  .sq_sig_all = signal_all};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  NEED(qp);
  return qp;
}

static struct ibv_qp *near, *far; /* the sender and the receiver of most checks */

static void create_both(int signal_all) {
  near = create(IBV_QPT_RC, cq, signal_all);
  far = create(IBV_QPT_RC, cq, signal_all);
  connect_to(near, far->qp_num, gid);
  connect_to(far, near->qp_num, gid);
}

static void destroy_both(void) { NEED(!ibv_destroy_qp(near) && !ibv_destroy_qp(far)); }

static void receive(struct ibv_qp *qp, uint64_t number) {
  struct ibv_sge to = {(uintptr_t)memory.to, sizeof memory.to, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &to, .num_sge = 1}, *bad;
  NEED(!ibv_post_recv(qp, &wr, &bad));
}

static struct ibv_sge source(uint32_t bytes) {
  return (struct ibv_sge){(uintptr_t)memory.from, bytes, mr->lkey};
}

/* Of the first `bytes`, with what `wr` has already. Returns what the verb does. */
static int post(struct ibv_qp *qp, struct ibv_send_wr wr, uint32_t bytes) {
  struct ibv_sge from = source(bytes);
  struct ibv_send_wr *bad = NULL;
  wr.sg_list = &from;
  wr.num_sge = 1;
  const int error = ibv_post_send(qp, &wr, &bad);
  CHECK(bad == (error ? &wr : NULL));
  return error;
}

static struct ibv_wc next(void) {
  const time_t until = time(NULL) + PATIENCE_S;
  struct ibv_wc wc;
  memset(&wc, 0xA5, sizeof wc);
  for (int polled = 0; polled == 0; polled = ibv_poll_cq(cq, 1, &wc)) NEED(time(NULL) < until);
  return wc;
}

/* The next two completions: of the sender, and of the receiver. */
struct both {
  struct ibv_wc sent, received;
};

static struct both next_both(void) {
  const struct ibv_wc first = next(), second = next();
  const int received_first = first.opcode & IBV_WC_RECV;
  struct both both = {received_first ? second : first, received_first ? first : second};
  CHECK(both.sent.status == IBV_WC_SUCCESS && both.received.status == IBV_WC_SUCCESS);
  CHECK(both.sent.wr_id == 11 && both.received.wr_id == 22);
  CHECK(both.sent.qp_num == near->qp_num && both.received.qp_num == far->qp_num);
  CHECK(both.sent.vendor_err == 0 && both.received.vendor_err == 0);
  return both;
}

static void check_send(void) {
  memset(memory.from, 3, BYTES);
  receive(far, 22);
  NEED(!post(near, (struct ibv_send_wr){.wr_id = 11, .opcode = IBV_WR_SEND}, BYTES));
  const struct both both = next_both();
  CHECK(both.sent.opcode == IBV_WC_SEND);
  CHECK(both.received.opcode == IBV_WC_RECV && both.received.byte_len == BYTES);
  CHECK(both.received.src_qp == near->qp_num && both.received.wc_flags == 0);
  CHECK(memcmp(memory.from, memory.to, BYTES) == 0);
}

/* Octets as the sender has them in memory, whatever number they are to it. */
static void check_immediate(enum ibv_wr_opcode opcode, enum ibv_wc_opcode sent,
                            enum ibv_wc_opcode received) {
  receive(far, 22);
  struct ibv_send_wr wr = {.wr_id = 11, .opcode = opcode, .imm_data = htonl(0x01020304)};
  wr.wr.rdma.remote_addr = (uintptr_t)memory.to;
  wr.wr.rdma.rkey = mr->rkey;
  NEED(!post(near, wr, BYTES));
  const struct both both = next_both();
  CHECK(both.sent.opcode == sent && both.received.opcode == received);
  CHECK(both.received.wc_flags == IBV_WC_WITH_IMM);
  CHECK(both.received.imm_data == htonl(0x01020304));
  CHECK(both.received.byte_len == BYTES && both.received.src_qp == near->qp_num);
}

static void check_invalidation(void) {
  struct ibv_mr *other = ibv_reg_mr(pd, memory.from, BYTES, IBV_ACCESS_REMOTE_READ);
  NEED(other);
  receive(far, 22);
  struct ibv_send_wr wr = {
      .wr_id = 11, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = other->rkey};
  NEED(!post(near, wr, BYTES));
  const struct both both = next_both();
  CHECK(both.received.wc_flags == IBV_WC_WITH_INV);
  CHECK(both.received.invalidated_rkey == other->rkey);
  NEED(!ibv_dereg_mr(other));
}

/* A request to which only the sender has a completion. */
static struct ibv_wc alone(struct ibv_send_wr wr, uint32_t bytes) {
  wr.wr_id = 11;
  NEED(!post(near, wr, bytes));
  const struct ibv_wc wc = next();
  CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 11 && wc.qp_num == near->qp_num);
  return wc;
}

static void check_memory_of_the_peer(void) {
  struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
  wr.wr.rdma.remote_addr = (uintptr_t)memory.to;
  wr.wr.rdma.rkey = mr->rkey;
  memset(memory.from, 5, BYTES);
  CHECK(alone(wr, BYTES).opcode == IBV_WC_RDMA_WRITE);
  CHECK(memcmp(memory.to, memory.from, BYTES) == 0);
  memset(memory.to, 6, BYTES);
  wr.opcode = IBV_WR_RDMA_READ;
  const struct ibv_wc read = alone(wr, BYTES);
  CHECK(read.opcode == IBV_WC_RDMA_READ && read.byte_len == BYTES);
  CHECK(memcmp(memory.to, memory.from, BYTES) == 0);
}

/* The near memory gets the value before, in the order of the host's octets. */
static void check_atomic(enum ibv_wr_opcode opcode, enum ibv_wc_opcode completed, uint64_t operand,
                         uint64_t swap, uint64_t before, uint64_t after) {
  uint64_t *far_value = (uint64_t *)memory.to, *near_value = (uint64_t *)memory.from;
  *far_value = before;
  *near_value = 0;
  struct ibv_send_wr wr = {.opcode = opcode};
  wr.wr.atomic.remote_addr = (uintptr_t)far_value;
  wr.wr.atomic.rkey = mr->rkey;
  wr.wr.atomic.compare_add = operand;
  wr.wr.atomic.swap = swap;
  const struct ibv_wc wc = alone(wr, sizeof before);
  CHECK(wc.opcode == completed && wc.byte_len == sizeof before);
  CHECK(*near_value == before && *far_value == after);
}

static void check_atomics(void) {
  enum { OLD = 0x0102030405060708, NEW = 0x1112131415161718, OTHER = 0x2122232425262728 };
  check_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, OLD, NEW, OLD, NEW);
  check_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, OTHER, NEW, OLD, OLD);
  check_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 9, OTHER, OLD, OLD + 9);
}

/* The message is taken when it is posted; its memory needs no region. */
static void check_inline(void) {
  receive(far, 22);
  memset(memory.from, 7, BYTES);
  const struct ibv_send_wr wr = {.wr_id = 11, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
  CHECK(post(near, wr, MOST_INLINE + 1) == EINVAL);
  CHECK(post(near, wr, 1U << 31) == EINVAL); /* and was not read */
  CHECK(post(near, wr, MOST_INLINE) == 0);
  memset(memory.from, 8, BYTES);
  CHECK(next_both().received.byte_len == MOST_INLINE);
  for (int i = 0; i < MOST_INLINE; ++i) CHECK(memory.to[i] == 7);
}

static void check_refusals(void) {
  const struct ibv_send_wr unknown = {.opcode = IBV_WR_TSO};
  CHECK(post(near, unknown, BYTES) == EOPNOTSUPP);
  struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .num_sge = 2}, *bad;
  struct ibv_sge from[2] = {source(1), source(1)};
  wr.sg_list = from;
  CHECK(ibv_post_send(near, &wr, &bad) != 0 && bad == &wr);
}

/* Only what is signaled completes. */
static void check_signals(void) {
  create_both(0);
  receive(far, 22);
  receive(far, 22);
  struct ibv_send_wr wr = {.wr_id = 10, .opcode = IBV_WR_SEND};
  NEED(!post(near, wr, BYTES));
  CHECK(next().wr_id == 22);
  wr.wr_id = 11;
  wr.send_flags = IBV_SEND_SIGNALED;
  NEED(!post(near, wr, BYTES));
  next_both();
  destroy_both();
}

static struct ibv_qp *create_datagrams(void) {
  struct ibv_qp *qp = create(IBV_QPT_UD, cq, 1);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
  NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
  attr.qp_state = IBV_QPS_RTR;
  NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  attr.qp_state = IBV_QPS_RTS;
  NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
  return qp;
}

/* Of both IP versions; `kind` is what `sl` has of the header's. */
static void check_datagram(int index, int kind) {
  struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh.sgid_index = index};
  NEED(!ibv_query_gid(context, 1, index, &way.grh.dgid));
  near = create_datagrams();
  far = create_datagrams();
  struct ibv_ah *ah = ibv_create_ah(pd, &way);
  NEED(ah);
  memset(memory.from, 9, BYTES);
  receive(far, 22);
  struct ibv_send_wr wr = {
      .wr_id = 11, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0x01020304)};
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = far->qp_num;
  wr.wr.ud.remote_qkey = QKEY;
  NEED(!post(near, wr, BYTES));
  const struct both both = next_both();
  CHECK(both.received.byte_len == GRH_BYTES + BYTES);
  CHECK(both.received.src_qp == near->qp_num);
  CHECK(both.received.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
  CHECK(both.received.imm_data == htonl(0x01020304) && both.received.sl == kind);
  CHECK(memcmp(memory.to + GRH_BYTES, memory.from, BYTES) == 0);
  NEED(!ibv_destroy_ah(ah));
  destroy_both();
}

static double seconds(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + at.tv_nsec / 1e9;
}

/* An event that waits for more completions comes when its period, of microseconds, is over. */
static void check_moderation(void) {
  enum { PERIOD_US = 20000, LONGEST_S = 5 };
  struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
  struct ibv_cq *usual = cq, *from;
  NEED(channel);
  cq = ibv_create_cq(context, 16, &gid, channel, 0);
  NEED(cq);
  create_both(1);
  struct ibv_modify_cq_attr attr = {IBV_CQ_ATTR_MODERATE, {.cq_count = 10, .cq_period = PERIOD_US}};
  CHECK(ibv_modify_cq(cq, &attr) == 0);
  NEED(!ibv_req_notify_cq(cq, 0));
  const double began = seconds();
  receive(far, 22);
  NEED(!post(near, (struct ibv_send_wr){.wr_id = 11, .opcode = IBV_WR_SEND}, BYTES));
  struct pollfd waiting = {.fd = channel->fd, .events = POLLIN};
  CHECK(poll(&waiting, 1, LONGEST_S * 1000) == 1);
  CHECK(seconds() - began >= PERIOD_US / 1e6);
  void *told = NULL;
  if (waiting.revents) {
    CHECK(ibv_get_cq_event(channel, &from, &told) == 0 && from == cq && told == &gid);
    ibv_ack_cq_events(cq, 1);
  }
  next_both();
  destroy_both();
  NEED(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
  cq = usual;
}

/* Who destroys a queue pair as soon as its message is there leaves no peer without the
 * acknowledgement: there are more of them than leave at once. */
static void check_last_acknowledgements(void) {
  struct ibv_qp *senders[MANY], *receivers[MANY];
  for (int i = 0; i < MANY; ++i) {
    senders[i] = create(IBV_QPT_RC, cq, 1);
    receivers[i] = create(IBV_QPT_RC, cq, 1);
    connect_to(senders[i], receivers[i]->qp_num, gid);
    connect_to(receivers[i], senders[i]->qp_num, gid);
    receive(receivers[i], i);
  }
  for (int i = 0; i < MANY; ++i)
    NEED(!post(senders[i], (struct ibv_send_wr){.wr_id = i, .opcode = IBV_WR_SEND}, BYTES));
  for (int left = 2 * MANY; left != 0; --left) {
    const struct ibv_wc wc = next();
    CHECK(wc.status == IBV_WC_SUCCESS);
    if (wc.opcode & IBV_WC_RECV) NEED(!ibv_destroy_qp(receivers[wc.wr_id]));
  }
  for (int i = 0; i < MANY; ++i) NEED(!ibv_destroy_qp(senders[i]));
}

/* Instead of the C library's. A peer's message comes while a thread that polls has no processor,
 * and the library's own thread takes it, as polls of another queue do. */
static int sends_at_yield;
static __thread int polls; /* not in the library's thread, which yields, too */

int sched_yield(void) {
  enum { TURNS = 10 };
  if (!polls || !sends_at_yield) return 0;
  sends_at_yield = 0;
  NEED(!post(near, (struct ibv_send_wr){.wr_id = 11, .opcode = IBV_WR_SEND}, BYTES));
  struct ibv_cq *other = ibv_create_cq(context, 1, NULL, NULL, 0);
  struct ibv_wc wc;
  NEED(other);
  for (int i = 0; i < TURNS; ++i) NEED(ibv_poll_cq(other, 1, &wc) == 0);
  return ibv_destroy_cq(other);
}

/* A poll that lets others run finds what they sent: its answer is as of its end. */
static void check_yield(void) {
  enum { MOST_POLLS = 1000 };
  struct ibv_wc wc;
  create_both(1);
  receive(far, 22);
  polls = sends_at_yield = 1;
  int polled = 0;
  for (int i = 0; sends_at_yield && polled == 0 && i < MOST_POLLS; ++i)
    polled = ibv_poll_cq(cq, 1, &wc);
  CHECK(!sends_at_yield && polled == 1);
  for (int left = 2 - polled; left != 0; --left) next();
  destroy_both();
}

static void check_connected(void) {
  create_both(1);
  check_send();
  check_immediate(IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV);
  check_immediate(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM);
  check_invalidation();
  check_memory_of_the_peer();
  check_atomics();
  check_inline();
  check_refusals();
  destroy_both();
}

int main(void) {
  context = open_first_device();
  if (!context) return 3;
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 4 * MANY, NULL, NULL, 0);
  mr = ibv_reg_mr(pd, &memory, sizeof memory,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC);
  NEED(pd && cq && mr && !ibv_query_gid(context, 1, 0, &gid));
  check_connected();
  check_signals();
  check_datagram(0, 8 | 2);
  check_datagram(1, 8 | 1);
  check_moderation();
  check_yield();
  check_last_acknowledgements();
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  puts("done");
  return wrong ? 1 : 0;
}
