// SPDX-License-Identifier: GPL-2.0-or-later
// What IBA lets a program see of a reliable connection: which completions there are and in which
// order, and what memory holds at the moment of each (IBA volume 1, 9.5 transaction ordering, 9.7
// reliable service, 10.8.3.3 order of work requests, 9.9 errors). The model sees posts, completions
// and memory. It sees no packet, so that it judges any transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../engine/verbs/completion.hpp"
#include "../engine/verbs/work_request.hpp"

namespace softroce {

// What memory holds where nothing was written.
inline constexpr std::uint8_t kPoison = 0x5A;

using Element = std::span<std::uint8_t>;  // of a scatter list

// One operation of a flow (operation_plan.hpp).
struct PostedOperation {
  std::uint32_t number = 0;  // of the seed's posts
  WrOpcode opcode = WrOpcode::send;
  std::uint32_t flags = 0;
  bool signaled = false;
  std::uint32_t bytes = 0;
  std::uint32_t offset = 0;          // in the flow's target
  std::vector<std::uint8_t> data{};  // of a WRITE or SEND; of an atomic: what it leaves in its word
  std::vector<Element> results{};
  std::uint64_t original = 0;                    // of an atomic on a word of this flow alone
  std::optional<std::uint32_t> shared_word{};    // of an atomic on a word of several flows
  std::uint64_t compare = 0, operand = 0;        // of such an atomic
  std::uint32_t immediate = 0, invalidated = 0;  // as its receive has them
  bool in_second_region = false;

  bool is_write() const {
    return opcode == WrOpcode::rdma_write || opcode == WrOpcode::rdma_write_with_immediate;
  }
  bool is_read() const { return opcode == WrOpcode::rdma_read; }
  bool is_atomic() const {
    return opcode == WrOpcode::compare_swap || opcode == WrOpcode::fetch_add;
  }
  bool is_local() const { return opcode == WrOpcode::local_invalidate; }
  bool takes_receive() const {
    return !is_read() && !is_atomic() && !is_local() && opcode != WrOpcode::rdma_write;
  }
  bool changes_target() const {
    return (is_write() && bytes != 0) || (is_atomic() && !shared_word);
  }
  bool covers(std::uint32_t at) const { return at >= offset && at < offset + bytes; }
};

std::string text_of(WcStatus status);  // as verbs.h calls it, without IBV_WC_

struct Receive {
  std::uint64_t wr_id = 0;
  std::vector<Element> elements{};
  Element slot{};  // the memory that holds them, and gaps between them
};

// How a flow may end in error. Without any of these, all of its operations succeed.
struct Tolerance {
  // This post is to end so, and none behind it is to take effect.
  std::optional<std::uint32_t> planned{};
  WcStatus status = WcStatus::success;
  WcStatus receive_status = WcStatus::success;  // of the receive that it takes; success: takes none
  bool ends_peer = false;       // the responder's queue pair goes to the state of error, too
  bool may_be_flushed = false;  // its queue pair is moved to the state of error by others
  bool may_time_out = false;    // the peer may not answer any more
  bool may_lack_receive = false;
  bool second_region_goes = false;
};

struct FlowSetup {
  std::string name;
  std::vector<PostedOperation> operations{};
  Element target{};              // at the peer; the program there does not write to it
  bool shared_receives = false;  // this end takes its receives from those of its side
  Tolerance tolerance{};
};

class OrderModel {
 public:
  // RC executes WRITEs in their order (`mixing_chunk` is 0). A transport that places packets as
  // they arrive may mix WRITEs that overlap and are outstanding together, if the later one is
  // longer than `mixing_chunk`, the data of a packet.
  explicit OrderModel(std::uint32_t mixing_chunk) : mixing_chunk_(mixing_chunk) {}

  void add_flow(FlowSetup setup);
  void add_shared_word(std::uint32_t word, const std::uint8_t* at);

  // ---- what happens, in the order in which the program sees it
  void posted(std::uint32_t flow);  // the flow's next operation
  void receive_posted(std::uint32_t flow, Receive receive);
  void shared_receive_posted(std::uint32_t side, Receive receive);
  void send_completed(std::uint32_t flow, const WorkCompletion& completion);
  void receive_completed(std::uint32_t flow, const WorkCompletion& completion);
  // The queue pair that posts this flow was reset or destroyed: it completes nothing any more.
  void end_is_gone(std::uint32_t flow) { flows_[flow].gone = true; }
  // From now on the queue pair is in SQD, or no longer: what is posted meanwhile waits. The first
  // `begun` operations may have begun before.
  void drain(std::uint32_t flow, std::size_t begun) { flows_[flow].drained_at = begun; }
  void end_drain(std::uint32_t flow) { flows_[flow].drained_at.reset(); }
  // So many packets were lost so far, in both directions.
  void note_losses(std::uint64_t packets) { losses_ = packets; }
  void look();  // at memory
  void finish();

  // ---- what is known
  std::uint64_t wr_id(std::uint32_t flow, std::size_t index) const {
    return (std::uint64_t{flow} + 1) << 32 | index;
  }
  bool is_over(std::uint32_t flow) const;  // all that was posted has ended
  std::size_t posts(std::uint32_t flow) const { return flows_[flow].posted; }
  std::size_t effects(std::uint32_t flow) const { return flows_[flow].settled_to; }
  bool has_failed(std::uint32_t flow) const { return flows_[flow].failed; }
  bool is_planned_failure(std::uint32_t flow) const { return flows_[flow].met_planned; }
  const std::vector<PostedOperation>& operations(std::uint32_t flow) const {
    return flows_[flow].operations;
  }
  const std::string& name(std::uint32_t flow) const { return flows_[flow].name; }
  std::string text(std::uint32_t flow, std::size_t index) const;

  void violation(const char* rule, const std::string& what);
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Flow : FlowSetup {
    std::vector<std::uint8_t> initial{}, settled{};  // of the target
    std::size_t posted = 0;
    std::size_t completed = 0;   // operations before this one have had their completion, if any
    std::size_t ended = 0;       // those that have succeeded
    std::size_t settled_to = 0;  // those that have taken effect; `settled` has what they wrote
    std::vector<std::size_t> settled_at_post{};  // by operation: the others that had taken effect
    std::vector<std::size_t> receive_takers{};   // operations, in order
    std::size_t receives_done = 0;               // of those
    std::vector<std::uint64_t> result_sums{};    // by operation, of results that are complete
    std::deque<Receive> receives{};              // posted at this end, and not over
    bool failed = false, gone = false, receive_failed = false, met_planned = false;
    std::size_t failed_at = 0;
    std::optional<std::size_t> drained_at{};  // posts when its queue pair went to SQD
    std::uint64_t losses_at_progress = 0;
  };
  struct SharedReceives {
    std::map<std::uint64_t, Receive> posted{};
    std::map<std::uint32_t, std::uint64_t> newest{};  // by flow: what it took last
  };
  struct SharedWord {
    const std::uint8_t* at = nullptr;
    std::uint64_t initial = 0;
  };

  Flow& peer_of(std::uint32_t flow) { return flows_[flow ^ 1]; }
  bool may_be_flushed(std::uint32_t flow);
  void succeed(std::uint32_t flow, std::size_t index);
  void fail(std::uint32_t flow, std::size_t index, WcStatus status);
  bool may_end_so(std::uint32_t flow, std::size_t index, WcStatus status);
  void settle(std::uint32_t flow, std::size_t to);
  void check_fence(std::uint32_t flow, std::size_t index);
  void check_target(std::uint32_t flow, const char* rule);
  std::size_t last_possible(const Flow& flow) const;
  std::uint32_t explained(const Flow& flow, std::size_t first, std::size_t end, std::uint32_t at,
                          const std::uint8_t* actual, std::uint32_t most) const;
  bool may_have_no_place(std::uint32_t flow, std::uint32_t at) const;
  std::uint32_t explained_by_mixture(const Flow& flow, std::size_t before, std::uint32_t at,
                                     const std::uint8_t* actual, std::uint32_t most) const;
  bool has_shown(const Flow& flow, std::size_t index) const;
  void check_shown(std::uint32_t flow, std::size_t index);
  bool read_is_explained(const Flow& flow, std::size_t index, std::uint32_t& wrong);
  bool is_answered(const Flow& flow, std::size_t index);
  void take_shared(std::uint32_t flow, const WorkCompletion& completion, Receive& receive);
  void check_received(std::uint32_t flow, const Receive& receive, const WorkCompletion& completion,
                      const PostedOperation& operation, const std::string& what);
  void check_word(std::uint32_t word);

  std::uint32_t mixing_chunk_;
  std::deque<Flow> flows_;
  std::array<SharedReceives, 2> shared_{};
  std::map<std::uint32_t, SharedWord> words_{};
  std::uint64_t losses_ = 0;
  std::vector<std::string> violations_;
  std::vector<std::uint8_t> scratch_, painted_;
};

}  // namespace softroce
