// SPDX-License-Identifier: GPL-2.0-or-later
#include "machine.hpp"

#include <algorithm>
#include <iterator>

#include "../engine/mutant.hpp"

namespace softroce::shift {
namespace {

constexpr std::uint32_t kPsnBits = 0xFFFFFF;

void append(Sends& to, Sends from) { std::ranges::move(from, std::back_inserter(to)); }

Sends requests_of(const std::vector<UnfinishedSend>& unfinished) {
  Sends requests;
  for (const UnfinishedSend& each : unfinished) requests.push_back(each.request);
  return requests;
}

// Completes in the place of a request that the peer has executed, behind those that are repeated.
SendRequest stand_in(const SendRequest& executed) {
  SendRequest made;
  made.wr_id = executed.wr_id;
  made.opcode = WrOpcode::rdma_write;
  made.flags = kSignaled;
  made.stands_for = executed.opcode;
  return made;
}

// Of places in no order, as a decision of somebody else may have them.
std::size_t least(const std::vector<std::size_t>& places) {
  return places.empty() ? SIZE_MAX : *std::ranges::min_element(places);
}

}  // namespace

std::optional<std::int64_t> Machine::next_time_ns() const {
  if (!deadline_ns_ || !probe_at_ns_) return deadline_ns_ ? deadline_ns_ : probe_at_ns_;
  return std::min(*deadline_ns_, *probe_at_ns_);
}

// ---------------------------------------------------------------- what the application does

// The fence of a failback is the next signaled request.
void Machine::post_sends(Sends requests, std::int64_t now_ns) {
  if (sender_ == Sender::failed) {
    for (const SendRequest& each : requests) actions_.complete_send(each, WcStatus::wr_flush_err);
    return;
  }
  if ((waiting_ && !mutated(Mutant::shift_sends_do_not_wait)) || draining_ || returning_)
    return append(held_, std::move(requests));
  const auto fence =
      sender_ == Sender::wait_signaled
          ? std::ranges::find_if(requests, [&](const auto& each) { return is_signaled(each); })
          : requests.end();
  if (fence == requests.end()) return post(requests, now_ns);
  Sends later(std::make_move_iterator(fence + 1), std::make_move_iterator(requests.end()));
  requests.erase(fence + 1, requests.end());
  post(requests, now_ns);
  append(held_, std::move(later));
  drain("the next signaled request is the fence", now_ns);
}

void Machine::post(const Sends& requests, std::int64_t now_ns) {
  const auto refusal = actions_.post_sends(path(), requests);
  if (!refusal) return;
  const auto first = requests.begin() + static_cast<std::ptrdiff_t>(refusal->posted);
  surface(refusal->why, now_ns, WcStatus::retry_exc_err, Sends(first, requests.end()));
}

void Machine::post_receives(const Receives& receives) {
  if (sender_ != Sender::failed) return actions_.post_receives(path(), receives);
  for (const ReceiveRequest& each : receives)
    actions_.complete_receive(each, WcStatus::wr_flush_err);
}

// ---------------------------------------------------------------- failures

void Machine::failed(Path path, WcStatus status, std::int64_t now_ns) {
  if (sender_ == Sender::failed || path != this->path()) return;
  if (status != WcStatus::retry_exc_err)
    surface("a request failed by itself", now_ns, status);
  else if (path == Path::backup)
    surface("the backup failed, too", now_ns);
  else
    move("retries exceeded", now_ns);
}

// Without messages to the peer nothing may be repeated.
void Machine::control_failed(std::int64_t now_ns) {
  if (sender_ != Sender::failed && !plain_)
    surface("the peer cannot be reached over the backup", now_ns);
}

// There is nothing to fail over to: fail closed.
void Machine::lacks_backup(const std::string& why, WcStatus status, std::int64_t now_ns) {
  if (sender_ != Sender::failed) surface(why, now_ns, status);
}

void Machine::abandon(std::int64_t now_ns) {
  if (sender_ != Sender::failed)
    surface("put in error by the application", now_ns, WcStatus::wr_flush_err);
}

// As a plain queue pair: the oldest request ends in error, the others are flushed.
void Machine::surface(const std::string& why, std::int64_t now_ns, WcStatus status, Sends more) {
  plain_ = false;
  Unfinished left = actions_.leave(path());
  if (!waiting_) take_left(left);
  Sends ends = requests_of(unresolved_);
  append(ends, std::move(more));
  append(ends, std::exchange(held_, {}));
  unresolved_.clear();
  fail(ends, left.receives, status);
  actions_.tell({Kind::failed, epoch_, received_});
  enter(Sender::failed, why, now_ns, status);
}

void Machine::take_left(Unfinished& left) {
  unresolved_ = std::move(left.sends);
  received_ += left.received;
  executed_ += left.notified;
}

void Machine::fail(const Sends& sends, const Receives& receives, WcStatus status) {
  for (const SendRequest& each : sends)
    actions_.complete_send(each, std::exchange(status, WcStatus::wr_flush_err));
  for (const ReceiveRequest& each : receives)
    actions_.complete_receive(each, WcStatus::wr_flush_err);
  actions_.leave(path_of(epoch_ + 1));
  waiting_ = draining_ = false;
  deadline_ns_.reset();
  probe_at_ns_.reset();
}

// ---------------------------------------------------------------- moves

// Receives are posted before the peer is told, and sends after its answer.
void Machine::move(const std::string& why, std::int64_t now_ns) {
  plain_ = false;
  left_ = path();
  Unfinished left = actions_.leave(left_);
  ++epoch_;
  if (mutated(Mutant::shift_receives_not_counted)) left.received = 0;
  take_left(left);
  own_psn_ = (left.next_psn + kPsnGap) & kPsnBits;
  waiting_ = true;
  if (probing_ && path() == Path::primary) reprepare();
  drained_ = draining_ = probing_ = returning_ = false;
  fences_ = 0;
  probe_at_ns_.reset();
  deadline_ns_ = now_ns + settings_.handshake_timeout_ns;
  if (mutated(Mutant::shift_receives_reversed)) std::ranges::reverse(left.receives);
  if (mutated(Mutant::shift_receives_forgotten)) left.receives.clear();
  actions_.post_receives(path(), left.receives);
  const bool fallen = path() == Path::backup;
  enter(fallen ? Receiver::fallback : Receiver::primary, why, now_ns, left.receives.size());
  if (fallen) {
    set_interval(now_ns);
    enter(Sender::fallback, why, now_ns);
  }
  actions_.tell({Kind::move, epoch_, received_, own_psn_});
}

// A path that fails soon after a failback is probed less often.
void Machine::set_interval(std::int64_t now_ns) {
  const std::int64_t most = settings_.most_probe_interval_ns;
  const bool soon = returned_ns_ && now_ns - *returned_ns_ < most;
  interval_ns_ = soon ? std::min(interval_ns_ * 2, most) : settings_.probe_interval_ns;
}

// The peer's count is known: what was in flight is done, or repeated, or surfaces.
void Machine::resolve(const Message& move, std::int64_t now_ns) {
  Classes classes;
  try {
    classes = classify_by(move);
  } catch (const ProtocolError& error) {
    return surface(error.what(), now_ns);
  }
  const auto& [done, again, culprit] = classes;
  Sends repeated = repeat(classes);
  const std::uint64_t about = culprit ? unresolved_[*culprit].request.wr_id : 0;
  end_oldest(classes);
  if (culprit) return surface("request " + std::to_string(about) + " may not be repeated", now_ns);
  executed_ = move.received;
  unresolved_.clear();
  waiting_ = false;
  deadline_ns_.reset();
  psns_ = {own_psn_, move.next_psn};
  if (left_ == Path::primary) probe_unsure_ = false;
  actions_.prepare(left_, psns_.first, psns_.second);
  resume(std::move(repeated), done.size(), now_ns);
}

Classes Machine::classify_by(const Message& message) {
  auto executed = static_cast<std::int64_t>(message.received - executed_);
  if (mutated(Mutant::shift_counts_one_more)) ++executed;
  if (mutated(Mutant::shift_counts_one_less)) executed = std::max<std::int64_t>(executed - 1, 0);
  Classes classes = classify(unresolved_, executed);
  if (mutated(Mutant::shift_notified_repeated)) {
    const auto writes = std::ranges::stable_partition(classes.done, [&](std::size_t i) {
      return unresolved_[i].request.opcode != WrOpcode::rdma_write;
    });
    classes.again.insert(classes.again.begin(), writes.begin(), writes.end());
    classes.done.erase(writes.begin(), writes.end());
  }
  return classes;
}

// The requests of `again`, and between them what takes the place of those that are done.
Sends Machine::repeat(const Classes& classes) const {
  std::vector<std::size_t> done = classes.done;
  std::ranges::sort(done);
  auto late = std::ranges::lower_bound(done, least(classes.again));
  Sends repeated;
  const auto stand_in_until = [&](std::size_t place) {
    for (; late != done.end() && *late < place; ++late) {
      const SendRequest& executed = unresolved_[*late].request;
      if (is_signaled(executed)) repeated.push_back(stand_in(executed));
    }
  };
  for (const std::size_t place : classes.again) {
    stand_in_until(place);
    repeated.push_back(unresolved_[place].request);
  }
  stand_in_until(SIZE_MAX);
  return repeated;
}

// What is done, up to the first request that is repeated.
void Machine::end_oldest(const Classes& classes) {
  const std::size_t first = least(classes.again);
  std::ptrdiff_t ended = 0;
  for (const std::size_t place : classes.done) {
    if (place >= first) continue;
    complete_consumed(unresolved_[place].request);
    ++ended;
  }
  unresolved_.erase(unresolved_.begin(), unresolved_.begin() + ended);
}

void Machine::complete_consumed(const SendRequest& request) {
  if (is_signaled(request) || mutated(Mutant::shift_unsignaled_completes))
    actions_.complete_send(request, WcStatus::success);
}

void Machine::resume(Sends again, std::size_t consumed, std::int64_t now_ns) {
  if (path() == Path::primary) {
    returned_ns_ = now_ns;
    enter(Sender::primary, "both ends have moved", now_ns);
  } else {
    probe_at_ns_ = now_ns + interval_ns_;
  }
  const char* state = name_of(sender_);
  Transition moved = transition("sender", state, state, "the peer has moved", now_ns);
  moved.consumed = static_cast<std::uint32_t>(consumed);
  moved.resubmitted = static_cast<std::uint32_t>(std::ranges::count_if(
      again, [](const SendRequest& each) { return !each.stands_for.has_value(); }));
  actions_.note(std::move(moved));
  if (mutated(Mutant::shift_held_forgotten)) held_.clear();
  append(again, std::exchange(held_, {}));
  held_ = std::move(again);
  if (path() == Path::primary && probe_unsure_) {
    returning_ = true;
    return actions_.probe();
  }
  post_held(now_ns);
}

// A request that is posted the short way must come behind these: plain only now.
void Machine::post_held(std::int64_t now_ns) {
  post(std::exchange(held_, {}), now_ns);
  plain_ = sender_ == Sender::primary;
}

// ---------------------------------------------------------------- failback

void Machine::probed(bool ok, std::int64_t now_ns) {
  if (returning_ && ok) {  // the PSN of the last probe is used: requests may follow
    returning_ = probe_unsure_ = false;
    post_held(now_ns);
  }
  if (!probing_) return;
  probing_ = false;
  if (path() == Path::primary || waiting_ || sender_ == Sender::failed) return;
  if (ok) {
    psns_.first = (psns_.first + 1) & kPsnBits;
    probe_unsure_ = false;
    if (sender_ == Sender::fallback && !draining_)
      enter(Sender::wait_signaled, "a probe succeeded", now_ns);
    return;
  }
  interval_ns_ = std::min(interval_ns_ * 2, settings_.most_probe_interval_ns);
  reprepare();
  probe_at_ns_ = now_ns + interval_ns_;
  if (sender_ == Sender::wait_signaled) enter(Sender::fallback, "a probe failed", now_ns);
}

// The default queue pair begins anew with the PSN of its last probe, which failed or is in flight.
// If the peer executed that probe, its PSN is a duplicate: nothing but a probe may have it. What
// the peer's own probe used stays used.
void Machine::reprepare() {
  const Unfinished left = actions_.leave(Path::primary);
  probe_unsure_ = !mutated(Mutant::shift_probe_forgotten);
  psns_.second = left.expected_psn;
  actions_.prepare(Path::primary, psns_.first, psns_.second);
}

// Nothing more is posted in this epoch. The fence completes behind all that is.
void Machine::drain(const std::string& why, std::int64_t now_ns) {
  draining_ = true;
  drained_ = false;
  deadline_ns_ = now_ns + settings_.drain_timeout_ns;
  probe_at_ns_.reset();
  enter(Sender::wait_drained, why, now_ns);
  ++fences_;
  actions_.fence();
  if (mutated(Mutant::shift_fence_skipped)) {
    fences_ = 1;
    fenced(now_ns);
  }
}

void Machine::fenced(std::int64_t now_ns) {
  if (fences_ == 0) return;
  if (--fences_ != 0 || !draining_ || drained_) return;
  drained_ = true;
  actions_.tell({Kind::drained, epoch_});
  move_if_drained(now_ns);
}

void Machine::move_if_drained(std::int64_t now_ns) {
  if (!drained_ || (!peer_drained_ && !mutated(Mutant::shift_moves_alone))) return;
  peer_drained_ = false;
  move("both ends have drained", now_ns);
}

// Post in this epoch after all.
void Machine::give_up_failback(const std::string& why, std::int64_t now_ns) {
  actions_.tell({Kind::resume, epoch_});
  draining_ = drained_ = false;
  deadline_ns_.reset();
  interval_ns_ = std::min(interval_ns_ * 2, settings_.most_probe_interval_ns);
  probe_at_ns_ = now_ns + interval_ns_;
  enter(Sender::fallback, why, now_ns);
  post(std::exchange(held_, {}), now_ns);
}

// ---------------------------------------------------------------- the peer, and time

void Machine::handle_message(const Message& message, std::int64_t now_ns) {
  if (sender_ == Sender::failed) return;
  if (message.kind == Kind::move) return handle_move(message, now_ns);
  if (message.kind == Kind::failed) return end_in_failure(message, now_ns);
  if (message.epoch != epoch_ || path() != Path::backup || waiting_) return;  // that is over
  if (message.kind == Kind::drained) {
    peer_drained_ = true;
    if (!draining_) drain("the peer has drained", now_ns);
    move_if_drained(now_ns);
    return;
  }
  peer_drained_ = false;
  if (draining_ && !mutated(Mutant::shift_resume_ignored))
    give_up_failback("the peer gave up the failback", now_ns);
}

void Machine::handle_move(const Message& message, std::int64_t now_ns) {
  if (message.epoch == epoch_ + 1 && !waiting_) {
    peer_drained_ = false;
    move("the peer has moved", now_ns);
  }
  if (message.epoch != epoch_ || !waiting_)
    return surface("the peer moved to epoch " + std::to_string(message.epoch), now_ns);
  resolve(message, now_ns);
}

// What the peer executed is done; the rest surfaces.
void Machine::end_in_failure(const Message& message, std::int64_t now_ns) {
  plain_ = false;
  Unfinished left = actions_.leave(path());
  if (!waiting_) take_left(left);
  try {
    end_oldest(classify_by(message));
  } catch (const ProtocolError&) {  // nothing is known to be done
  }
  Sends ends = requests_of(unresolved_);
  append(ends, std::exchange(held_, {}));
  unresolved_.clear();
  fail(ends, left.receives, WcStatus::retry_exc_err);
  enter(Sender::failed, "the peer surfaced an error", now_ns, WcStatus::retry_exc_err);
}

void Machine::advance(std::int64_t now_ns) {
  if (deadline_ns_ && now_ns >= *deadline_ns_) {
    deadline_ns_.reset();
    if (waiting_ && !mutated(Mutant::shift_waits_for_ever))
      surface("the peer did not answer", now_ns);
    else if (draining_ && !mutated(Mutant::shift_resume_ignored))
      give_up_failback("the failback took too long", now_ns);
  }
  if (probe_at_ns_ && now_ns >= *probe_at_ns_) {
    probe_at_ns_.reset();
    probing_ = true;
    actions_.probe();
  }
}

// ---------------------------------------------------------------- transitions

void Machine::enter(Sender state, const std::string& why, std::int64_t now_ns, WcStatus status) {
  const Sender before = sender_.exchange(state);
  if (before == state) return;
  Transition moved = transition("sender", name_of(before), name_of(state), why, now_ns);
  moved.status = status;
  actions_.note(std::move(moved));
}

void Machine::enter(Receiver state, const std::string& why, std::int64_t now_ns,
                    std::size_t receives) {
  const Receiver before = std::exchange(receiver_, state);
  Transition moved = transition("receiver", name_of(before), name_of(state), why, now_ns);
  moved.receives = static_cast<std::uint32_t>(receives);
  actions_.note(std::move(moved));
}

Transition Machine::transition(const char* side, const char* before, const char* after,
                               const std::string& why, std::int64_t now_ns) const {
  return {.at_ns = now_ns,
          .qp_num = qp_num_,
          .epoch = epoch_,
          .side = side,
          .before = before,
          .after = after,
          .why = why};
}

}  // namespace softroce::shift
