// SPDX-License-Identifier: GPL-2.0-or-later
// What became of the messages of RC queue pairs while losses were repaired, in a file for
// `lab results explain`: those that were outstanding then, or failed, and what the queue pairs did.
// A message that met no loss costs a few stores, and leaves nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "../endpoint/loss_record.hpp"
#include "../engine/rnic/rnic.hpp"
#include "../engine/verbs/qp_event.hpp"

namespace softroce::verbs {

class LossLog final : public QpEventSink {
 public:
  static constexpr std::uint8_t kUnfinished = 255;

  // The file goes on if it is there. Throws std::system_error.
  LossLog(const std::string& path, const Rnic& rnic, std::int64_t epoch_ns);
  ~LossLog() override;
  LossLog(const LossLog&) = delete;
  LossLog& operator=(const LossLog&) = delete;

  void note(const QpEvent& event) override;

  // The queue pair is about to go: what is outstanding does not complete.
  void forget(std::uint32_t qp);
  // All of them are.
  void forget_all();
  // Records so far into the file.
  void write();

 private:
  struct Outstanding {
    LossRecord record;
    bool met_loss = false;
  };
  struct Pair {
    std::deque<Outstanding> sends;  // in the order of posts, which is that of completions
    std::size_t sent = 0;           // of them
    std::uint64_t posts = 0;
    bool is_rc = false;
  };

  Pair& pair_of(std::uint32_t qp);
  void posted(const QpEvent& event);
  void sent(const QpEvent& event);
  void completed(const QpEvent& event);
  void changed(const QpEvent& event);
  void repairs(const QpEvent& event, LossKind kind);
  void unfinished(Pair& pair);
  void add(LossRecord record);
  std::int64_t time_of(const QpEvent& event) const { return epoch_ns_ + event.at / kNanosecond; }

  const Rnic& rnic_;
  const std::int64_t epoch_ns_;
  int fd_ = -1;
  std::unordered_map<std::uint32_t, Pair> pairs_;
  Pair* last_ = nullptr;  // looked up last
  std::uint32_t last_qp_ = 0;
  std::vector<LossRecord> records_;
  std::uint64_t written_ = 0, left_out_ = 0;
};

}  // namespace softroce::verbs
