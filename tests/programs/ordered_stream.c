/* SPDX-License-Identifier: GPL-2.0-or-later
 * ordered_stream [MODE] serves one client; ordered_stream SERVER [MODE] sends to it until its input
 * ends. A mode is another way to do the same:
 *   srq       receives are an SRQ's
 *   events    a process sleeps until its completion queue rings
 *   extended  requests are built by ibv_wr_*
 *   regions   a slot is registered anew for each message, and in the end a request has an old key
 *   forks     children use what they inherit, now and then
 *   refusals  requests that no queue pair takes, and more than it has room for
 *
 * The client WRITEs message i into slot i mod SLOTS of the server, and SENDs its number. The server
 * looks whether numbers come in order and once, whether the slot then has what was written, and
 * SENDs the number back. In the end all slots have their last message: nothing was written twice
 * later on. Each ends with status 0 if all is so. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connection.h"

/* Two receives more than messages are on their way: one that is lost is missed soon. */
enum { SLOTS = 16, BYTES = 20000, RECEIVES = SLOTS + 2, TCP_PORT = 18515, END = 0xFFFFFF };
enum { SENT_BYTES = 5000 }; /* of a number's message: several packets */
enum { FORK_EVERY = 100, REFUSE_EVERY = 10, REQUESTS = 2 * RECEIVES };

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
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr, *into, *mr_of[SLOTS];
static const char *mode = "";
static int refused; /* for want of room */
static unsigned char slots[SLOTS][BYTES], received[RECEIVES][SENT_BYTES];
static struct address peer;
static uint32_t next_send, next_send_done, next_receive;

static int is(const char *asked) { return !strcmp(mode, asked); }

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

static int64_t poll_number(void);

/* One after the other, each as soon as there is room. */
static void post(struct ibv_send_wr *wr) {
  struct ibv_send_wr *bad;

  for (int error; (error = ibv_post_send(qp, wr, &bad)) != 0; wr = bad) {
    NEED(error == ENOMEM && is("refusals"));
    refused++;
    poll_number();
  }
}

static void build(const struct ibv_send_wr *wr) {
  struct ibv_qp_ex *to = ibv_qp_to_qp_ex(qp);

  ibv_wr_start(to);
  for (; wr; wr = wr->next) {
    to->wr_id = wr->wr_id;
    to->wr_flags = wr->send_flags;
    if (wr->opcode == IBV_WR_RDMA_WRITE)
      ibv_wr_rdma_write(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
    else
      ibv_wr_send_imm(to, wr->imm_data);
    ibv_wr_set_sge(to, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
  }
  NEED(!ibv_wr_complete(to));
}

static void send_number(uint32_t number, int with_slot) {
  const struct ibv_mr *region = mr_of[number % SLOTS] ? mr_of[number % SLOTS] : mr;
  struct ibv_sge from = {(uintptr_t)slots[number % SLOTS], BYTES, region->lkey};
  struct ibv_sge part = {(uintptr_t)slots[number % SLOTS], SENT_BYTES, region->lkey};
  struct ibv_send_wr send = {.wr_id = next_send++,
                             .sg_list = &part,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htonl(number)};
  struct ibv_send_wr put = {
      .wr_id = number, .sg_list = &from, .num_sge = 1, .next = &send, .opcode = IBV_WR_RDMA_WRITE};

  put.wr.rdma.remote_addr = peer.slots + (uint64_t)(number % SLOTS) * BYTES;
  put.wr.rdma.rkey = peer.rkey;
  if (is("extended"))
    build(with_slot ? &put : &send);
  else
    post(with_slot ? &put : &send);
}

/* The queue is empty. Looks at it once more before it sleeps. */
static void wait_for_event(void) {
  static int armed;
  struct ibv_cq *from;
  void *context_of_it;

  if (armed) {
    NEED(!ibv_get_cq_event(channel, &from, &context_of_it) && from == cq);
    ibv_ack_cq_events(cq, 1);
  } else {
    NEED(!ibv_req_notify_cq(cq, 0));
  }
  armed = !armed;
}

/* The number that came next; -1: none yet. */
static int64_t poll_number(void) {
  struct ibv_wc wc;

  if (ibv_poll_cq(cq, 1, &wc) == 0) {
    if (channel) wait_for_event();
    return -1;
  }
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

/* The slot's last message is over at both ends. */
static void register_slot(uint32_t number) {
  struct ibv_mr **slot = &mr_of[number % SLOTS];

  while (number >= SLOTS && next_send_done <= number - SLOTS) poll_number();
  if (*slot) NEED(!ibv_dereg_mr(*slot));
  NEED(*slot = ibv_reg_mr(pd, slots[number % SLOTS], BYTES, IBV_ACCESS_LOCAL_WRITE));
}

/* With the key of a region that is gone. */
static void send_by_old_key(uint32_t number) {
  struct ibv_mr **slot = &mr_of[number % SLOTS];
  struct ibv_sge from = {(uintptr_t)slots[number % SLOTS], BYTES, (*slot)->lkey};
  struct ibv_send_wr wr = {.sg_list = &from,
                           .num_sge = 1,
                           .opcode = IBV_WR_SEND,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  struct ibv_wc wc;

  while (next_send_done < next_send) poll_number();
  NEED(!ibv_dereg_mr(*slot));
  NEED(!ibv_post_send(qp, &wr, &bad));
  while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
  puts(ibv_wc_status_str(wc.status));
  exit(0);
}

/* It has no device any more, and leaves its parent's alone. */
static void fork_a_child(void) {
  int status = -1;
  const pid_t child = fork();

  if (child == 0) {
    struct ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc) != 0 || ibv_req_notify_cq(cq, 0)) _exit(1);
    exit(ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dereg_mr(mr));
  }
  NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void post_too_much(void) {
  struct ibv_sge parts[2] = {{(uintptr_t)slots, 1, mr->lkey}, {(uintptr_t)slots, 1, mr->lkey}};
  struct ibv_send_wr fine = {.opcode = IBV_WR_RDMA_WRITE}, wrong = fine, *bad;

  wrong.sg_list = parts;
  wrong.num_sge = 2;
  fine.next = &wrong;
  for (int i = 0, error; i < 3 * REQUESTS; i++) {
    error = ibv_post_send(qp, &fine, &bad);
    NEED(error == ENOMEM || (error == EINVAL && bad == &wrong));
    if (error == ENOMEM) return;
  }
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
      if (is("regions")) register_slot(number);
      if (is("forks") && number % FORK_EVERY == 0) fork_a_child();
      if (is("refusals") && number % REFUSE_EVERY == 0) post_too_much();
      fill(number);
      send_number(number++, 1);
    }
    poll_number();
  }
  if (is("regions")) send_by_old_key(number - 1);
  if (is("refusals")) NEED(refused != 0);
  send_number(END, 0);
}

static struct ibv_qp *create_qp(void) {
  struct ibv_qp_init_attr_ex init = {
      .send_cq = cq,
      .recv_cq = cq,
      .srq = srq,
      .qp_type = IBV_QPT_RC,
      .cap = {REQUESTS, RECEIVES, 1, 1, 0},
      .comp_mask = IBV_QP_INIT_ATTR_PD,
      .pd = pd,
      .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_IMM};

  if (is("extended")) init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  return ibv_create_qp_ex(context, &init);
}

int main(int argc, char **argv) {
  const char *server = argc > 1 && strchr(argv[1], '.') ? argv[1] : NULL;
  struct ibv_srq_init_attr pool = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
  int fd;

  if (argc > 1 + (server != NULL)) mode = argv[argc - 1];

  NEED(context = open_first_device());
  NEED(pd = ibv_alloc_pd(context));
  NEED(mr = ibv_reg_mr(pd, slots, sizeof slots, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  NEED(into = ibv_reg_mr(pd, received, sizeof received, IBV_ACCESS_LOCAL_WRITE));
  if (is("events")) NEED(channel = ibv_create_comp_channel(context));
  NEED(cq = ibv_create_cq(context, 4 * RECEIVES, NULL, channel, 0));
  if (is("srq")) NEED(srq = ibv_create_srq(pd, &pool));
  NEED(qp = create_qp());
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
