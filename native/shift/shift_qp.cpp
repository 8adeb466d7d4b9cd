// SPDX-License-Identifier: GPL-2.0-or-later
#include "shift_qp.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "../engine/mutant.hpp"
#include "backup.hpp"

namespace softroce::shift {
namespace {

constexpr std::uint32_t kOwnRequests = 8;  // of the lab's own, that the twin has room for besides
constexpr std::uint32_t kNoKey =
    0;  // of no region: ends in a protection error, as on the default NIC
constexpr std::uint64_t kSpread = 2654435761;  // Knuth's multiplicative hashing

// A PSN to begin with: spread, and the same in each run.
std::uint32_t first_psn(std::uint32_t number) { return (number * kSpread >> 4) & 0xFFFFFF; }

bool is_own(std::uint64_t wr_id) { return wr_id == kProbeId || wr_id == kFenceId; }

// The other NIC's key is needed: that of a WRITE of no bytes is not looked at (C9-88).
bool uses_remote_key(const SendRequest& request) {
  const bool one_sided = request.reads_remote() || request.opcode == WrOpcode::rdma_write ||
                         request.opcode == WrOpcode::rdma_write_with_immediate;
  return one_sided && ((request.flags & kInline) || request.bytes() != 0);
}

void move_local_keys(std::vector<ScatterGather>& elements, const Keys& keys) {
  for (ScatterGather& each : elements) {
    const auto found = keys.find(each.lkey);
    each.lkey = found == keys.end() ? kNoKey : found->second;
  }
}

bool move_remote_key(SendRequest& request, const Keys& keys) {
  if (!uses_remote_key(request)) return true;
  const auto found = keys.find(request.rkey);
  if (found == keys.end()) return false;
  request.rkey = found->second;
  return true;
}

Keys reversed(const Keys& keys) {
  Keys back;
  for (const auto& [from, to] : keys) back[to] = from;
  return back;
}

// With what a queue pair sends that its application has brought to RTR alone, as responders of
// WRITEs often are: nobody has said.
void send_as_usual(QpAttr& attr) {
  attr.timeout = 14;  // 67 ms
  attr.retry_count = attr.rnr_retry = 7;
}

std::string unknown_key(std::uint32_t key) {
  char text[16];
  std::snprintf(text, sizeof text, "%#x", key);
  return std::string("the peer's key ") + text + " has no counterpart that is known";
}

void check(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

// ---------------------------------------------------------------- setting up

ShiftQp::ShiftQp(std::shared_ptr<Backup> backup, Config config)
    : backup_(std::move(backup)),
      config_(std::move(config)),
      machine_(std::make_unique<Machine>(*this, config_.number, backup_->settings(),
                                         config_.signal_all)) {}

ShiftQp::~ShiftQp() {
  try {
    if (!closed_) close();
  } catch (const std::system_error&) {  // an engine that does not answer
  }
}

void ShiftQp::start() {
  const auto& failures = backup_->failures(Path::primary);
  check(backup_->near().ask([qp = number(), failures](Rnic& rnic, Time) {
    return rnic.keep_unfinished(qp, failures);
  }),
        "keep requests");
  backup_->add_owner(Path::primary, number(), *this);
}

bool ShiftQp::make_twin() {
  if (closed_) return true;
  domain_ = std::exchange(config_.shadow_domain, {})();
  QpConfig config{QpType::rc,           domain_->number,         config_.cap,
                  config_.sends->far(), config_.receives->far(), nullptr,
                  config_.signal_all};
  config.cap.max_send_wr += kOwnRequests;
  const auto& failures = backup_->failures(Path::backup);
  const std::optional<std::uint32_t> srq =
      config_.shared ? std::optional(config_.shared->far()) : std::nullopt;
  const auto [error, twin] = backup_->far().ask([config, failures, srq](Rnic& rnic, Time) {
    QpConfig granted = config;
    if (srq) granted.srq = rnic.find_srq(*srq);
    granted.cap.max_send_wr = std::min(granted.cap.max_send_wr, rnic.limits().max_qp_wr);
    std::uint32_t made = 0;
    int refused = rnic.create_qp(granted, made);
    if (refused == 0) refused = rnic.keep_unfinished(made, failures);
    return std::pair{refused, made};
  });
  check(error, "create a queue pair at the backup");
  twin_ = twin;
  backup_->add_owner(Path::backup, twin, *this);
  control_ = std::make_unique<Control>(backup_->far(), backup_->control_domain(),
                                       backup_->control_queue(), first_psn(number() + 1),
                                       Owner{number(), twin, backup_->near().gid()});
  backup_->add_control(control_->qp(), *this);
  backup_->directory().publish(number(),
                               {backup_->far().gid(), twin, first_psn(twin), control_->address()});
  return true;
}

bool ShiftQp::connect() {
  const auto held = backup_->hold();
  if (connects_later_) return true;
  connects_later_ = backup_->in_background();
  return backup_->run([weak = weak_from_this()] {
    const auto qp = weak.lock();
    if (!qp) return true;
    qp->connects_later_ = false;
    const bool done = qp->connect_twin();
    qp->connects_later_ = !done && qp->backup_->in_background();
    return done;
  });
}

bool ShiftQp::connect_twin() {
  if (closed_ || machine_->epoch() != 0) return true;
  auto [state, attr] = backup_->near().ask([qp = number()](Rnic& rnic, Time) {
    const QueuePair& found = *rnic.find_qp(qp);
    return std::pair{found.state(), found.attributes()};
  });
  if (state == QpState::rtr) send_as_usual(attr);
  peer_gid_ = attr.address.destination;
  std::optional<BackupAddress> peer;
  try {
    peer = backup_->directory().find(peer_gid_, attr.dest_qp);
    if (!backup_->same_keys()) backup_->fetch_keys(peer_gid_);
  } catch (const Unreachable& error) {
    if (!backup_->in_background()) throw;
    lack_ = error.what();
    return false;
  }
  if (!peer || !control_) {
    lack_ = "the peer's QP has no backup in the key-value service";
    return false;
  }
  // Probes and fences are WRITEs; regions keep the rights that they have.
  attr.access |= kRemoteWrite;
  attrs_.fill(attr);
  QpAttr& twin = attrs_[index_of(Path::backup)];
  twin.address = backup_->far().route_to(peer->gid);
  twin.dest_qp = peer->qp;
  twin.sq_psn = first_psn(*twin_);
  twin.rq_psn = peer->psn;
  if (control_->connected()) reset(Path::backup);
  bring_to_rts(backup_->far(), *twin_, twin);
  if (!control_->connected()) {
    const std::uint8_t timeout = backup_->settings().control_timeout;
    if (timeout != 0) attr.timeout = timeout;
    control_->connect(peer->gid, peer->control, attr);
  }
  return true;
}

std::optional<std::uint32_t> ShiftQp::twin_number() const {
  const auto held = backup_->hold();
  return twin_;
}

std::optional<std::uint32_t> ShiftQp::control_number() const {
  const auto held = backup_->hold();
  if (!control_) return std::nullopt;
  return control_->qp();
}

bool ShiftQp::backup_ready() const {
  const auto held = backup_->hold();
  return control_ && control_->connected();
}

std::size_t ShiftQp::waiting_requests() const {
  const auto held = backup_->hold();
  return machine_->waiting_requests();
}

void ShiftQp::close() {
  const auto held = backup_->hold();
  if (closed_.exchange(true)) return;
  machine_->close();
  backup_->remove(*this);
  for_each_queue([&](Completions& queue) { queue.forget(*this); });
  control_.reset();
  if (!twin_) return;
  backup_->far().ask([twin = *twin_](Rnic& rnic, Time now) {
    rnic.leave_qp(twin, now);  // a receive that it has begun goes back
    return rnic.destroy_qp(twin);
  });
  if (config_.shared) config_.shared->take_back();
}

// ---------------------------------------------------------------- what the application does

ShiftQp::Posted ShiftQp::post_sends(Sends requests) {
  const auto held = backup_->hold();
  const Posted accepted = acceptable(requests);
  requests.resize(accepted.second);
  take(std::move(requests));
  return accepted;
}

int ShiftQp::post_all_sends(Sends requests) {
  const auto held = backup_->hold();
  const int error = acceptable(requests).first;
  if (error == 0) take(std::move(requests));
  return error;
}

void ShiftQp::take(Sends requests) {
  machine_->post_sends(std::move(requests), backup_->now_ns());
  settle();
}

// As the queue pair on the default NIC would take them, if all were posted there.
ShiftQp::Posted ShiftQp::acceptable(const Sends& requests) const {
  const std::size_t used = outstanding(), room = config_.cap.max_send_wr;
  return backup_->near().ask(
      [qp = number(), requests, left = room - std::min(room, used)](Rnic& rnic, Time) {
        const QueuePair& plain = *rnic.find_qp(qp);
        for (std::size_t i = 0; i < requests.size(); ++i) {
          const int error = i >= left ? ENOMEM : plain.what_is_wrong(requests[i]);
          if (error != 0) return Posted{error, i};
        }
        return Posted{0, requests.size()};
      });
}

// How many of the application's requests are not over.
std::size_t ShiftQp::outstanding() const {
  const std::size_t waiting = machine_->waiting_requests();
  if (machine_->path() == Path::primary || !twin_) return waiting;
  const std::size_t posted = backup_->far().ask(
      [twin = *twin_](Rnic& rnic, Time) { return rnic.find_qp(twin)->outstanding_sends(); });
  return waiting + posted - std::min(posted, machine_->own_requests());
}

ShiftQp::Posted ShiftQp::post_receives(Receives receives) {
  const auto held = backup_->hold();
  Posted posted{0, 0};
  for (; posted.first == 0 && posted.second < receives.size(); ++posted.second) {
    try {
      machine_->post_receives({receives[posted.second]});
    } catch (const std::system_error& error) {
      posted.first = error.code().value();
      break;
    }
  }
  settle();
  return posted;
}

void ShiftQp::abandon() {
  const auto held = backup_->hold();
  machine_->abandon(backup_->now_ns());
  settle();
}

// ---------------------------------------------------------------- what the machine does

Nic& ShiftQp::nic(Path path) const {
  return path == Path::primary ? backup_->near() : backup_->far();
}

// Then all completions of that queue pair are the application's.
Unfinished ShiftQp::leave(Path path) {
  while (posting_ != 0) sched_yield();  // the machine is not plain: nobody begins
  for_each_queue([](Completions& queue) { queue.attach(); });
  Unfinished left;
  if (path == Path::primary || twin_)
    left = nic(path).ask([qp = number(path)](Rnic& rnic, Time now) {
      return rnic.leave_qp(qp, now).value_or(Unfinished{});
    });
  backup_->purge_failures(*this, path);
  for_each_queue([](Completions& queue) { queue.collect(); });
  if (config_.shared && twin_ && path == Path::backup) config_.shared->take_back();
  std::erase_if(left.sends, [](const auto& each) { return is_own(each.request.wr_id); });
  if (path == Path::primary) {  // what came of an earlier probe is over
    std::erase_if(notices_, [](Notice each) {
      return each == Notice::probe_succeeded || each == Notice::probe_failed;
    });
    return left;
  }
  if (backup_->same_keys()) return left;
  const Keys remote = reversed(backup_->known_keys(peer_gid_));
  for (UnfinishedSend& each : left.sends) {
    move_local_keys(each.request.sources, domain_->to_default);
    move_remote_key(each.request, remote);
  }
  for (ReceiveRequest& each : left.receives) move_local_keys(each.targets, domain_->to_default);
  return left;
}

void ShiftQp::prepare(Path path, std::uint32_t own_psn, std::uint32_t peer_psn) {
  QpAttr attr = attrs_[index_of(path)];
  if (!mutated(Mutant::shift_psns_kept)) {
    attr.sq_psn = own_psn;
    attr.rq_psn = peer_psn;
  }
  reset(path);
  bring_to_rts(nic(path), number(path), attr);
}

void ShiftQp::reset(Path path) {
  check(nic(path).ask([qp = number(path)](Rnic& rnic, Time now) {
    return rnic.modify_qp(qp, {}, kAttrState, now);
  }),
        "reset a queue pair");
}

void ShiftQp::post_receives(Path path, const Receives& receives) {
  if (config_.shared && path == Path::backup) config_.shared->lend();
  Receives moved = receives;
  if (path == Path::backup && !backup_->same_keys())
    for (ReceiveRequest& each : moved) move_local_keys(each.targets, domain_->to_backup);
  check(nic(path).ask([qp = number(path), moved](Rnic& rnic, Time now) {
    for (const ReceiveRequest& each : moved)
      if (const int error = rnic.post_receive(qp, ReceiveRequest(each), now)) return error;
    return 0;
  }),
        "post a receive");
}

std::optional<Refusal> ShiftQp::post_sends(Path path, const Sends& requests) {
  Sends moved = requests;
  if (path == Path::backup && !mutated(Mutant::shift_keys_kept))
    for (SendRequest& each : moved)
      if (auto why = move_keys(each)) return Refusal{std::move(*why)};
  if (path == Path::backup && !twin_) return Refusal{lack_};
  const auto [error, posted] = nic(path).ask([qp = number(path), moved](Rnic& rnic, Time now) {
    for (std::size_t i = 0; i < moved.size(); ++i)
      if (const int refused = rnic.post_send(qp, SendRequest(moved[i]), now))
        return Posted{refused, i};
    return Posted{0, moved.size()};
  });
  if (error == 0) return std::nullopt;
  return Refusal{"request " + std::to_string(requests[posted].wr_id) + " is refused, errno " +
                     std::to_string(error),
                 posted};
}

// To the backup's keys; returns why not.
std::optional<std::string> ShiftQp::move_keys(SendRequest& request) {
  if (backup_->same_keys()) return std::nullopt;
  move_local_keys(request.sources, domain_->to_backup);
  if (move_remote_key(request, backup_->known_keys(peer_gid_))) return std::nullopt;
  try {
    if (move_remote_key(request, backup_->fetch_keys(peer_gid_))) return std::nullopt;
    return unknown_key(request.rkey);
  } catch (const Unreachable& error) {
    return error.what();
  }
}

void ShiftQp::complete_send(const SendRequest& request, WcStatus status) {
  config_.sends->add({.wr_id = request.wr_id,
                      .status = status,
                      .opcode = completed_opcode(request.completes_as()),
                      .byte_len = static_cast<std::uint32_t>(request.bytes()),
                      .qp_num = number()});
}

void ShiftQp::complete_receive(const ReceiveRequest& receive, WcStatus status) {
  config_.receives->add(
      {.wr_id = receive.wr_id, .status = status, .opcode = WcOpcode::recv, .qp_num = number()});
}

void ShiftQp::tell(const Message& message) {
  if (!control_ || !control_->tell(message)) notices_.push_back(Notice::control_broken);
}

void ShiftQp::probe() { post_own(Path::primary, kProbeId); }

void ShiftQp::fence() { post_own(Path::backup, kFenceId); }

void ShiftQp::post_own(Path path, std::uint64_t wr_id) {
  nic(path).ask([qp = number(path), wr_id](Rnic& rnic, Time now) {
    SendRequest request;
    request.wr_id = wr_id;
    request.opcode = WrOpcode::rdma_write;
    request.flags = kSignaled;
    return rnic.post_send(qp, std::move(request), now);
  });
}

void ShiftQp::note(Transition transition) {
  transition.peer_gid = peer_gid_;
  transition.peer_qp = attrs_[index_of(Path::primary)].dest_qp;
  backup_->note(transition);
}

// ---------------------------------------------------------------- what happens to it

void ShiftQp::finished(std::uint64_t wr_id) {
  notices_.push_back(wr_id == kProbeId ? Notice::probe_succeeded : Notice::fence_done);
}

void ShiftQp::failed_on(Path path, const WorkCompletion& failure) {
  const std::int64_t now_ns = backup_->now_ns();
  if (failure.wr_id == kProbeId && path != machine_->path())
    notices_.push_back(Notice::probe_failed);
  else if (path == Path::primary && path == machine_->path() && !backup_ready())
    machine_->lacks_backup(lack_, failure.status, now_ns);
  else
    machine_->failed(path, failure.status, now_ns);
  settle();
}

void ShiftQp::fail(const std::string& why) {
  machine_->lacks_backup(why, WcStatus::retry_exc_err, backup_->now_ns());
  settle();
}

void ShiftQp::handle_control(const WorkCompletion& completion) {
  if (const auto message = control_->take(completion))
    machine_->handle_message(*message, backup_->now_ns());
  else if (control_->broken())
    notices_.push_back(Notice::control_broken);
  settle();
}

bool ShiftQp::advance() {
  for_each_queue([](Completions& queue) { queue.collect(); });
  const bool over = machine_->sender() == Sender::failed;
  if (config_.shared && !over && machine_->path() == Path::backup) config_.shared->lend();
  const std::int64_t now_ns = backup_->now_ns();
  const auto due = machine_->next_time_ns();
  const bool happened = !notices_.empty() || (due && *due <= now_ns);
  while (!notices_.empty()) {
    const Notice notice = notices_.front();
    notices_.pop_front();
    if (notice == Notice::fence_done)
      machine_->fenced(now_ns);
    else if (notice == Notice::control_broken)
      machine_->control_failed(now_ns);
    else
      machine_->probed(notice == Notice::probe_succeeded, now_ns);
  }
  machine_->advance(now_ns);
  settle();
  return happened;
}

// Polls and posts go the short way while nothing is to be done.
void ShiftQp::settle() {
  const bool over = machine_->sender() == Sender::failed && notices_.empty();
  const bool active = !machine_->plain() && !over;
  backup_->set_active(*this, active);
  for_each_queue([&](Completions& queue) { queue.set_busy(*this, active); });
}

}  // namespace softroce::shift
