// SPDX-License-Identifier: GPL-2.0-or-later
#include "completions.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "../engine/mutant.hpp"
#include "backup.hpp"

namespace softroce::shift {
namespace {

constexpr std::size_t kAll = CompletionQueue::kUnbounded;

}  // namespace

Completions::Completions(Backup& backup, std::shared_ptr<CompletionQueue> near,
                         std::size_t capacity, std::function<void()> ring)
    : backup_(backup), near_(std::move(near)), capacity_(capacity), ring_(std::move(ring)) {}

Completions::~Completions() {
  if (far_) far_->on_event({});
}

const std::shared_ptr<CompletionQueue>& Completions::far() {
  if (!far_) {
    far_ = backup_.far().ask(
        [capacity = capacity_](Rnic& rnic, Time) { return rnic.create_cq(capacity); });
    if (ring_) far_->on_event(ring_);
  }
  return far_;
}

std::vector<WorkCompletion> Completions::poll_both(std::size_t most) {
  const auto held = backup_.hold();
  backup_.advance();
  collect();
  const std::size_t count = std::min(most, pending_.size());
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<WorkCompletion> polled(pending_.begin(), end);
  pending_.erase(pending_.begin(), end);
  detach_if_idle();
  return polled;
}

// What waits here already counts.
void Completions::arm(bool solicited_only) {
  near_->arm(solicited_only);
  if (!attached_) return;
  const auto held = backup_.hold();
  if (far_) far_->arm(solicited_only);
  armed_ = true;
  if (!pending_.empty()) ring_if_armed();
}

void Completions::forget(std::uint32_t qp_num) {
  const auto held = backup_.hold();
  std::erase_if(pending_, [=](const auto& each) { return each.qp_num == qp_num; });
}

// The application may have asked for an event before. It gets one, perhaps of nothing.
void Completions::attach() {
  if (!attached_.exchange(true)) {
    armed_ = true;
    if (far_) far_->arm(false);
  }
  while (polling_ != 0) sched_yield();
}

void Completions::collect() {
  for (const WorkCompletion& each : near_->poll(kAll)) take(each, false);
  if (!far_) return;
  for (const WorkCompletion& each : far_->poll(kAll)) take(each, true);
}

void Completions::take(const WorkCompletion& completion, bool from_far) {
  const auto owner = backup_.owner(from_far ? Path::backup : Path::primary, completion.qp_num);
  if (owner && (completion.wr_id == kProbeId || completion.wr_id == kFenceId))
    return owner->finished(completion.wr_id);
  WorkCompletion own = completion;
  if (owner && !mutated(Mutant::shift_number_of_backup)) own.qp_num = owner->number();
  add(own);
}

void Completions::add(const WorkCompletion& completion) {
  pending_.push_back(completion);
  attached_ = true;
  ring_if_armed();
}

void Completions::ring_if_armed() {
  if (armed_ && ring_) {
    armed_ = false;
    ring_();
  }
}

void Completions::set_busy(const ShiftQp& qp, bool busy) {
  if (busy) {
    busy_.insert(&qp);
    attach();
  } else if (busy_.erase(&qp) != 0) {
    collect();
    detach_if_idle();
  }
}

}  // namespace softroce::shift
