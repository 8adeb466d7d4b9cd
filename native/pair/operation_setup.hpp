// SPDX-License-Identifier: GPL-2.0-or-later
// Two RNICs with the memory, queue pairs and operations of a plan, ready to post.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "guarded_arena.hpp"
#include "operation_plan.hpp"
#include "order_model.hpp"
#include "pair.hpp"

namespace softroce {

// Buffers of receives, which are posted again when what they received was judged.
struct ReceiveStock {
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

struct TrialEnd {  // a queue pair, and the flow that it posts
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
  ReceiveStock stock{};
};

struct TrialSide {
  Rnic& rnic;
  GuardedArena arena{kPoison};
  std::size_t pattern_area = 0, words_area = 0;
  std::uint32_t local_key = 0, words_key = 0;
  std::vector<std::uint32_t> keys{};
  std::set<std::uint32_t> removed_keys{};
  std::uint32_t srq = 0;
  ReceiveStock stock{};  // of the shared receives
  std::vector<std::shared_ptr<CompletionQueue>> queues{};
  std::size_t pushed = 0;
};

class OperationSetup {
 public:
  // `config` is that of both RNICs, except for their addresses. `mixing_chunk`: of OrderModel.
  OperationSetup(std::uint64_t seed, OperationPlan plan, const MessageConfig& config,
                 std::uint32_t mixing_chunk);

  // Random bytes, the same in each trial: what is sent is taken from here, and each place is known
  // by its bytes.
  static const std::vector<std::uint8_t>& pattern();

 protected:
  static constexpr std::uint32_t kDomain = 5;
  static constexpr std::uint32_t kUnknownKey = 0x7FFFFF01;
  static constexpr std::uint32_t kGapBytes = 16;  // between the elements of a receive

  std::uint32_t flows() const { return static_cast<std::uint32_t>(ends_.size()); }
  TrialSide& side_of(std::uint32_t flow) { return sides_[flow % 2]; }
  TrialSide& peer_side_of(std::uint32_t flow) { return sides_[1 - flow % 2]; }
  Element target_of(std::uint32_t flow) {
    return peer_side_of(flow).arena.area(ends_[flow].target_area);
  }
  Time now() const { return pair_.now(); }
  std::size_t number_of_receive(std::uint32_t number) const;
  const PlannedPost* faulty_post() const;
  Tolerance tolerance_of(std::uint32_t flow) const;
  bool is_late(std::uint32_t flow) const { return plan_.late && plan_.late->flow == flow; }
  void go_to_rts(std::uint32_t flow);  // from INIT
  void modify(std::uint32_t flow, QpState state, std::uint32_t mask);
  static void must(int error, const char* what);  // std::system_error
  static std::uint64_t address_of(const std::uint8_t* at) {
    return reinterpret_cast<std::uintptr_t>(at);
  }
  static std::uint64_t word_at(const std::uint8_t* at);

  Dice dice_;
  OperationPlan plan_;
  Pair pair_;
  OrderModel model_;
  std::array<TrialSide, 2> sides_;
  std::vector<TrialEnd> ends_;
  // By side: numbers of queue pairs, and their flows.
  std::array<std::vector<std::pair<std::uint32_t, std::uint32_t>>, 2> flow_of_;
  Time end_at_ = 0;  // of posts, disturbances and the fault
  Time linger_ = 0;  // so long packets may still be on their way

 private:
  bool is_faulty(const PlannedPost& post, FaultKind kind) const {
    return plan_.fault.kind == kind && plan_.fault.number == post.number;
  }

  // ---- memory
  void lay_out();
  static void add_slots(TrialSide& side, ReceiveStock& stock, std::size_t count);
  void fill(std::uint32_t which);
  static std::uint32_t add_region(TrialSide& side, Element memory, std::uint32_t access);
  void register_target(std::uint32_t flow);

  // ---- operations
  void make_operations(std::uint32_t flow);
  void address(std::uint32_t flow, const PlannedPost& post, std::uint32_t dying_key,
               PostedOperation& operation, SendRequest& request);
  void give_sources(std::uint32_t flow, const PlannedPost& post, PostedOperation& operation,
                    SendRequest& request);
  void give_results(std::uint32_t flow, const PlannedPost& post, std::size_t area,
                    PostedOperation& operation, SendRequest& request);
  static void spoil(SendRequest& request);
  void predict(const PlannedPost& post, PostedOperation& operation, SendRequest& request);

  // ---- queue pairs and cables
  void create(std::uint32_t flow);
  void connect_all();
  void shape_cables();

  std::vector<std::uint64_t> words_;  // of the flow whose operations are made, as predicted
};

}  // namespace softroce
