// SPDX-License-Identifier: GPL-2.0-or-later
// The state machine of one end of a SHIFT connection. Sans-IO: the time is an argument, what it
// does to its two queue pairs goes through `Actions`, and `next_time_ns` is when `advance` has
// something to do.
//
// Both directions of a connection move together, from epoch to epoch. Even epochs use the default
// NIC, odd epochs the backup. An end that moves takes its queue pair of the old epoch out of RTR
// first, so that nothing of that epoch is executed later. Then it posts its receives in the new
// epoch, and only then it sends MOVE with its count of consumed receives. Its sends follow when the
// peer's MOVE is here. A failure starts a move at once, a failback when both ends have drained.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol.hpp"

namespace softroce::shift {

// A queue pair that begins anew begins so far behind its last PSN: a packet of its former life is a
// duplicate, which the responder does not execute. More than a window, so that a reader of captures
// sees another connection begin.
constexpr std::uint32_t kPsnGap = 1 << 18;

using Sends = std::vector<SendRequest>;
using Receives = std::vector<ReceiveRequest>;

// Requests could not be posted, from number `posted` of them on.
struct Refusal {
  std::string why;
  std::size_t posted = 0;
};

// What the machine does to the two queue pairs and tells the peer. Requests have the keys that the
// application gave them.
class Actions {
 public:
  virtual ~Actions() = default;
  // Out of RTR; returns what the queue pair had not finished.
  virtual Unfinished leave(Path path) = 0;
  // Through RESET to RTS.
  virtual void prepare(Path path, std::uint32_t own_psn, std::uint32_t peer_psn) = 0;
  virtual void post_receives(Path path, const Receives& receives) = 0;  // throws std::system_error
  virtual std::optional<Refusal> post_sends(Path path, const Sends& requests) = 0;
  // Completions that no NIC makes.
  virtual void complete_send(const SendRequest& request, WcStatus status) = 0;
  virtual void complete_receive(const ReceiveRequest& receive, WcStatus status) = 0;
  virtual void tell(const Message& message) = 0;
  virtual void probe() = 0;  // a WRITE of no bytes on the default path
  virtual void fence() = 0;  // the same on the backup path, behind all that was posted there
  virtual void note(Transition transition) = 0;
};

class Machine {
 public:
  Machine(Actions& actions, std::uint32_t qp_num, const Settings& settings, bool signal_all)
      : actions_(actions),
        settings_(settings),
        qp_num_(qp_num),
        signal_all_(signal_all),
        interval_ns_(settings.probe_interval_ns) {}
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // ---- from any thread

  // Requests may be posted to the default queue pair without asking.
  bool plain() const { return plain_; }
  Sender sender() const { return sender_; }
  std::uint32_t epoch() const { return epoch_; }

  // ---- from one thread at a time, as all below

  Path path() const { return path_of(epoch_); }  // where the application's requests go
  const Settings& settings() const { return settings_; }
  // How many requests are neither posted nor over.
  std::size_t waiting_requests() const { return held_.size() + unresolved_.size(); }
  // How many of the requests that are posted on the backup are the machine's own.
  std::size_t own_requests() const { return static_cast<std::size_t>(fences_); }
  virtual std::optional<std::int64_t> next_time_ns() const;

  // ---- what the application does while the machine is not plain

  void post_sends(Sends requests, std::int64_t now_ns);
  void post_receives(const Receives& receives);
  void abandon(std::int64_t now_ns);  // it puts its queue pair in error
  void close() { plain_ = true; }     // nothing waits for it any more

  // ---- what happens

  void failed(Path path, WcStatus status, std::int64_t now_ns);  // a request there
  void control_failed(std::int64_t now_ns);  // messages to the peer do not arrive
  void lacks_backup(const std::string& why, WcStatus status, std::int64_t now_ns);
  void probed(bool ok, std::int64_t now_ns);
  void fenced(std::int64_t now_ns);
  void handle_message(const Message& message, std::int64_t now_ns);  // in order, each once
  virtual void advance(std::int64_t now_ns);                         // what is due

 protected:
  // Where another order of the steps, or another decision, takes the machine's place.
  virtual void move(const std::string& why, std::int64_t now_ns);
  virtual void handle_move(const Message& message, std::int64_t now_ns);
  virtual void end_in_failure(const Message& message, std::int64_t now_ns);  // the peer's
  virtual void surface(const std::string& why, std::int64_t now_ns,
                       WcStatus status = WcStatus::retry_exc_err, Sends more = {});
  virtual Classes classify_by(const Message& message);
  void resolve(const Message& move, std::int64_t now_ns);
  void enter(Sender state, const std::string& why, std::int64_t now_ns,
             WcStatus status = WcStatus::success);
  void enter(Receiver state, const std::string& why, std::int64_t now_ns, std::size_t receives);

  Actions& actions_;
  const Settings settings_;
  const std::uint32_t qp_num_;
  std::atomic<bool> plain_{true};
  std::atomic<Sender> sender_{Sender::primary};
  std::atomic<std::uint32_t> epoch_{0};
  Path left_ = Path::primary;
  std::uint64_t executed_ = 0;  // notifications that the peer has executed, as far as is known
  std::uint64_t received_ = 0;  // notifications executed here, in earlier epochs
  std::uint32_t own_psn_ = 0;   // of the queue pair that was left last, when it begins anew
  bool waiting_ = false;        // for the peer's MOVE of this epoch
  std::vector<UnfinishedSend> unresolved_;  // until that has come
  std::optional<std::int64_t> deadline_ns_, probe_at_ns_;

 private:
  bool is_signaled(const SendRequest& request) const {
    return signal_all_ || (request.flags & kSignaled);
  }
  void post(const Sends& requests, std::int64_t now_ns);
  void take_left(Unfinished& left);
  void fail(const Sends& sends, const Receives& receives, WcStatus status);
  void set_interval(std::int64_t now_ns);
  void complete_consumed(const SendRequest& request);
  Sends repeat(const Classes& classes) const;
  void end_oldest(const Classes& classes);
  void resume(Sends again, std::size_t consumed, std::int64_t now_ns);
  void post_held(std::int64_t now_ns);
  void reprepare();
  void drain(const std::string& why, std::int64_t now_ns);
  void move_if_drained(std::int64_t now_ns);
  void give_up_failback(const std::string& why, std::int64_t now_ns);
  Transition transition(const char* side, const char* before, const char* after,
                        const std::string& why, std::int64_t now_ns) const;

  const bool signal_all_;
  Receiver receiver_ = Receiver::primary;
  Sends held_;
  bool draining_ = false, drained_ = false, peer_drained_ = false;
  int fences_ = 0;
  bool probing_ = false;
  bool probe_unsure_ = false;  // whether the peer executed the last probe
  bool returning_ = false;     // requests wait until that is known
  std::int64_t interval_ns_;
  std::optional<std::int64_t> returned_ns_;                // to the default path
  std::pair<std::uint32_t, std::uint32_t> psns_ = {0, 0};  // own and peer's, of the default path
};

}  // namespace softroce::shift
