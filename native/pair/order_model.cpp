// SPDX-License-Identifier: GPL-2.0-or-later
#include "order_model.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

#include "../engine/codec/crc.hpp"
#include "../engine/verbs/queue_pair.hpp"

namespace softroce {
namespace {

// A queue pair with `retry_cnt` 7 gives up after eight losses of a packet or its answer. Two
// retries may follow one timeout, because a NAK asks for one, too.
constexpr std::uint64_t kLossesThatExhaust = 4;
constexpr std::size_t kMostViolations = 8;
constexpr std::size_t kMostSteps = 100'000;  // of a search for the order of atomics

std::uint64_t word_at(const std::uint8_t* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// How many bytes of both are equal from the beginning.
std::uint32_t equal_bytes(const std::uint8_t* a, const std::uint8_t* b, std::uint32_t most) {
  return static_cast<std::uint32_t>(std::mismatch(a, a + most, b).first - a);
}

bool is_poison(Element memory) {
  return std::ranges::all_of(memory, [](std::uint8_t byte) { return byte == kPoison; });
}

void gather(const std::vector<Element>& elements, std::vector<std::uint8_t>& to) {
  to.clear();
  for (const Element& element : elements) to.insert(to.end(), element.begin(), element.end());
}

std::uint64_t sum_of(const std::vector<Element>& elements) {
  static constexpr std::uint8_t kNothing = 0;
  std::uint64_t sum = 0;
  for (const Element& element : elements)
    sum = sum * 31 + crc32(element.data(), element.size(), &kNothing, 0);
  return sum;
}

const char* name_of(WrOpcode opcode) {
  static constexpr const char* kNames[] = {
      "WRITE",       "WRITE with immediate", "SEND",      "SEND with immediate",
      "READ",        "compare-swap",         "fetch-add", "local invalidate",
      "bind window", "SEND with invalidate"};
  return kNames[static_cast<int>(opcode)];
}

}  // namespace

std::string text_of(WcStatus status) {
  static constexpr const char* kNames[] = {
      "success",        "loc_len_err", "loc_qp_op_err", "loc_eec_op_err",   "loc_prot_err",
      "wr_flush_err",   "mw_bind_err", "bad_resp_err",  "loc_access_err",   "rem_inv_req_err",
      "rem_access_err", "rem_op_err",  "retry_exc_err", "rnr_retry_exc_err"};
  const auto number = static_cast<std::size_t>(status);
  return number < std::size(kNames) ? kNames[number] : std::to_string(number);
}

void OrderModel::violation(const char* rule, const std::string& what) {
  if (violations_.size() < kMostViolations) violations_.push_back(std::string(rule) + ": " + what);
}

std::string OrderModel::text(std::uint32_t flow, std::size_t index) const {
  const PostedOperation& operation = flows_[flow].operations[index];
  return std::string(name_of(operation.opcode)) + " " + std::to_string(operation.number) + " (" +
         flows_[flow].name + ", " + std::to_string(operation.bytes) + " bytes at " +
         std::to_string(operation.offset) + ")";
}

// ---------------------------------------------------------------- what is there

void OrderModel::add_flow(FlowSetup setup) {
  Flow flow;
  static_cast<FlowSetup&>(flow) = std::move(setup);
  flow.initial.assign(flow.target.begin(), flow.target.end());
  flow.settled = flow.initial;
  flow.settled_at_post.resize(flow.operations.size());
  flow.result_sums.resize(flow.operations.size());
  for (std::size_t index = 0; index < flow.operations.size(); ++index)
    if (flow.operations[index].takes_receive()) flow.receive_takers.push_back(index);
  flows_.push_back(std::move(flow));
}

void OrderModel::add_shared_word(std::uint32_t word, const std::uint8_t* at) {
  words_[word] = {at, word_at(at)};
}

void OrderModel::posted(std::uint32_t flow) {
  Flow& f = flows_[flow];
  f.settled_at_post[f.posted] = f.settled_to;
  ++f.posted;
}

void OrderModel::receive_posted(std::uint32_t flow, Receive receive) {
  flows_[flow].receives.push_back(std::move(receive));
}

void OrderModel::shared_receive_posted(std::uint32_t side, Receive receive) {
  const std::uint64_t wr_id = receive.wr_id;
  shared_[side].posted.emplace(wr_id, std::move(receive));
}

bool OrderModel::is_over(std::uint32_t flow) const {
  const Flow& f = flows_[flow];
  return f.gone || (f.failed ? f.completed : f.ended) == f.posted;
}

bool OrderModel::may_be_flushed(std::uint32_t flow) {
  const Flow& peer = peer_of(flow);
  return flows_[flow].tolerance.may_be_flushed ||
         (peer.tolerance.ends_peer && peer.tolerance.planned) || peer.tolerance.second_region_goes;
}

// ---------------------------------------------------------------- completions of sends

void OrderModel::send_completed(std::uint32_t flow, const WorkCompletion& completion) {
  Flow& f = flows_[flow];
  const std::size_t index = completion.wr_id & 0xFFFFFFFF;
  if (completion.wr_id >> 32 != flow + 1 || index >= f.posted)
    return violation("ends once", "a completion on " + f.name + " whose wr_id nobody posted");
  if (f.gone) return violation("ends once", text(flow, index) + " completes after its queue pair");
  const std::string what = text(flow, index);
  const PostedOperation& operation = f.operations[index];
  if (index < f.completed)
    return violation("ends once", what + " has a completion after that of post " +
                                      std::to_string(f.operations[f.completed - 1].number));
  for (std::size_t before = f.completed; before < index; ++before)
    if (f.operations[before].signaled || f.failed)
      violation("send order", what + " completes before " + text(flow, before));
  const bool success = completion.status == WcStatus::success;
  if (success && f.failed) violation("errors", what + " succeeds behind an error");
  if (f.failed && completion.status != WcStatus::wr_flush_err && !success)
    violation("errors",
              what + " ends with " + text_of(completion.status) + " behind the first error");
  if (!f.failed) {
    for (; f.completed < index; ++f.completed) succeed(flow, f.completed);
    if (success)
      succeed(flow, index);
    else
      fail(flow, index, completion.status);
  }
  f.completed = index + 1;
  f.losses_at_progress = losses_;
  if (completion.opcode != completed_opcode(operation.opcode))
    violation("send order", what + " completes with opcode " +
                                std::to_string(static_cast<int>(completion.opcode)));
  if (success && !operation.is_local() && completion.byte_len != operation.bytes)
    violation("send order",
              what + " completes with " + std::to_string(completion.byte_len) + " bytes");
}

void OrderModel::succeed(std::uint32_t flow, std::size_t index) {
  Flow& f = flows_[flow];
  const PostedOperation& operation = f.operations[index];
  if (f.tolerance.planned == operation.number)
    violation("errors",
              text(flow, index) + " succeeds and was to end with " + text_of(f.tolerance.status));
  if (operation.is_read()) {
    std::uint32_t wrong = 0;
    if (!read_is_explained(f, index, wrong))
      violation("READ",
                text(flow, index) + " has a byte that was never there: " + std::to_string(wrong));
  }
  if (operation.is_atomic() && !operation.shared_word) {
    gather(operation.results, scratch_);
    if (word_at(scratch_.data()) != operation.original)
      violation("atomics", text(flow, index) + " returns another value than its order gives");
  }
  f.result_sums[index] = sum_of(operation.results);
  f.ended = index + 1;
  settle(flow, index + 1);
  if (!operation.takes_receive() || peer_of(flow).gone) return;
  const bool received = f.receives_done != 0 && f.receive_takers[f.receives_done - 1] >= index;
  if (!received)
    violation("data before completion", text(flow, index) + " succeeds before its receive");
}

void OrderModel::fail(std::uint32_t flow, std::size_t index, WcStatus status) {
  Flow& f = flows_[flow];
  f.failed = true;
  f.failed_at = index;
  f.met_planned = f.tolerance.planned == f.operations[index].number && status == f.tolerance.status;
  if (f.met_planned || may_end_so(flow, index, status)) return;
  std::string what = text(flow, index) + " ends with " + text_of(status);
  if (f.tolerance.planned)
    what += "; planned is " + text_of(f.tolerance.status) + " of post " +
            std::to_string(*f.tolerance.planned);
  violation("errors", what);
}

// A NAK that is lost leaves a timeout, and whatever was not acknowledged before it. A NAK behind
// which results are missing ends the oldest of these (IBA 9.9.2.3).
bool OrderModel::may_end_so(std::uint32_t flow, std::size_t index, WcStatus status) {
  const Flow& f = flows_[flow];
  const Tolerance& tolerance = f.tolerance;
  const PostedOperation& operation = f.operations[index];
  const bool before_planned = tolerance.planned && operation.number <= *tolerance.planned;
  const bool reads = operation.is_read() || operation.is_atomic();
  switch (status) {
    case WcStatus::retry_exc_err:
      return tolerance.may_time_out || losses_ - f.losses_at_progress >= kLossesThatExhaust ||
             (before_planned && tolerance.ends_peer && losses_ != 0) ||
             tolerance.second_region_goes || peer_of(flow).failed || peer_of(flow).receive_failed;
    case WcStatus::wr_flush_err:
      return may_be_flushed(flow);
    case WcStatus::rnr_retry_exc_err:
      return tolerance.may_lack_receive && (operation.takes_receive() || reads);
    case WcStatus::rem_access_err:
      if (tolerance.second_region_goes) return operation.in_second_region || reads;
      [[fallthrough]];
    default:
      return before_planned && reads && status == tolerance.status;
  }
}

// ---------------------------------------------------------------- completions of receives

void OrderModel::receive_completed(std::uint32_t flow, const WorkCompletion& completion) {
  Flow& f = flows_[flow];
  Flow& sender = peer_of(flow);
  Receive receive;
  if (f.shared_receives) {
    take_shared(flow, completion, receive);
  } else {
    if (f.receives.empty())
      return violation("ends once", "a receive on " + f.name + " completes that nobody posted");
    receive = std::move(f.receives.front());
    f.receives.pop_front();
    if (receive.wr_id != completion.wr_id)
      violation("receive order", "a receive on " + f.name + " completes out of order: " +
                                     std::to_string(completion.wr_id & 0xFFFFFFFF) + ", not " +
                                     std::to_string(receive.wr_id & 0xFFFFFFFF));
  }
  if (f.gone) return violation("ends once", "a receive completes after " + f.name + " is gone");
  const std::size_t number = sender.receives_done;
  const bool is_taken =
      number < sender.receive_takers.size() && sender.receive_takers[number] < sender.posted;
  if (completion.status != WcStatus::success) {
    const bool planned =
        is_taken &&
        sender.tolerance.planned == sender.operations[sender.receive_takers[number]].number &&
        completion.status == sender.tolerance.receive_status;
    // A READ's region may go while a SEND arrives.
    const bool went =
        sender.tolerance.second_region_goes && completion.status == WcStatus::rem_access_err;
    if (!planned && !went && completion.status != WcStatus::wr_flush_err)
      violation("errors", "a receive on " + f.name + " ends with " + text_of(completion.status));
    f.receive_failed = true;
    return;
  }
  if (f.receive_failed) violation("errors", "a receive on " + f.name + " succeeds behind an error");
  if (!is_taken)
    return violation("receive order",
                     "a receive on " + f.name + " completes, and no message takes it");
  const std::size_t index = sender.receive_takers[number];
  const PostedOperation& operation = sender.operations[index];
  if (sender.tolerance.planned && operation.number >= *sender.tolerance.planned &&
      sender.tolerance.ends_peer)
    violation("errors", text(flow ^ 1, index) + " takes effect, and was not to");
  check_received(flow, receive, completion, operation, text(flow ^ 1, index));
  ++sender.receives_done;
  sender.losses_at_progress = losses_;
  settle(flow ^ 1, index + 1);
}

void OrderModel::take_shared(std::uint32_t flow, const WorkCompletion& completion,
                             Receive& receive) {
  SharedReceives& shared = shared_[flow % 2];
  const auto found = shared.posted.find(completion.wr_id);
  if (found == shared.posted.end())
    return violation("ends once",
                     "a shared receive on " + flows_[flow].name + " completes that is not posted");
  receive = std::move(found->second);
  shared.posted.erase(found);
  // A queue pair that fails puts its receive back, and others may take that one late.
  const bool any_failed = std::ranges::any_of(
      flows_, [](const Flow& each) { return each.failed || each.gone || each.receive_failed; });
  std::uint64_t& newest = shared.newest[flow];
  if (completion.wr_id < newest && !any_failed)
    violation("receive order",
              "a shared receive on " + flows_[flow].name + " is older than the one before it");
  newest = std::max(newest, completion.wr_id);
}

void OrderModel::check_received(std::uint32_t flow, const Receive& receive,
                                const WorkCompletion& completion, const PostedOperation& operation,
                                const std::string& what) {
  const bool writes = operation.is_write();
  const bool immediate = operation.opcode == WrOpcode::rdma_write_with_immediate ||
                         operation.opcode == WrOpcode::send_with_immediate;
  const bool invalidates = operation.opcode == WrOpcode::send_with_invalidate;
  const auto opcode = writes ? WcOpcode::recv_rdma_with_immediate : WcOpcode::recv;
  if (completion.opcode != opcode) violation("receive order", what + ": its receive's opcode");
  if (completion.byte_len != operation.bytes)
    violation("receive order",
              what + ": its receive has " + std::to_string(completion.byte_len) + " bytes");
  const int flags = (immediate ? kWithImmediate : 0) | (invalidates ? kWithInvalidate : 0);
  if ((completion.flags & (kWithImmediate | kWithInvalidate)) != flags)
    violation("receive order", what + ": its receive's flags");
  if ((immediate && completion.immediate != operation.immediate) ||
      (invalidates && completion.immediate != operation.invalidated))
    violation("receive order", what + ": its receive's immediate");
  if (completion.solicited != ((operation.flags & kSolicited) != 0))
    violation("receive order", what + ": whether its receive is solicited");
  gather(receive.elements, scratch_);
  const std::uint32_t bytes = writes ? 0 : operation.bytes;
  if (scratch_.size() < bytes ||
      !std::equal(operation.data.begin(), operation.data.begin() + bytes, scratch_.begin()))
    return violation("data before completion", what + ": other bytes are in its receive");
  // Behind the message, and between the elements. A shared receive may have been begun before.
  const bool any_failed = std::ranges::any_of(
      flows_, [](const Flow& each) { return each.failed || each.gone || each.receive_failed; });
  if (flows_[flow].shared_receives && any_failed) return;
  if (!is_poison(Element(scratch_).subspan(bytes)))
    violation("guards", what + ": its receive has bytes behind the message");
  const std::uint8_t* at = receive.slot.data();
  for (const Element& element : receive.elements) {
    if (element.data() > at &&
        !is_poison(
            {at == nullptr ? element.data() : const_cast<std::uint8_t*>(at), element.data()}))
      violation("guards", what + ": bytes between the elements of its receive changed");
    at = element.data() + element.size();
  }
}

// ---------------------------------------------------------------- effects

// Operations before `to` have taken effect.
void OrderModel::settle(std::uint32_t flow, std::size_t to) {
  Flow& f = flows_[flow];
  if (to <= f.settled_to) return;
  for (; f.settled_to < to; ++f.settled_to) {
    const PostedOperation& operation = f.operations[f.settled_to];
    if (operation.flags & kFence) check_fence(flow, f.settled_to);
    // Local operations are carried out when they are posted.
    if (f.drained_at && f.settled_to >= *f.drained_at && !operation.is_local())
      violation("drained queue", text(flow, f.settled_to) + " takes effect, posted in SQD");
    if (operation.changes_target())
      std::ranges::copy(operation.data, f.settled.begin() + operation.offset);
  }
  check_target(flow, "data before completion");
}

void OrderModel::check_fence(std::uint32_t flow, std::size_t index) {
  Flow& f = flows_[flow];
  for (std::size_t before = f.ended; before < index; ++before) {
    const PostedOperation& operation = f.operations[before];
    if ((operation.is_read() || operation.is_atomic()) && !is_answered(f, before))
      return violation(
          "fence", text(flow, index) + " takes effect before the answer to " + text(flow, before));
  }
}

bool OrderModel::is_answered(const Flow& flow, std::size_t index) {
  std::uint32_t wrong = 0;
  const PostedOperation& operation = flow.operations[index];
  if (operation.is_read()) return read_is_explained(flow, index, wrong);
  gather(operation.results, scratch_);
  return !is_poison(scratch_);
}

// The last operation that may have touched memory, and one more.
std::size_t OrderModel::last_possible(const Flow& flow) const {
  if (!flow.met_planned || mixing_chunk_ != 0) return flow.posted;
  return flow.failed_at + 1;
}

// How many bytes from `at` on are those of one of the operations from `first` to `end`, 0 if none.
std::uint32_t OrderModel::explained(const Flow& flow, std::size_t first, std::size_t end,
                                    std::uint32_t at, const std::uint8_t* actual,
                                    std::uint32_t most) const {
  std::uint32_t longest = 0;
  for (std::size_t index = first; index < end; ++index) {
    const PostedOperation& operation = flow.operations[index];
    if (!operation.changes_target() || !operation.covers(at)) continue;
    const std::uint32_t into = at - operation.offset;
    longest = std::max(longest, equal_bytes(actual, operation.data.data() + into,
                                            std::min(most, operation.bytes - into)));
  }
  return longest;
}

// The same for what overlapping operations before `before` may leave, if their packets mix. The
// answer is 0 or 1.
std::uint32_t OrderModel::explained_by_mixture(const Flow& flow, std::size_t before,
                                               std::uint32_t at, const std::uint8_t* actual,
                                               std::uint32_t most) const {
  if (mixing_chunk_ == 0 || most == 0) return 0;
  std::size_t together = 0;  // from here on operations were outstanding with the newest one
  for (std::size_t index = before; index-- != together;) {
    const PostedOperation& operation = flow.operations[index];
    if (!operation.changes_target() || !operation.covers(at)) continue;
    if (operation.data[at - operation.offset] == *actual) return 1;
    if (operation.bytes <= mixing_chunk_) return 0;
    together = std::max(together, flow.settled_at_post[index]);
  }
  return 0;
}

// A transport says that an operation succeeds when it has arrived. Its region may go before it
// takes effect.
bool OrderModel::may_have_no_place(std::uint32_t flow, std::uint32_t at) const {
  const Flow& f = flows_[flow];
  if (mixing_chunk_ == 0 || !f.tolerance.second_region_goes) return false;
  return std::ranges::any_of(f.operations, [at](const PostedOperation& each) {
    return each.in_second_region && each.changes_target() && each.covers(at);
  });
}

// All that took effect is in the target, except where a later operation may have changed it.
void OrderModel::check_target(std::uint32_t flow, const char* rule) {
  const Flow& f = flows_[flow];
  const auto size = static_cast<std::uint32_t>(f.target.size());
  std::uint32_t at = 0;
  for (;;) {
    at += equal_bytes(f.target.data() + at, f.settled.data() + at, size - at);
    if (at == size) return;
    const std::uint8_t* actual = f.target.data() + at;
    std::uint32_t run = explained(f, f.settled_to, last_possible(f), at, actual, size - at);
    if (run == 0) run = explained_by_mixture(f, f.settled_to, at, actual, size - at);
    if (run == 0 && may_have_no_place(flow, at)) run = 1;
    if (run == 0) break;
    at += run;
  }
  std::string newest = "no operation";
  for (std::size_t index = f.settled_to; index-- != 0;) {
    const PostedOperation& operation = f.operations[index];
    if (!operation.changes_target() || !operation.covers(at)) continue;
    newest = text(flow, index);
    break;
  }
  violation(rule, "byte " + std::to_string(at) + " of the target of " + f.name +
                      " is wrong: " + newest + " was the newest that took effect there");
}

// ---------------------------------------------------------------- the last byte of a WRITE

void OrderModel::look() {
  for (std::uint32_t flow = 0; flow < flows_.size(); ++flow) {
    Flow& f = flows_[flow];
    if (f.failed || f.gone || peer_of(flow).gone || peer_of(flow).failed) continue;
    for (std::size_t index = f.settled_to; index < f.posted; ++index) {
      if (!f.operations[index].is_write() || !has_shown(f, index)) continue;
      check_shown(flow, index);
      if (!violations_.empty()) return;
      settle(flow, index + 1);
      index = f.settled_to - 1;
    }
  }
}

// Whether the last byte of a WRITE is there, and could be no other operation's.
bool OrderModel::has_shown(const Flow& flow, std::size_t index) const {
  const PostedOperation& operation = flow.operations[index];
  if (operation.bytes == 0) return false;
  const std::uint32_t last = operation.offset + operation.bytes - 1;
  const std::uint8_t value = flow.target[last];
  if (value != operation.data.back() || value == flow.settled[last]) return false;
  for (std::size_t other = flow.settled_to; other < flow.posted; ++other) {
    const PostedOperation& each = flow.operations[other];
    if (other != index && each.changes_target() && each.covers(last) &&
        each.data[last - each.offset] == value)
      return false;
  }
  return explained_by_mixture(flow, flow.settled_to, last, &value, 1) == 0;
}

void OrderModel::check_shown(std::uint32_t flow, std::size_t index) {
  const Flow& f = flows_[flow];
  const std::string shows = "the last byte of " + text(flow, index) + " shows before ";
  for (std::size_t before = f.settled_to; before <= index; ++before) {
    const PostedOperation& operation = f.operations[before];
    const bool received = f.receives_done != 0 && f.receive_takers[f.receives_done - 1] >= before;
    if (before != index && operation.takes_receive() && !received)
      return violation("held last packet", shows + "the receive of " + text(flow, before));
    if (!operation.changes_target()) continue;
    for (std::uint32_t at = operation.offset; at < operation.offset + operation.bytes;) {
      const std::uint32_t left = operation.offset + operation.bytes - at;
      const std::uint8_t* actual = f.target.data() + at;
      std::uint32_t run = explained(f, before, f.posted, at, actual, left);
      if (run == 0) run = explained_by_mixture(f, before, at, actual, left);
      if (run == 0)
        return violation("held last packet",
                         shows + "byte " + std::to_string(at) + " of " + text(flow, before));
      at += run;
    }
  }
}

// ---------------------------------------------------------------- results

// A READ sees all operations before it, and may see those behind it that wait for no fence: they
// are not ordered behind it (IBA 10.8.3.3), and a READ that is repeated reads again.
bool OrderModel::read_is_explained(const Flow& flow, std::size_t index, std::uint32_t& wrong) {
  const PostedOperation& read = flow.operations[index];
  gather(read.results, scratch_);
  const auto first = flow.initial.begin() + read.offset;
  painted_.assign(first, first + read.bytes);
  for (std::size_t before = 0; before < index; ++before) {
    const PostedOperation& each = flow.operations[before];
    if (!each.changes_target()) continue;
    const std::uint32_t from = std::max(each.offset, read.offset);
    const std::uint32_t to = std::min(each.offset + each.bytes, read.offset + read.bytes);
    if (from < to)
      std::copy(each.data.begin() + (from - each.offset), each.data.begin() + (to - each.offset),
                painted_.begin() + (from - read.offset));
  }
  std::size_t fence = index + 1;
  while (fence < flow.posted && !(flow.operations[fence].flags & kFence)) ++fence;
  std::uint32_t at = 0;
  for (;;) {
    at += equal_bytes(scratch_.data() + at, painted_.data() + at, read.bytes - at);
    if (at == read.bytes) return true;
    const std::uint8_t* actual = scratch_.data() + at;
    const std::uint32_t place = read.offset + at, left = read.bytes - at;
    std::uint32_t run = explained(flow, index + 1, fence, place, actual, left);
    if (run == 0) run = explained_by_mixture(flow, index, place, actual, left);
    if (run == 0) {
      wrong = place;
      return false;
    }
    at += run;
  }
}

// The values that atomics on one word returned are a chain from its first value to its last: each
// is what the one before it left. Those of a flow are in the flow's order. An atomic that failed or
// was flushed has been executed or not; if so, all before it in its flow were.
void OrderModel::check_word(std::uint32_t word) {
  struct Step {
    const PostedOperation* operation;
    std::optional<std::uint64_t> returned;
  };
  std::vector<std::vector<Step>> chains;
  std::size_t known = 0;
  for (const Flow& flow : flows_) {
    auto& chain = chains.emplace_back();
    for (std::size_t index = 0; index < flow.posted; ++index) {
      const PostedOperation& operation = flow.operations[index];
      if (!operation.is_atomic() || operation.shared_word != word) continue;
      chain.push_back({&operation, std::nullopt});
      if (index >= flow.ended) continue;
      gather(operation.results, scratch_);
      chain.back().returned = word_at(scratch_.data());
      ++known;
    }
  }
  const std::uint64_t last = word_at(words_[word].at);
  std::vector<std::size_t> next(chains.size(), 0);
  std::size_t steps = 0;
  const std::function<bool(std::uint64_t, std::size_t)> goes_on = [&](std::uint64_t value,
                                                                      std::size_t left) {
    if (left == 0 && value == last) return true;
    if (++steps > kMostSteps) return true;  // not decided
    for (const bool certain : {true, false})
      for (std::size_t flow = 0; flow < chains.size(); ++flow) {
        if (next[flow] == chains[flow].size()) continue;
        const auto& [operation, returned] = chains[flow][next[flow]];
        if (returned.has_value() != certain || (returned && *returned != value)) continue;
        const bool adds = operation->opcode == WrOpcode::fetch_add;
        const std::uint64_t after = adds                          ? value + operation->operand
                                    : value == operation->compare ? operation->operand
                                                                  : value;
        ++next[flow];
        if (goes_on(after, left - certain)) return true;
        --next[flow];
      }
    return false;
  };
  if (!goes_on(words_[word].initial, known))
    violation("atomics", "no order of the atomics on shared word " + std::to_string(word) +
                             " explains what they returned and what is there");
}

// ---------------------------------------------------------------- the end

void OrderModel::finish() {
  for (std::uint32_t flow = 0; flow < flows_.size(); ++flow) {
    Flow& f = flows_[flow];
    const Flow& peer = peer_of(flow);
    if (!is_over(flow))
      violation("ends once", text(flow, f.failed ? f.completed : f.ended) + " has not ended");
    const bool may_break = f.failed || may_be_flushed(flow);
    if (f.receive_failed && !may_break)
      violation("errors", "receives on " + f.name + " were flushed without an error");
    check_target(flow, "data before completion");
    if (!f.failed && !f.gone && !peer.gone && f.receives_done < f.receive_takers.size() &&
        f.receive_takers[f.receives_done] < f.posted)
      violation("ends once", "the receive of " + text(flow, f.receive_takers[f.receives_done]) +
                                 " has not completed");
    for (std::size_t index = 0; index < f.ended; ++index)
      if (sum_of(f.operations[index].results) != f.result_sums[index])
        violation("READ", text(flow, index) + " has another result than when it completed");
    if (!peer.failed && !f.receive_failed && !f.gone && !peer.gone)
      for (const Receive& receive : f.receives)
        if (!is_poison(receive.slot))
          violation("guards", "a receive on " + f.name + " that no message took has changed");
  }
  for (const auto& [word, _] : words_) check_word(word);
}

}  // namespace softroce
