// SPDX-License-Identifier: GPL-2.0-or-later
// The way to the connection manager, a process of the lab's beside the program: calls and their
// replies, events, and the MADs that it exchanges with others through the program's own RNIC.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "../../endpoint/cm_wire.hpp"
#include "mad_port.hpp"
#include "objects.hpp"

namespace softroce::cm {

class Manager {
 public:
  // The only one, for good. std::system_error: no device, its port is in use, or no manager.
  static Manager& get();
  // The only one, if there is one already.
  static Manager* known();

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const std::vector<ibv_gid>& gids() const { return gids_; }
  bool has(const std::uint8_t* gid) const;
  std::uint8_t most_reads() const { return most_reads_; }
  std::uint8_t mtu() const { return mtu_; }

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
  void open_device();
  void connect();
  void start();
  static void* work(void* manager);
  static void finish();
  void listen();
  bool receive();
  void handle(const std::uint8_t* message, std::size_t size);
  void deliver(const Event& event);
  void break_down(const char* why);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::vector<ibv_gid> gids_;
  std::uint8_t most_reads_ = 0, mtu_ = 0, ack_delay_ = 0;
  std::uint64_t guid_ = 0;
  std::unique_ptr<MadPort> port_;
  int socket_ = -1;
  int process_ = 0;  // that has it; a child of fork has not
  pthread_t thread_{};

  std::mutex calls_;  // one at a time
  std::mutex lock_;   // of what follows, and of all channels' events
  std::condition_variable replied_;
  std::optional<Reply> reply_;
  bool broken_ = false, finishing_ = false;
  std::unordered_map<std::uint32_t, Id*> ids_;
};

}  // namespace softroce::cm
