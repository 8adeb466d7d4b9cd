// SPDX-License-Identifier: GPL-2.0-or-later
// Addresses as sockets have them and as GIDs (annex A17.4.5), and rdma_getaddrinfo.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gids.hpp"
#include "objects.hpp"

namespace softroce::cm {
namespace {

const sockaddr_in& ipv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}
const sockaddr_in6& ipv6(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in6*>(address);
}

sockaddr* copy_of(const sockaddr* address, socklen_t bytes) {
  auto* copy = static_cast<sockaddr*>(std::calloc(1, sizeof(sockaddr_storage)));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, address, std::min<std::size_t>(bytes, sizeof(sockaddr_storage)));
  return copy;
}

int error_of(int failure) {
  if (failure == EAI_MEMORY) return ENOMEM;
  if (failure == EAI_AGAIN) return EAGAIN;
  return failure == EAI_SYSTEM ? errno : ENODATA;
}

// The port space and the queue pair's type say the same: what a program left out is the other's.
void fill_kinds(rdma_addrinfo& info, const rdma_addrinfo* hints) {
  info.ai_qp_type = hints != nullptr ? hints->ai_qp_type : 0;
  info.ai_port_space = hints != nullptr ? hints->ai_port_space : 0;
  if (info.ai_port_space == 0)
    info.ai_port_space = info.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (info.ai_qp_type == 0)
    info.ai_qp_type = info.ai_port_space == RDMA_PS_UDP || info.ai_port_space == RDMA_PS_IPOIB
                          ? IBV_QPT_UD
                          : IBV_QPT_RC;
}

int look_up(const char* node, const char* service, const rdma_addrinfo* hints,
            rdma_addrinfo& info) {
  const int flags = hints != nullptr ? hints->ai_flags : 0;
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (flags & RAI_PASSIVE) wanted.ai_flags |= AI_PASSIVE;
  if (flags & RAI_NUMERICHOST) wanted.ai_flags |= AI_NUMERICHOST;
  if (flags & RAI_FAMILY) wanted.ai_family = hints->ai_family;
  if (const int failure = getaddrinfo(node, service, &wanted, &found)) return error_of(failure);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> held(found, freeaddrinfo);
  info.ai_flags = flags;
  info.ai_family = found->ai_family;
  const bool passive = flags & RAI_PASSIVE;
  (passive ? info.ai_src_addr : info.ai_dst_addr) = copy_of(found->ai_addr, found->ai_addrlen);
  (passive ? info.ai_src_len : info.ai_dst_len) = found->ai_addrlen;
  if (!passive && hints != nullptr && hints->ai_src_len != 0 && hints->ai_src_addr != nullptr) {
    info.ai_src_addr = copy_of(hints->ai_src_addr, hints->ai_src_len);
    info.ai_src_len = hints->ai_src_len;
  }
  return 0;
}

// Neither name nor service: the addresses of the hints.
void take_hints(const rdma_addrinfo& hints, rdma_addrinfo& info) {
  info.ai_flags = hints.ai_flags;
  info.ai_family = hints.ai_family;
  if (hints.ai_src_len != 0) {
    info.ai_src_addr = copy_of(hints.ai_src_addr, hints.ai_src_len);
    info.ai_src_len = hints.ai_src_len;
  }
  if (hints.ai_dst_len != 0) {
    info.ai_dst_addr = copy_of(hints.ai_dst_addr, hints.ai_dst_len);
    info.ai_dst_len = hints.ai_dst_len;
  }
}

}  // namespace

socklen_t bytes_of(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

bool put_gid(const sockaddr* address, std::uint8_t* gid) {
  if (bytes_of(address) == 0) return false;
  if (address->sa_family == AF_INET6) {
    std::memcpy(gid, &ipv6(address).sin6_addr, 16);
    return true;
  }
  put_ipv4(&ipv4(address).sin_addr, gid);
  return true;
}

void put_address(const std::uint8_t* gid, std::uint16_t port, sockaddr_storage& address) {
  address = {};
  if (is_ipv4(gid)) {
    auto& to = reinterpret_cast<sockaddr_in&>(address);
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, gid + 12, 4);
    return;
  }
  auto& to = reinterpret_cast<sockaddr_in6&>(address);
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(port);
  std::memcpy(&to.sin6_addr, gid, 16);
}

std::uint16_t port_of(const sockaddr* address) {
  if (bytes_of(address) == 0) return 0;
  return ntohs(address->sa_family == AF_INET ? ipv4(address).sin_port : ipv6(address).sin6_port);
}

void set_port(sockaddr* address, std::uint16_t port) {
  if (bytes_of(address) == 0) return;
  if (address->sa_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
}

// As Linux's cma_any_addr: who binds to a loopback address binds to every address. libfabric asks
// by 127.0.0.1 which devices there are.
bool is_any(const sockaddr* address) {
  if (bytes_of(address) == 0) return true;
  if (address->sa_family == AF_INET) {
    const std::uint32_t host = ntohl(ipv4(address).sin_addr.s_addr);
    return host == INADDR_ANY || host >> 24 == IN_LOOPBACKNET;
  }
  const in6_addr& host = ipv6(address).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&host) || IN6_IS_ADDR_LOOPBACK(&host);
}

}  // namespace softroce::cm

using namespace softroce::cm;  // NOLINT: the C functions are outside of it

extern "C" {

void rdma_freeaddrinfo(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info->ai_src_canonname);
    std::free(info->ai_dst_canonname);
    std::free(info->ai_route);
    std::free(info->ai_connect);
    std::free(info);
    info = next;
  }
}

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** result) {
  return guarded([&] {
    if (node == nullptr && service == nullptr && hints == nullptr) return EINVAL;
    std::unique_ptr<rdma_addrinfo, decltype(&rdma_freeaddrinfo)> info(
        static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))), rdma_freeaddrinfo);
    if (info == nullptr) return ENOMEM;
    if (node == nullptr && service == nullptr)
      take_hints(*hints, *info);
    else if (const int error = look_up(node, service, hints, *info))
      return error;
    fill_kinds(*info, hints);
    *result = info.release();
    return 0;
  });
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return htons(port_of(&id->route.addr.src_addr)); }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return htons(port_of(&id->route.addr.dst_addr)); }

}  // extern "C"
