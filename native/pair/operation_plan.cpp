// SPDX-License-Identifier: GPL-2.0-or-later
#include "operation_plan.hpp"

#include <algorithm>
#include <stdexcept>

namespace softroce {
namespace {

constexpr std::uint32_t kLabHeaders = 64;  // of a striped packet, within the path MTU

struct Weights {  // of opcodes
  std::uint32_t write, write_immediate, send, send_immediate, send_invalidate, read, add, swap,
      local;
};
constexpr Weights kStyles[] = {
    {30, 8, 14, 6, 3, 15, 8, 4, 2},    // all
    {60, 10, 5, 0, 0, 20, 0, 0, 0},    // one-sided
    {10, 10, 40, 20, 10, 5, 0, 0, 5},  // receives
    {15, 0, 5, 0, 0, 20, 40, 20, 0},   // results
};

// How the offsets of a flow's WRITEs and READs are chosen.
enum class Layout : std::uint8_t { anywhere, ring, few_places };

struct FlowStyle {
  Layout layout = Layout::anywhere;
  std::uint32_t cursor = 0;
  std::uint32_t signaled_percent = 100;
  std::uint32_t longest_send = 0;
};

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint32_t most_mtu) : dice_(seed), most_mtu_(most_mtu) {}

  OperationPlan plan() {
    do plan_.path_mtu = dice_.one({256U, 512U, 1024U, 1024U, 2048U, 4096U});
    while (plan_.path_mtu > most_mtu_);
    plan_.ipv6 = dice_.chance(20);
    plan_.one_queue = dice_.chance(30);
    draw_cables();
    draw_flows();
    draw_posts();
    draw_pauses();
    if (dice_.chance(35)) draw_fault();
    return std::move(plan_);
  }

 private:
  // ---------------------------------------------------------------- cables

  void draw_cables() {
    const Time delay = dice_.one({500 * kNanosecond, 2 * kMicrosecond, 10 * kMicrosecond});
    const Time packet_time = dice_.one(
        {Time{0}, 50 * kNanosecond, 200 * kNanosecond, 200 * kNanosecond, 1 * kMicrosecond});
    const std::uint32_t how_lossy = dice_.below(100), how_late = dice_.below(100);
    const bool duplicates = dice_.chance(40), corrupts = dice_.chance(20);
    for (PlannedCable& cable : plan_.cables) {
      cable.delay = delay;
      cable.packet_time = packet_time;
      if (how_lossy >= 75)
        cable.loss = dice_.between(2'000, 10'000);
      else if (how_lossy >= 35)
        cable.loss = dice_.between(100, 2'000);
      if (duplicates) cable.duplicate = dice_.between(500, 10'000);
      if (corrupts) cable.corrupt = dice_.between(200, 2'000);
      if (how_late >= 92)
        cable.jitter = 20 * delay;
      else if (how_late >= 80)
        cable.jitter = 2 * delay;
      else if (how_late >= 60)
        cable.jitter = delay / 4;
    }
    round_trip_ = 2 * (delay + plan_.cables[0].jitter) + 128 * packet_time;
    plan_.timeout = 5;
    while ((4096 * kNanosecond << plan_.timeout) < 4 * round_trip_) ++plan_.timeout;
  }

  Time timeout() const { return 4096 * kNanosecond << plan_.timeout; }

  // ---------------------------------------------------------------- queue pairs

  void draw_flows() {
    const bool long_messages = dice_.chance(15);
    plan_.target_bytes = long_messages ? 80 << 10 : 24 << 10;
    longest_ = long_messages ? 64 << 10 : 16 << 10;
    const std::uint32_t connections = dice_.one({1U, 1U, 2U, 2U, 3U, 4U});
    const bool shares[] = {dice_.chance(30), dice_.chance(30)};
    for (std::uint32_t number = 0; number < 2 * connections; ++number) {
      PlannedFlow flow;
      flow.max_send = dice_.one({4U, 16U, 256U});
      flow.max_reads = dice_.between(1, 4);
      flow.signal_all = dice_.chance(15);
      flow.shared_receives = shares[number % 2] && dice_.chance(80);
      flow.rnr_retry = static_cast<std::uint8_t>(dice_.chance(90) ? 7 : dice_.between(1, 6));
      flow.rnr_timer = static_cast<std::uint8_t>(dice_.between(1, 8));
      flow.psn = dice_.chance(50) ? 0xFFFFFF - dice_.below(64) : dice_.below(1 << 24);
      flow.receive_slots = dice_.one({1U, 2U, 4U, 8U, 16U});
      flow.receive_delay =
          dice_.one({Time{0}, Time{0}, 1 * kMicrosecond, 20 * kMicrosecond, 200 * kMicrosecond});
      if (dice_.chance(40)) flow.split = plan_.target_bytes / 2 + 8 * dice_.below(64);
      FlowStyle style;
      style.layout = dice_.one({Layout::anywhere, Layout::ring, Layout::few_places});
      style.signaled_percent = dice_.one({100U, 60U, 20U});
      style.longest_send = dice_.chance(80) ? 4 * plan_.path_mtu : longest_;
      plan_.flows.push_back(flow);
      styles_.push_back(style);
    }
  }

  // ---------------------------------------------------------------- posts

  void draw_posts() {
    const Weights& weights = kStyles[dice_.below(std::size(kStyles))];
    const bool shares_words = dice_.chance(50);
    const std::uint32_t count = dice_.chance(80) ? dice_.between(20, 80) : dice_.between(80, 200);
    const std::uint32_t fences = dice_.one({0U, 8U, 25U});
    const std::uint32_t rest = dice_.one({0U, 20U, 60U});  // percent of posts that wait
    Time at = 0;
    for (std::uint32_t number = 0; number < count; ++number) {
      if (dice_.chance(rest))
        at += dice_.below(static_cast<std::uint32_t>(round_trip_ / 1000)) * 1000;
      if (dice_.chance(1)) at += timeout();
      PlannedPost post;
      post.number = number;
      post.at = at;
      const std::uint32_t connection =
          dice_.below(static_cast<std::uint32_t>(plan_.flows.size()) / 2);
      post.flow = 2 * connection + dice_.chance(35);
      post.with_next = dice_.chance(30);
      post.opcode = opcode(weights);
      if (dice_.chance(styles_[post.flow].signaled_percent)) post.flags |= kSignaled;
      if (dice_.chance(fences)) post.flags |= kFence;
      shape(post, shares_words);
      plan_.posts.push_back(std::move(post));
    }
    choose_dying_keys();
  }

  WrOpcode opcode(const Weights& weights) {
    const std::pair<std::uint32_t, WrOpcode> choices[] = {
        {weights.write, WrOpcode::rdma_write},
        {weights.write_immediate, WrOpcode::rdma_write_with_immediate},
        {weights.send, WrOpcode::send},
        {weights.send_immediate, WrOpcode::send_with_immediate},
        {weights.send_invalidate, WrOpcode::send_with_invalidate},
        {weights.read, WrOpcode::rdma_read},
        {weights.add, WrOpcode::fetch_add},
        {weights.swap, WrOpcode::compare_swap},
        {weights.local, WrOpcode::local_invalidate}};
    std::uint32_t total = 0;
    for (const auto& [weight, _] : choices) total += weight;
    std::uint32_t left = dice_.below(total);
    for (const auto& [weight, opcode] : choices) {
      if (left < weight) return opcode;
      left -= weight;
    }
    return WrOpcode::rdma_write;
  }

  void shape(PlannedPost& post, bool shares_words) {
    const bool takes_receive = post.opcode != WrOpcode::rdma_write &&
                               post.opcode != WrOpcode::rdma_read &&
                               post.opcode < WrOpcode::rdma_read;
    if (post.opcode == WrOpcode::local_invalidate) {
      post.flags &= ~kFence;  // RC carries it out when it is posted, whatever is outstanding
      return;
    }
    if (post.opcode == WrOpcode::fetch_add || post.opcode == WrOpcode::compare_swap) {
      post.bytes = kWordBytes;
      post.operand = dice_.bits();
      post.compares_equal = dice_.chance(70);
      post.offset = plan_.target_bytes + kWordBytes * dice_.below(kWords);
      if (shares_words && dice_.chance(50)) post.shared_word = dice_.below(kSharedWords);
      post.results = {kWordBytes};
      if (dice_.chance(10)) post.results = {3, 0, 5};
      return;
    }
    if (takes_receive || post.opcode == WrOpcode::send_with_invalidate) {
      if (dice_.chance(15)) post.flags |= kSolicited;
      post.immediate = static_cast<std::uint32_t>(dice_.bits());
    }
    post.bytes = length();
    const bool sends = post.opcode == WrOpcode::send ||
                       post.opcode == WrOpcode::send_with_immediate ||
                       post.opcode == WrOpcode::send_with_invalidate;
    if (sends) post.bytes = std::min(post.bytes, styles_[post.flow].longest_send);
    if (!sends) choose_offset(post);
    if (post.opcode == WrOpcode::rdma_read) {
      for (const Piece& piece : pieces(post.bytes)) post.results.push_back(piece.bytes);
      return;
    }
    if (post.bytes <= kLongestInline && dice_.chance(25)) post.flags |= kInline;
    post.sources = pieces(post.bytes);
  }

  std::uint32_t length() {
    const std::uint32_t chunk = plan_.path_mtu - (dice_.chance(50) ? kLabHeaders : 0);
    const std::uint32_t which = dice_.below(100);
    std::uint32_t bytes = 0;
    if (which < 10)
      bytes = 0;
    else if (which < 30)
      bytes = dice_.between(1, 16);
    else if (which < 50)
      bytes = chunk * dice_.between(1, 3) + dice_.between(0, 2) - 1;
    else if (which < 65)
      bytes = dice_.between(1, chunk);
    else if (which < 90)
      bytes = dice_.between(chunk, 4 * chunk);
    else if (which < 98)
      bytes = dice_.between(4 * chunk, 12 * chunk);
    else
      bytes = longest_;
    return std::min(bytes, longest_);
  }

  std::vector<Piece> pieces(std::uint32_t bytes) {
    const std::uint32_t count = dice_.chance(75) ? 1 : dice_.between(2, kMostElements);
    std::vector<Piece> made;
    std::uint32_t left = bytes;
    for (std::uint32_t number = 1; number <= count; ++number) {
      const std::uint32_t some = number == count ? left : dice_.below(left + 1);
      made.emplace_back(dice_.below(kPatternBytes - some), some);
      left -= some;
    }
    return made;
  }

  // Within one region of the flow's target.
  void choose_offset(PlannedPost& post) {
    FlowStyle& style = styles_[post.flow];
    const std::uint32_t split = plan_.flows[post.flow].split;
    std::uint32_t first = 0, end = plan_.target_bytes;
    if (split != 0) (dice_.chance(50) ? end : first) = split;
    post.bytes = std::min(post.bytes, end - first);
    const std::uint32_t room = end - first - post.bytes;
    switch (style.layout) {
      case Layout::anywhere:
        post.offset = first + dice_.below(room + 1);
        return;
      case Layout::ring:
        if (style.cursor > room) style.cursor = 0;
        post.offset = first + style.cursor;
        style.cursor += post.bytes;
        return;
      case Layout::few_places:
        post.offset = first + std::min(room, dice_.below(3) * plan_.path_mtu);
    }
  }

  // Some WRITEs use the key that the flow's next SEND with invalidate makes invalid.
  void choose_dying_keys() {
    std::vector<bool> dies(plan_.flows.size(), false);
    for (std::size_t n = plan_.posts.size(); n-- != 0;) {
      PlannedPost& post = plan_.posts[n];
      if (post.opcode == WrOpcode::send_with_invalidate) dies[post.flow] = true;
      const bool writes =
          post.opcode == WrOpcode::rdma_write || post.opcode == WrOpcode::rdma_write_with_immediate;
      post.dying_key = writes && dies[post.flow] && dice_.chance(40);
    }
  }

  // ---------------------------------------------------------------- disturbances and the fault

  Time some_time() {
    const Time last = plan_.posts.back().at + round_trip_;
    return dice_.below(static_cast<std::uint32_t>(last / kNanosecond) + 1) * kNanosecond;
  }

  void draw_pauses() {
    const auto pause = [this](std::uint32_t most_timeouts) {
      PlannedPause made;
      made.from = some_time();
      const auto longest = static_cast<std::uint32_t>(most_timeouts * timeout() / kNanosecond);
      made.until = made.from + (1 + dice_.below(longest)) * kNanosecond;
      made.flow = dice_.below(static_cast<std::uint32_t>(plan_.flows.size()));
      made.directions = dice_.between(1, 3);
      return made;
    };
    if (dice_.chance(15)) plan_.cut = pause(3);
    if (dice_.chance(10)) plan_.drained = pause(1);
    if (dice_.chance(10)) {
      plan_.late = pause(1);
      plan_.late->until -= plan_.late->from;
    }
    plan_.old_frames = dice_.chance(10);
  }

  void draw_fault() {
    PlannedFault fault;
    fault.kind = static_cast<FaultKind>(dice_.between(1, kFaultKinds - 1));
    if (fault.kind >= FaultKind::region_goes) {
      fault.at = some_time();
      fault.flow = dice_.below(static_cast<std::uint32_t>(plan_.flows.size()));
      fault.directions = dice_.between(1, 3);
      // A queue pair that goes to ERR before RTS has no READs and atomics.
      if (plan_.late && plan_.late->flow == fault.flow)
        fault.at = std::max(fault.at, plan_.late->until);
      if (fault.kind == FaultKind::region_goes && !find_region(fault)) return;
    } else {
      std::vector<const PlannedPost*> fitting;
      for (const PlannedPost& post : plan_.posts)
        if (fits(fault.kind, post)) fitting.push_back(&post);
      if (fitting.empty()) return;
      const PlannedPost& post = *fitting[dice_.below(static_cast<std::uint32_t>(fitting.size()))];
      fault.number = post.number;
      fault.flow = post.flow;
      if (fault.kind == FaultKind::not_granted) refuse_kind(fault, post.opcode);
      if (fault.kind == FaultKind::no_receive) plan_.flows[post.flow].rnr_retry = 2;
    }
    plan_.fault = fault;
  }

  // A second region, and a time when something may be using it.
  bool find_region(PlannedFault& fault) {
    std::vector<const PlannedPost*> uses;
    for (const PlannedPost& post : plan_.posts) {
      const std::uint32_t split = plan_.flows[post.flow].split;
      if (split != 0 && post.offset >= split && post.bytes != 0) uses.push_back(&post);
    }
    if (uses.empty()) return false;
    const PlannedPost& use = *uses[dice_.below(static_cast<std::uint32_t>(uses.size()))];
    fault.flow = use.flow;
    fault.at = use.at +
               dice_.below(static_cast<std::uint32_t>(2 * round_trip_ / kNanosecond)) * kNanosecond;
    for (PlannedPost& post : plan_.posts)  // no other key leads there
      if (post.flow == fault.flow) post.dying_key = false;
    return true;
  }

  static std::uint32_t right_for(WrOpcode opcode) {
    switch (opcode) {
      case WrOpcode::rdma_write:
      case WrOpcode::rdma_write_with_immediate:
        return kRemoteWrite;
      case WrOpcode::rdma_read:
        return kRemoteRead;
      case WrOpcode::compare_swap:
      case WrOpcode::fetch_add:
        return kRemoteAtomic;
      default:
        return 0;
    }
  }

  // The flow's first operation of this kind meets the fault.
  void refuse_kind(PlannedFault& fault, WrOpcode opcode) const {
    fault.right = right_for(opcode);
    const auto first = std::ranges::find_if(plan_.posts, [&fault](const PlannedPost& post) {
      return post.flow == fault.flow && right_for(post.opcode) == fault.right;
    });
    fault.number = first->number;
  }

  bool fits(FaultKind kind, const PlannedPost& post) const {
    using enum WrOpcode;
    const bool sends = post.opcode == send || post.opcode == send_with_immediate;
    const bool writes = post.opcode == rdma_write || post.opcode == rdma_write_with_immediate;
    const bool atomic = post.opcode == fetch_add || post.opcode == compare_swap;
    const bool shared = plan_.flows[post.flow ^ 1].shared_receives;
    switch (kind) {
      case FaultKind::bad_key:
      case FaultKind::no_right:
      case FaultKind::not_granted:
        return (writes || post.opcode == rdma_read || atomic) && post.bytes != 0;
      case FaultKind::out_of_bounds:
        return (writes || post.opcode == rdma_read) && post.bytes != 0;
      case FaultKind::short_receive:
      case FaultKind::bad_receive:
        return sends && post.bytes != 0 && !shared;
      case FaultKind::bad_source:
        return (writes || sends) && post.bytes != 0 && !(post.flags & kInline);
      case FaultKind::bad_result:
        return (post.opcode == rdma_read || atomic) && post.bytes != 0;
      case FaultKind::bad_invalidate:
        return post.opcode == send_with_invalidate && !shared;
      case FaultKind::no_receive:
        return (sends || post.opcode == rdma_write_with_immediate) && !shared;
      default:
        return false;
    }
  }

  Dice dice_;
  std::uint32_t most_mtu_;
  OperationPlan plan_;
  std::vector<FlowStyle> styles_;
  std::uint32_t longest_ = 0;
  Time round_trip_ = 0;
};

}  // namespace

const char* name_of(FaultKind kind) {
  static constexpr const char* kNames[kFaultKinds] = {
      "none",        "bad_key",        "out_of_bounds", "no_right",
      "not_granted", "short_receive",  "bad_receive",   "bad_source",
      "bad_result",  "bad_invalidate", "no_receive",    "region_goes",
      "end_fails",   "end_resets",     "end_destroyed", "cut"};
  return kNames[static_cast<int>(kind)];
}

const PlannedPost* OperationPlan::find(std::uint32_t number) const {
  const auto found = std::ranges::find(posts, number, &PlannedPost::number);
  return found == posts.end() ? nullptr : &*found;
}

OperationPlan draw_operations(std::uint64_t seed, std::uint32_t most_mtu) {
  return Draw(seed, most_mtu).plan();
}

void leave_out(OperationPlan& plan, const std::vector<std::uint32_t>& posts,
               const std::vector<std::string>& disturbances) {
  std::erase_if(plan.posts, [&posts](const PlannedPost& post) {
    return std::ranges::find(posts, post.number) != posts.end();
  });
  for (const std::string& name : disturbances) {
    if (std::ranges::find(kDisturbances, name) == kDisturbances.end())
      throw std::invalid_argument("the operation trial has no disturbance '" + name + "'");
    for (PlannedCable& cable : plan.cables) {
      if (name == "loss") cable.loss = 0;
      if (name == "duplicate") cable.duplicate = 0;
      if (name == "corrupt") cable.corrupt = 0;
      if (name == "jitter") cable.jitter = 0;
    }
    if (name == "cut") plan.cut.reset();
    if (name == "drained") plan.drained.reset();
    if (name == "late") plan.late.reset();
    if (name == "old_frames") plan.old_frames = false;
    if (name == "fault") plan.fault = {};
  }
  const bool by_post =
      plan.fault.kind != FaultKind::none && plan.fault.kind < FaultKind::region_goes;
  if (by_post && plan.find(plan.fault.number) == nullptr) plan.fault = {};
}

}  // namespace softroce
