/* SPDX-License-Identifier: GPL-2.0-or-later
 * `message_cost write|send CHAIN MESSAGES`: a reliable connection of one RNIC with itself carries
 * messages of 64 bytes, posted in chains. Who counts the instructions for two numbers of messages
 * knows what a message costs. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../tests/programs/connection.h"

enum { BYTES = 64, LONGEST = 16, SETTLES_US = 200000 };

static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char memory[2][BYTES];
static int chained;

/* The library's clock. Time passes as it is looked at: a program whose instructions are counted is
 * slow, and would otherwise be taken for one that polls no more. */
int clock_gettime(clockid_t id, struct timespec *now) {
  enum { LOOK_NS = 40, NS_PER_S = 1000000000 };
  static atomic_llong passed_ns = NS_PER_S;
  const long long at_ns = atomic_fetch_add(&passed_ns, LOOK_NS);

  (void)id;
  *now = (struct timespec){.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S};
  return 0;
}

static void receive(struct ibv_qp *qp) {
  struct ibv_sge to = {(uintptr_t)memory[1], BYTES, mr->lkey};
  struct ibv_recv_wr chain[LONGEST] = {0}, *bad;

  for (int i = 0; i < chained; i++)
    chain[i] = (struct ibv_recv_wr){
        .sg_list = &to, .num_sge = 1, .next = i + 1 < chained ? &chain[i + 1] : NULL};
  NEED(!ibv_post_recv(qp, chain, &bad));
}

static void send(struct ibv_qp *qp, enum ibv_wr_opcode opcode) {
  struct ibv_sge from = {(uintptr_t)memory[0], BYTES, mr->lkey};
  struct ibv_send_wr chain[LONGEST] = {0}, *bad;

  for (int i = 0; i < chained; i++) {
    chain[i] = (struct ibv_send_wr){.sg_list = &from,
                                    .num_sge = 1,
                                    .opcode = opcode,
                                    .send_flags = IBV_SEND_SIGNALED,
                                    .next = i + 1 < chained ? &chain[i + 1] : NULL};
    chain[i].wr.rdma.remote_addr = (uintptr_t)memory[1];
    chain[i].wr.rdma.rkey = mr->rkey;
  }
  NEED(!ibv_post_send(qp, chain, &bad));
}

static void await(int completions) {
  struct ibv_wc wc[LONGEST];

  while (completions != 0) {
    const int polled = ibv_poll_cq(cq, LONGEST, wc);
    NEED(polled >= 0);
    for (int i = 0; i < polled; i++) NEED(wc[i].status == IBV_WC_SUCCESS);
    completions -= polled;
  }
}

int main(int argc, char **argv) {
  NEED(argc == 4 && (chained = atoi(argv[2])) <= LONGEST);
  const int sends = !strcmp(argv[1], "send");
  struct ibv_context *context = open_first_device();
  NEED(context);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {LONGEST, LONGEST, 1, 1, 0}};
  union ibv_gid gid;

  NEED(init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 4 * LONGEST, NULL, NULL, 0));
  NEED(mr =
           ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  NEED(!ibv_query_gid(context, 1, 0, &gid));
  struct ibv_qp *near = ibv_create_qp(pd, &init), *far = ibv_create_qp(pd, &init);
  NEED(near && far);
  ack_timeout = 20; /* 4 s: nothing is repeated, however slowly this runs */
  connect_to(near, far->qp_num, gid);
  connect_to(far, near->qp_num, gid);
  usleep(SETTLES_US); /* backups are made in the background */
  for (int left = atoi(argv[3]); left > 0; left -= chained) {
    if (sends) receive(far);
    send(near, sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE);
    await(sends ? 2 * chained : chained);
  }
  memory[1][0] = 0;
  NEED(!memcmp(memory[0], memory[1], BYTES));
  return 0;
}
