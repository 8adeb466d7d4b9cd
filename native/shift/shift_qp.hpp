// SPDX-License-Identifier: GPL-2.0-or-later
// One end of a SHIFT connection: the application's queue pair on the default NIC, its twin and its
// control connection on the backup NIC, and the machine that moves between them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "completions.hpp"
#include "control.hpp"
#include "machine.hpp"
#include "shared_receives.hpp"
#include "surroundings.hpp"

namespace softroce::shift {

// What a protection domain has at the backup: a protection domain, and regions of the same bytes
// and addresses. So a request that moves changes its keys and nothing else.
struct ShadowDomain {
  std::uint32_t number = 0;  // of the backup NIC's protection domain
  Keys to_backup{}, to_default{};
};

class ShiftQp final : public Actions, public std::enable_shared_from_this<ShiftQp> {
 public:
  struct Config {
    std::uint32_t number = 0;  // of the queue pair on the default NIC, of RC
    QpCapacities cap{};        // as granted
    bool signal_all = false;
    std::shared_ptr<Completions> sends{}, receives{};
    // Of its protection domain; called once, when the twin is made.
    std::function<std::shared_ptr<ShadowDomain>()> shadow_domain{};
    std::shared_ptr<SharedReceives> shared{};  // null: it has receives of its own
  };

  // (0, how many were posted), or the errno value and the number of the request that was refused.
  using Posted = std::pair<int, std::size_t>;

  ShiftQp(std::shared_ptr<Backup> backup, Config config);
  ~ShiftQp() override;

  std::uint32_t number() const { return config_.number; }
  std::optional<std::uint32_t> twin_number() const;     // nothing: not made yet
  std::optional<std::uint32_t> control_number() const;  // likewise
  const Machine& machine() const { return *machine_; }
  std::size_t waiting_requests() const;
  // Whether a failure now would be survived.
  bool backup_ready() const;

  // ---- what the application does

  // While this is true, requests are posted to the queue pair on the default NIC in the quickest
  // way that the surroundings know. If it is false, `post_sends` and `post_receives` take them.
  class PlainPost {
   public:
    explicit PlainPost(ShiftQp& qp) : qp_(qp) {
      ++qp_.posting_;
      plain_ = qp_.machine_->plain();
    }
    ~PlainPost() { --qp_.posting_; }
    PlainPost(const PlainPost&) = delete;
    PlainPost& operator=(const PlainPost&) = delete;
    explicit operator bool() const { return plain_; }

   private:
    ShiftQp& qp_;
    bool plain_;
  };
  // Inline bytes are in the requests already. What a plain queue pair refuses is refused.
  Posted post_sends(Sends requests);
  // The same, but none if one is refused. Returns 0 or the errno value.
  int post_all_sends(Sends requests);
  Posted post_receives(Receives receives);
  // After RTR or RTS: connects the backup, now or later. False: the peer has published none.
  bool connect();
  void abandon();  // the application puts its queue pair in error
  void close();    // before the queue pair on the default NIC is destroyed

  // Another machine, before anything happens.
  template <typename M, typename... More>
  void decide_by(More&&... more) {
    machine_ =
        std::make_unique<M>(static_cast<Actions&>(*this), config_.number, machine_->settings(),
                            config_.signal_all, std::forward<More>(more)...);
  }

  // ---- what the backup tells it, under its lock

  void start();
  bool make_twin();
  bool connect_twin();
  void failed_on(Path path, const WorkCompletion& failure);
  void fail(const std::string& why);
  void handle_control(const WorkCompletion& completion);
  void finished(std::uint64_t wr_id);  // a WRITE of the lab's own succeeded
  bool advance();                      // whether anything happened

  // ---- Actions

  Unfinished leave(Path path) override;
  void prepare(Path path, std::uint32_t own_psn, std::uint32_t peer_psn) override;
  void post_receives(Path path, const Receives& receives) override;
  std::optional<Refusal> post_sends(Path path, const Sends& requests) override;
  void complete_send(const SendRequest& request, WcStatus status) override;
  void complete_receive(const ReceiveRequest& receive, WcStatus status) override;
  void tell(const Message& message) override;
  void probe() override;
  void fence() override;
  void note(Transition transition) override;

 private:
  enum class Notice : std::uint8_t { probe_succeeded, probe_failed, fence_done, control_broken };

  Nic& nic(Path path) const;
  Posted acceptable(const Sends& requests) const;
  std::size_t outstanding() const;
  void take(Sends requests);
  std::uint32_t number(Path path) const { return path == Path::primary ? number() : *twin_; }
  std::optional<std::string> move_keys(SendRequest& request);
  void post_own(Path path, std::uint64_t wr_id);
  void reset(Path path);
  void settle();
  template <typename F>
  void for_each_queue(F body) const {
    body(*config_.sends);
    if (config_.receives != config_.sends) body(*config_.receives);
  }

  const std::shared_ptr<Backup> backup_;
  Config config_;
  std::unique_ptr<Machine> machine_;
  std::shared_ptr<ShadowDomain> domain_;  // with the twin
  std::optional<std::uint32_t> twin_{};
  std::unique_ptr<Control> control_;
  std::array<QpAttr, 2> attrs_{};  // with which each queue pair is brought to RTS, by path
  Gid peer_gid_{};                 // of the peer's default NIC
  std::string lack_ = "the backup is not ready";
  bool connects_later_ = false;  // a task of the backup's does, with what is known by then
  std::deque<Notice> notices_;
  std::atomic<unsigned> posting_{0};  // threads that post without the lock
  std::atomic<bool> closed_{false};
};

}  // namespace softroce::shift
