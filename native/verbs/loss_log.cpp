// SPDX-License-Identifier: GPL-2.0-or-later
#include "loss_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace softroce::verbs {
namespace {

constexpr std::size_t kRecordsAWrite = 1 << 10;  // 80 KiB
constexpr std::uint64_t kMostRecords = 1 << 19;  // 40 MiB

}  // namespace

LossLog::LossLog(const std::string& path, const Rnic& rnic, std::int64_t epoch_ns)
    : rnic_(rnic), epoch_ns_(epoch_ns) {
  fd_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path);
}

LossLog::~LossLog() { close(fd_); }

void LossLog::note(const QpEvent& event) {
  switch (event.kind) {
    case QpEventKind::post_send:
      return posted(event);
    case QpEventKind::sent:
      return sent(event);
    case QpEventKind::completion:
      if (static_cast<WcOpcode>(event.from) < WcOpcode::recv) completed(event);
      return;
    case QpEventKind::state:
      return changed(event);
    case QpEventKind::retransmit:
      return repairs(event, LossKind::retransmit);
    case QpEventKind::timeout:
      return repairs(event, LossKind::timeout);
    case QpEventKind::nak_sent:
      return repairs(event, LossKind::nak_sent);
    case QpEventKind::nak_received:
      return repairs(event, LossKind::nak_received);
    default:
      return;
  }
}

LossLog::Pair& LossLog::pair_of(std::uint32_t qp) {
  if (last_ != nullptr && last_qp_ == qp) return *last_;
  const auto [found, is_new] = pairs_.try_emplace(qp);
  if (is_new) {
    const QueuePair* known = rnic_.find_qp(qp);
    found->second.is_rc = known != nullptr && known->config().type == QpType::rc;
  }
  last_ = &found->second;
  last_qp_ = qp;
  return *last_;
}

void LossLog::posted(const QpEvent& event) {
  Pair& pair = pair_of(event.qp);
  if (!pair.is_rc) return;
  pair.sends.push_back({.record = {.posted_ns = time_of(event),
                                   .bytes = event.bytes,
                                   .number = pair.posts++,
                                   .qp = event.qp,
                                   .opcode = event.code}});
}

void LossLog::sent(const QpEvent& event) {
  Pair& pair = pair_of(event.qp);
  if (pair.sent >= pair.sends.size()) return;  // posted before the log began
  LossRecord& record = pair.sends[pair.sent++].record;
  record.sent_ns = time_of(event);
  record.psn = event.psn;
  record.last_psn = event.last_psn;
}

void LossLog::completed(const QpEvent& event) {
  Pair& pair = pair_of(event.qp);
  if (pair.sends.empty()) return;
  Outstanding ended = std::move(pair.sends.front());
  pair.sends.pop_front();
  if (pair.sent != 0) --pair.sent;
  if (!ended.met_loss && static_cast<WcStatus>(event.code) == WcStatus::success) return;
  ended.record.at_ns = time_of(event);
  ended.record.code = event.code;
  add(ended.record);
}

// Without a completion: the program took the queue pair back.
void LossLog::changed(const QpEvent& event) {
  if (static_cast<QpState>(event.code) == QpState::reset) unfinished(pair_of(event.qp));
}

void LossLog::repairs(const QpEvent& event, LossKind kind) {
  Pair& pair = pair_of(event.qp);
  if (!pair.is_rc) return;
  if (kind != LossKind::nak_sent)
    for (Outstanding& each : pair.sends) each.met_loss = true;
  add({.at_ns = time_of(event),
       .qp = event.qp,
       .psn = event.psn,
       .last_psn = event.last_psn,
       .kind = kind,
       .code = event.code});
}

void LossLog::unfinished(Pair& pair) {
  for (Outstanding& each : pair.sends) {
    if (!each.met_loss) continue;
    each.record.code = kUnfinished;
    add(each.record);
  }
  pair.sends.clear();
  pair.sent = 0;
}

void LossLog::forget(std::uint32_t qp) {
  const auto found = pairs_.find(qp);
  if (found == pairs_.end()) return;
  unfinished(found->second);
  pairs_.erase(found);
  last_ = nullptr;
}

void LossLog::forget_all() {
  while (!pairs_.empty()) forget(pairs_.begin()->first);
}

void LossLog::add(LossRecord record) {
  if (written_ + records_.size() >= kMostRecords) {
    ++left_out_;
    return;
  }
  if (const QueuePair* qp = rnic_.find_qp(record.qp)) {
    const QpAttr& peer = qp->attributes();
    record.remote_qp = peer.dest_qp;
    record.remote_high = peer.address.destination.high;
    record.remote_low = peer.address.destination.low;
  }
  records_.push_back(record);
  if (records_.size() >= kRecordsAWrite) write();
}

// What a full disk does not take is lost: readers see whole records alone.
void LossLog::write() {
  if (const auto number = std::exchange(left_out_, 0))
    records_.push_back({.number = number, .kind = LossKind::left_out});
  if (records_.empty()) return;
  [[maybe_unused]] const ssize_t wrote =
      ::write(fd_, records_.data(), records_.size() * sizeof(LossRecord));
  written_ += records_.size();
  records_.clear();
}

}  // namespace softroce::verbs
