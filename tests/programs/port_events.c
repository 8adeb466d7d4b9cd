// SPDX-License-Identifier: GPL-2.0-or-later
// port_events DEVICE: has a queue pair there, and prints what becomes of the port. It does not end.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static struct ibv_context *open_device(const char *name) {
  struct ibv_device **list = ibv_get_device_list(NULL);

  for (int i = 0; list && list[i]; i++)
    if (!strcmp(ibv_get_device_name(list[i]), name)) return ibv_open_device(list[i]);
  return NULL;
}

static const char *state(struct ibv_context *context) {
  struct ibv_port_attr port;

  return ibv_query_port(context, 1, &port) ? "?" : ibv_port_state_str(port.state);
}

int main(int argc, char **argv) {
  struct ibv_context *context = argc > 1 ? open_device(argv[1]) : NULL;
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  struct ibv_async_event event;

  if (!context) return 1;
  printf("%s before\n", state(context));
  init.send_cq = init.recv_cq = ibv_create_cq(context, 2, NULL, NULL, 0);
  if (!init.send_cq || !ibv_create_qp(ibv_alloc_pd(context), &init)) return 2;
  printf("%s with a queue pair\n", state(context));
  fflush(stdout);
  while (!ibv_get_async_event(context, &event)) {
    printf("%s of port %d: %s\n", ibv_event_type_str(event.event_type), event.element.port_num,
           state(context));
    fflush(stdout);
    ibv_ack_async_event(&event);
  }
  return 3;
}
