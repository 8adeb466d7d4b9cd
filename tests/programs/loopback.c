/* SPDX-License-Identifier: GPL-2.0-or-later
 * Two reliable connections of one RNIC, with each other: `loopback MESSAGES AT [exec|exit|_exit]`.
 * At message AT the process forks, and the child polls what it inherited; the parent goes on. Or
 * the process becomes `sleep`, or ends, with requests outstanding. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connection.h"

enum { BYTES = 5000 };

static void await(struct ibv_cq *cq, int completions) {
  const time_t until = time(NULL) + PATIENCE_S;
  struct ibv_wc wc;
  while (completions != 0) {
    const int polled = ibv_poll_cq(cq, 1, &wc);
    NEED(polled >= 0 && time(NULL) < until);
    NEED(polled == 0 || wc.status == IBV_WC_SUCCESS);
    completions -= polled;
  }
}

/* The library's thread completes the message meanwhile: that is for the parent alone. */
static void fork_and_poll(struct ibv_cq *cq) {
  usleep(100 * 1000);
  const pid_t child = fork();
  if (child == 0) {
    struct ibv_wc wc;
    _exit(ibv_poll_cq(cq, 1, &wc));
  }
  int status = -1;
  NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void leave(const char *way) {
  if (!strcmp(way, "exec")) execlp("sleep", "sleep", "60", NULL);
  if (!strcmp(way, "exit")) exit(0);
  _exit(0);
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) return 2;
  const int messages = atoi(argv[1]), fork_at = atoi(argv[2]);
  struct ibv_context *context = open_first_device();
  if (!context) return 3;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  unsigned char *memory = calloc(2, BYTES);
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
  union ibv_gid gid;
  if (!mr || ibv_query_gid(context, 1, 0, &gid)) return 4;
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {4, 4, 1, 1, 0}};
  struct ibv_qp *near = ibv_create_qp(pd, &init), *far = ibv_create_qp(pd, &init);
  if (!near || !far) return perror("ibv_create_qp"), 5;
  connect_to(near, far->qp_num, gid);
  connect_to(far, near->qp_num, gid);
  for (int message = 0; message < messages; ++message) {
    memset(memory, message + 1, BYTES);
    struct ibv_sge from = {(uintptr_t)memory, BYTES, mr->lkey};
    struct ibv_sge to = {(uintptr_t)memory + BYTES, BYTES, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *no_receive;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *no_send;
    if (ibv_post_recv(far, &receive, &no_receive)) return 6;
    if (ibv_post_send(near, &send, &no_send)) return 7;
    if (message == fork_at && argc == 4) leave(argv[3]);
    if (message == fork_at) fork_and_poll(cq);
    await(cq, 2);
    if (memcmp(memory, memory + BYTES, BYTES) != 0) return 8;
  }
  if (ibv_destroy_cq(cq) == 0) return 9; /* its queue pairs use it */
  if (ibv_destroy_qp(near) || ibv_destroy_qp(far) || ibv_destroy_cq(cq) || ibv_dereg_mr(mr) ||
      ibv_dealloc_pd(pd) || ibv_close_device(context))
    return 10;
  puts("done");
  return 0;
}
