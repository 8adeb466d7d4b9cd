// SPDX-License-Identifier: GPL-2.0-or-later
// Ids: made, bound to addresses, destroyed. The first that needs an address opens the port.
#include <arpa/inet.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "gids.hpp"
#include "manager.hpp"

namespace softroce::cm {
namespace {

constexpr std::uint16_t kFirstPort = 32768, kPorts = 28232;  // ephemeral ones, as Linux has them
constexpr std::uint8_t kMtuSelector = 2;
constexpr std::uint16_t kDefaultPkey = 0xFFFF;

std::atomic<std::uint16_t> next_port = 0;

ibv_qp_type type_of(rdma_port_space space) {
  return space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

bool is_known(rdma_port_space space) {
  return space == RDMA_PS_TCP || space == RDMA_PS_UDP || space == RDMA_PS_IB ||
         space == RDMA_PS_IPOIB;
}

void choose_port(Id& id) {
  sockaddr* address = &id.route.addr.src_addr;
  if (port_of(address) == 0)
    set_port(address, static_cast<std::uint16_t>(kFirstPort + next_port++ % kPorts));
}

int create(rdma_event_channel* channel, void* context, rdma_port_space space, rdma_cm_id*& made) {
  if (!is_known(space)) return EINVAL;
  made = new_id(channel, context, space).release();
  return 0;
}

// Its own address, of the other's IP version; the program may have chosen one.
int choose_source(Id& id, const std::uint8_t* destination) {
  sockaddr* source = &id.route.addr.src_addr;
  if (bytes_of(source) != 0 && !is_any(source)) return 0;
  const auto& gids = Manager::get().gids();
  const auto own = first_like(gids, destination);
  if (own == gids.end()) return ENETUNREACH;
  put_address(own->raw, port_of(source), id.route.addr.src_storage);
  return 0;
}

int bind(Id& id, const sockaddr* address) {
  const socklen_t bytes = bytes_of(address);
  if (bytes == 0) return EAFNOSUPPORT;
  std::uint8_t gid[16];
  put_gid(address, gid);
  if (!is_any(address)) {
    if (!Manager::get().has(gid)) return EADDRNOTAVAIL;
    if (const int error = bind_device(id)) return error;
  }
  std::memcpy(&id.route.addr.src_storage, address, bytes);
  choose_port(id);
  return 0;
}

int resolve(Id& id, const sockaddr* source, const sockaddr* destination) {
  const socklen_t bytes = bytes_of(destination);
  if (bytes == 0) return EAFNOSUPPORT;
  if (source != nullptr && bytes_of(source) != 0)
    if (const int error = bind(id, source)) return error;
  if (const int error = bind_device(id)) return error;
  Call call{.verb = Verb::resolve_addr, .id = id.number};
  put_gid(destination, call.destination);
  if (const int error = choose_source(id, call.destination)) return error;
  std::memcpy(&id.route.addr.dst_storage, destination, bytes);
  if (is_any(destination)) {  // the RNIC itself, as Linux's cma_resolve_loopback has it
    put_gid(&id.route.addr.src_addr, call.destination);
    put_address(call.destination, port_of(destination), id.route.addr.dst_storage);
  }
  choose_port(id);
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

void give_device(Id& id) {
  const Manager& manager = Manager::get();
  id.verbs = manager.context();
  if (id.pd == nullptr) id.pd = manager.pd();
  id.port_num = kPort;
}

int bind_device(Id& id) {
  give_device(id);
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
  id.path->mtu = Manager::get().mtu();
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
  auto** list = static_cast<ibv_context**>(std::calloc(2, sizeof(ibv_context*)));
  const int failed = guarded([&] {
    if (list == nullptr) return ENOMEM;
    list[0] = Manager::get().context();
    return 0;
  });
  if (count != nullptr) *count = failed == 0;
  if (failed == 0) return list;
  std::free(list);
  return nullptr;
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

}  // extern "C"
