// SPDX-License-Identifier: GPL-2.0-or-later
// Calls verbs in random order, with random attributes, from several threads: call_fuzz SEED STEPS
// THREADS [FILE]. In the end there is a FILE of the library's. Objects are destroyed while others
// use them, memory goes right after its region. What a program may not do with real hardware, to
// use a pointer to what it destroyed, is not done here: a slot's lock keeps its object alive. Ends
// with "done", or by a signal.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kSlots = 8, kBytes = 8192, kBatch = 8, kLongestS = 120 };
enum kind { PD, MR, MW, CHANNEL, CQ, SRQ, QP, AH, kKinds };

struct slot {
  pthread_rwlock_t lock;
  void *object;
  void *memory;  // of a region
  int extended;  // a completion queue that ibv_create_cq_ex made
};

static struct slot slots[kKinds][kSlots];
static struct ibv_context *context;
static long steps;

struct thread {
  pthread_t id;
  uint64_t state;
  long done[2];  // calls that succeeded, and that did not
};

static uint32_t below(struct thread *self, uint32_t bound) {
  self->state ^= self->state << 13;
  self->state ^= self->state >> 7;
  self->state ^= self->state << 17;
  return (uint32_t)(self->state >> 20) % bound;
}

// Mostly a sensible value, now and then anything.
static uint32_t odd(struct thread *self, uint32_t sensible) {
  if (below(self, 8) != 0) return sensible;
  return below(self, 2) ? (uint32_t)self->state : below(self, 64);
}

static void count(struct thread *self, int failed) { ++self->done[failed != 0]; }

static struct slot *pick(struct thread *self, enum kind kind) {
  return &slots[kind][below(self, kSlots)];
}

// The object stays while it is held; NULL: there is none.
static void *hold(struct slot *slot) {
  pthread_rwlock_rdlock(&slot->lock);
  return slot->object;
}

static void release(struct slot *slot) { pthread_rwlock_unlock(&slot->lock); }

static int destroy_object(enum kind kind, struct slot *slot) {
  switch (kind) {
    case PD:
      return ibv_dealloc_pd(slot->object);
    case MR: {
      const int failed = ibv_dereg_mr(slot->object);
      if (!failed) munmap(slot->memory, kBytes);
      return failed;
    }
    case MW:
      return ibv_dealloc_mw(slot->object);
    case CHANNEL:
      return ibv_destroy_comp_channel(slot->object);
    case CQ:
      return ibv_destroy_cq(slot->object);
    case SRQ:
      return ibv_destroy_srq(slot->object);
    case QP:
      return ibv_destroy_qp(slot->object);
    default:
      return ibv_destroy_ah(slot->object);
  }
}

static void destroy(struct thread *self) {
  const enum kind kind = below(self, kKinds);
  struct slot *slot = pick(self, kind);
  pthread_rwlock_wrlock(&slot->lock);
  if (slot->object != NULL) {
    const int failed = destroy_object(kind, slot);
    count(self, failed);
    if (!failed) slot->object = NULL;
  }
  pthread_rwlock_unlock(&slot->lock);
}

static void random_ah(struct thread *self, struct ibv_ah_attr *attr) {
  memset(attr, 0, sizeof *attr);
  attr->is_global = odd(self, 1) & 1;
  attr->port_num = odd(self, 1);
  attr->grh.sgid_index = odd(self, 0);
  attr->grh.hop_limit = 64;
  attr->grh.flow_label = odd(self, 0);
  ibv_query_gid(context, 1, 0, &attr->grh.dgid);
  attr->grh.dgid.raw[below(self, 16)] = odd(self, attr->grh.dgid.raw[15]);
}

static void *create_region(struct thread *self, struct ibv_pd *pd, struct slot *slot) {
  slot->memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slot->memory == MAP_FAILED) return NULL;
  struct ibv_mr *region = ibv_reg_mr(
      pd, slot->memory, below(self, 16) ? kBytes : odd(self, 1) % kBytes,
      odd(self, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND));
  if (region == NULL) munmap(slot->memory, kBytes);
  return region;
}

static void *create_qp(struct thread *self, struct ibv_pd *pd) {
  static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC,         IBV_QPT_UC,
                                           IBV_QPT_UD, IBV_QPT_RAW_PACKET, (enum ibv_qp_type)1};
  struct slot *send = pick(self, CQ), *receive = pick(self, CQ), *srq = pick(self, SRQ);
  struct ibv_qp_init_attr_ex attr = {
      .send_cq = hold(send),
      .recv_cq = hold(receive),
      .cap = {odd(self, 16), odd(self, 16), odd(self, 2), odd(self, 2), odd(self, 64)},
      .qp_type = odd(self, types[below(self, 6)]),
      .sq_sig_all = below(self, 2),
      .comp_mask = odd(self, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS),
      .pd = pd,
  };
  attr.send_ops_flags = odd(self, attr.qp_type == IBV_QPT_RC   ? 0x3FF
                                  : attr.qp_type == IBV_QPT_UC ? 0x18F
                                                               : 0xC);
  attr.srq = hold(srq);
  if (below(self, 2)) attr.srq = NULL;
  if (attr.send_cq == NULL) attr.send_cq = attr.recv_cq;
  if (below(self, 2)) attr.comp_mask = IBV_QP_INIT_ATTR_PD;  // as ibv_create_qp
  void *made = attr.send_cq && attr.recv_cq ? ibv_create_qp_ex(context, &attr) : NULL;
  release(srq);
  release(receive);
  release(send);
  return made;
}

static void *create_cq(struct thread *self, struct ibv_pd *pd, struct slot *slot) {
  struct slot *channel = pick(self, CHANNEL);
  struct ibv_comp_channel *to = hold(channel);
  if (below(self, 2)) to = NULL;
  struct ibv_cq_init_attr_ex attr = {.cqe = odd(self, 64),
                                     .channel = to,
                                     .comp_vector = odd(self, 0),
                                     .wc_flags = odd(self, IBV_WC_STANDARD_FLAGS),
                                     .comp_mask = odd(self, 0) & IBV_CQ_INIT_ATTR_MASK_PD,
                                     .parent_domain = pd};
  void *made;
  slot->extended = below(self, 2);
  if (slot->extended)
    made = ibv_create_cq_ex(context, &attr);
  else
    made = ibv_create_cq(context, attr.cqe, NULL, to, attr.comp_vector);
  release(channel);
  return made;
}

// Sometimes the parent of another one.
static void *create_domain(struct thread *self) {
  struct slot *other = pick(self, PD);
  struct ibv_parent_domain_init_attr attr = {.comp_mask = odd(self, 0)};
  if (below(self, 2) || pthread_rwlock_tryrdlock(&other->lock)) return ibv_alloc_pd(context);
  attr.pd = other->object;
  void *made = ibv_alloc_parent_domain(context, &attr);
  release(other);
  return made;
}

static void *create_channel(void) {
  struct ibv_comp_channel *made = ibv_create_comp_channel(context);
  if (made != NULL) fcntl(made->fd, F_SETFL, O_NONBLOCK);
  return made;
}

static void *create_object(struct thread *self, enum kind kind, struct ibv_pd *pd,
                           struct slot *slot) {
  if (kind == PD) return create_domain(self);
  if (kind == CHANNEL) return create_channel();
  if (kind == CQ) return create_cq(self, pd, slot);
  if (pd == NULL) return NULL;
  if (kind == MR) return create_region(self, pd, slot);
  if (kind == MW) return ibv_alloc_mw(pd, odd(self, IBV_MW_TYPE_1 + below(self, 2)));
  if (kind == QP) return create_qp(self, pd);
  if (kind == SRQ) {
    struct ibv_srq_init_attr attr = {.attr = {odd(self, 16), odd(self, 2), odd(self, 0)}};
    return ibv_create_srq(pd, &attr);
  }
  struct ibv_ah_attr attr;
  random_ah(self, &attr);
  return ibv_create_ah(pd, &attr);
}

static void create(struct thread *self) {
  const enum kind kind = below(self, kKinds);
  struct slot *slot = pick(self, kind), *domain = pick(self, PD);
  struct ibv_pd *pd = kind == PD ? NULL : hold(domain);
  pthread_rwlock_wrlock(&slot->lock);
  if (slot->object == NULL) {
    slot->object = create_object(self, kind, pd, slot);
    count(self, slot->object == NULL);
  }
  pthread_rwlock_unlock(&slot->lock);
  if (kind != PD) release(domain);
}

// Brings it to RTS, connected to a queue pair of this RNIC; sometimes by an attribute that is odd.
static void connect(struct thread *self) {
  struct slot *slot = pick(self, QP), *other = pick(self, QP);
  struct ibv_qp *peer = hold(other);
  const uint32_t number = peer != NULL ? peer->qp_num : odd(self, 99);
  release(other);
  struct ibv_qp *qp = hold(slot);
  if (qp != NULL) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = odd(self, 1), .qkey = 7};
    attr.qp_access_flags = odd(self, 15);
    const int ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    ibv_modify_qp(qp, &attr, mask | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    random_ah(self, &attr.ah_attr);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = odd(self, IBV_MTU_1024);
    attr.dest_qp_num = number;
    attr.max_dest_rd_atomic = odd(self, 4);
    attr.min_rnr_timer = 1;
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE : mask);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = odd(self, 1);
    attr.retry_cnt = attr.rnr_retry = odd(self, 1);
    attr.max_rd_atomic = odd(self, 4);
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    count(self, ibv_modify_qp(qp, &attr, mask));
  }
  release(slot);
}

static void modify(struct thread *self) {
  struct slot *slot = pick(self, QP);
  struct ibv_qp *qp = hold(slot);
  if (qp != NULL) {
    struct ibv_qp_attr attr;
    for (size_t i = 0; i < sizeof attr; ++i) ((uint8_t *)&attr)[i] = odd(self, 0);
    random_ah(self, &attr.ah_attr);
    attr.qp_state = below(self, 8);
    count(self, ibv_modify_qp(qp, &attr, odd(self, IBV_QP_STATE)));
  }
  release(slot);
}

// An element inside a region that may go before the request is done; or any at all.
static void random_element(struct thread *self, struct ibv_sge *element, int must_exist) {
  struct slot *slot = pick(self, MR);
  struct ibv_mr *region = hold(slot);
  memset(element, 0, sizeof *element);
  if (region != NULL) {
    const uint32_t offset = below(self, region->length);
    element->addr = (uintptr_t)region->addr + offset;
    element->length = below(self, region->length - offset + 1);
    element->lkey = region->lkey;
  }
  if (!must_exist && below(self, 8) == 0) {
    element->addr = self->state;
    element->length = odd(self, 100);
    element->lkey = odd(self, element->lkey);
  }
  release(slot);
}

// Inline data is read while it is posted: its memory exists.
static void post_send(struct thread *self) {
  static uint8_t existing[64];
  struct slot *slot = pick(self, QP), *address = pick(self, AH), *far = pick(self, MR);
  struct ibv_ah *ah = hold(address);
  struct ibv_qp *qp = hold(slot);
  struct ibv_mr *remote = hold(far);
  if (qp != NULL) {
    struct ibv_send_wr chain[2], *bad = NULL;
    struct ibv_sge elements[2][2];
    memset(chain, 0, sizeof chain);
    for (int i = 0; i < 2; ++i) {
      struct ibv_send_wr *wr = &chain[i];
      for (int e = 0; e < 2; ++e) random_element(self, &elements[i][e], 0);
      wr->sg_list = elements[i];
      wr->num_sge = below(self, 16) ? (int)below(self, 3) : (int)odd(self, 0) % 2;
      wr->opcode = odd(self, below(self, 7));
      wr->send_flags = odd(self, IBV_SEND_SIGNALED) & ~IBV_SEND_INLINE;
      if (below(self, 8) == 0) {
        elements[i][0] = (struct ibv_sge){(uintptr_t)existing, below(self, 65), 0};
        wr->num_sge = 1;
        wr->send_flags |= IBV_SEND_INLINE;
      }
      if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) {
        wr->wr.ud.ah = ah;
        wr->wr.ud.remote_qpn = odd(self, qp->qp_num);
        wr->wr.ud.remote_qkey = 7;
      } else if (remote != NULL) {
        wr->wr.atomic.remote_addr = (uintptr_t)remote->addr + 8 * below(self, 900);
        wr->wr.atomic.rkey = odd(self, remote->rkey);
        if (wr->opcode <= IBV_WR_RDMA_READ) {
          wr->wr.rdma.remote_addr = (uintptr_t)remote->addr + below(self, kBytes);
          wr->wr.rdma.rkey = odd(self, remote->rkey);
        }
      }
    }
    if (below(self, 2)) chain[0].next = &chain[1];
    count(self, ibv_post_send(qp, chain, &bad));
  }
  release(far);
  release(slot);
  release(address);
}

// The same by ibv_wr_*: some operations that were not asked for, some without what they need.
static void build(struct thread *self) {
  static uint8_t existing[64];
  struct slot *slot = pick(self, QP), *address = pick(self, AH), *far = pick(self, MR);
  struct ibv_ah *ah = hold(address);
  struct ibv_qp *held = hold(slot);
  struct ibv_mr *remote = hold(far);
  struct ibv_qp_ex *qp = held != NULL ? ibv_qp_to_qp_ex(held) : NULL;
  if (qp != NULL) {
    const uint32_t rkey = odd(self, remote != NULL ? remote->rkey : 0);
    const uint64_t at = remote != NULL ? (uintptr_t)remote->addr + 8 * below(self, 900) : 0;
    ibv_wr_start(qp);
    for (int left = (int)below(self, 4); left != 0; --left) {
      struct ibv_sge elements[2];
      for (int e = 0; e < 2; ++e) random_element(self, &elements[e], 0);
      qp->wr_id = left;
      qp->wr_flags = odd(self, IBV_SEND_SIGNALED);
      switch (below(self, 9)) {
        case 0:
          ibv_wr_send_imm(qp, 1);
          break;
        case 1:
          ibv_wr_send_inv(qp, rkey);
          break;
        case 2:
          ibv_wr_rdma_write(qp, rkey, at);
          break;
        case 3:
          ibv_wr_rdma_write_imm(qp, rkey, at, 1);
          break;
        case 4:
          ibv_wr_rdma_read(qp, rkey, at);
          break;
        case 5:
          ibv_wr_atomic_cmp_swp(qp, rkey, at, 0, 1);
          break;
        case 6:
          ibv_wr_atomic_fetch_add(qp, rkey, at, 1);
          break;
        default:
          ibv_wr_send(qp);
      }
      if (below(self, 16)) ibv_wr_set_ud_addr(qp, ah, odd(self, held->qp_num), 7);
      const struct ibv_data_buf parts[] = {{existing, below(self, 40)}, {NULL, 0}};
      switch (below(self, 5)) {
        case 0:
          ibv_wr_set_inline_data(qp, existing, below(self, 65));
          break;
        case 1:
          ibv_wr_set_inline_data_list(qp, 2, parts);
          break;
        case 2:
          ibv_wr_set_sge_list(qp, below(self, 3), elements);
          break;
        default:
          ibv_wr_set_sge(qp, elements[0].lkey, elements[0].addr, elements[0].length);
      }
    }
    if (below(self, 8))
      count(self, ibv_wr_complete(qp));
    else
      ibv_wr_abort(qp);
  }
  release(far);
  release(slot);
  release(address);
}

// By ibv_bind_mw, ibv_wr_bind_mw, or a request; or a key becomes invalid.
static void bind(struct thread *self) {
  struct slot *slot = pick(self, QP), *windows = pick(self, MW), *regions = pick(self, MR);
  struct ibv_mr *region = hold(regions);
  struct ibv_qp *qp = hold(slot);
  pthread_rwlock_wrlock(&windows->lock);  // ibv_bind_mw changes its key
  struct ibv_mw *window = windows->object;
  if (qp != NULL && window != NULL) {
    struct ibv_mw_bind info = {.wr_id = 5, .send_flags = odd(self, IBV_SEND_SIGNALED)};
    if (region != NULL) {
      info.bind_info.mr = region;
      info.bind_info.addr = (uintptr_t)region->addr + below(self, 64);
      info.bind_info.length = odd(self, below(self, 4096));
    }
    info.bind_info.mw_access_flags = odd(self, IBV_ACCESS_REMOTE_WRITE);
    const uint32_t key = odd(self, window->rkey + below(self, 2));
    struct ibv_send_wr wr = {.send_flags = info.send_flags}, *bad;
    struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
    if (below(self, 3) == 0) {
      count(self, ibv_bind_mw(qp, window, &info));
    } else if (extended != NULL && below(self, 2)) {
      ibv_wr_start(extended);
      ibv_wr_bind_mw(extended, window, key, &info.bind_info);
      if (below(self, 2)) ibv_wr_local_inv(extended, key);
      count(self, ibv_wr_complete(extended));
    } else if (below(self, 2)) {
      wr.opcode = IBV_WR_LOCAL_INV;
      wr.invalidate_rkey = key;
      count(self, ibv_post_send(qp, &wr, &bad));
    } else {
      wr.opcode = IBV_WR_BIND_MW;
      wr.bind_mw.mw = window;
      wr.bind_mw.rkey = key;
      wr.bind_mw.bind_info = info.bind_info;
      count(self, ibv_post_send(qp, &wr, &bad));
    }
  }
  pthread_rwlock_unlock(&windows->lock);
  release(slot);
  release(regions);
}

// A part of the same memory; nobody reads the region's fields meanwhile.
static void register_again(struct thread *self) {
  struct slot *slot = pick(self, MR), *domain = pick(self, PD);
  struct ibv_pd *pd = hold(domain);
  pthread_rwlock_wrlock(&slot->lock);
  if (slot->object != NULL) {
    const uint32_t offset = below(self, kBytes);
    count(self, ibv_rereg_mr(slot->object, odd(self, below(self, 8)), pd,
                             (uint8_t *)slot->memory + offset, below(self, kBytes - offset + 1),
                             odd(self, below(self, 16))));
  }
  pthread_rwlock_unlock(&slot->lock);
  release(domain);
}

static void post_receive(struct thread *self) {
  const int shared = below(self, 3) == 0;
  struct slot *slot = pick(self, shared ? SRQ : QP);
  void *queue = hold(slot);
  if (queue != NULL) {
    struct ibv_sge elements[2];
    for (int e = 0; e < 2; ++e) random_element(self, &elements[e], 0);
    struct ibv_recv_wr wr = {.sg_list = elements, .num_sge = odd(self, 1) % 3}, *bad = NULL;
    count(self, shared ? ibv_post_srq_recv(queue, &wr, &bad) : ibv_post_recv(queue, &wr, &bad));
  }
  release(slot);
}

static void read_completions(struct thread *self, struct ibv_cq_ex *cq) {
  struct ibv_poll_cq_attr attr = {.comp_mask = odd(self, 0)};
  if (ibv_start_poll(cq, &attr) != 0) return;
  do {
    ibv_wc_read_opcode(cq);
    ibv_wc_read_byte_len(cq);
    ibv_wc_read_imm_data(cq);
  } while (below(self, kBatch) && ibv_next_poll(cq) == 0);
  ibv_end_poll(cq);
}

static void look_at_queue(struct thread *self) {
  struct slot *slot = pick(self, CQ);
  struct ibv_cq *cq = hold(slot);
  if (cq != NULL) {
    struct ibv_wc wc[kBatch];
    if (below(self, 8) == 0) count(self, ibv_resize_cq(cq, odd(self, 100)));
    if (below(self, 4) == 0) count(self, ibv_req_notify_cq(cq, below(self, 2)));
    if (slot->extended && below(self, 2))
      read_completions(self, (struct ibv_cq_ex *)cq);
    else
      count(self, ibv_poll_cq(cq, below(self, kBatch + 1), wc) < 0);
  }
  release(slot);
}

static void take_events(struct thread *self) {
  struct slot *slot = pick(self, CHANNEL);
  struct ibv_comp_channel *channel = hold(slot);
  struct ibv_cq *cq;
  void *given;
  if (channel != NULL && ibv_get_cq_event(channel, &cq, &given) == 0) ibv_ack_cq_events(cq, 1);
  release(slot);
  struct ibv_async_event event;
  if (ibv_get_async_event(context, &event) == 0) {
    ibv_event_type_str(event.event_type);
    ibv_ack_async_event(&event);
  }
}

static void ask(struct thread *self) {
  struct slot *slot = pick(self, QP), *shared = pick(self, SRQ);
  struct ibv_qp *qp = hold(slot);
  struct ibv_srq *srq = hold(shared);
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  struct ibv_srq_attr limits = {odd(self, 32), 1, odd(self, 1)};
  if (qp != NULL) count(self, ibv_query_qp(qp, &attr, odd(self, IBV_QP_STATE), &init));
  if (srq != NULL) {
    count(self, ibv_modify_srq(srq, &limits, odd(self, IBV_SRQ_LIMIT)));
    count(self, ibv_query_srq(srq, &limits));
  }
  release(shared);
  release(slot);
  union ibv_gid gid;
  struct ibv_port_attr port;
  __be16 pkey;
  count(self, ibv_query_gid(context, odd(self, 1), odd(self, 0), &gid));
  count(self, ibv_query_port(context, odd(self, 1), &port));
  count(self, ibv_query_pkey(context, odd(self, 1), odd(self, 0), &pkey));
  ibv_wc_status_str(odd(self, 0));
}

static void *run(void *argument) {
  static void (*const calls[])(struct thread *) = {
      create,        create,        create,         destroy,   connect,
      connect,       modify,        post_send,      post_send, post_receive,
      ask,           post_receive,  build,          build,     take_events,
      look_at_queue, look_at_queue, register_again, bind};
  struct thread *self = argument;
  for (long step = 0; step < steps; ++step) calls[below(self, sizeof calls / sizeof *calls)](self);
  return NULL;
}

static int finish(void) {
  static const enum kind order[] = {QP, SRQ, AH, MW, MR, CQ, CHANNEL, PD, PD};  // children, parents
  for (int i = 0; i <= kKinds; ++i)
    for (int n = 0; n < kSlots; ++n) {
      struct slot *slot = &slots[order[i]][n];
      if (slot->object == NULL) continue;
      const int failed = destroy_object(order[i], slot);
      if (!failed) slot->object = NULL;
      if (failed && i != kKinds - 1)
        return fprintf(stderr, "kind %d stays: %s\n", order[i], strerror(failed)), 1;
    }
  return ibv_close_device(context);
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) return 2;
  enum { kMostThreads = 16 };
  static struct thread threads[kMostThreads];
  const int count = atoi(argv[3]) < kMostThreads ? atoi(argv[3]) : kMostThreads;
  steps = atol(argv[2]);
  alarm(kLongestS);  // a deadlock ends by SIGALRM
  for (int kind = 0; kind < kKinds; ++kind)
    for (int n = 0; n < kSlots; ++n) pthread_rwlock_init(&slots[kind][n].lock, NULL);
  struct ibv_device **list = ibv_get_device_list(NULL);
  context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
  if (context == NULL) return 3;
  ibv_free_device_list(list);
  fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  for (int n = 0; n < count; ++n) {
    threads[n].state = (strtoull(argv[1], NULL, 0) + (uint64_t)n + 1) * 0x9E3779B97F4A7C15;
    pthread_create(&threads[n].id, NULL, run, &threads[n]);
  }
  long succeeded = 0, failed = 0;
  for (int n = 0; n < count; ++n) {
    pthread_join(threads[n].id, NULL);
    succeeded += threads[n].done[0];
    failed += threads[n].done[1];
  }
  if (argc == 5 && access(argv[4], F_OK)) return perror(argv[4]), 5;
  if (finish() != 0) return 4;
  printf("done %ld %ld\n", succeeded, failed);
  return 0;
}
