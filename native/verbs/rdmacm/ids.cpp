// SPDX-License-Identifier: GPL-2.0-or-later
// Ids: made, bound to addresses and to the devices that have these, destroyed.
#include <arpa/inet.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "gids.hpp"
#include "manager.hpp"

namespace softroce::cm {
namespace {

constexpr std::uint8_t kMtuSelector = 2;
constexpr std::uint16_t kDefaultPkey = 0xFFFF;

ibv_qp_type type_of(rdma_port_space space) {
  return space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

bool is_known(rdma_port_space space) {
  return space == RDMA_PS_TCP || space == RDMA_PS_UDP || space == RDMA_PS_IB ||
         space == RDMA_PS_IPOIB;
}

int choose_port(Id& id) {
  sockaddr* address = &id.route.addr.src_addr;
  if (port_of(address) != 0) return 0;
  if (const int error = enroll(id)) return error;
  Reply reply;
  const Call wanted{
      .verb = Verb::bind, .id = id.number, .port_space = static_cast<std::uint32_t>(id.ps)};
  if (const int error = Manager::get().call(wanted, reply)) return error;
  set_port(address, static_cast<std::uint16_t>(reply.port));
  return 0;
}

int create(rdma_event_channel* channel, void* context, rdma_port_space space, rdma_cm_id*& made) {
  if (!is_known(space)) return EINVAL;
  made = new_id(channel, context, space).release();
  return 0;
}

// The address from which the kernel would send to there. False: it knows no way.
bool routed_source(const sockaddr* destination, std::uint8_t* gid) {
  const int probe = socket(destination->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  sockaddr_storage source{};
  socklen_t bytes = sizeof source;
  auto* address = reinterpret_cast<sockaddr*>(&source);
  const bool known = ::connect(probe, destination, bytes_of(destination)) == 0 &&
                     getsockname(probe, address, &bytes) == 0;
  ::close(probe);
  return known && put_gid(address, gid);
}

// The device of its own address, which the program may have chosen.
int choose_source(Id& id, const sockaddr* destination) {
  sockaddr* source = &id.route.addr.src_addr;
  if (bytes_of(source) != 0 && !is_any(source)) return 0;
  const Manager& manager = Manager::get();
  std::uint8_t gid[16], peer[16];
  put_gid(destination, peer);
  const bool routed = !is_any(destination) && routed_source(destination, gid);
  const Device* device = routed ? manager.device_with(gid) : nullptr;
  if (device == nullptr) {  // the RNIC itself, or one that the kernel does not know
    device = &manager.devices().front();
    const auto own = first_like(device->gids, peer);
    if (own == device->gids.end()) return ENETUNREACH;
    std::memcpy(gid, own->raw, sizeof gid);
  }
  put_address(gid, port_of(source), id.route.addr.src_storage);
  give_device(id, *device);
  return 0;
}

int bind(Id& id, const sockaddr* address) {
  const socklen_t bytes = bytes_of(address);
  if (bytes == 0) return EAFNOSUPPORT;
  std::uint8_t gid[16];
  put_gid(address, gid);
  if (!is_any(address)) {
    const Device* device = Manager::get().device_with(gid);
    if (device == nullptr) return EADDRNOTAVAIL;
    give_device(id, *device);
    if (const int error = enroll(id)) return error;
  }
  std::memcpy(&id.route.addr.src_storage, address, bytes);
  return choose_port(id);
}

int resolve(Id& id, const sockaddr* source, const sockaddr* destination) {
  const socklen_t bytes = bytes_of(destination);
  if (bytes == 0) return EAFNOSUPPORT;
  if (source != nullptr && bytes_of(source) != 0)
    if (const int error = bind(id, source)) return error;
  if (const int error = enroll(id)) return error;
  Call call{.verb = Verb::resolve_addr, .id = id.number};
  put_gid(destination, call.destination);
  if (const int error = choose_source(id, destination)) return error;
  std::memcpy(&id.route.addr.dst_storage, destination, bytes);
  if (is_any(destination)) {  // the RNIC itself, as Linux's cma_resolve_loopback has it
    put_gid(&id.route.addr.src_addr, call.destination);
    put_address(call.destination, port_of(destination), id.route.addr.dst_storage);
  }
  if (const int error = choose_port(id)) return error;
  put_gid(&id.route.addr.src_addr, call.source);
  call.source_port = port_of(&id.route.addr.src_addr);
  call.port = port_of(destination);
  call.port_space = id.ps;
  if (const int error = Manager::get().call(call)) return error;
  return complete(id);
}

int destroy(Id& id) {
  Manager* manager = Manager::known();
  if (manager != nullptr && id.number != 0) {
    manager->forget(id);
    call(id, Verb::destroy);
  }
  give_back_event(id);
  {
    std::unique_lock lock(id.lock);
    id.changed.wait(lock, [&] { return id.taken == id.acknowledged; });
  }
  if (id.synchronous) rdma_destroy_event_channel(id.channel);
  delete &id;
  return 0;
}

}  // namespace

std::unique_ptr<Id> new_id(rdma_event_channel* channel, void* context, rdma_port_space space) {
  auto id = std::make_unique<Id>();
  static_cast<rdma_cm_id&>(*id) = {};
  id->synchronous = channel == nullptr;
  id->channel = channel != nullptr ? channel : rdma_create_event_channel();
  if (id->channel == nullptr) throw std::system_error(errno, std::generic_category());
  id->context = context;
  id->ps = space;
  id->qp_type = type_of(space);
  return id;
}

void give_device(Id& id, const Device& device) {
  id.device = &device;
  id.verbs = device.context;
  if (id.pd == nullptr) id.pd = device.pd;
  id.port_num = kPort;
}

int enroll(Id& id) {
  if (id.number != 0) return 0;
  Manager& manager = Manager::get();
  Reply reply;
  if (const int error = manager.call({.verb = Verb::create}, reply)) return error;
  id.number = reply.id;
  manager.watch(id.number, &id);
  return 0;
}

int call(Id& id, Verb verb, const Parameters& parameters) {
  if (id.number == 0) return EINVAL;
  return Manager::get().call({.verb = verb,
                              .id = id.number,
                              .transport = id.qp_type == IBV_QPT_UC,
                              .ack_timeout = id.ack_timeout,
                              .parameters = parameters});
}

void fill_route(Id& id) {
  rdma_addr& address = id.route.addr;
  ibv_gid source{}, destination{};
  put_gid(&address.src_addr, source.raw);
  put_gid(&address.dst_addr, destination.raw);
  address.addr.ibaddr = {source, destination, htons(kDefaultPkey)};
  if (!id.path) id.path = std::make_unique<ibv_sa_path_rec>();
  *id.path = {};
  id.path->sgid = source;
  id.path->dgid = destination;
  id.path->hop_limit = kHopLimit;
  id.path->reversible = 1;
  id.path->numb_path = 1;
  id.path->pkey = htons(kDefaultPkey);
  id.path->mtu_selector = id.path->rate_selector = id.path->packet_life_time_selector =
      kMtuSelector;
  id.path->mtu = id.device->mtu;
  id.route.path_rec = id.path.get();
  id.route.num_paths = 1;
}

}  // namespace softroce::cm

using namespace softroce::cm;  // NOLINT: the C functions are outside of it

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space) {
  return guarded([&] { return create(channel, context, space, *id); });
}

int rdma_destroy_id(rdma_cm_id* id) {
  return guarded([&] { return destroy(of(id)); });
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  return guarded([&] { return bind(of(id), address); });
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int) {
  return guarded([&] { return resolve(of(id), source, destination); });
}

int rdma_resolve_route(rdma_cm_id* id, int) {
  return guarded([&] {
    if (const int error = call(of(id), Verb::resolve_route)) return error;
    return complete(of(id));
  });
}

int rdma_migrate_id(rdma_cm_id* base, rdma_event_channel* channel) {
  return guarded([&] {
    Id& id = of(base);
    const bool becomes_synchronous = channel == nullptr;
    rdma_event_channel* before = id.channel;
    if (becomes_synchronous) channel = rdma_create_event_channel();
    if (channel == nullptr) return errno;
    if (Manager* manager = Manager::known())
      manager->move(id, of(channel));
    else
      id.channel = channel;
    if (id.synchronous) {
      give_back_event(id);
      rdma_destroy_event_channel(before);
    }
    id.synchronous = becomes_synchronous;
    return 0;
  });
}

// The queue pair's timeout has an effect; type of service, reuse and IP version of a wildcard do
// not.
int rdma_set_option(rdma_cm_id* id, int level, int option, void* value, size_t bytes) {
  if (level != RDMA_OPTION_ID || value == nullptr)
    return done(level == RDMA_OPTION_IB ? EOPNOTSUPP : EINVAL);
  switch (option) {
    case RDMA_OPTION_ID_TOS:
      return done(bytes == sizeof(std::uint8_t) ? 0 : EINVAL);
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      return done(bytes == sizeof(int) ? 0 : EINVAL);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (bytes != sizeof(std::uint8_t) || *static_cast<std::uint8_t*>(value) > 31)
        return done(EINVAL);
      of(id).ack_timeout = *static_cast<std::uint8_t*>(value);
      return 0;
    default:
      return done(ENOSYS);
  }
}

ibv_context** rdma_get_devices(int* count) {
  ibv_context** list = nullptr;
  int devices = 0;
  guarded([&] {
    const auto& known = Manager::get().devices();
    list = static_cast<ibv_context**>(std::calloc(known.size() + 1, sizeof(ibv_context*)));
    if (list == nullptr) return ENOMEM;
    for (const Device& device : known) list[devices++] = device.context;
    return 0;
  });
  if (count != nullptr) *count = devices;
  return list;
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

}  // extern "C"
