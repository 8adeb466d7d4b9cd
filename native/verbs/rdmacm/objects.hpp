// SPDX-License-Identifier: GPL-2.0-or-later
// What programs hold by pointers: librdmacm's structures (rdma/rdma_cma.h), each the head of ours.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "../../endpoint/cm_wire.hpp"
#include "../guarded.hpp"

namespace softroce::cm {

struct Device;

struct Channel : rdma_event_channel {
  std::deque<Event> waiting;  // the manager's lock guards it; `fd` counts them
};

struct Id : rdma_cm_id {
  std::uint32_t number = 0;        // the manager's; 0: it does not know of the id yet
  const Device* device = nullptr;  // that has its address
  bool synchronous = false;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint32_t ack_timeout = kNoAckTimeout;
  std::unique_ptr<ibv_qp_init_attr> endpoint;  // of rdma_create_ep: for those that it listens for
  std::unique_ptr<ibv_sa_path_rec> path;
  // Events that the program took, and those that it gave back.
  std::mutex lock;
  std::condition_variable changed;
  std::uint32_t taken = 0, acknowledged = 0;
};

struct TakenEvent : rdma_cm_event {
  Event from{};
  Id* counted = nullptr;  // whose `acknowledged` it adds to
};

inline Id& of(rdma_cm_id* id) { return *static_cast<Id*>(id); }
inline Channel& of(rdma_event_channel* channel) { return *static_cast<Channel*>(channel); }

// librdmacm's functions return -1, and errno has the reason. 0 is done.
inline int done(int error) noexcept { return error == 0 ? 0 : (errno = error, -1); }

// Runs a function's body, which returns an errno value; so does what is thrown.
template <typename F>
int guarded(F&& body) noexcept {
  return done(verbs::guarded(body));
}

// ---- addresses
bool put_gid(const sockaddr* address, std::uint8_t* gid);  // false: of no IP version
void put_address(const std::uint8_t* gid, std::uint16_t port, sockaddr_storage& address);
std::uint16_t port_of(const sockaddr* address);
void set_port(sockaddr* address, std::uint16_t port);
socklen_t bytes_of(const sockaddr* address);  // 0: of no IP version
bool is_any(const sockaddr* address);

// ---- ids. Numbers that are returned are errno values.
// Without a channel it is synchronous, and has its own. std::system_error: that could not be made.
std::unique_ptr<Id> new_id(rdma_event_channel* channel, void* context, rdma_port_space space);
// The RNIC, and its protection domain unless the id has one.
void give_device(Id& id, const Device& device);
int enroll(Id& id);  // gives it a number at the manager
int call(Id& id, Verb verb, const Parameters& parameters = {});
// Of a synchronous id: waits for the event, and returns its error. Of another one: 0.
int complete(Id& id);
// Acknowledges the event that it has of the last call.
void give_back_event(Id& id);
// The path record, of what the id knows of its addresses.
void fill_route(Id& id);

// ---- queue pairs. All return errno values.
int attributes(Id& id, ibv_qp_attr& attr, int& mask);
int to_ready(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth);
int to_error(Id& id);

}  // namespace softroce::cm
