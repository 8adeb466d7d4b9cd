/* SPDX-License-Identifier: GPL-2.0-or-later
 * What the programs that talk with themselves share: one RNIC, and queue pairs connected with each
 * other. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_S = 10 };

static uint8_t ack_timeout = 10; /* 4 ms */

/* Ends the program: without it nothing that follows makes sense. */
#define NEED(what) \
  ((what) ? (void)0 : (fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what), exit(1)))

/* The first device that there is; NULL without one. */
static struct ibv_context *open_first_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

  if (list) ibv_free_device_list(list);
  return context;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                IBV_ACCESS_REMOTE_ATOMIC};
  NEED(!ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = peer,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid = gid}};
  NEED(!ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                              .timeout = ack_timeout,
                              .retry_cnt = 7,
                              .rnr_retry = 6,
                              .max_rd_atomic = 1};
  NEED(!ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}
