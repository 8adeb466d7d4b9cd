/* SPDX-License-Identifier: GPL-2.0-or-later
 * Values and error codes of the verbs that make, ask and change objects. */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checks.h"
#include "connection.h"

enum { GIDS = 2, READS_AND_WRITES = PROT_READ | PROT_WRITE };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static long page_bytes;

static void check_port(void) {
  struct ibv_port_attr attr;
  CHECK(ibv_query_port(context, 2, &attr) == EINVAL);
  CHECK(ibv_query_port(context, 1, &attr) == 0);
  CHECK(attr.state == IBV_PORT_ACTIVE && attr.phys_state == 5);
  CHECK(attr.max_mtu == IBV_MTU_1024 && attr.active_mtu == IBV_MTU_1024);
  CHECK(attr.gid_tbl_len == GIDS && attr.pkey_tbl_len == 1);
  CHECK(attr.max_msg_sz == 1U << 31);
  CHECK(attr.link_layer == IBV_LINK_LAYER_ETHERNET);
}

/* The function of this name is for programs that know the structure as it was before 2019. */
#undef ibv_query_port
static void check_port_of_old_programs(void) {
  enum { OLD_BYTES = offsetof(struct ibv_port_attr, port_cap_flags2) };
  unsigned char area[sizeof(struct ibv_port_attr)];
  memset(area, 0xA5, sizeof area);
  CHECK(ibv_query_port(context, 1, (struct _compat_ibv_port_attr *)area) == 0);
  struct ibv_port_attr attr;
  memcpy(&attr, area, sizeof attr);
  CHECK(attr.max_msg_sz == 1U << 31 && attr.link_layer == IBV_LINK_LAYER_ETHERNET);
  for (size_t i = OLD_BYTES; i < sizeof area; ++i) CHECK(area[i] == 0xA5);
}

static void check_gids(void) {
  struct ibv_gid_entry entries[GIDS + 1], untouched[GIDS + 1];
  memset(untouched, 0xA5, sizeof untouched);
  memcpy(entries, untouched, sizeof entries);
  CHECK(ibv_query_gid_table(context, entries, GIDS - 1, 0) == -EINVAL);
  CHECK(ibv_query_gid_table(context, entries, GIDS, 1) == -EINVAL);
  CHECK(memcmp(entries, untouched, sizeof entries) == 0);
  CHECK(ibv_query_gid_table(context, entries, GIDS, 0) == GIDS);
  CHECK(ibv_query_gid_table(context, entries, GIDS + 1, 0) == GIDS);
  for (unsigned i = 0; i < GIDS; ++i) {
    struct ibv_gid_entry entry;
    union ibv_gid gid;
    CHECK(ibv_query_gid_ex(context, 1, i, &entry, 0) == 0);
    CHECK(ibv_query_gid(context, 1, i, &gid) == 0);
    CHECK(memcmp(&entry, &entries[i], sizeof entry) == 0);
    CHECK(memcmp(&entry.gid, &gid, sizeof gid) == 0);
    CHECK(entry.gid_index == i && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
  }
  CHECK(memcmp(&entries[GIDS], untouched, sizeof *entries) == 0);
  CHECK(ibv_query_gid_ex(context, 1, GIDS, entries, 0) == ENODATA);
}

static struct ibv_qp *create(enum ibv_qp_type type, int signal_all) {
  struct ibv_qp_init_attr init = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .cap = {5, 6, 2, 3, 64},
                                  .qp_type = type,
                                  .sq_sig_all = signal_all};
  return ibv_create_qp(pd, &init);
}

static void check_types(void) {
  REFUSES(EOPNOTSUPP, create(IBV_QPT_RAW_PACKET, 0));
  REFUSES(EOPNOTSUPP, create(IBV_QPT_XRC_SEND, 0));
  REFUSES(EOPNOTSUPP, create(IBV_QPT_DRIVER, 0));
}

static void check_queue_pair(int signal_all) {
  struct ibv_qp *qp = create(IBV_QPT_RC, signal_all);
  NEED(qp);
  union ibv_gid gid;
  NEED(!ibv_query_gid(context, 1, 0, &gid));
  connect_to(qp, qp->qp_num, gid);
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
  CHECK(attr.qp_state == IBV_QPS_RTS && attr.path_mtu == IBV_MTU_1024);
  CHECK(attr.timeout == 10 && attr.retry_cnt == 7 && attr.rnr_retry == 6);
  CHECK(attr.min_rnr_timer == 12 && attr.dest_qp_num == qp->qp_num);
  attr.min_rnr_timer = 32 + 7;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER) == 0);
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER, &init) == 0 && attr.min_rnr_timer == 7);
  CHECK(memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof gid) == 0);
  CHECK(init.qp_type == IBV_QPT_RC && init.sq_sig_all == signal_all);
  CHECK(init.send_cq == cq && init.recv_cq == cq && init.srq == NULL);
  CHECK(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 6 && init.cap.max_inline_data >= 64);
  CHECK(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
  CHECK(ibv_destroy_qp(qp) == 0);
}

static void *mapped(int pages, int protection) {
  return mmap(NULL, pages * page_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void register_and_forget(void *memory, size_t bytes, int access) {
  struct ibv_mr *region = ibv_reg_mr(pd, memory, bytes, access);
  CHECK(region && region->addr == memory && region->length == bytes);
  if (region) CHECK(ibv_dereg_mr(region) == 0);
}

static void check_access(void) {
  char *memory = mapped(1, READS_AND_WRITES);
  NEED(memory != MAP_FAILED);
  REFUSES(EINVAL, ibv_reg_mr(pd, memory, page_bytes, IBV_ACCESS_REMOTE_WRITE));
  REFUSES(EINVAL, ibv_reg_mr(pd, memory, page_bytes, IBV_ACCESS_REMOTE_ATOMIC));
  REFUSES(EINVAL, ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE));
  REFUSES(EINVAL, ibv_reg_mr(pd, memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE));
  REFUSES(EOPNOTSUPP, ibv_reg_mr(pd, memory, page_bytes, IBV_ACCESS_ON_DEMAND));
  register_and_forget(memory, page_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  munmap(memory, page_bytes);
}

/* Only memory that is there, and that the process itself may use so. */
static void check_memory(void) {
  static const char constant[] = "a text of this program";
  const int writes = IBV_ACCESS_LOCAL_WRITE, reads = IBV_ACCESS_REMOTE_READ;
  char *memory = mapped(3, READS_AND_WRITES);
  NEED(memory != MAP_FAILED && munmap(memory + 2 * page_bytes, page_bytes) == 0);
  register_and_forget(memory + 7, 2 * page_bytes - 7, writes);
  const size_t too_long[] = {1, page_bytes, 1UL << 30, 1UL << 47, 1UL << 62};
  for (unsigned i = 0; i < sizeof too_long / sizeof *too_long; ++i) {
    REFUSES(EFAULT, ibv_reg_mr(pd, memory, 2 * page_bytes + too_long[i], writes));
    REFUSES(EFAULT, ibv_reg_mr(pd, memory, 2 * page_bytes + too_long[i], reads));
  }
  NEED(mprotect(memory + page_bytes, page_bytes, PROT_READ) == 0);
  REFUSES(EFAULT, ibv_reg_mr(pd, memory, 2 * page_bytes, writes));
  register_and_forget(memory, page_bytes, writes);
  register_and_forget(memory, 2 * page_bytes, reads);
  NEED(mprotect(memory + page_bytes, page_bytes, PROT_NONE) == 0);
  REFUSES(EFAULT, ibv_reg_mr(pd, memory, 2 * page_bytes, writes));
  REFUSES(EFAULT, ibv_reg_mr(pd, memory, 2 * page_bytes, reads));
  REFUSES(EFAULT, ibv_reg_mr(pd, (void *)constant, sizeof constant, writes));
  register_and_forget((void *)constant, sizeof constant, reads);
  munmap(memory, 2 * page_bytes);
}

/* Bytes of this process that a child does not get, by the kernel's flags of mappings. */
static long not_for_children(void) {
  FILE *maps = fopen("/proc/self/smaps", "r");
  char line[512];
  long kib = 0, total = 0;
  while (maps && fgets(line, sizeof line, maps)) {
    sscanf(line, "Size: %ld kB", &kib);
    if (!strncmp(line, "VmFlags:", 8) && strstr(line, " dc")) total += kib * 1024;
  }
  if (maps) fclose(maps);
  return total;
}

/* With a port: the first queue pair opens it, and its frames are not in a child. */
static void check_frames(void) {
  enum { LEAST_BYTES = 1 << 20 };
  const long before = not_for_children();
  struct ibv_qp *qp = create(IBV_QPT_RC, 0);
  NEED(qp);
  CHECK(not_for_children() >= before + LEAST_BYTES);
  CHECK(ibv_destroy_qp(qp) == 0);
}

/* `control_path`: whatever needs no port. `control_path port`: what needs one. */
int main(int argc, char **argv) {
  page_bytes = sysconf(_SC_PAGESIZE);
  context = open_first_device();
  if (!context) return 3;
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  if (argc == 2 && !strcmp(argv[1], "port")) {
    check_frames();
  } else {
    check_port();
    check_port_of_old_programs();
    check_gids();
    check_types();
    check_queue_pair(0);
    check_queue_pair(1);
    check_access();
    check_memory();
  }
  CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  puts("done");
  return wrong ? 1 : 0;
}
