// SPDX-License-Identifier: GPL-2.0-or-later
// Address handles, of attributes or of what a datagram came with.
#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr std::uint8_t kEcnCapable = 2;  // of those who ask for no traffic class, RFC 3168
constexpr std::size_t kIpv4At = 20;      // in the 40 octets of the GRH, IBA annex A17.4.5.2

Gid gid_of(const ibv_gid& gid) { return {load64(gid.raw), load64(gid.raw + 8)}; }

// The way back to who sent a datagram: from the GID that it came to.
int way_back(ibv_context* context, std::uint8_t port, const ibv_wc* wc, const ibv_grh* grh,
             ibv_ah_attr& attr) {
  if (!(wc->wc_flags & IBV_WC_GRH)) return EINVAL;
  const auto* area = reinterpret_cast<const std::uint8_t*>(grh);
  Gid source, destination;
  if (area[0] >> 4 == 6) {
    source = {load64(area + 8), load64(area + 16)};
    destination = {load64(area + 24), load64(area + 32)};
  } else {
    source = Gid::of_ipv4(load32(area + kIpv4At + 12));
    destination = Gid::of_ipv4(load32(area + kIpv4At + 16));
  }
  const auto& gids = of(context).home->settings.gids;
  const auto ours = std::ranges::find(gids, destination);
  if (ours == gids.end()) return EINVAL;
  attr = {};
  attr.is_global = 1;
  attr.port_num = port;
  attr.grh.sgid_index = static_cast<std::uint8_t>(ours - gids.begin());
  attr.grh.hop_limit = 64;
  put_gid(source, attr.grh.dgid);
  return 0;
}

int create(ibv_pd* pd, const ibv_ah_attr& attr, Ah*& created) {
  Engine& engine = engine_of(pd->context);
  auto ah = std::make_unique<Ah>();
  ah->context = pd->context;
  ah->pd = pd;
  const auto held = engine.hold();
  if (const int error = address_of(engine, attr, ah->vector)) return error;
  ++static_cast<Pd*>(pd)->users;
  created = ah.release();
  return 0;
}

}  // namespace

int address_of(Engine& engine, const ibv_ah_attr& attr, AddressVector& vector) {
  if (!attr.is_global || attr.port_num != kPort) return EINVAL;
  const auto& gids = engine.rnic().gids();
  const ibv_global_route& route = attr.grh;
  if (route.sgid_index >= gids.size()) return EINVAL;
  vector.destination = gid_of(route.dgid);
  if (gids[route.sgid_index].is_ipv4() != vector.destination.is_ipv4()) return EINVAL;
  vector.mac = engine.settings().next_hop_mac;
  vector.sgid_index = route.sgid_index;
  vector.traffic_class = route.traffic_class != 0 ? route.traffic_class : kEcnCapable;
  vector.flow_label = route.flow_label & 0xFFFFF;
  return 0;
}

void fill_address(const AddressVector& vector, ibv_ah_attr& attr) {
  attr = {};
  attr.is_global = 1;
  attr.port_num = kPort;
  put_gid(vector.destination, attr.grh.dgid);
  attr.grh.sgid_index = vector.sgid_index;
  attr.grh.hop_limit = vector.hop_limit;
  attr.grh.traffic_class = vector.traffic_class;
  attr.grh.flow_label = vector.flow_label;
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return made<Ah>([&](Ah*& ah) { return create(pd, *attr, ah); });
}

int ibv_destroy_ah(ibv_ah* ah) {
  --static_cast<Pd*>(ah->pd)->users;
  delete static_cast<Ah*>(ah);
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attr) {
  const int error = way_back(context, port, wc, grh, *attr);
  return error == 0 ? 0 : (errno = error, -1);
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  return made<Ah>([&](Ah*& ah) {
    ibv_ah_attr attr;
    if (const int error = way_back(pd->context, port, wc, grh, attr)) return error;
    return create(pd, attr, ah);
  });
}

// All that leaves goes to one next hop, the switch: the fabric is routed.
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr*, uint8_t mac[6],
                                uint16_t* vlan) {
  const std::uint64_t next_hop = of(context).home->settings.next_hop_mac;
  for (int i = 0; i < 6; ++i) mac[i] = static_cast<std::uint8_t>(next_hop >> (40 - 8 * i));
  *vlan = 0xFFFF;  // none
  return 0;
}

}  // extern "C"
