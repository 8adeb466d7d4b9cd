/* SPDX-License-Identifier: GPL-2.0-or-later
 * ordered_stream [srq] serves one client; ordered_stream SERVER [srq] sends to it until its input
 * ends.
 *
 * The client WRITEs message i into slot i mod SLOTS of the server, and SENDs its number. The server
 * looks whether numbers come in order and once, whether the slot then has what was written, and
 * SENDs the number back. In the end all slots have their last message: nothing was written twice
 * later on. Each ends with status 0 if all is so. */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"

/* Two receives more than messages are on their way: one that is lost is missed soon. */
enum { SLOTS = 16, BYTES = 20000, RECEIVES = SLOTS + 2, TCP_PORT = 18515, END = 0xFFFFFF };
enum { SENT_BYTES = 5000 }; /* of a number's message: several packets */

struct address {
  uint32_t qp, rkey;
  uint64_t slots;
  union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_mr *mr, *into;
static unsigned char slots[SLOTS][BYTES], received[RECEIVES][SENT_BYTES];
static struct address peer;
static uint32_t next_send, next_send_done, next_receive;

static unsigned char byte_of(uint32_t message, uint32_t at) {
  return (unsigned char)(message * 131 + at * 7 + (at >> 8));
}

static void fill(uint32_t message) {
  for (uint32_t at = 0; at < BYTES; at++) slots[message % SLOTS][at] = byte_of(message, at);
}

static void check(uint32_t message) {
  for (uint32_t at = 0; at < BYTES; at++)
    if (slots[message % SLOTS][at] != byte_of(message, at)) {
      fprintf(stderr, "message %u: byte %u is wrong\n", message, at);
      exit(1);
    }
}

static int by_tcp(const char *server) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(TCP_PORT)};
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

  if (server) {
    NEED(inet_pton(AF_INET, server, &address.sin_addr) == 1);
    NEED(!connect(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
  }
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  NEED(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 1));
  return accept(fd, NULL, NULL);
}

static void exchange(int fd) {
  struct address own = {.qp = qp->qp_num, .rkey = mr->rkey, .slots = (uintptr_t)slots};

  NEED(!ibv_query_gid(context, 1, 0, &own.gid));
  NEED(write(fd, &own, sizeof own) == sizeof own);
  NEED(recv(fd, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
}

static void meet(int fd) {
  char mark = 0;

  NEED(write(fd, &mark, 1) == 1 && read(fd, &mark, 1) == 1);
}

static void receive(uint64_t buffer) {
  struct ibv_sge to = {(uintptr_t)received[buffer], SENT_BYTES, into->lkey};
  struct ibv_recv_wr wr = {.wr_id = buffer, .sg_list = &to, .num_sge = 1}, *bad;

  NEED(srq ? !ibv_post_srq_recv(srq, &wr, &bad) : !ibv_post_recv(qp, &wr, &bad));
}

static void send_number(uint32_t number, int with_slot) {
  struct ibv_sge from = {(uintptr_t)slots[number % SLOTS], BYTES, mr->lkey};
  struct ibv_sge part = {(uintptr_t)slots[number % SLOTS], SENT_BYTES, mr->lkey};
  struct ibv_send_wr send = {.wr_id = next_send++,
                             .sg_list = &part,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htonl(number)};
  struct ibv_send_wr put = {
      .wr_id = number, .sg_list = &from, .num_sge = 1, .next = &send, .opcode = IBV_WR_RDMA_WRITE};
  struct ibv_send_wr *bad;

  put.wr.rdma.remote_addr = peer.slots + (uint64_t)(number % SLOTS) * BYTES;
  put.wr.rdma.rkey = peer.rkey;
  NEED(!ibv_post_send(qp, with_slot ? &put : &send, &bad));
}

/* The number that came next; -1: none yet. */
static int64_t poll_number(void) {
  struct ibv_wc wc;

  if (ibv_poll_cq(cq, 1, &wc) == 0) return -1;
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "after %u messages: %s\n", next_receive, ibv_wc_status_str(wc.status));
    exit(1);
  }
  NEED(wc.qp_num == qp->qp_num);
  if (!(wc.opcode & IBV_WC_RECV)) {
    NEED(wc.wr_id == next_send_done++);
    return -1;
  }
  NEED(wc.wr_id < RECEIVES);
  if (ntohl(wc.imm_data) != END) {
    NEED(ntohl(wc.imm_data) == next_receive++);
    NEED(!memcmp(received[wc.wr_id], slots[(next_receive - 1) % SLOTS], SENT_BYTES));
  }
  receive(wc.wr_id);
  return ntohl(wc.imm_data);
}

static void serve(void) {
  for (;;) {
    const int64_t number = poll_number();
    if (number < 0) continue;
    if (number == END) break;
    check((uint32_t)number);
    send_number((uint32_t)number, 0);
  }
  for (uint32_t i = next_receive > SLOTS ? next_receive - SLOTS : 0; i < next_receive; i++)
    check(i);
}

static int input_goes_on(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return poll(&input, 1, 0) == 0;
}

static void send_all(void) {
  uint32_t number = 0;

  for (int more = 1; more || next_receive < number;) {
    more = more && input_goes_on();
    if (more && number - next_receive < SLOTS) {
      fill(number);
      send_number(number++, 1);
    }
    poll_number();
  }
  send_number(END, 0);
}

int main(int argc, char **argv) {
  const int shares = !strcmp(argv[argc - 1], "srq");
  const char *server = argc - shares > 1 ? argv[1] : NULL;
  struct ibv_srq_init_attr pool = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {2 * RECEIVES, RECEIVES, 1, 1, 0}};
  int fd;

  NEED(context = open_first_device());
  NEED(pd = ibv_alloc_pd(context));
  NEED(mr = ibv_reg_mr(pd, slots, sizeof slots, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  NEED(into = ibv_reg_mr(pd, received, sizeof received, IBV_ACCESS_LOCAL_WRITE));
  NEED(init.send_cq = init.recv_cq = cq = ibv_create_cq(context, 4 * RECEIVES, NULL, NULL, 0));
  if (shares) NEED(init.srq = srq = ibv_create_srq(pd, &pool));
  NEED(qp = ibv_create_qp(pd, &init));
  fd = by_tcp(server);
  exchange(fd);
  ack_timeout = 14; /* 67 ms: a busy machine does not look like a dead NIC */
  connect_to(qp, peer.qp, peer.gid);
  for (uint64_t i = 0; i < RECEIVES; i++) receive(i);
  meet(fd);
  if (server)
    send_all();
  else
    serve();
  meet(fd); /* the other end has what it needs */
  printf("%u messages\n", next_receive);
  return 0;
}
