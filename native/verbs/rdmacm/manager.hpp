// SPDX-License-Identifier: GPL-2.0-or-later
// The way to the connection manager, a process of the lab at the program's host: calls and their
// replies, and events.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "../../endpoint/cm_wire.hpp"
#include "objects.hpp"

namespace softroce::cm {

// An RNIC that is open, with what its port is.
struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  std::vector<ibv_gid> gids{};
  std::uint64_t guid = 0;
  std::uint8_t most_reads = 0, mtu = 0, ack_delay = 0;

  bool has(const std::uint8_t* gid) const;
};

class Manager {
 public:
  // The only one, for good. std::system_error: no device, or no manager.
  static Manager& get();
  // The only one, if there is one already.
  static Manager* known();

  // At least one, for good.
  const std::vector<Device>& devices() const { return devices_; }
  const Device* device_with(const std::uint8_t* gid) const;  // null: none has it

  // Waits for the reply; its error, an errno value. ETIMEDOUT: the manager took no call for 10 s.
  int call(const Call& call, Reply& reply);
  int call(const Call& call);  // whose reply is its error alone

  // Events of this number go to the channel of this id.
  void watch(std::uint32_t number, Id* id);
  void forget(Id& id);
  void move(Id& id, Channel& to);
  // Takes the next event, and counts it with its id, which lives until the event is acknowledged.
  // False: what the channel's descriptor counted has gone with its id.
  bool take(Channel& channel, Event& event, Id*& id);

 private:
  Manager();
  void open_devices();
  void connect();
  void start();
  static void* work(void* manager);
  void listen();
  void handle(const std::uint8_t* message, std::size_t size);
  void deliver(const Event& event);
  void break_down(const char* why);

  std::vector<Device> devices_;
  int socket_ = -1;
  int process_ = 0;  // that has it; a child of fork has not

  std::mutex calls_;  // one at a time
  std::mutex lock_;   // of what follows, and of all channels' events
  std::condition_variable replied_;
  std::optional<Reply> reply_;
  bool broken_ = false;
  std::unordered_map<std::uint32_t, Id*> ids_;
};

}  // namespace softroce::cm
