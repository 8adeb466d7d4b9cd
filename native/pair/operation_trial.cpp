// SPDX-License-Identifier: GPL-2.0-or-later
#include "operation_trial.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "operation_plan.hpp"
#include "operation_setup.hpp"
#include "trial_mistake.hpp"

namespace softroce {
namespace {

constexpr Time kLongest = 20'000 * kMillisecond;  // of a trial, after its last action
constexpr std::size_t kMostMoments = 2'000'000;
constexpr std::size_t kMostOldFrames = 64;
constexpr int kMostInjected = 200;
constexpr std::uint32_t kOperationHeaders = 64;  // of a striped packet, within the path MTU

OperationPlan plan_of(std::uint64_t seed, const MessageConfig& config,
                      const TrialOptions& options) {
  OperationPlan plan = draw_operations(seed, config.path_mtu);
  leave_out(plan, options.without_posts, options.without_disturbances);
  return plan;
}

class Trial : OperationSetup {
 public:
  Trial(std::uint64_t seed, const MessageConfig& config, const TrialOptions& options)
      : OperationSetup(seed, plan_of(seed, config, options), config,
                       options.overlaps_mix ? config.path_mtu - kOperationHeaders : 0),
        options_(options),
        mistake_(mistake_of(options.mistake)) {}

  TrialOutcome run() {
    for (const PlannedPost& post : plan_.posts) outcome_.posts.push_back(post.number);
    go();
    if (model_.violations().empty()) judge_end();
    if (model_.violations().empty()) take_down();
    outcome_.violations = model_.violations();
    note_features();
    return std::move(outcome_);
  }

 private:
  // `line` makes the text, which most trials do not need.
  template <typename F>
  void tell(F&& line) {
    if (options_.tells_story)
      outcome_.story.push_back(std::to_string(now() / kNanosecond) + " ns: " + line());
  }

  // ---------------------------------------------------------------- the run

  void go() {
    Time over_at = kNever;
    for (std::size_t moment = 0; moment < kMostMoments; ++moment) {
      act();
      pair_.run(now());
      look();
      if (!model_.violations().empty()) return;
      const bool over = is_over();
      if (over && over_at == kNever) over_at = now() + linger_;
      const Time next = std::min(pair_.next_event(), next_action());
      if (over && (next > over_at)) return;
      if (next == kNever || next > end_at_ + kLongest) return;
      pair_.run(next);
      look();
    }
  }

  bool is_over() const {
    if (now() < end_at_) return false;
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      const TrialEnd& end = ends_[flow];
      if (!end.gone && (end.next < end.requests.size() || !model_.is_over(flow))) return false;
    }
    return true;
  }

  void act() {
    change_cables();
    change_states();
    break_something();
    for (std::uint32_t which = 0; which < 2; ++which)
      post_receives(sides_[which], sides_[which].stock, which, true);
    for (std::uint32_t flow = 0; flow < flows(); ++flow)
      if (!ends_[flow].gone) post_receives(side_of(flow), ends_[flow].stock, flow, false);
    for (std::uint32_t flow = 0; flow < flows(); ++flow) post(flow);
    if (plan_.old_frames) repeat_old_frames();
  }

  Time next_action() const {
    Time next = kNever;
    const auto consider = [&next, this](Time at) {
      if (at > now()) next = std::min(next, at);
    };
    for (const TrialEnd& end : ends_) {
      if (!end.gone && end.next < end.at.size()) consider(end.at[end.next]);
      consider_slots(end.stock, consider);
    }
    for (const TrialSide& side : sides_) consider_slots(side.stock, consider);
    for (const auto& pause : {plan_.cut, plan_.drained, plan_.late})
      if (pause) {
        consider(pause->from);
        consider(pause->until);
      }
    if (plan_.fault.kind >= FaultKind::region_goes) consider(plan_.fault.at);
    if (plan_.old_frames && now() < end_at_) consider(next_old_at_);
    return next;
  }

  template <typename F>
  static void consider_slots(const ReceiveStock& stock, F&& consider) {
    if (stock.slot_of.size() >= stock.limit) return;
    for (const std::size_t slot : stock.free) consider(stock.slots[slot].free_at);
  }

  void change_cables() {
    std::uint32_t down = 0;
    if (plan_.cut && now() >= plan_.cut->from && now() < plan_.cut->until)
      down |= plan_.cut->directions;
    if (plan_.fault.kind == FaultKind::cut && now() >= plan_.fault.at)
      down |= plan_.fault.directions;
    for (int which = 0; which < 2; ++which) pair_.cable(which).down = down >> which & 1;
  }

  void change_states() {
    if (plan_.late && now() >= plan_.late->until) {
      const std::uint32_t flow = plan_.late->flow;
      const QueuePair* qp = side_of(flow).rnic.find_qp(ends_[flow].qp);
      if (qp != nullptr && qp->state() == QpState::init) go_to_rts(flow);
    }
    if (!plan_.drained) return;
    const std::uint32_t flow = plan_.drained->flow;
    const QueuePair* qp = side_of(flow).rnic.find_qp(ends_[flow].qp);
    if (qp == nullptr) return;
    const bool drains = now() >= plan_.drained->from && now() < plan_.drained->until;
    if (drains && qp->state() == QpState::rts) {
      const bool forgets = mistake_ == Mistake::posts_forgotten;
      model_.drain(flow, forgets ? model_.effects(flow) : model_.posts(flow));
      modify(flow, QpState::sqd, kAttrState);
    }
    if (!drains && qp->state() == QpState::sqd) {
      model_.end_drain(flow);
      modify(flow, QpState::rts, kAttrState);
    }
  }

  void break_something() {
    const PlannedFault& fault = plan_.fault;
    if (fault.kind < FaultKind::region_goes || broken_ || now() < fault.at) return;
    broken_ = true;
    TrialEnd& end = ends_[fault.flow];
    Rnic& rnic = side_of(fault.flow).rnic;
    tell([&fault] { return std::string("fault ") + name_of(fault.kind); });
    switch (fault.kind) {
      case FaultKind::region_goes: {
        TrialSide& there = peer_side_of(fault.flow);
        there.rnic.memory().remove(end.second_key);
        there.removed_keys.insert(end.second_key);
        return freeze(target_of(fault.flow).subspan(plan_.flows[fault.flow].split));
      }
      case FaultKind::end_fails:
        modify(fault.flow, QpState::err, kAttrState);
        return freeze_memory_of(fault.flow);
      case FaultKind::end_resets:
        modify(fault.flow, QpState::reset, kAttrState);
        break;
      case FaultKind::end_destroyed:
        must(rnic.destroy_qp(end.qp), "destroy_qp");
        break;
      default:
        return;
    }
    end.gone = true;
    model_.end_is_gone(fault.flow);
    freeze_memory_of(fault.flow);
    for (const ReceiveStock::Slot& slot : end.stock.slots)
      freeze(side_of(fault.flow).arena.area(slot.area));
  }

  // Of a queue pair that does nothing any more: what the peer writes to, and what results go to.
  void freeze_memory_of(std::uint32_t flow) {
    freeze(target_of(flow ^ 1));
    for (const std::size_t area : ends_[flow].result_areas) freeze(side_of(flow).arena.area(area));
  }

  // From now on these bytes do not change.
  void freeze(Element memory) {
    frozen_.emplace_back(memory, std::vector<std::uint8_t>(memory.begin(), memory.end()));
  }

  // ---------------------------------------------------------------- receives

  void post_receives(TrialSide& side, ReceiveStock& stock, std::uint32_t whose, bool shared) {
    while (stock.slot_of.size() < stock.limit && !stock.free.empty()) {
      const std::size_t slot = stock.free.front();
      if (stock.slots[slot].free_at > now()) return;
      const std::size_t number = stock.slot_of.size();
      Receive receive;
      ReceiveRequest request;
      receive.wr_id = request.wr_id = number;
      receive.slot = side.arena.area(stock.slots[slot].area);
      std::ranges::fill(receive.slot, kPoison);
      std::uint32_t bytes = stock.slot_bytes - kGapBytes * kMostElements;
      bool bad = false;
      if (!shared) bytes = receive_bytes(whose, number, bytes, bad);
      std::uint32_t offset = 0;
      const std::uint32_t elements = dice_.chance(75) ? 1 : dice_.between(2, kMostElements);
      for (std::uint32_t element = 1; element <= elements; ++element) {
        const std::uint32_t some = element == elements ? bytes : dice_.below(bytes + 1);
        receive.elements.push_back(receive.slot.subspan(offset, some));
        request.targets.push_back(
            {address_of(receive.slot.data()) + offset, some, bad ? kUnknownKey : side.local_key});
        offset += some + kGapBytes;
        bytes -= some;
      }
      const int error = shared ? side.rnic.post_srq_receive(side.srq, std::move(request))
                               : side.rnic.post_receive(ends_[whose].qp, std::move(request), now());
      if (error != 0) return model_.violation("ends once", "a receive is not taken");
      stock.free.pop_front();
      stock.slot_of.push_back(slot);
      if (shared)
        model_.shared_receive_posted(whose, std::move(receive));
      else
        model_.receive_posted(whose, std::move(receive));
    }
  }

  // Room for the message that takes this receive, and sometimes more.
  std::uint32_t receive_bytes(std::uint32_t flow, std::size_t number, std::uint32_t most,
                              bool& bad) {
    const TrialEnd& end = ends_[flow];
    if (number >= end.takers.size()) return most;
    const std::uint32_t needed = end.takers[number];
    if ((plan_.fault.flow ^ 1) == flow && faulty_post() != nullptr &&
        number_of_receive(plan_.fault.number) == number) {
      if (plan_.fault.kind == FaultKind::short_receive) return needed - 1;
      bad = plan_.fault.kind == FaultKind::bad_receive;
      if (bad) return needed;
    }
    return dice_.chance(50) ? needed : needed + dice_.below(most - needed + 1);
  }

  // ---------------------------------------------------------------- sends

  void post(std::uint32_t flow) {
    TrialEnd& end = ends_[flow];
    while (!end.gone && end.next < end.requests.size() && end.at[end.next] <= now()) {
      std::size_t behind = end.next + 1;
      while (behind < end.requests.size() && end.with_next[behind - 1] && end.at[behind] <= now() &&
             behind - end.next < plan_.flows[flow].max_send)
        ++behind;
      std::vector<SendRequest> requests(
          end.requests.begin() + static_cast<std::ptrdiff_t>(end.next),
          end.requests.begin() + static_cast<std::ptrdiff_t>(behind));
      const int error = side_of(flow).rnic.post_sends(end.qp, requests, now());
      if (error == ENOMEM) return;  // until something ends
      if (error != 0)
        return model_.violation(
            "ends once", model_.text(flow, end.next) + " is refused with " + std::to_string(error));
      for (; end.next < behind; ++end.next) {
        tell([&] { return "post of " + model_.text(flow, end.next); });
        model_.posted(flow);
        mistake_at_post(flow, end.next);
      }
    }
  }

  void repeat_old_frames() {
    for (Pair::Sent& sent : pair_.take_sent()) {
      if (!dice_.chance(25)) continue;
      if (old_frames_.size() < kMostOldFrames)
        old_frames_.push_back(std::move(sent));
      else
        old_frames_[dice_.below(kMostOldFrames)] = std::move(sent);
    }
    if (now() < next_old_at_ || now() >= end_at_ || injected_ == kMostInjected) return;
    next_old_at_ = now() + (1 + dice_.below(2'000)) * 10 * kNanosecond;
    if (old_frames_.empty()) return;
    const Pair::Sent& sent =
        old_frames_[dice_.below(static_cast<std::uint32_t>(old_frames_.size()))];
    ++injected_;
    pair_.inject(1 - sent.from, sent.frame.data(), sent.frame.size());
  }

  // ---------------------------------------------------------------- what the program sees

  void look() {
    model_.note_losses(losses());
    for (TrialSide& side : sides_) {
      discard_striped_news(side.rnic);
      const std::size_t pushed = side.rnic.completions_pushed();
      if (pushed == std::exchange(side.pushed, pushed)) continue;
      std::vector<WorkCompletion>& came = came_[static_cast<std::size_t>(&side - sides_.data())];
      for (const auto& queue : side.queues)
        queue->drain(SIZE_MAX, [&came](const WorkCompletion& each) { came.push_back(each); });
      side.rnic.take_async_events();
    }
    // A message's receive has completed when the peer learns of its end.
    for (std::uint32_t which = 0; which < 2; ++which)
      for (const WorkCompletion& each : came_[which])
        if (each.opcode >= WcOpcode::recv) received(which, each);
    for (std::uint32_t which = 0; which < 2; ++which) {
      if (mistake_ == Mistake::completions_swapped) swap_some(came_[which]);
      for (const WorkCompletion& each : came_[which])
        if (each.opcode < WcOpcode::recv) sent(which, each);
      came_[which].clear();
    }
    if (model_.violations().empty()) model_.look();
  }

  // A trial posts no messages of its own. What is for who posts them would stop the clock.
  static void discard_striped_news(Rnic& rnic) {
    if (!rnic.messages().has_news()) return;
    rnic.completions().poll(SIZE_MAX);
    if (!rnic.messages().handles_events()) rnic.messages().events().clear();
  }

  std::uint64_t losses() const {
    std::uint64_t lost = 0;
    for (int from = 0; from < 2; ++from)
      lost += pair_.totals(from).lost + pair_.totals(from).corrupted;
    return lost;
  }

  std::uint32_t flow_of(std::uint32_t side, std::uint32_t qp) const {
    for (const auto& [number, flow] : flow_of_[side])
      if (number == qp) return flow;
    throw std::logic_error("a completion of a queue pair that the trial does not have");
  }

  void received(std::uint32_t which, WorkCompletion completion) {
    const std::uint32_t flow = flow_of(which, completion.qp_num);
    const bool shared = plan_.flows[flow].shared_receives;
    ReceiveStock& stock = shared ? sides_[which].stock : ends_[flow].stock;
    tell([&] {
      return "completion of receive " + std::to_string(completion.wr_id) + " (" +
             model_.name(flow ^ 1) + "), " + std::to_string(completion.byte_len) + " bytes, " +
             text_of(completion.status);
    });
    const std::size_t slot = stock.slot_of.at(completion.wr_id);
    mistake_at_receive(flow, slot, completion);
    model_.receive_completed(flow, completion);
    stock.slots[slot].free_at = now() + stock.delay;
    stock.free.push_back(slot);
  }

  void sent(std::uint32_t which, WorkCompletion completion) {
    const std::uint32_t flow = flow_of(which, completion.qp_num);
    const std::size_t index = completion.wr_id & 0xFFFFFFFF;
    if (index < model_.operations(flow).size()) {
      tell([&] {
        return "completion of " + model_.text(flow, index) + ", " + text_of(completion.status);
      });
      if (mistake_at_completion(flow, index, completion)) return;
    }
    model_.send_completed(flow, completion);
  }

  // ---------------------------------------------------------------- the end

  void judge_end() {
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      const TrialEnd& end = ends_[flow];
      if (!end.gone && end.next < end.requests.size())
        model_.violation("ends once", model_.text(flow, end.next) + " could never be posted");
    }
    if (mistake_ == Mistake::guard_touched) *(sides_[1].arena.area(0).data() - 1) ^= 1;
    model_.finish();
    for (TrialSide& side : sides_) {
      if (!side.arena.guards_stand()) model_.violation("guards", "bytes outside all areas changed");
      if (!std::ranges::equal(side.arena.area(side.pattern_area), pattern()))
        model_.violation("guards", "bytes that were sent from changed");
    }
    for (const auto& [memory, bytes] : frozen_)
      if (!std::ranges::equal(memory, bytes))
        model_.violation(
            "guards", std::string("memory changed after the fault ") + name_of(plan_.fault.kind));
    for (std::uint32_t flow = 0; flow < flows(); ++flow) check_state(flow);
  }

  void check_state(std::uint32_t flow) {
    if (ends_[flow].gone) return;
    const QpState state = side_of(flow).rnic.find_qp(ends_[flow].qp)->state();
    const std::uint32_t peer = flow ^ 1;
    const bool moved =
        broken_ && plan_.fault.kind == FaultKind::end_fails && plan_.fault.flow == flow;
    const bool failed = model_.has_failed(flow) || moved;
    const bool peer_planned = model_.is_planned_failure(peer);
    const bool ended_by_peer = peer_planned && tolerance_of(peer).ends_peer;
    const bool spared_by_peer = peer_planned ? !tolerance_of(peer).ends_peer
                                             : !model_.has_failed(peer) && !ends_[peer].gone;
    const std::string what = "the queue pair of flow " + std::to_string(flow) + " is in state " +
                             std::to_string(static_cast<int>(state));
    if ((failed || ended_by_peer) && state != QpState::err)
      model_.violation("errors", what + " after an error");
    if (!failed && spared_by_peer && state != QpState::rts)
      model_.violation("errors", what + " without an error");
  }

  // All that is left is flushed, and nothing is left when all is destroyed.
  void take_down() {
    if (mistake_ == Mistake::region_pinned)
      sides_[0].rnic.memory().pin(sides_[0].local_key, 0, 1, 0, kDomain);
    for (std::uint32_t flow = 0; flow < flows(); ++flow)
      if (!ends_[flow].gone) modify(flow, QpState::err, kAttrState);
    pair_.run(now());
    look();
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      TrialEnd& end = ends_[flow];
      const bool flushed = !end.gone && !plan_.flows[flow].shared_receives;
      if (flushed && end.stock.free.size() != end.stock.slots.size())
        model_.violation("ends once",
                         "receives of flow " + std::to_string(flow) + " are not flushed");
      const bool destroyed = end.gone && plan_.fault.kind == FaultKind::end_destroyed;
      if (!destroyed) must(side_of(flow).rnic.destroy_qp(end.qp), "destroy_qp");
    }
    for (TrialSide& side : sides_) {
      side.queues.clear();
      const auto srq = side.rnic.find_srq(side.srq);
      if (srq && srq->queue.size() + side.stock.free.size() != side.stock.slots.size())
        model_.violation("leaks", "a shared receive is neither completed nor in its queue");
      if (side.srq != 0 && side.rnic.destroy_srq(side.srq) != 0)
        model_.violation("leaks", "queue pairs still use the shared receives");
      for (const std::uint32_t key : side.keys) remove(side, key);
    }
    for (TrialEnd& end : ends_) end.sends = end.receives = nullptr;
    pair_.run(now() + kLongest);
    if (pair_.next_event() != kNever)
      model_.violation("leaks", "something is to happen when all is destroyed");
  }

  void remove(TrialSide& side, std::uint32_t key) {
    if (side.removed_keys.contains(key)) return;
    try {
      side.rnic.memory().remove(key);
    } catch (const std::system_error& error) {
      model_.violation("leaks", error.what());
    }
  }

  // ---------------------------------------------------------------- mistakes made on purpose

  void mistake_at_post(std::uint32_t flow, std::size_t index) {
    const PostedOperation& operation = model_.operations(flow)[index];
    if (!operation.is_write() || operation.bytes < 2) return;
    const Element target = target_of(flow);
    if (mistake_ == Mistake::last_byte_early)
      target[operation.offset + operation.bytes - 1] = operation.data.back();
    if (mistake_ != Mistake::fence_ignored || !(operation.flags & kFence)) return;
    for (std::size_t each = 0; each <= index; ++each) {
      const PostedOperation& before = model_.operations(flow)[each];
      if (before.is_write()) std::ranges::copy(before.data, target.begin() + before.offset);
    }
  }

  void mistake_at_receive(std::uint32_t flow, std::size_t slot, WorkCompletion& completion) {
    if (completion.status != WcStatus::success) return;
    TrialSide& here = side_of(flow);
    const ReceiveStock& stock = plan_.flows[flow].shared_receives ? here.stock : ends_[flow].stock;
    if (mistake_ == Mistake::receive_of_next) ++completion.wr_id;
    if (mistake_ == Mistake::immediate_changed && (completion.flags & kWithImmediate))
      ++completion.immediate;
    if (mistake_ == Mistake::received_byte_lost && completion.opcode == WcOpcode::recv &&
        completion.byte_len > 2 * kGapBytes)
      for (std::uint8_t& byte : here.arena.area(stock.slots[slot].area).first(1)) byte ^= 0xFF;
  }

  // True: the completion is not told.
  bool mistake_at_completion(std::uint32_t flow, std::size_t index, WorkCompletion& completion) {
    const PostedOperation& operation = model_.operations(flow)[index];
    if (mistake_ == Mistake::error_hidden) completion.status = WcStatus::success;
    if (completion.status != WcStatus::success) return false;
    const Element target = target_of(flow);
    if (mistake_ == Mistake::completion_lost && index == 2) return true;
    if (mistake_ == Mistake::completion_twice) model_.send_completed(flow, completion);
    if (mistake_ == Mistake::written_byte_lost && operation.is_write() && operation.bytes != 0)
      target[operation.offset] ^= 0xFF;
    if (mistake_ == Mistake::read_byte_lost && operation.is_read() && operation.bytes != 0)
      flip(operation.results);
    if (mistake_ == Mistake::atomic_result_changed && operation.is_atomic())
      flip(operation.results);
    if (mistake_ == Mistake::atomic_twice && operation.opcode == WrOpcode::fetch_add) {
      std::uint8_t* at = const_cast<std::uint8_t*>(target.data()) + operation.offset;
      TrialSide& there = peer_side_of(flow);
      if (operation.shared_word)
        at = there.arena.area(there.words_area).data() +
             *operation.shared_word % kSharedWords * kWordBytes;
      const std::uint64_t sum = word_at(at) + operation.operand;
      std::memcpy(at, &sum, sizeof sum);
    }
    return false;
  }

  static void flip(const std::vector<Element>& elements) {
    for (const Element& element : elements)
      if (!element.empty()) {
        element.front() ^= 0xFF;
        return;
      }
  }

  static void swap_some(std::vector<WorkCompletion>& came) {
    for (std::size_t index = 1; index < came.size(); ++index) {
      const bool sends =
          came[index].opcode < WcOpcode::recv && came[index - 1].opcode < WcOpcode::recv;
      if (sends && came[index].qp_num == came[index - 1].qp_num)
        return std::swap(came[index], came[index - 1]);
    }
  }

  // ---------------------------------------------------------------- what was met

  void note_features() {
    const auto met = [this](const char* what, bool is_met) {
      if (is_met) outcome_.met.emplace_back(what);
    };
    bool failed = false, planned = false;
    std::set<std::string> others;
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      failed |= model_.has_failed(flow);
      planned |= model_.is_planned_failure(flow);
      if (plan_.flows[flow].shared_receives) others.insert("shared receives");
      if (plan_.flows[flow].split != 0) others.insert("two regions");
      for (const PostedOperation& operation : model_.operations(flow)) {
        if (operation.flags & kFence) others.insert("fences");
        if (operation.shared_word) others.insert("atomics of several queue pairs");
        if (operation.opcode == WrOpcode::send_with_invalidate) others.insert("invalidations");
      }
    }
    const Pair::Totals &forth = pair_.totals(0), &back = pair_.totals(1);
    met("loss", forth.lost + back.lost != 0);
    met("duplicates", forth.duplicated + back.duplicated != 0);
    met("corruption", forth.corrupted + back.corrupted != 0);
    met("IPv6", plan_.ipv6);
    met("reordering", plan_.cables[0].jitter != 0);
    met("a cut", plan_.cut.has_value());
    met("a drained queue", plan_.drained.has_value());
    met("a late queue pair", plan_.late.has_value());
    met("old frames", injected_ != 0);
    met("receives that were late", receives_were_late());
    met("an error", failed);
    met("a planned error", planned);
    if (broken_) others.insert(std::string("fault ") + name_of(plan_.fault.kind));
    if (planned) others.insert(std::string("fault ") + name_of(plan_.fault.kind));
    outcome_.met.insert(outcome_.met.end(), others.begin(), others.end());
  }

  bool receives_were_late() {
    return std::ranges::any_of(sides_, [](const TrialSide& side) {
      return side.rnic.counters()[Counter::tx_rnr_nak] != 0;
    });
  }

  const TrialOptions& options_;
  Mistake mistake_;
  bool broken_ = false;  // what the planned fault does at a time was done
  std::vector<std::pair<Element, std::vector<std::uint8_t>>> frozen_;
  std::array<std::vector<WorkCompletion>, 2> came_;
  std::vector<Pair::Sent> old_frames_;
  Time next_old_at_ = 0;
  int injected_ = 0;
  TrialOutcome outcome_;
};

}  // namespace

const std::vector<std::string>& trial_mistakes() { return kMistakeNames; }

TrialOutcome run_operation_trial(std::uint64_t seed, const MessageConfig& config,
                                 const TrialOptions& options) {
  return Trial(seed, config, options).run();
}

}  // namespace softroce
