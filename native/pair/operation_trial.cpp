// SPDX-License-Identifier: GPL-2.0-or-later
#include "operation_trial.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "guarded_arena.hpp"
#include "operation_plan.hpp"
#include "order_model.hpp"
#include "pair.hpp"

namespace softroce {
namespace {

constexpr std::uint32_t kDomain = 5;
constexpr std::array<std::uint64_t, 2> kMacs = {0x020000000001, 0x020000000002};
constexpr Time kLongest = 60'000 * kMillisecond;  // of a trial, after its last action
constexpr std::size_t kMostMoments = 2'000'000;
constexpr std::uint32_t kUnknownKey = 0x7FFFFF01;
constexpr std::uint32_t kGapBytes = 16;  // between the elements of a receive
constexpr std::uint32_t kRemote = kRemoteWrite | kRemoteRead | kRemoteAtomic;
constexpr std::size_t kMostOldFrames = 64;
constexpr int kMostInjected = 200;
constexpr std::uint32_t kDye = 0x9E3779B9;  // tells the draws of a trial from those of its plan

constexpr std::uint32_t kToInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccess;
constexpr std::uint32_t kToRtr = kAttrState | kAttrAddress | kAttrPathMtu | kAttrDestQpn |
                                 kAttrRqPsn | kAttrMaxDestReads | kAttrMinRnrTimer;
constexpr std::uint32_t kToRts =
    kAttrState | kAttrSqPsn | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxReads;

enum class Mistake : std::uint8_t {
  none,
  completion_lost,
  completion_twice,
  completions_swapped,
  receive_of_next,
  immediate_changed,
  error_hidden,
  written_byte_lost,
  received_byte_lost,
  last_byte_early,
  read_byte_lost,
  atomic_twice,
  atomic_result_changed,
  fence_ignored,
  guard_touched,
  region_pinned,
};
// In the order of `Mistake`, without the first.
const std::vector<std::string> kMistakeNames = {
    "completion_lost",   "completion_twice", "completions_swapped", "receive_of_next",
    "immediate_changed", "error_hidden",     "written_byte_lost",   "received_byte_lost",
    "last_byte_early",   "read_byte_lost",   "atomic_twice",        "atomic_result_changed",
    "fence_ignored",     "guard_touched",    "region_pinned"};

Mistake mistake_of(const std::string& name) {
  if (name.empty()) return Mistake::none;
  const auto found = std::ranges::find(kMistakeNames, name);
  if (found == kMistakeNames.end())
    throw std::invalid_argument("the operation trial has no mistake '" + name + "'");
  return static_cast<Mistake>(found - kMistakeNames.begin() + 1);
}

// Random bytes, the same in each trial: what is sent is taken from here, and each place is known by
// its bytes.
const std::vector<std::uint8_t>& pattern() {
  static const std::vector<std::uint8_t> made = [] {
    std::vector<std::uint8_t> bytes(kPatternBytes);
    Dice dice(kDye);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(dice.bits());
    return bytes;
  }();
  return made;
}

std::uint64_t word_at(const std::uint8_t* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t address_of(const std::uint8_t* at) { return reinterpret_cast<std::uintptr_t>(at); }

// Buffers of receives, which are posted again when what they received was judged.
struct Stock {
  struct Slot {
    std::size_t area = 0;
    Time free_at = 0;
  };
  std::vector<Slot> slots{};
  std::deque<std::size_t> free{};
  std::vector<std::size_t> slot_of{};  // by receive, from 0
  std::size_t limit = 0;               // receives in all
  Time delay = 0;
  std::uint32_t slot_bytes = 0;
};

struct End {  // a queue pair, and the flow that it posts
  std::uint32_t qp = 0;
  std::shared_ptr<CompletionQueue> sends{}, receives{};
  std::vector<SendRequest> requests{};
  std::vector<Time> at{};
  std::vector<bool> with_next{};
  std::vector<std::size_t> result_areas{};
  std::vector<std::uint32_t> takers{};  // bytes of the messages that take a receive here, in order
  std::size_t next = 0;                 // request to post
  bool gone = false;
  std::size_t target_area = 0;  // at the peer
  std::uint32_t first_key = 0, second_key = 0, weak_key = 0;
  Stock stock{};
};

struct Side {
  Rnic& rnic;
  GuardedArena arena{kPoison};
  std::size_t pattern_area = 0, words_area = 0;
  std::uint32_t local_key = 0, words_key = 0;
  std::vector<std::uint32_t> keys{};
  std::set<std::uint32_t> removed_keys{};
  std::uint32_t srq = 0;
  Stock stock{};  // of the shared receives
  std::set<std::shared_ptr<CompletionQueue>> queues{};
  std::size_t pushed = 0;
};

class Trial {
 public:
  Trial(std::uint64_t seed, const MessageConfig& config, const TrialOptions& options)
      : options_(options),
        mistake_(mistake_of(options.mistake)),
        dice_(seed ^ kDye),
        plan_(draw_operations(seed, config.path_mtu)),
        pair_(config_of(config, 0), config_of(config, 1), seed + 1),
        model_(0),
        sides_{Side{pair_.side(0)}, Side{pair_.side(1)}} {
    leave_out(plan_, options.without_posts, options.without_disturbances);
    if (options.overlaps_mix) model_ = OrderModel(config.path_mtu - kOperationHeaders);
  }

  TrialOutcome run() {
    for (const PlannedPost& post : plan_.posts) outcome_.posts.push_back(post.number);
    set_up();
    go();
    if (model_.violations().empty()) judge_end();
    if (model_.violations().empty()) take_down();
    outcome_.violations = model_.violations();
    note_features();
    return std::move(outcome_);
  }

 private:
  static constexpr std::uint32_t kOperationHeaders = 64;  // of a striped packet

  static MessageConfig config_of(MessageConfig config, std::uint32_t side) {
    config.gid = Gid::of_ipv4(0x0A000001 + side);
    return config;
  }

  std::uint32_t flows() const { return static_cast<std::uint32_t>(ends_.size()); }
  Side& side_of(std::uint32_t flow) { return sides_[flow % 2]; }
  Side& peer_side_of(std::uint32_t flow) { return sides_[1 - flow % 2]; }
  Time now() const { return pair_.now(); }

  void tell(const std::string& line) {
    if (options_.tells_story)
      outcome_.story.push_back(std::to_string(now() / kNanosecond) + " ns: " + line);
  }

  // ---------------------------------------------------------------- setting up

  void set_up() {
    ends_.resize(plan_.flows.size());
    lay_out();
    for (Side& side : sides_) side.arena.allocate();
    for (std::uint32_t which = 0; which < 2; ++which) fill(which);
    for (std::uint32_t flow = 0; flow < flows(); ++flow) register_target(flow);
    for (std::uint32_t flow = 0; flow < flows(); ++flow) make_operations(flow);
    for (std::uint32_t flow = 0; flow < flows(); ++flow) create(flow);
    connect_all();
    shape_cables();
    for (const PlannedPost& post : plan_.posts) end_at_ = std::max(end_at_, post.at);
    if (plan_.cut) end_at_ = std::max(end_at_, plan_.cut->until);
    if (plan_.drained) end_at_ = std::max(end_at_, plan_.drained->until);
    end_at_ = std::max(end_at_, plan_.fault.at);
    if (plan_.old_frames) pair_.keep_sent();
  }

  const PlannedPost* faulty_post() const {
    const bool by_post =
        plan_.fault.kind != FaultKind::none && plan_.fault.kind < FaultKind::region_goes;
    return by_post ? plan_.find(plan_.fault.number) : nullptr;
  }
  bool is_faulty(const PlannedPost& post, FaultKind kind) const {
    return plan_.fault.kind == kind && plan_.fault.number == post.number;
  }

  static bool takes_receive(WrOpcode opcode) {
    SendRequest request;
    request.opcode = opcode;
    return request.consumes_receive() && !request.is_local();
  }

  void lay_out() {
    std::array<std::uint32_t, 2> longest_shared{}, shared_messages{};
    for (const PlannedPost& post : plan_.posts) {
      if (!takes_receive(post.opcode)) continue;
      const std::uint32_t bytes =
          post.opcode == WrOpcode::rdma_write_with_immediate ? 0 : post.bytes;
      const std::uint32_t peer = post.flow ^ 1;
      ends_[peer].takers.push_back(bytes);
      if (!plan_.flows[peer].shared_receives) continue;
      longest_shared[peer % 2] = std::max(longest_shared[peer % 2], bytes);
      ++shared_messages[peer % 2];
    }
    for (std::uint32_t which = 0; which < 2; ++which) {
      Side& side = sides_[which];
      side.pattern_area = side.arena.add(kPatternBytes);
      side.words_area = side.arena.add(kSharedWords * kWordBytes);
      side.stock.slot_bytes = longest_shared[which] + kGapBytes * kMostElements;
      side.stock.limit = shared_messages[which] + 2;
      if (shared_messages[which] != 0)
        add_slots(side, side.stock, plan_.flows[which].receive_slots);
      side.stock.delay = plan_.flows[which].receive_delay;
    }
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      End& end = ends_[flow];
      end.target_area = peer_side_of(flow).arena.add(plan_.target_bytes + kWords * kWordBytes);
      for (const PlannedPost& post : plan_.posts)
        if (post.flow == flow && !post.results.empty())
          end.result_areas.push_back(side_of(flow).arena.add(post.bytes));
      if (plan_.flows[flow].shared_receives) continue;
      Stock& stock = end.stock;
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
  std::size_t number_of_receive(std::uint32_t number) const {
    std::size_t before = 0;
    const std::uint32_t flow = plan_.find(number)->flow;
    for (const PlannedPost& post : plan_.posts)
      before += post.flow == flow && post.number < number && takes_receive(post.opcode);
    return before;
  }

  static void add_slots(Side& side, Stock& stock, std::size_t count) {
    for (std::size_t number = 0; number < count; ++number) {
      stock.free.push_back(stock.slots.size());
      stock.slots.push_back({side.arena.add(stock.slot_bytes), 0});
    }
  }

  // Sources and targets have random contents. Results and receives are poison.
  void fill(std::uint32_t which) {
    Side& side = sides_[which];
    std::ranges::copy(pattern(), side.arena.area(side.pattern_area).begin());
    std::ranges::fill(side.arena.area(side.words_area), std::uint8_t{0});
    for (std::uint32_t flow = 1 - which; flow < flows(); flow += 2) {
      const Element target = side.arena.area(ends_[flow].target_area);
      const std::size_t from =
          dice_.below(static_cast<std::uint32_t>(kPatternBytes - target.size()));
      std::copy_n(pattern().begin() + static_cast<std::ptrdiff_t>(from), target.size(),
                  target.begin());
    }
    const Element all = side.arena.all();
    side.local_key = add_region(side, all, kLocalWrite);
    const Element words = side.arena.area(side.words_area);
    side.words_key = add_region(side, words, kLocalWrite | kRemote);
    if (side.stock.slots.empty()) return;
    side.rnic.create_srq(kDomain, 4096, kMostElements, side.srq);
  }

  static std::uint32_t add_region(Side& side, Element memory, std::uint32_t access) {
    side.keys.push_back(side.rnic.memory().add(memory.data(), memory.size(), access, kDomain));
    return side.keys.back();
  }

  void register_target(std::uint32_t flow) {
    End& end = ends_[flow];
    Side& there = peer_side_of(flow);
    const Element target = there.arena.area(end.target_area);
    const std::uint32_t split = plan_.flows[flow].split;
    end.first_key = end.second_key =
        add_region(there, split == 0 ? target : target.first(split), kLocalWrite | kRemote);
    if (split != 0)
      end.second_key = add_region(there, target.subspan(split), kLocalWrite | kRemote);
    end.weak_key = add_region(there, target, kLocalWrite);
  }

  // ---------------------------------------------------------------- operations

  void make_operations(std::uint32_t flow) {
    End& end = ends_[flow];
    FlowSetup setup;
    const bool forth = flow % 2 == 0;
    setup.name = "connection " + std::to_string(flow / 2) + (forth ? " a to b" : " b to a");
    setup.target = peer_side_of(flow).arena.area(end.target_area);
    setup.shared_receives = plan_.flows[flow].shared_receives;
    setup.tolerance = tolerance_of(flow);
    words_.clear();
    for (std::uint32_t word = 0; word < kWords; ++word)
      words_.push_back(word_at(setup.target.data() + plan_.target_bytes + word * kWordBytes));
    dying_key_ = 0;
    std::vector<const PlannedPost*> posts;
    for (const PlannedPost& post : plan_.posts)
      if (post.flow == flow) posts.push_back(&post);
    // From the last one on, as a WRITE may use the key that a later SEND makes invalid.
    std::vector<std::uint32_t> dying(posts.size(), 0);
    for (std::size_t index = posts.size(); index-- != 0;) {
      const bool invalidates = posts[index]->opcode == WrOpcode::send_with_invalidate;
      if (invalidates && is_faulty(*posts[index], FaultKind::bad_invalidate))
        dying_key_ = 0;
      else if (invalidates)
        dying_key_ = add_region(peer_side_of(flow), setup.target, kLocalWrite | kRemote);
      dying[index] = dying_key_;
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
      end.at.push_back(post.at);
      end.with_next.push_back(post.with_next);
    }
    model_.add_flow(std::move(setup));
  }

  void address(std::uint32_t flow, const PlannedPost& post, std::uint32_t dying_key,
               PostedOperation& operation, SendRequest& request) {
    const End& end = ends_[flow];
    Side& there = peer_side_of(flow);
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
      Side& here = side_of(flow);
      request.invalidate_rkey =
          add_region(here, here.arena.area(here.pattern_area).first(64), kLocalWrite);
    }
  }

  void give_sources(std::uint32_t flow, const PlannedPost& post, PostedOperation& operation,
                    SendRequest& request) {
    Side& here = side_of(flow);
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

  void give_results(std::uint32_t flow, const PlannedPost& post, std::size_t area,
                    PostedOperation& operation, SendRequest& request) {
    Side& here = side_of(flow);
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
  static void spoil(SendRequest& request) {
    for (std::size_t index = request.sources.size(); index-- != 0;)
      if (request.sources[index].length != 0) {
        request.sources[index].lkey = kUnknownKey;
        return;
      }
  }

  // What an atomic on a word of its flow alone returns and leaves is known before.
  void predict(const PlannedPost& post, PostedOperation& operation, SendRequest& request) {
    const bool adds = post.opcode == WrOpcode::fetch_add;
    const std::uint32_t word =
        post.shared_word ? 0 : (post.offset - plan_.target_bytes) / kWordBytes;
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
  Tolerance tolerance_of(std::uint32_t flow) const {
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

  void create(std::uint32_t flow) {
    End& end = ends_[flow];
    Side& here = side_of(flow);
    const PlannedFlow& planned = plan_.flows[flow];
    if (plan_.one_queue && !here.queues.empty())
      end.sends = end.receives = *here.queues.begin();
    else
      end.sends = end.receives = here.rnic.create_cq();
    if (!plan_.one_queue) end.receives = here.rnic.create_cq();
    here.queues.insert({end.sends, end.receives});
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

  static void must(int error, const char* what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
  }

  void connect_all() {
    for (std::uint32_t which = 0; which < 2; ++which) {
      Rnic& other = sides_[1 - which].rnic;
      sides_[which].rnic.messages().connect(
          {other.gid(), kMacs[1 - which], other.data_qp(), other.recovery_qp(), 0});
    }
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      modify(flow, QpState::init, kToInit);
      modify(flow, QpState::rtr, kToRtr);
    }
    for (std::uint32_t flow = 0; flow < flows(); ++flow) modify(flow, QpState::rts, kToRts);
  }

  void modify(std::uint32_t flow, QpState state, std::uint32_t mask) {
    const PlannedFlow& planned = plan_.flows[flow];
    const PlannedFlow& peer = plan_.flows[flow ^ 1];
    QpAttr attr;
    attr.state = state;
    attr.access = kRemote;
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

  static std::uint64_t threshold(std::uint32_t of_100000) {
    return UINT64_MAX / 100'000 * of_100000;
  }

  void shape_cables() {
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
      const End& end = ends_[flow];
      if (!end.gone && (end.next < end.requests.size() || !model_.is_over(flow))) return false;
    }
    return true;
  }

  void act() {
    change_cables();
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
    for (const End& end : ends_) {
      if (!end.gone && end.next < end.at.size()) consider(end.at[end.next]);
      consider_slots(end.stock, consider);
    }
    for (const Side& side : sides_) consider_slots(side.stock, consider);
    for (const auto& pause : {plan_.cut, plan_.drained})
      if (pause) {
        consider(pause->from);
        consider(pause->until);
      }
    if (plan_.fault.kind >= FaultKind::region_goes) consider(plan_.fault.at);
    if (plan_.old_frames && now() < end_at_) consider(next_old_at_);
    return next;
  }

  template <typename F>
  static void consider_slots(const Stock& stock, F&& consider) {
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
    if (!plan_.drained) return;
    const std::uint32_t flow = plan_.drained->flow;
    const QueuePair* qp = side_of(flow).rnic.find_qp(ends_[flow].qp);
    if (qp == nullptr) return;
    const bool drains = now() >= plan_.drained->from && now() < plan_.drained->until;
    if (drains && qp->state() == QpState::rts) modify(flow, QpState::sqd, kAttrState);
    if (!drains && qp->state() == QpState::sqd) modify(flow, QpState::rts, kAttrState);
  }

  void break_something() {
    const PlannedFault& fault = plan_.fault;
    if (fault.kind < FaultKind::region_goes || broken_ || now() < fault.at) return;
    broken_ = true;
    End& end = ends_[fault.flow];
    Rnic& rnic = side_of(fault.flow).rnic;
    tell(name_of(fault.kind));
    switch (fault.kind) {
      case FaultKind::region_goes: {
        Side& there = peer_side_of(fault.flow);
        there.rnic.memory().remove(end.second_key);
        there.removed_keys.insert(end.second_key);
        return;
      }
      case FaultKind::end_fails:
        return modify(fault.flow, QpState::err, kAttrState);
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
  }

  // ---------------------------------------------------------------- receives

  void post_receives(Side& side, Stock& stock, std::uint32_t whose, bool shared) {
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
    const End& end = ends_[flow];
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
    End& end = ends_[flow];
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
        tell("post " + model_.text(flow, end.next));
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
    for (Side& side : sides_) {
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
    Stock& stock = shared ? sides_[which].stock : ends_[flow].stock;
    tell("receive " + std::to_string(completion.wr_id) + " for " + std::to_string(flow ^ 1) +
         ", status " + std::to_string(static_cast<int>(completion.status)));
    const std::size_t slot = stock.slot_of.at(completion.wr_id);
    mistake_at_receive(flow, slot, completion);
    model_.receive_completed(flow, completion);
    stock.slots[slot].free_at = now() + stock.delay;
    stock.free.push_back(slot);
  }

  void sent(std::uint32_t which, WorkCompletion completion) {
    const std::uint32_t flow = flow_of(which, completion.qp_num);
    const std::size_t index = completion.wr_id & 0xFFFFFFFF;
    tell("completion of " + model_.text(flow, index) + ", status " +
         std::to_string(static_cast<int>(completion.status)));
    if (mistake_at_completion(flow, index, completion)) return;
    model_.send_completed(flow, completion);
  }

  // ---------------------------------------------------------------- the end

  void judge_end() {
    for (std::uint32_t flow = 0; flow < flows(); ++flow) {
      const End& end = ends_[flow];
      if (!end.gone && end.next < end.requests.size())
        model_.violation("ends once", model_.text(flow, end.next) + " could never be posted");
    }
    if (mistake_ == Mistake::guard_touched) *(sides_[1].arena.area(0).data() - 1) ^= 1;
    model_.finish();
    for (Side& side : sides_) {
      if (!side.arena.guards_stand()) model_.violation("guards", "bytes outside all areas changed");
      if (!std::ranges::equal(side.arena.area(side.pattern_area), pattern()))
        model_.violation("guards", "bytes that were sent from changed");
    }
    for (std::uint32_t flow = 0; flow < flows(); ++flow) check_state(flow);
  }

  void check_state(std::uint32_t flow) {
    if (ends_[flow].gone) return;
    const QpState state = side_of(flow).rnic.find_qp(ends_[flow].qp)->state();
    const std::uint32_t peer = flow ^ 1;
    const PlannedFault& fault = plan_.fault;
    const bool moved = broken_ && fault.kind == FaultKind::end_fails && fault.flow == flow;
    const bool ended_by_peer = (model_.is_planned_failure(peer) && tolerance_of(peer).ends_peer) ||
                               (fault.kind == FaultKind::region_goes && model_.has_failed(peer));
    const std::string what = "the queue pair of flow " + std::to_string(flow) + " is in state " +
                             std::to_string(static_cast<int>(state));
    if ((model_.has_failed(flow) || moved || ended_by_peer) && state != QpState::err &&
        !(fault.kind == FaultKind::region_goes && !model_.has_failed(flow)))
      model_.violation("errors", what + " after an error");
    const bool peer_quiet = !model_.has_failed(peer) && !ends_[peer].gone;
    const bool local = model_.is_planned_failure(peer) && !tolerance_of(peer).ends_peer;
    if (!model_.has_failed(flow) && !moved && (peer_quiet || local) && state != QpState::rts)
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
      End& end = ends_[flow];
      const bool flushed = !end.gone && !plan_.flows[flow].shared_receives;
      if (flushed && end.stock.free.size() != end.stock.slots.size())
        model_.violation("ends once",
                         "receives of flow " + std::to_string(flow) + " are not flushed");
      const bool destroyed = end.gone && plan_.fault.kind == FaultKind::end_destroyed;
      if (!destroyed) must(side_of(flow).rnic.destroy_qp(end.qp), "destroy_qp");
    }
    for (Side& side : sides_) {
      side.queues.clear();
      if (side.srq != 0 && side.rnic.destroy_srq(side.srq) != 0)
        model_.violation("leaks", "queue pairs still use the shared receives");
      for (const std::uint32_t key : side.keys) remove(side, key);
    }
    for (End& end : ends_) end.sends = end.receives = nullptr;
    pair_.run(now() + kLongest);
    if (pair_.next_event() != kNever)
      model_.violation("leaks", "something is to happen when all is destroyed");
  }

  void remove(Side& side, std::uint32_t key) {
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
    const Element target = peer_side_of(flow).arena.area(ends_[flow].target_area);
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
    Side& here = side_of(flow);
    const Stock& stock = plan_.flows[flow].shared_receives ? here.stock : ends_[flow].stock;
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
    const Element target = peer_side_of(flow).arena.area(ends_[flow].target_area);
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
      Side& there = peer_side_of(flow);
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
    met("reordering", plan_.cables[0].jitter != 0);
    met("a cut", plan_.cut.has_value());
    met("a drained queue", plan_.drained.has_value());
    met("old frames", injected_ != 0);
    met("receives that were late", receives_were_late());
    met("an error", failed);
    met("a planned error", planned);
    if (broken_) others.insert(std::string("fault ") + name_of(plan_.fault.kind));
    if (planned) others.insert(std::string("fault ") + name_of(plan_.fault.kind));
    outcome_.met.insert(outcome_.met.end(), others.begin(), others.end());
  }

  bool receives_were_late() {
    return std::ranges::any_of(
        sides_, [](const Side& side) { return side.rnic.counters()[Counter::tx_rnr_nak] != 0; });
  }

  const TrialOptions& options_;
  Mistake mistake_;
  Dice dice_;
  OperationPlan plan_;
  Pair pair_;
  OrderModel model_;
  std::array<Side, 2> sides_;
  std::vector<End> ends_;
  std::array<std::vector<std::pair<std::uint32_t, std::uint32_t>>, 2> flow_of_;  // by QP number
  std::vector<std::uint64_t> words_;  // of the flow whose operations are made, as predicted
  std::uint32_t dying_key_ = 0;
  Time end_at_ = 0, linger_ = 0;
  bool broken_ = false;
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
