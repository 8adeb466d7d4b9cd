/* SPDX-License-Identifier: GPL-2.0-or-later
 * Extended verbs: requests built by ibv_wr_*, completions read by ibv_start_poll and the like,
 * parent domains, regions registered again, memory windows. Queue pairs of one RNIC, with each
 * other. */
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"
#include "connection.h"

enum { BYTES = 64, GRH_BYTES = 40, QKEY = 0x1234, MOST_INLINE = 16, MOST_SENDS = 4, MOST_SGE = 2 };
enum {
  DATAGRAMS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
  UNRELIABLE = DATAGRAMS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
  RELIABLE = UNRELIABLE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
             IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
             IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static union ibv_gid gid;
static struct ibv_mr *mr;
static struct { _Alignas(8) unsigned char from[BYTES], to[GRH_BYTES + BYTES]; } memory;

static struct ibv_cq *plain(void) { return ibv_cq_ex_to_cq(cq); }

static struct ibv_qp *try_create(enum ibv_qp_type type, uint32_t mask, uint64_t operations) {
  struct ibv_qp_init_attr_ex init = {.send_cq = plain(),
                                     .recv_cq = plain(),
                                     .cap = {MOST_SENDS, 8, MOST_SGE, 1, MOST_INLINE},
                                     .qp_type = type,
                                     .comp_mask = mask,
                                     .pd = pd,
                                     .send_ops_flags = operations};
  return ibv_create_qp_ex(context, &init);
}

static struct ibv_qp *create(enum ibv_qp_type type, uint64_t operations) {
  struct ibv_qp *qp =
      try_create(type, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, operations);
  NEED(qp && ibv_qp_to_qp_ex(qp));
  return qp;
}

static struct ibv_qp *near, *far;
static struct ibv_qp_ex *builder; /* of `near` */

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state, int mask) {
  struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = QKEY};
  NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask));
}

static void connect_unreliably(struct ibv_qp *qp, uint32_t peer) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  NEED(!ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = peer,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid = gid}};
  NEED(!ibv_modify_qp(
      qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
  to_state(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static void create_both(enum ibv_qp_type type, uint64_t operations) {
  near = create(type, operations);
  far = create(type, operations);
  builder = ibv_qp_to_qp_ex(near);
  struct ibv_qp *const both[] = {near, far};
  for (int i = 0; i < 2; ++i) {
    const uint32_t peer = both[1 - i]->qp_num;
    if (type == IBV_QPT_RC) connect_to(both[i], peer, gid);
    if (type == IBV_QPT_UC) connect_unreliably(both[i], peer);
    if (type != IBV_QPT_UD) continue;
    to_state(both[i], IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    to_state(both[i], IBV_QPS_RTR, 0);
    to_state(both[i], IBV_QPS_RTS, IBV_QP_SQ_PSN);
  }
}

static void destroy_both(void) { NEED(!ibv_destroy_qp(near) && !ibv_destroy_qp(far)); }

static void receive(void) {
  struct ibv_sge to = {(uintptr_t)memory.to, sizeof memory.to, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = 22, .sg_list = &to, .num_sge = 1}, *bad;
  memset(memory.to, 0, sizeof memory.to);
  NEED(!ibv_post_recv(far, &wr, &bad));
}

static void start(void) {
  ibv_wr_start(builder);
  builder->wr_id = 11;
  builder->wr_flags = IBV_SEND_SIGNALED;
}

static void set_source(uint32_t bytes) {
  ibv_wr_set_sge(builder, mr->lkey, (uintptr_t)memory.from, bytes);
}

/* ---------------------------------------------------------------- completions */

struct read {
  uint64_t wr_id;
  enum ibv_wc_status status;
  enum ibv_wc_opcode opcode;
  uint32_t byte_len, qp_num, src_qp, vendor_err, slid;
  unsigned flags;
  __be32 immediate;
};

static struct read current(void) {
  CHECK(ibv_wc_read_dlid_path_bits(cq) == 0);
  return (struct read){cq->wr_id,
                       cq->status,
                       ibv_wc_read_opcode(cq),
                       ibv_wc_read_byte_len(cq),
                       ibv_wc_read_qp_num(cq),
                       ibv_wc_read_src_qp(cq),
                       ibv_wc_read_vendor_err(cq),
                       ibv_wc_read_slid(cq),
                       ibv_wc_read_wc_flags(cq),
                       ibv_wc_read_imm_data(cq)};
}

static struct ibv_poll_cq_attr none;

static struct read next(void) {
  const time_t until = time(NULL) + PATIENCE_S;
  int error;
  while ((error = ibv_start_poll(cq, &none)) == ENOENT) NEED(time(NULL) < until);
  NEED(!error);
  const struct read found = current();
  ibv_end_poll(cq);
  return found;
}

static int is_empty(void) {
  for (int i = 0; i < 100; ++i) {
    const int error = ibv_start_poll(cq, &none);
    if (error == ENOENT) continue;
    ibv_end_poll(cq);
    return 0;
  }
  return 1;
}

/* What the sender reads, and, if it takes a receive, the receiver; with these opcodes. */
static void check_ends(enum ibv_wc_opcode sent, enum ibv_wc_opcode received, uint32_t bytes,
                       unsigned flags, uint32_t value) {
  for (int left = received ? 2 : 1; left != 0; --left) {
    const struct read end = next();
    CHECK(end.status == IBV_WC_SUCCESS && end.vendor_err == 0 && end.slid == 0);
    if (end.opcode & IBV_WC_RECV) {
      CHECK(end.wr_id == 22 && end.opcode == received && end.qp_num == far->qp_num);
      CHECK(end.byte_len == bytes && end.src_qp == near->qp_num && end.flags == flags);
      if (flags & IBV_WC_WITH_IMM) CHECK(end.immediate == htonl(value));
      if (flags & IBV_WC_WITH_INV) CHECK(end.immediate == value);
    } else {
      CHECK(end.wr_id == 11 && end.opcode == sent && end.qp_num == near->qp_num);
    }
  }
  CHECK(is_empty());
}

/* One batch of three is read by one start, two nexts and one end. */
static void check_batch(void) {
  enum { MANY = 3 };
  create_both(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_wr_start(builder);
  for (int i = 0; i < MANY; ++i) {
    builder->wr_id = 30 + i;
    builder->wr_flags = i == 1 ? 0 : IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(builder, mr->rkey, (uintptr_t)memory.to);
    set_source(BYTES);
  }
  CHECK(ibv_wr_complete(builder) == 0);
  const time_t until = time(NULL) + PATIENCE_S;
  while (ibv_start_poll(cq, &none)) NEED(time(NULL) < until);
  CHECK(cq->wr_id == 30 && cq->status == IBV_WC_SUCCESS);
  while (ibv_next_poll(cq)) NEED(time(NULL) < until);
  CHECK(cq->wr_id == 32 && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
  CHECK(ibv_next_poll(cq) == ENOENT);
  ibv_end_poll(cq);
  struct ibv_poll_cq_attr unknown = {.comp_mask = 1};
  CHECK(ibv_start_poll(cq, &unknown) == EINVAL);
  destroy_both();
}

/* ---------------------------------------------------------------- operations */

static void check_sends(void) {
  memset(memory.from, 3, BYTES);
  receive();
  start();
  ibv_wr_send(builder);
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, BYTES, 0, 0);
  CHECK(memcmp(memory.to, memory.from, BYTES) == 0);
  receive();
  start();
  ibv_wr_send_imm(builder, htonl(0x01020304));
  const struct ibv_sge parts[] = {{(uintptr_t)memory.from, 10, mr->lkey},
                                  {(uintptr_t)memory.from + 20, 5, mr->lkey}};
  ibv_wr_set_sge_list(builder, 2, parts);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, 15, IBV_WC_WITH_IMM, 0x01020304);
}

static void check_writes(void) {
  memset(memory.from, 5, BYTES);
  memset(memory.to, 0, BYTES);
  start();
  ibv_wr_rdma_write(builder, mr->rkey, (uintptr_t)memory.to);
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_RDMA_WRITE, 0, BYTES, 0, 0);
  CHECK(memcmp(memory.to, memory.from, BYTES) == 0);
  receive();
  start();
  ibv_wr_rdma_write_imm(builder, mr->rkey, (uintptr_t)memory.to, htonl(7));
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, BYTES, IBV_WC_WITH_IMM, 7);
}

static void check_reads(void) {
  memset(memory.from, 0, BYTES);
  memset(memory.to, 6, BYTES);
  start();
  ibv_wr_rdma_read(builder, mr->rkey, (uintptr_t)memory.to);
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_RDMA_READ, 0, BYTES, 0, 0);
  CHECK(memcmp(memory.to, memory.from, BYTES) == 0);
}

static void check_atomics(void) {
  uint64_t *far_value = (uint64_t *)memory.to, *near_value = (uint64_t *)memory.from;
  *far_value = 5;
  start();
  ibv_wr_atomic_cmp_swp(builder, mr->rkey, (uintptr_t)far_value, 5, 9);
  set_source(sizeof *far_value);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_COMP_SWAP, 0, 0, 0, 0);
  CHECK(*near_value == 5 && *far_value == 9);
  start();
  ibv_wr_atomic_fetch_add(builder, mr->rkey, (uintptr_t)far_value, 3);
  set_source(sizeof *far_value);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_FETCH_ADD, 0, 0, 0, 0);
  CHECK(*near_value == 9 && *far_value == 12);
}

static void check_invalidation(void) {
  struct ibv_mr *other = ibv_reg_mr(pd, memory.from, BYTES, IBV_ACCESS_REMOTE_READ);
  NEED(other);
  receive();
  start();
  ibv_wr_send_inv(builder, other->rkey);
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, BYTES, IBV_WC_WITH_INV, other->rkey);
  NEED(!ibv_dereg_mr(other));
}

/* The message is taken at once; its memory needs no region, and may change. */
static void check_inline(void) {
  char first[] = "first ", second[] = "second";
  const struct ibv_data_buf parts[] = {{first, 6}, {second, 6}, {NULL, 0}};
  receive();
  start();
  ibv_wr_send(builder);
  ibv_wr_set_inline_data_list(builder, 3, parts);
  memset(first, 0, sizeof first);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, 12, 0, 0);
  CHECK(memcmp(memory.to, "first second", 12) == 0);
  receive();
  start();
  ibv_wr_send(builder);
  ibv_wr_set_inline_data(builder, second, MOST_INLINE - 10);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, MOST_INLINE - 10, 0, 0);
  start();
  ibv_wr_send(builder);
  ibv_wr_set_inline_data(builder, NULL, MOST_INLINE + 1); /* is not read */
  CHECK(ibv_wr_complete(builder) == EINVAL);
}

static void check_connected(void) {
  create_both(IBV_QPT_RC, RELIABLE);
  check_sends();
  check_writes();
  check_reads();
  check_atomics();
  check_invalidation();
  check_inline();
  destroy_both();
  create_both(IBV_QPT_UC, UNRELIABLE);
  check_sends();
  check_writes();
  destroy_both();
}

static void check_datagrams(void) {
  create_both(IBV_QPT_UD, DATAGRAMS);
  struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh.dgid = gid};
  struct ibv_ah *ah = ibv_create_ah(pd, &way);
  NEED(ah);
  memset(memory.from, 9, BYTES);
  receive();
  start();
  ibv_wr_send_imm(builder, htonl(8));
  ibv_wr_set_ud_addr(builder, ah, far->qp_num, QKEY);
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, GRH_BYTES + BYTES, IBV_WC_GRH | IBV_WC_WITH_IMM, 8);
  CHECK(memcmp(memory.to + GRH_BYTES, memory.from, BYTES) == 0);
  start();
  ibv_wr_send(builder); /* to nobody */
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == EINVAL);
  start();
  ibv_wr_send(builder);
  ibv_wr_set_ud_addr(builder, NULL, far->qp_num, QKEY);
  CHECK(ibv_wr_complete(builder) == EINVAL);
  NEED(!ibv_destroy_ah(ah));
  destroy_both();
}

/* ---------------------------------------------------------------- refusals */

/* A whole message, for its place behind others. */
static void add_send(void) {
  ibv_wr_send(builder);
  set_source(BYTES);
}

static void check_refusals(void) {
  create_both(IBV_QPT_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
  start();
  add_send();
  ibv_wr_rdma_write(builder, mr->rkey, (uintptr_t)memory.to); /* was not asked for */
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == EOPNOTSUPP);
  start();
  set_source(BYTES); /* of no request */
  CHECK(ibv_wr_complete(builder) == EINVAL);
  struct ibv_sge many[MOST_SGE + 1] = {{0}};
  start();
  add_send();
  ibv_wr_send(builder);
  ibv_wr_set_sge_list(builder, MOST_SGE + 1, many);
  CHECK(ibv_wr_complete(builder) == EINVAL);
  start();
  add_send();
  ibv_wr_send(builder);
  ibv_wr_set_sge_list(builder, SIZE_MAX, many); /* is not read */
  CHECK(ibv_wr_complete(builder) == EINVAL);
  start();
  add_send();
  ibv_wr_atomic_fetch_add(builder, mr->rkey, (uintptr_t)memory.to + 1, 1);
  set_source(8);
  CHECK(ibv_wr_complete(builder) == EINVAL);
  start();
  for (int i = 0; i <= MOST_SENDS; ++i) add_send();
  CHECK(ibv_wr_complete(builder) == ENOMEM);
  start();
  add_send();
  ibv_wr_abort(builder);
  start();
  CHECK(ibv_wr_complete(builder) == 0);
  receive();
  CHECK(is_empty()); /* nothing of all that was posted, */
  start();
  for (int i = 0; i < MOST_SENDS; ++i) add_send();
  CHECK(ibv_wr_complete(builder) == 0); /* and there is room */
  for (int i = 1; i < MOST_SENDS; ++i) receive();
  for (int i = 0; i < 2 * MOST_SENDS; ++i) CHECK(next().status == IBV_WC_SUCCESS);
  to_state(near, IBV_QPS_RESET, 0);
  start();
  add_send();
  CHECK(ibv_wr_complete(builder) == EINVAL);
  destroy_both();
}

static void check_queue_pairs_that_are_none(void) {
  const uint32_t builds = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  REFUSES(EINVAL, try_create(IBV_QPT_RC, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND));
  REFUSES(EOPNOTSUPP, try_create(IBV_QPT_RC, builds, IBV_QP_EX_WITH_TSO));
  REFUSES(EOPNOTSUPP, try_create(IBV_QPT_RC, builds, 1ULL << 63));
  REFUSES(EOPNOTSUPP, try_create(IBV_QPT_UC, builds, IBV_QP_EX_WITH_RDMA_READ));
  REFUSES(EOPNOTSUPP, try_create(IBV_QPT_UD, builds, IBV_QP_EX_WITH_RDMA_WRITE));
  REFUSES(EOPNOTSUPP, try_create(IBV_QPT_RC, builds | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0));
  REFUSES(EOPNOTSUPP, try_create(IBV_QPT_RAW_PACKET, builds, 0));
  struct ibv_qp *usual = try_create(IBV_QPT_RC, IBV_QP_INIT_ATTR_PD, 0);
  struct ibv_qp *flagged =
      try_create(IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 0);
  NEED(usual && flagged);
  CHECK(ibv_qp_to_qp_ex(usual) == NULL && ibv_qp_to_qp_ex(flagged) == NULL);
  CHECK(ibv_destroy_qp(usual) == 0 && ibv_destroy_qp(flagged) == 0);
}

static struct ibv_cq_ex *try_queue(struct ibv_cq_init_attr_ex attr) {
  if (attr.cqe == 0) attr.cqe = 16;
  return ibv_create_cq_ex(context, &attr);
}

static void check_queues_that_are_none(void) {
  const uint32_t flags = IBV_CQ_INIT_ATTR_MASK_FLAGS, domain = IBV_CQ_INIT_ATTR_MASK_PD;
  REFUSES(EOPNOTSUPP,
          try_queue((struct ibv_cq_init_attr_ex){.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP}));
  REFUSES(EOPNOTSUPP, try_queue((struct ibv_cq_init_attr_ex){.wc_flags = IBV_WC_EX_WITH_TM_INFO}));
  REFUSES(EOPNOTSUPP, try_queue((struct ibv_cq_init_attr_ex){
                          .comp_mask = flags, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN}));
  REFUSES(EINVAL, try_queue((struct ibv_cq_init_attr_ex){.cqe = UINT32_MAX}));
  REFUSES(EINVAL, try_queue((struct ibv_cq_init_attr_ex){.comp_vector = UINT32_MAX}));
  REFUSES(EINVAL,
          try_queue((struct ibv_cq_init_attr_ex){.comp_mask = domain, .parent_domain = pd}));
}

/* ---------------------------------------------------------------- several threads */

static int others_turn; /* of a thread that waits for another to finish */

static void *build_too(void *unused) {
  start();
  __atomic_store_n(&others_turn, 1, __ATOMIC_SEQ_CST);
  ibv_wr_abort(builder);
  return unused;
}

static void *poll_too(void *unused) {
  const int error = ibv_start_poll(cq, &none);
  __atomic_store_n(&others_turn, 1, __ATOMIC_SEQ_CST);
  if (error == 0) ibv_end_poll(cq);
  return unused;
}

static pthread_t begin_other(void *(*other)(void *)) {
  enum { LONG_US = 50000 };
  pthread_t thread;
  others_turn = 0;
  NEED(!pthread_create(&thread, NULL, other, NULL));
  usleep(LONG_US);
  CHECK(!__atomic_load_n(&others_turn, __ATOMIC_SEQ_CST));
  return thread;
}

/* One thread at a time builds, and one reads. */
static void check_threads(void) {
  create_both(IBV_QPT_RC, RELIABLE);
  start();
  pthread_t other = begin_other(build_too);
  ibv_wr_rdma_write(builder, mr->rkey, (uintptr_t)memory.to);
  set_source(BYTES);
  CHECK(ibv_wr_complete(builder) == 0);
  pthread_join(other, NULL);
  CHECK(others_turn);
  const time_t until = time(NULL) + PATIENCE_S;
  while (ibv_start_poll(cq, &none)) NEED(time(NULL) < until);
  other = begin_other(poll_too);
  CHECK(cq->wr_id == 11);
  ibv_end_poll(cq);
  pthread_join(other, NULL);
  CHECK(others_turn);
  destroy_both();
}

/* ---------------------------------------------------------------- domains, regions, queues */

static void check_parent_domain(void) {
  struct ibv_td_init_attr of_thread = {0}, unknown = {.comp_mask = 1};
  REFUSES(EOPNOTSUPP, ibv_alloc_td(context, &unknown));
  struct ibv_td *td = ibv_alloc_td(context, &of_thread);
  struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
  struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
  NEED(td && parent);
  struct ibv_cq_ex *queue = try_queue((struct ibv_cq_init_attr_ex){
      .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
      .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
      .parent_domain = parent});
  NEED(queue);
  CHECK(ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_start_poll(queue, &none) == ENOENT);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
  struct ibv_pd *const usual = pd;
  pd = parent; /* its queue pairs use regions of the protection domain, */
  create_both(IBV_QPT_RC, RELIABLE);
  check_writes();
  destroy_both();
  pd = usual;
  attr.pd = parent; /* and it is the parent of none */
  REFUSES(EINVAL, ibv_alloc_parent_domain(context, &attr));
  attr.pd = NULL;
  REFUSES(EINVAL, ibv_alloc_parent_domain(context, &attr));
  CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
}

static enum ibv_wc_status write_now(uint32_t rkey, uint64_t address) {
  start();
  ibv_wr_rdma_write(builder, rkey, address);
  set_source(8);
  CHECK(ibv_wr_complete(builder) == 0);
  return next().status;
}

/* From a queue pair that had no error before. */
static enum ibv_wc_status write_to(uint32_t rkey, const void *address) {
  create_both(IBV_QPT_RC, RELIABLE);
  const enum ibv_wc_status status = write_now(rkey, (uintptr_t)address);
  destroy_both();
  return status;
}

static void check_registering_again(void) {
  const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  char *const to = (char *)memory.to;
  struct ibv_mr *region = ibv_reg_mr(pd, to, 16, writes);
  struct ibv_pd *other = ibv_alloc_pd(context);
  NEED(region && other);
  const uint32_t key = region->rkey;
  CHECK(write_to(key, to) == IBV_WC_SUCCESS);
  CHECK(write_to(key, to + 16) == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, to + 16, 24, 0) == 0);
  CHECK(region->rkey == key && region->addr == to + 16 && region->length == 24);
  CHECK(write_to(key, to) == IBV_WC_REM_ACCESS_ERR);
  CHECK(write_to(key, to + 32) == IBV_WC_SUCCESS);
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == 0);
  CHECK(write_to(key, to + 32) == IBV_WC_REM_ACCESS_ERR);
  const int both = IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD;
  CHECK(ibv_rereg_mr(region, both, other, NULL, 0, writes) == 0 && region->pd == other);
  CHECK(write_to(key, to + 32) == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dealloc_pd(other) == EBUSY);
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == 0);
  CHECK(write_to(key, to + 32) == IBV_WC_SUCCESS);
  const struct {
    int flags;
    void *address;
    int access, error;
  } wrong[] = {{0, NULL, 0, EINVAL},
               {1 << 20, NULL, 0, EINVAL},
               {IBV_REREG_MR_CHANGE_PD, NULL, 0, EINVAL},
               {IBV_REREG_MR_CHANGE_TRANSLATION, NULL, 0, EINVAL},
               {IBV_REREG_MR_CHANGE_TRANSLATION, (void *)8, 0, EFAULT},
               {IBV_REREG_MR_CHANGE_ACCESS, NULL, IBV_ACCESS_REMOTE_WRITE, EINVAL},
               {IBV_REREG_MR_CHANGE_ACCESS, NULL, IBV_ACCESS_ON_DEMAND, EOPNOTSUPP}};
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK(ibv_rereg_mr(region, wrong[i].flags, NULL, wrong[i].address, 8, wrong[i].access) ==
          IBV_REREG_MR_ERR_INPUT);
    CHECK(errno == wrong[i].error);
  }
  CHECK(write_to(key, to + 32) == IBV_WC_SUCCESS);
  CHECK(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(other) == 0);
}

/* ---------------------------------------------------------------- memory windows */

enum { WINDOW_BYTES = 16 };

/* The window's part of `memory.to` begins at octet 32. */
static struct ibv_mw_bind_info part_of(struct ibv_mr *region, uint64_t bytes, unsigned access) {
  struct ibv_mw_bind_info info = {.mr = region, .length = bytes, .mw_access_flags = access};
  if (region) info.addr = (uintptr_t)memory.to + 32;
  return info;
}

static void check_end(enum ibv_wc_opcode opcode, enum ibv_wc_status status) {
  const struct read end = next();
  CHECK(end.wr_id == 11 && end.status == status);
  if (status == IBV_WC_SUCCESS) CHECK(end.opcode == opcode);
}

static void bind_first_type(struct ibv_mw *window, struct ibv_mw_bind_info info,
                            enum ibv_wc_status status) {
  struct ibv_mw_bind bind = {.wr_id = 11, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
  create_both(IBV_QPT_RC, RELIABLE);
  const uint32_t before = window->rkey;
  CHECK(ibv_bind_mw(far, window, &bind) == 0 && window->rkey == ibv_inc_rkey(before));
  check_end(IBV_WC_BIND_MW, status);
  destroy_both();
}

/* Any queue pair of the domain may use it; each binding has another key. */
static void check_first_type(struct ibv_mr *region) {
  struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  char *const begin = (char *)memory.to + 32;
  NEED(window);
  CHECK(write_to(window->rkey, begin) == IBV_WC_REM_ACCESS_ERR);
  bind_first_type(window, part_of(region, WINDOW_BYTES, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  const uint32_t first = window->rkey;
  CHECK(ibv_dereg_mr(region) == EBUSY);
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) && errno == EBUSY);
  memset(memory.from, 7, BYTES);
  CHECK(write_to(first, begin + 8) == IBV_WC_SUCCESS && begin[8] == 7 && begin[15] == 7);
  CHECK(write_to(first, begin - 1) == IBV_WC_REM_ACCESS_ERR);
  CHECK(write_to(first, begin + 9) == IBV_WC_REM_ACCESS_ERR);
  bind_first_type(window, part_of(region, 8, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
  CHECK(write_to(first, begin) == IBV_WC_REM_ACCESS_ERR);
  CHECK(write_to(window->rkey, begin) == IBV_WC_REM_ACCESS_ERR); /* reads alone */
  const unsigned from_zero = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED;
  bind_first_type(window, part_of(region, 8, from_zero), IBV_WC_SUCCESS);
  CHECK(write_to(window->rkey, NULL) == IBV_WC_SUCCESS);
  const uint32_t last = window->rkey;
  bind_first_type(window, part_of(region, BYTES, 0), IBV_WC_MW_BIND_ERR); /* beyond the region, */
  bind_first_type(window, part_of(mr, 8, 0), IBV_WC_MW_BIND_ERR);         /* or not allowed */
  CHECK(write_to(last, NULL) == IBV_WC_SUCCESS);
  bind_first_type(window, part_of(NULL, 0, 0), IBV_WC_SUCCESS);
  CHECK(write_to(last, NULL) == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dealloc_mw(window) == 0);
  REFUSES(EINVAL, ibv_alloc_mw(pd, 3));
}

static int bind_second_type(struct ibv_qp *at, struct ibv_mw *window, uint32_t key,
                            struct ibv_mw_bind_info info) {
  struct ibv_qp_ex *const to = ibv_qp_to_qp_ex(at);
  ibv_wr_start(to);
  to->wr_id = 11;
  to->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_bind_mw(to, window, key, &info);
  return ibv_wr_complete(to);
}

static int post(struct ibv_qp *at, struct ibv_send_wr wr) {
  struct ibv_send_wr *bad;
  wr.wr_id = 11;
  wr.send_flags = IBV_SEND_SIGNALED;
  return ibv_post_send(at, &wr, &bad);
}

static int invalidate_here(struct ibv_qp *at, uint32_t key) {
  return post(at, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
}

/* Only the peer of the queue pair that bound it may use it, until it is invalidated. */
static void check_second_type(struct ibv_mr *region) {
  const struct ibv_mw_bind_info info = part_of(region, WINDOW_BYTES, IBV_ACCESS_REMOTE_WRITE);
  struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  NEED(window);
  const uint32_t key = ibv_inc_rkey(window->rkey), next_key = ibv_inc_rkey(key);
  create_both(IBV_QPT_RC, RELIABLE);
  CHECK(bind_second_type(far, window, key + 0x100, info) == EINVAL); /* another one's key */
  CHECK(bind_second_type(far, NULL, key, info) == EINVAL);
  CHECK(bind_second_type(far, window, key, info) == 0);
  check_end(IBV_WC_BIND_MW, IBV_WC_SUCCESS);
  CHECK(write_now(key, info.addr) == IBV_WC_SUCCESS);
  struct ibv_qp *const peers[] = {near, far};
  CHECK(write_to(key, (void *)info.addr) == IBV_WC_REM_ACCESS_ERR);
  near = peers[0];
  far = peers[1];
  builder = ibv_qp_to_qp_ex(near);
  CHECK(invalidate_here(far, key) == 0);
  check_end(IBV_WC_LOCAL_INV, IBV_WC_SUCCESS);
  CHECK(post(far, (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW,
                                       .bind_mw = {window, next_key, info}}) == 0);
  check_end(IBV_WC_BIND_MW, IBV_WC_SUCCESS);
  CHECK(write_now(next_key, info.addr) == IBV_WC_SUCCESS);
  receive();
  start();
  ibv_wr_send_inv(builder, next_key);
  CHECK(ibv_wr_complete(builder) == 0);
  check_ends(IBV_WC_SEND, IBV_WC_RECV, 0, IBV_WC_WITH_INV, next_key);
  CHECK(write_now(next_key, info.addr) == IBV_WC_REM_ACCESS_ERR);
  destroy_both();
  create_both(IBV_QPT_RC, RELIABLE);
  CHECK(invalidate_here(far, key) == 0);
  check_end(IBV_WC_LOCAL_INV, IBV_WC_LOC_QP_OP_ERR);
  CHECK(bind_second_type(far, window, key, info) == 0); /* the queue pair is in error */
  check_end(IBV_WC_BIND_MW, IBV_WC_WR_FLUSH_ERR);
  destroy_both();
  create_both(IBV_QPT_RC, RELIABLE);
  CHECK(bind_second_type(near, window, key, info) == 0);
  check_end(IBV_WC_BIND_MW, IBV_WC_SUCCESS);
  start(); /* its key is none for memory of one's own */
  ibv_wr_send(builder);
  ibv_wr_set_sge(builder, key, info.addr, 8);
  CHECK(ibv_wr_complete(builder) == 0);
  check_end(IBV_WC_SEND, IBV_WC_LOC_PROT_ERR);
  destroy_both();
  create_both(IBV_QPT_RC, RELIABLE);
  CHECK(invalidate_here(far, region->rkey) == 0); /* it has a window */
  check_end(IBV_WC_LOCAL_INV, IBV_WC_LOC_QP_OP_ERR);
  CHECK(bind_second_type(near, window, next_key, info) == 0); /* bound already */
  check_end(IBV_WC_BIND_MW, IBV_WC_MW_BIND_ERR);
  destroy_both();
  CHECK(ibv_dealloc_mw(window) == 0);
}

/* What sends nothing completes after what was posted before it, and fails with it. */
static void check_order_of_bindings(struct ibv_mr *region) {
  const struct ibv_mw_bind_info info = part_of(region, WINDOW_BYTES, IBV_ACCESS_REMOTE_WRITE);
  for (int fails = 0; fails < 2; ++fails) {
    struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    NEED(window);
    create_both(IBV_QPT_RC, RELIABLE);
    const uint32_t key = ibv_inc_rkey(window->rkey);
    to_state(near, IBV_QPS_SQD, 0); /* nothing begins */
    start();
    ibv_wr_rdma_write(builder, fails ? 0 : mr->rkey, (uintptr_t)memory.to);
    set_source(8);
    builder->wr_flags = 0;
    ibv_wr_bind_mw(builder, window, key, &info);
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_local_inv(builder, key);
    ibv_wr_bind_mw(builder, window, key, &info);
    CHECK(ibv_wr_complete(builder) == 0);
    CHECK(bind_second_type(near, window, key, info) == ENOMEM);
    CHECK(is_empty());
    to_state(near, IBV_QPS_RTS, 0);
    check_end(IBV_WC_RDMA_WRITE, fails ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    if (fails) check_end(IBV_WC_BIND_MW, IBV_WC_WR_FLUSH_ERR);
    check_end(IBV_WC_LOCAL_INV, fails ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    check_end(IBV_WC_BIND_MW, fails ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    CHECK(is_empty());
    destroy_both();
    CHECK(ibv_dealloc_mw(window) == 0);
  }
}

static void check_windows(void) {
  struct ibv_mr *region =
      ibv_reg_mr(pd, memory.to + 24, 40, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  NEED(region);
  check_first_type(region);
  check_second_type(region);
  check_order_of_bindings(region);
  CHECK(ibv_dereg_mr(region) == 0);
}

/* Completions that nobody polled go when the queue pair is reset; a queue that holds them is not
 * made smaller. */
static void check_reset(void) {
  create_both(IBV_QPT_RC, RELIABLE);
  receive();
  receive();
  to_state(far, IBV_QPS_ERR, 0);
  CHECK(ibv_resize_cq(plain(), 1) == EINVAL);
  CHECK(ibv_resize_cq(plain(), 2) == 0 && plain()->cqe >= 2);
  to_state(far, IBV_QPS_RESET, 0);
  CHECK(is_empty() && ibv_resize_cq(plain(), 1) == 0);
  destroy_both();
}

int main(void) {
  context = open_first_device();
  if (!context) return 3;
  pd = ibv_alloc_pd(context);
  cq = try_queue((struct ibv_cq_init_attr_ex){.wc_flags = IBV_WC_STANDARD_FLAGS});
  mr = ibv_reg_mr(pd, &memory, sizeof memory,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC);
  NEED(pd && cq && mr && !ibv_query_gid(context, 1, 0, &gid));
  check_connected();
  check_datagrams();
  check_batch();
  check_refusals();
  check_queue_pairs_that_are_none();
  check_queues_that_are_none();
  check_threads();
  check_parent_domain();
  check_registering_again();
  check_windows();
  check_reset();
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(plain()) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  puts("done");
  return wrong ? 1 : 0;
}
