// SPDX-License-Identifier: GPL-2.0-or-later
// Event channels, and the events that they give. Like rdma-core's, they connect an id's own queue
// pair before the program gets the event that the peer agrees.
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "gids.hpp"
#include "manager.hpp"

namespace softroce::cm {
namespace {

void put_parameters(TakenEvent& event) {
  Parameters& from = event.from.parameters;
  const void* data = from.private_bytes != 0 ? from.private_data : nullptr;
  if (event.from.datagram) {
    rdma_ud_param& to = event.param.ud;
    to.private_data = data;
    to.private_data_len = from.private_bytes;
    to.qp_num = from.qp_num;
    to.qkey = from.qkey;
    to.ah_attr = way_to(event.from.peer_gid, of(event.id).device->gids);
    return;
  }
  rdma_conn_param& to = event.param.conn;
  to.private_data = data;
  to.private_data_len = from.private_bytes;
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.flow_control = from.flow_control;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  to.srq = from.srq;
  to.qp_num = from.qp_num;
}

// A peer asks: an id for what may become of it.
void adopt(TakenEvent& event, Id& listener) {
  auto id =
      new_id(listener.synchronous ? nullptr : listener.channel, listener.context, listener.ps);
  const Device* device = Manager::get().device_with(event.from.local_gid);
  give_device(*id, device != nullptr ? *device : Manager::get().devices().front());
  id->number = event.from.id;
  id->qp_type = listener.qp_type;
  id->responder_resources = event.from.parameters.responder_resources;
  id->initiator_depth = event.from.parameters.initiator_depth;
  put_address(event.from.local_gid, port_of(&listener.route.addr.src_addr),
              id->route.addr.src_storage);
  put_address(event.from.peer_gid, event.from.peer_port, id->route.addr.dst_storage);
  fill_route(*id);
  event.listen_id = &listener;
  event.id = id.get();
  event.counted = &listener;
  Manager::get().watch(id->number, id.get());
  id.release();
}

// The peer agreed: the id's own queue pair becomes ready, and the peer gets a message.
void connect_own(TakenEvent& event, Id& id) {
  if (id.qp == nullptr) return;
  Parameters& granted = event.from.parameters;
  int error = to_ready(id, granted.responder_resources, granted.initiator_depth);
  if (error == 0) error = call(id, Verb::establish);
  event.event = error == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_ERROR;
  if (error == 0) return;
  event.status = -error;
  to_error(id);
  call(id, Verb::reject);
}

void take(TakenEvent& event, Id& id) {
  event.id = event.counted = &id;
  event.event = static_cast<rdma_cm_event_type>(event.from.event);
  event.status = event.from.status;
  switch (event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      adopt(event, id);
      break;
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      fill_route(id);
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      connect_own(event, id);
      break;
    case RDMA_CM_EVENT_REJECTED:
      to_error(id);
      break;
    default:
      break;
  }
  put_parameters(event);
}

void acknowledge(Id& counted) {
  const std::lock_guard lock(counted.lock);
  ++counted.acknowledged;
  counted.changed.notify_all();
}

// The program does not get this event. The peer of a request is sent a REJ.
void give_up(const TakenEvent& event, Id& id) {
  if (event.from.event == RDMA_CM_EVENT_CONNECT_REQUEST)
    Manager::get().call({.verb = Verb::destroy, .id = event.from.id});
  acknowledge(id);
}

int get_event(Channel& channel, rdma_cm_event*& given) {
  for (;;) {
    std::uint64_t count;
    if (read(channel.fd, &count, sizeof count) < 0) return errno;
    auto event = std::make_unique<TakenEvent>();
    static_cast<rdma_cm_event&>(*event) = {};
    Id* id = nullptr;
    Manager* manager = Manager::known();
    if (manager == nullptr || !manager->take(channel, event->from, id)) continue;
    try {
      take(*event, *id);
    } catch (...) {
      give_up(*event, *id);
      throw;
    }
    given = event.release();
    return 0;
  }
}

int error_of(const rdma_cm_event& event) {
  if (event.status == 0) return 0;
  if (event.event == RDMA_CM_EVENT_REJECTED) return ECONNREFUSED;
  return event.status < 0 ? -event.status : ETIMEDOUT;
}

}  // namespace

void give_back_event(Id& id) {
  if (id.event != nullptr) rdma_ack_cm_event(id.event);
  id.event = nullptr;
}

int complete(Id& id) {
  if (!id.synchronous) return 0;
  give_back_event(id);
  if (const int error = get_event(of(id.channel), id.event)) return error;
  return error_of(*id.event);
}

}  // namespace softroce::cm

using namespace softroce::cm;  // NOLINT: the C functions are outside of it

extern "C" {

// Counts as a semaphore: readable as long as events wait. Programs set O_NONBLOCK themselves.
rdma_event_channel* rdma_create_event_channel() {
  Channel* channel = nullptr;
  guarded([&] {
    auto made = std::make_unique<Channel>();
    made->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (made->fd < 0) return errno;
    channel = made.release();
    return 0;
  });
  return channel;
}

// The channel that was destroyed last stays open. rping destroys its channel and returns from main
// while another of its threads comes back for the next event: with Linux that thread sleeps by
// then, for there it takes milliseconds to destroy an id, and it sleeps here, too.
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  static std::atomic<Channel*> last;
  const Channel* before = last.exchange(&of(channel));
  if (before == nullptr) return;
  ::close(before->fd);
  delete before;
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return done(EINVAL);
  return guarded([&] { return get_event(of(channel), *event); });
}

int rdma_ack_cm_event(rdma_cm_event* base) {
  if (base == nullptr) return done(EINVAL);
  auto* event = static_cast<TakenEvent*>(base);
  acknowledge(*event->counted);
  delete event;
  return 0;
}

}  // extern "C"
