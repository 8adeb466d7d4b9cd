// SPDX-License-Identifier: GPL-2.0-or-later
#include "operation_setup.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

namespace softroce {
namespace {

constexpr std::array<std::uint64_t, 2> kMacs = {0x020000000001, 0x020000000002};
constexpr std::uint32_t kRemote = kRemoteWrite | kRemoteRead | kRemoteAtomic;
constexpr std::uint32_t kMostReceives = 4096;
constexpr std::uint32_t kDye = 0x9E3779B9;  // tells the draws of a trial from those of its plan

constexpr std::uint32_t kToInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccess;
constexpr std::uint32_t kToRtr = kAttrState | kAttrAddress | kAttrPathMtu | kAttrDestQpn |
                                 kAttrRqPsn | kAttrMaxDestReads | kAttrMinRnrTimer;
constexpr std::uint32_t kToRts =
    kAttrState | kAttrSqPsn | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxReads;

MessageConfig config_of(MessageConfig config, const OperationPlan& plan, std::uint32_t side) {
  constexpr std::uint64_t kPrefix = 0xFD00'0000'0000'0000;
  config.gid = plan.ipv6 ? Gid{kPrefix, 1 + side} : Gid::of_ipv4(0x0A000001 + side);
  return config;
}

bool takes_receive(WrOpcode opcode) {
  SendRequest request;
  request.opcode = opcode;
  return request.consumes_receive() && !request.is_local();
}

std::uint64_t threshold(std::uint32_t of_100000) { return UINT64_MAX / 100'000 * of_100000; }

}  // namespace

const std::vector<std::uint8_t>& OperationSetup::pattern() {
  static const std::vector<std::uint8_t> made = [] {
    std::vector<std::uint8_t> bytes(kPatternBytes);
    Dice dice(kDye);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(dice.bits());
    return bytes;
  }();
  return made;
}

std::uint64_t OperationSetup::word_at(const std::uint8_t* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

OperationSetup::OperationSetup(std::uint64_t seed, OperationPlan plan, const MessageConfig& config,
                               std::uint32_t mixing_chunk)
    : dice_(seed ^ kDye),
      plan_(std::move(plan)),
      pair_(config_of(config, plan_, 0), config_of(config, plan_, 1), seed + 1),
      model_(mixing_chunk),
      sides_{TrialSide{pair_.side(0)}, TrialSide{pair_.side(1)}} {
  ends_.resize(plan_.flows.size());
  lay_out();
  for (TrialSide& side : sides_) side.arena.allocate();
  for (std::uint32_t which = 0; which < 2; ++which) fill(which);
  for (std::uint32_t flow = 0; flow < flows(); ++flow) register_target(flow);
  for (std::uint32_t flow = 0; flow < flows(); ++flow) make_operations(flow);
  for (std::uint32_t flow = 0; flow < flows(); ++flow) create(flow);
  connect_all();
  shape_cables();
  for (const PlannedPost& post : plan_.posts) end_at_ = std::max(end_at_, post.at);
  for (const auto& pause : {plan_.cut, plan_.drained, plan_.late})
    if (pause) end_at_ = std::max(end_at_, pause->until);
  end_at_ = std::max(end_at_, plan_.fault.at);
  if (plan_.old_frames) pair_.keep_sent();
}

const PlannedPost* OperationSetup::faulty_post() const {
  const bool by_post =
      plan_.fault.kind != FaultKind::none && plan_.fault.kind < FaultKind::region_goes;
  return by_post ? plan_.find(plan_.fault.number) : nullptr;
}

void OperationSetup::lay_out() {
  std::array<std::uint32_t, 2> longest_shared{}, shared_messages{};
  for (const PlannedPost& post : plan_.posts) {
    if (!takes_receive(post.opcode)) continue;
    const std::uint32_t bytes = post.opcode == WrOpcode::rdma_write_with_immediate ? 0 : post.bytes;
    const std::uint32_t peer = post.flow ^ 1;
    ends_[peer].takers.push_back(bytes);
    if (!plan_.flows[peer].shared_receives) continue;
    longest_shared[peer % 2] = std::max(longest_shared[peer % 2], bytes);
    ++shared_messages[peer % 2];
  }
  for (std::uint32_t which = 0; which < 2; ++which) {
    TrialSide& side = sides_[which];
    side.pattern_area = side.arena.add(kPatternBytes);
    side.words_area = side.arena.add(kSharedWords * kWordBytes);
    side.stock.slot_bytes = longest_shared[which] + kGapBytes * kMostElements;
    side.stock.limit = shared_messages[which] + 2;
    if (shared_messages[which] != 0) add_slots(side, side.stock, plan_.flows[which].receive_slots);
    side.stock.delay = plan_.flows[which].receive_delay;
  }
  for (std::uint32_t flow = 0; flow < flows(); ++flow) {
    TrialEnd& end = ends_[flow];
    end.target_area = peer_side_of(flow).arena.add(plan_.target_bytes + kWords * kWordBytes);
    for (const PlannedPost& post : plan_.posts)
      if (post.flow == flow && !post.results.empty())
        end.result_areas.push_back(side_of(flow).arena.add(post.bytes));
    if (plan_.flows[flow].shared_receives) continue;
    ReceiveStock& stock = end.stock;
    for (const std::uint32_t bytes : end.takers)
      stock.slot_bytes = std::max(stock.slot_bytes, bytes);
    stock.slot_bytes += kGapBytes * kMostElements;
    stock.limit = end.takers.size() + 2;
    stock.delay = plan_.flows[flow].receive_delay;
    std::size_t slots = plan_.flows[flow].receive_slots;
    if (plan_.fault.kind == FaultKind::no_receive && (plan_.fault.flow ^ 1) == flow) {
      stock.limit = number_of_receive(plan_.fault.number);
      slots = stock.limit;
    }
    add_slots(side_of(flow), stock, slots);
  }
}

// Of all receives that the flow of this post takes, the number of the one that it takes.
std::size_t OperationSetup::number_of_receive(std::uint32_t number) const {
  std::size_t before = 0;
  const std::uint32_t flow = plan_.find(number)->flow;
  for (const PlannedPost& post : plan_.posts)
    before += post.flow == flow && post.number < number && takes_receive(post.opcode);
  return before;
}

void OperationSetup::add_slots(TrialSide& side, ReceiveStock& stock, std::size_t count) {
  for (std::size_t number = 0; number < count; ++number) {
    stock.free.push_back(stock.slots.size());
    stock.slots.push_back({side.arena.add(stock.slot_bytes), 0});
  }
}

// Sources and targets have random contents. Results and receives are poison.
void OperationSetup::fill(std::uint32_t which) {
  TrialSide& side = sides_[which];
  std::ranges::copy(pattern(), side.arena.area(side.pattern_area).begin());
  std::ranges::fill(side.arena.area(side.words_area), std::uint8_t{0});
  for (std::uint32_t flow = 1 - which; flow < flows(); flow += 2) {
    const Element target = side.arena.area(ends_[flow].target_area);
    const std::size_t from = dice_.below(static_cast<std::uint32_t>(kPatternBytes - target.size()));
    std::copy_n(pattern().begin() + static_cast<std::ptrdiff_t>(from), target.size(),
                target.begin());
  }
  const Element all = side.arena.all();
  side.local_key = add_region(side, all, kLocalWrite);
  const Element words = side.arena.area(side.words_area);
  side.words_key = add_region(side, words, kLocalWrite | kRemote);
  if (side.stock.slots.empty()) return;
  must(side.rnic.create_srq(kDomain, kMostReceives, kMostElements, side.srq), "create_srq");
}

std::uint32_t OperationSetup::add_region(TrialSide& side, Element memory, std::uint32_t access) {
  side.keys.push_back(side.rnic.memory().add(memory.data(), memory.size(), access, kDomain));
  return side.keys.back();
}

void OperationSetup::register_target(std::uint32_t flow) {
  TrialEnd& end = ends_[flow];
  TrialSide& there = peer_side_of(flow);
  const Element target = there.arena.area(end.target_area);
  const std::uint32_t split = plan_.flows[flow].split;
  end.first_key = end.second_key =
      add_region(there, split == 0 ? target : target.first(split), kLocalWrite | kRemote);
  if (split != 0) end.second_key = add_region(there, target.subspan(split), kLocalWrite | kRemote);
  end.weak_key = add_region(there, target, kLocalWrite);
}

// ---------------------------------------------------------------- operations

void OperationSetup::make_operations(std::uint32_t flow) {
  TrialEnd& end = ends_[flow];
  FlowSetup setup;
  const bool forth = flow % 2 == 0;
  setup.name = "connection " + std::to_string(flow / 2) + (forth ? " a to b" : " b to a");
  setup.target = peer_side_of(flow).arena.area(end.target_area);
  setup.shared_receives = plan_.flows[flow].shared_receives;
  setup.tolerance = tolerance_of(flow);
  words_.clear();
  for (std::uint32_t word = 0; word < kWords; ++word)
    words_.push_back(word_at(setup.target.data() + plan_.target_bytes + word * kWordBytes));
  std::uint32_t dying_key = 0;
  std::vector<const PlannedPost*> posts;
  for (const PlannedPost& post : plan_.posts)
    if (post.flow == flow) posts.push_back(&post);
  // From the last one on, as a WRITE may use the key that a later SEND makes invalid.
  std::vector<std::uint32_t> dying(posts.size(), 0);
  for (std::size_t index = posts.size(); index-- != 0;) {
    const bool invalidates = posts[index]->opcode == WrOpcode::send_with_invalidate;
    if (invalidates && is_faulty(*posts[index], FaultKind::bad_invalidate))
      dying_key = 0;
    else if (invalidates)
      dying_key = add_region(peer_side_of(flow), setup.target, kLocalWrite | kRemote);
    dying[index] = dying_key;
  }
  std::size_t results = 0;
  for (std::size_t index = 0; index < posts.size(); ++index) {
    const PlannedPost& post = *posts[index];
    PostedOperation operation;
    operation.number = post.number;
    operation.opcode = post.opcode;
    operation.flags = post.flags;
    if (index + 1 == posts.size()) operation.flags |= kSignaled;  // so that all ends are known
    operation.signaled = plan_.flows[flow].signal_all || (operation.flags & kSignaled);
    operation.bytes = post.bytes;
    operation.offset = post.offset;
    SendRequest request;
    request.wr_id = model_.wr_id(flow, index);
    request.opcode = post.opcode;
    request.flags = operation.flags;
    address(flow, post, dying[index], operation, request);
    if (post.results.empty())
      give_sources(flow, post, operation, request);
    else
      give_results(flow, post, end.result_areas[results++], operation, request);
    if (operation.is_atomic()) predict(post, operation, request);
    setup.operations.push_back(std::move(operation));
    end.requests.push_back(std::move(request));
    end.at.push_back(is_late(flow) ? std::max(post.at, plan_.late->until) : post.at);
    end.with_next.push_back(post.with_next);
  }
  model_.add_flow(std::move(setup));
}

void OperationSetup::address(std::uint32_t flow, const PlannedPost& post, std::uint32_t dying_key,
                             PostedOperation& operation, SendRequest& request) {
  const TrialEnd& end = ends_[flow];
  TrialSide& there = peer_side_of(flow);
  const Element target = there.arena.area(end.target_area);
  const std::uint32_t split = plan_.flows[flow].split;
  const bool second = split != 0 && post.offset >= split;
  request.immediate = operation.immediate = post.immediate;
  request.remote_address = address_of(target.data()) + post.offset;
  request.rkey = second ? end.second_key : end.first_key;
  const bool dies = post.dying_key && dying_key != 0;
  if (dies) request.rkey = dying_key;
  operation.in_second_region = second && !dies;
  if (post.shared_word) {
    const std::uint32_t word = *post.shared_word;
    request.remote_address =
        address_of(there.arena.area(there.words_area).data()) + word * kWordBytes;
    request.rkey = there.words_key;
    operation.shared_word = (1 - flow % 2) * kSharedWords + word;
    operation.in_second_region = false;
    model_.add_shared_word(*operation.shared_word,
                           there.arena.area(there.words_area).data() + word * kWordBytes);
  }
  request.invalidate_rkey = operation.invalidated = dying_key;
  if (is_faulty(post, FaultKind::bad_invalidate)) request.invalidate_rkey = kUnknownKey;
  if (is_faulty(post, FaultKind::bad_key)) request.rkey = kUnknownKey;
  if (is_faulty(post, FaultKind::no_right)) {
    request.rkey = end.weak_key;
    if (post.shared_word) request.remote_address = address_of(target.data());
  }
  if (is_faulty(post, FaultKind::out_of_bounds)) {
    request.rkey = end.second_key;
    request.remote_address = address_of(target.data()) + target.size() - post.bytes + 1;
  }
  if (operation.is_local()) {
    TrialSide& here = side_of(flow);
    request.invalidate_rkey =
        add_region(here, here.arena.area(here.pattern_area).first(64), kLocalWrite);
  }
}

void OperationSetup::give_sources(std::uint32_t flow, const PlannedPost& post,
                                  PostedOperation& operation, SendRequest& request) {
  TrialSide& here = side_of(flow);
  const Element pattern = here.arena.area(here.pattern_area);
  for (const Piece& piece : post.sources) {
    const Element bytes = pattern.subspan(piece.offset, piece.bytes);
    operation.data.insert(operation.data.end(), bytes.begin(), bytes.end());
    if (!(post.flags & kInline))
      request.sources.push_back({address_of(bytes.data()), piece.bytes, here.local_key});
  }
  if (post.flags & kInline) request.inline_bytes = operation.data;
  if (is_faulty(post, FaultKind::bad_source)) spoil(request);
}

void OperationSetup::give_results(std::uint32_t flow, const PlannedPost& post, std::size_t area,
                                  PostedOperation& operation, SendRequest& request) {
  TrialSide& here = side_of(flow);
  const Element whole = here.arena.area(area);
  std::uint32_t offset = 0;
  for (const std::uint32_t bytes : post.results) {
    operation.results.push_back(whole.subspan(offset, bytes));
    request.sources.push_back({address_of(whole.data()) + offset, bytes, here.local_key});
    offset += bytes;
  }
  if (is_faulty(post, FaultKind::bad_result)) spoil(request);
}

// The key of the last element that has bytes.
void OperationSetup::spoil(SendRequest& request) {
  for (std::size_t index = request.sources.size(); index-- != 0;)
    if (request.sources[index].length != 0) {
      request.sources[index].lkey = kUnknownKey;
      return;
    }
}

// What an atomic on a word of its flow alone returns and leaves is known before.
void OperationSetup::predict(const PlannedPost& post, PostedOperation& operation,
                             SendRequest& request) {
  const bool adds = post.opcode == WrOpcode::fetch_add;
  const std::uint32_t word = post.shared_word ? 0 : (post.offset - plan_.target_bytes) / kWordBytes;
  const std::uint64_t before = post.shared_word ? 0 : words_[word];
  operation.operand = post.operand;
  operation.compare = post.compares_equal ? before : before ^ post.operand ^ 1;
  request.compare_add = adds ? post.operand : operation.compare;
  request.swap = post.operand;
  if (post.shared_word) return;
  operation.original = before;
  if (adds)
    words_[word] += post.operand;
  else if (operation.compare == before)
    words_[word] = post.operand;
  operation.data.resize(kWordBytes);
  std::memcpy(operation.data.data(), &words_[word], kWordBytes);
}

// How the flow may end, by the planned fault of its connection.
Tolerance OperationSetup::tolerance_of(std::uint32_t flow) const {
  using enum FaultKind;
  Tolerance tolerance;
  const PlannedFault& fault = plan_.fault;
  tolerance.may_lack_receive = plan_.flows[flow].rnr_retry != 7;
  if (fault.kind == cut) tolerance.may_time_out = true;
  if (fault.flow / 2 != flow / 2) return tolerance;
  const bool mine = fault.flow == flow;
  if (fault.kind >= end_fails && fault.kind <= end_destroyed) {
    tolerance.may_be_flushed = mine;
    tolerance.may_time_out = !mine;
  }
  if (fault.kind == region_goes && mine) tolerance.second_region_goes = true;
  const PlannedPost* post = mine ? faulty_post() : nullptr;
  if (post == nullptr) return tolerance;
  tolerance.planned = post->number;
  switch (fault.kind) {
    case not_granted:
      tolerance.status = WcStatus::rem_inv_req_err;
      break;
    case short_receive:
      tolerance.status = WcStatus::rem_inv_req_err;
      tolerance.receive_status = WcStatus::loc_len_err;
      break;
    case bad_receive:
      tolerance.status = WcStatus::rem_op_err;
      tolerance.receive_status = WcStatus::loc_prot_err;
      break;
    case bad_source:
    case bad_result:
      tolerance.status = WcStatus::loc_prot_err;
      break;
    case bad_invalidate:
      tolerance.status = WcStatus::retry_exc_err;
      tolerance.receive_status = WcStatus::rem_inv_req_err;
      break;
    case no_receive:
      tolerance.status = WcStatus::rnr_retry_exc_err;
      break;
    default:
      tolerance.status = WcStatus::rem_access_err;
  }
  tolerance.ends_peer =
      fault.kind != bad_source && fault.kind != bad_result && fault.kind != no_receive;
  return tolerance;
}

// ---------------------------------------------------------------- queue pairs

void OperationSetup::create(std::uint32_t flow) {
  TrialEnd& end = ends_[flow];
  TrialSide& here = side_of(flow);
  const PlannedFlow& planned = plan_.flows[flow];
  if (plan_.one_queue && !here.queues.empty())
    end.sends = end.receives = here.queues.front();
  else
    here.queues.push_back(end.sends = end.receives = here.rnic.create_cq());
  if (!plan_.one_queue) here.queues.push_back(end.receives = here.rnic.create_cq());
  QpConfig config;
  config.type = QpType::rc;
  config.protection_domain = kDomain;
  config.cap = {planned.max_send, 256, kMostElements, kMostElements, kLongestInline};
  config.send_cq = end.sends;
  config.receive_cq = end.receives;
  config.signal_all = planned.signal_all;
  if (planned.shared_receives) config.srq = here.rnic.find_srq(here.srq);
  must(here.rnic.create_qp(config, end.qp), "create_qp");
  flow_of_[flow % 2].emplace_back(end.qp, flow);
}

void OperationSetup::must(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

void OperationSetup::connect_all() {
  for (std::uint32_t which = 0; which < 2; ++which) {
    Rnic& other = sides_[1 - which].rnic;
    sides_[which].rnic.messages().connect(
        {other.gid(), kMacs[1 - which], other.data_qp(), other.recovery_qp(), 0});
  }
  for (std::uint32_t flow = 0; flow < flows(); ++flow) modify(flow, QpState::init, kToInit);
  for (std::uint32_t flow = 0; flow < flows(); ++flow)
    if (!is_late(flow)) go_to_rts(flow);
}

void OperationSetup::go_to_rts(std::uint32_t flow) {
  modify(flow, QpState::rtr, kToRtr);
  modify(flow, QpState::rts, kToRts);
}

void OperationSetup::modify(std::uint32_t flow, QpState state, std::uint32_t mask) {
  const PlannedFlow& planned = plan_.flows[flow];
  const PlannedFlow& peer = plan_.flows[flow ^ 1];
  QpAttr attr;
  attr.state = state;
  attr.access = kRemote;
  if (plan_.fault.kind == FaultKind::not_granted && plan_.fault.flow == (flow ^ 1))
    attr.access &= ~plan_.fault.right;
  attr.path_mtu = plan_.path_mtu;
  attr.dest_qp = ends_[flow ^ 1].qp;
  attr.address.destination = peer_side_of(flow).rnic.gid();
  attr.address.mac = kMacs[1 - flow % 2];
  attr.sq_psn = planned.psn;
  attr.rq_psn = peer.psn;
  attr.max_rd_atomic = static_cast<std::uint8_t>(planned.max_reads);
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(peer.max_reads);
  attr.min_rnr_timer = planned.rnr_timer;
  attr.timeout = plan_.timeout;
  attr.retry_count = 7;
  attr.rnr_retry = planned.rnr_retry;
  must(side_of(flow).rnic.modify_qp(ends_[flow].qp, attr, mask, now()), "modify_qp");
}

void OperationSetup::shape_cables() {
  for (int which = 0; which < 2; ++which) {
    const PlannedCable& planned = plan_.cables[static_cast<std::size_t>(which)];
    Cable& cable = pair_.cable(which);
    cable.delay = planned.delay;
    cable.packet_time = planned.packet_time;
    cable.jitter = planned.jitter;
    cable.loss = threshold(planned.loss);
    cable.duplicate = threshold(planned.duplicate);
    cable.corrupt = threshold(planned.corrupt);
  }
  const Time slowest = plan_.cables[0].delay + plan_.cables[0].jitter;
  linger_ = 4 * slowest + 256 * plan_.cables[0].packet_time;
}

}  // namespace softroce
