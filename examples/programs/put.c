/* SPDX-License-Identifier: GPL-2.0-or-later
 * put: waits for one client, and prints the text that the client WRITEs into its memory.
 * put SERVER TEXT: the client. A connection of RC, whose ends tell each other their numbers by TCP.
 */
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEED(what) \
  ((what) ? (void)0 : (fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what), exit(1)))

struct end {
  union ibv_gid gid;
  uint64_t address;
  uint32_t qp, rkey;
};

/* The socket to `server`, or of the one who connects. */
static int meet(const char *server) {
  struct addrinfo hints = {.ai_family = AF_INET,
                           .ai_socktype = SOCK_STREAM,
                           .ai_flags = server ? 0 : AI_PASSIVE},
                  *at;
  int one = 1, fd;

  NEED(!getaddrinfo(server, "18515", &hints, &at));
  NEED((fd = socket(at->ai_family, at->ai_socktype, 0)) >= 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (server)
    NEED(!connect(fd, at->ai_addr, at->ai_addrlen));
  else
    NEED(!bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, 1) &&
         (fd = accept(fd, NULL, NULL)) >= 0);
  freeaddrinfo(at);
  return fd;
}

static struct end exchange(int fd, struct end own) {
  struct end peer;

  NEED(write(fd, &own, sizeof own) == sizeof own);
  NEED(recv(fd, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
  return peer;
}

static void connect_to(struct ibv_qp *qp, struct end peer) {
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer.qp,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .hop_limit = 64}}};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};

  NEED(!ibv_modify_qp(qp, &init,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  NEED(!ibv_modify_qp(qp, &rtr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  NEED(!ibv_modify_qp(qp, &rts,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void put(struct ibv_qp *qp, struct ibv_mr *mr, struct end peer) {
  struct ibv_sge text = {(uintptr_t)mr->addr, (uint32_t)mr->length, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &text,
                           .num_sge = 1,
                           .opcode = IBV_WR_RDMA_WRITE,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr.rdma = {peer.address, peer.rkey}},
                     *bad;
  struct ibv_wc wc = {0};

  NEED(!ibv_post_send(qp, &wr, &bad));
  while (!ibv_poll_cq(qp->send_cq, 1, &wc)) continue;
  if (wc.status == IBV_WC_SUCCESS) return;
  fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
  exit(1);
}

int main(int argc, char **argv) {
  static char memory[256];
  struct ibv_device **devices = ibv_get_device_list(NULL);
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_qp *qp;
  struct end own, peer;
  int fd = meet(argc > 1 ? argv[1] : NULL);

  NEED(devices && devices[0] && (context = ibv_open_device(devices[0])));
  NEED(pd = ibv_alloc_pd(context));
  NEED(mr =
           ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  NEED(init.send_cq = init.recv_cq = ibv_create_cq(context, 1, NULL, NULL, 0));
  NEED(qp = ibv_create_qp(pd, &init));
  own = (struct end){.address = (uintptr_t)memory, .qp = qp->qp_num, .rkey = mr->rkey};
  NEED(!ibv_query_gid(context, 1, 0, &own.gid)); /* GID 0: of the host's IPv4 address */
  peer = exchange(fd, own);
  connect_to(qp, peer);
  exchange(fd, own); /* both are connected */
  if (argc > 2) {
    snprintf(memory, sizeof memory, "%s", argv[2]);
    put(qp, mr, peer);
  }
  exchange(fd, own); /* the text is there */
  if (argc < 3) puts(memory);
  return 0;
}
