// SPDX-License-Identifier: GPL-2.0-or-later
#include "event_log.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

#include "../engine/counters.hpp"
#include "../engine/striped/event.hpp"
#include "../engine/verbs/qp_state.hpp"
#include "../engine/verbs/rc_qp.hpp"
#include "../engine/verbs/work_request.hpp"

namespace softroce {
namespace {

constexpr std::size_t kRingEntries = 1 << 16;
constexpr std::size_t kTextBytes = 1 << 17;  // enough lines for one write
constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 1'000'000};

// ---------------------------------------------------------------- names

const char* name_of(QpState state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames[static_cast<std::size_t>(state)];
}

const char* name_of(WrOpcode opcode) {
  constexpr const char* kNames[] = {"RDMA_WRITE",
                                    "RDMA_WRITE_WITH_IMM",
                                    "SEND",
                                    "SEND_WITH_IMM",
                                    "RDMA_READ",
                                    "ATOMIC_CMP_AND_SWP",
                                    "ATOMIC_FETCH_AND_ADD",
                                    "",
                                    "",
                                    "SEND_WITH_INV"};
  return kNames[static_cast<std::size_t>(opcode)];
}

const char* name_of(WcOpcode opcode) {
  constexpr const char* kNames[] = {"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD"};
  if (opcode == WcOpcode::recv) return "RECV";
  if (opcode == WcOpcode::recv_rdma_with_immediate) return "RECV_RDMA_WITH_IMM";
  return kNames[static_cast<std::size_t>(opcode)];
}

const char* name_of(WcStatus status) {
  constexpr const char* kNames[] = {
      "SUCCESS",        "LOC_LEN_ERR",       "LOC_QP_OP_ERR",    "LOC_EEC_OP_ERR",
      "LOC_PROT_ERR",   "WR_FLUSH_ERR",      "MW_BIND_ERR",      "BAD_RESP_ERR",
      "LOC_ACCESS_ERR", "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",   "REM_OP_ERR",
      "RETRY_EXC_ERR",  "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
      "REM_ABORT_ERR"};
  return static_cast<std::size_t>(status) < std::size(kNames)
             ? kNames[static_cast<std::size_t>(status)]
             : "GENERAL_ERR";
}

const char* name_of(RetransmitReason reason) {
  constexpr const char* kNames[] = {"timeout", "nak",      "implied_nak", "rnr_nak",
                                    "policy",  "informed", "trimmed"};
  return kNames[static_cast<std::size_t>(reason)];
}

const char* name_of(LossReason reason) { return kLossNames[static_cast<std::size_t>(reason)]; }

const char* name_of(ParityReason reason) {
  constexpr const char* kNames[] = {"idle", "gain"};
  return kNames[static_cast<std::size_t>(reason)];
}

const char* name_of(EventKind kind) {
  constexpr const char* kNames[] = {"post_send",    "sent",       "post_recv",
                                    "first_packet", "tail_seen",  "receive_complete",
                                    "timer",        "peer_timer", "control_received",
                                    "no_receive",   "too_long",   "late_packet",
                                    "gap",          "loss",       "parity",
                                    "chunk",        "trimmed"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(EventKind::trimmed) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

const char* nak_name(std::uint8_t syndrome) {
  constexpr const char* kNames[] = {"psn_sequence_error", "invalid_request", "remote_access_error",
                                    "remote_operational_error"};
  const auto code = static_cast<std::size_t>(syndrome & 31);
  return code < std::size(kNames) ? kNames[code] : "reserved";
}

const char* name_of(const QpEvent& event) {
  constexpr const char* kNames[] = {"state",
                                    "post_send",
                                    "post_recv",
                                    "sent",
                                    "retransmit",
                                    "timeout",
                                    "ack_received",
                                    "nak_received",
                                    "rnr_nak_received",
                                    "ack_sent",
                                    "nak_sent",
                                    "rnr_nak_sent",
                                    "response_sent",
                                    "out_of_sequence",
                                    "duplicate_request",
                                    "dropped",
                                    "completion",
                                    "",
                                    "retransmit",
                                    "control_sent",
                                    "",
                                    "",
                                    "parity_sent",
                                    "restored"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(QpEventKind::message_restored) + 1);
  if (event.kind == QpEventKind::message) return name_of(static_cast<EventKind>(event.code));
  return kNames[static_cast<std::size_t>(event.kind)];
}

// ---------------------------------------------------------------- lines

void add(std::string& text, const char* key, std::uint64_t value) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text.append(",\"").append(key).append("\":").append(digits, end);
}

void add(std::string& text, const char* key, const char* value) {
  text.append(",\"").append(key).append("\":\"").append(value).push_back('"');
}

void add_psns(std::string& text, const QpEvent& event) {
  add(text, "psn", event.psn);
  add(text, "last_psn", event.last_psn);
}

void add_message(std::string& text, const QpEvent& event) {
  add(text, "peer", event.peer);
  add(text, "operation", event.key.operation);
  add(text, "step", event.key.step);
  add(text, "message", event.key.message);
}

void add_rnr_timer(std::string& text, const QpEvent& event) {
  add(text, "psn", event.psn);
  add(text, "timer_ns", static_cast<std::uint64_t>(rnr_time(event.code) / kNanosecond));
}

void add_completion(std::string& text, const QpEvent& event) {
  add(text, "wr_id", event.wr_id);
  add(text, "opcode", name_of(static_cast<WcOpcode>(event.from)));
  add(text, "status", name_of(static_cast<WcStatus>(event.code)));
  add(text, "bytes", event.bytes);
  text.append(event.signaled ? ",\"signaled\":true" : ",\"signaled\":false");
  if (event.packets != 0) add_message(text, event);  // of a striped message
}

void add_message_event(std::string& text, const QpEvent& event) {
  switch (static_cast<EventKind>(event.code)) {
    case EventKind::peer_timer:
      return add(text, "peer", event.peer);
    case EventKind::control:
      add(text, "peer", event.peer);
      return add(text, "bytes", event.bytes);
    case EventKind::loss:
      add(text, "reason", name_of(static_cast<LossReason>(event.from)));
      [[fallthrough]];
    default:
      add_message(text, event);
      add(text, "bytes", event.bytes);
      add(text, "packets", event.packets);
  }
}

// The fields of an event besides its name, its time and its QP.
void add_members(std::string& text, const QpEvent& event) {
  switch (event.kind) {
    case QpEventKind::state:
      add(text, "from", name_of(static_cast<QpState>(event.from)));
      return add(text, "to", name_of(static_cast<QpState>(event.code)));
    case QpEventKind::post_send:
      add(text, "wr_id", event.wr_id);
      add(text, "opcode", name_of(static_cast<WrOpcode>(event.code)));
      return add(text, "bytes", event.bytes);
    case QpEventKind::post_recv:
      add(text, "wr_id", event.wr_id);
      return add(text, "bytes", event.bytes);
    case QpEventKind::sent:
      add(text, "wr_id", event.wr_id);
      add_psns(text, event);
      return add(text, "bytes", event.bytes);
    case QpEventKind::retransmit:
      add(text, "reason", name_of(static_cast<RetransmitReason>(event.code)));
      return add_psns(text, event);
    case QpEventKind::response_sent:
      return add_psns(text, event);
    case QpEventKind::timeout:
    case QpEventKind::ack_received:
    case QpEventKind::ack_sent:
      return add(text, "psn", event.psn);
    case QpEventKind::nak_received:
    case QpEventKind::nak_sent:
      add(text, "psn", event.psn);
      return add(text, "nak", nak_name(event.code));
    case QpEventKind::rnr_received:
    case QpEventKind::rnr_sent:
      return add_rnr_timer(text, event);
    case QpEventKind::out_of_sequence:
    case QpEventKind::duplicate:
      add(text, "psn", event.psn);
      return add(text, "expected_psn", event.last_psn);
    case QpEventKind::dropped:
      add(text, "psn", event.psn);
      return add(text, "reason", kCounterNames[event.code]);
    case QpEventKind::completion:
      return add_completion(text, event);
    case QpEventKind::message:
      return add_message_event(text, event);
    case QpEventKind::message_retransmit:
      add(text, "reason", name_of(static_cast<RetransmitReason>(event.code)));
      add_message(text, event);
      add(text, "packets", event.packets);
      add(text, "index", event.psn);
      return add(text, "last_index", event.last_psn);
    case QpEventKind::message_parity:
      add(text, "reason", name_of(static_cast<ParityReason>(event.code)));
      add_message(text, event);
      add(text, "packets", event.packets);
      add(text, "index", event.psn);
      add(text, "last_index", event.last_psn);
      return add(text, "loss_ppm", event.loss_ppm);
    case QpEventKind::message_restored:
      add_message(text, event);
      return add(text, "index", event.psn);
    case QpEventKind::control_sent:
      add(text, "peer", event.peer);
      return add(text, "bytes", event.bytes);
    case QpEventKind::message_nack_sent:
    case QpEventKind::message_nack_received:
      return;  // `note` refuses them
  }
}

std::int64_t wall_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

EventLog::EventLog(const EventLogConfig& config)
    : config_(config), ring_(kRingEntries), latest_ns_(config.now_ns) {
  fd_ = open(config.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + config.path);
  text_.reserve(2 * kTextBytes);
  begin_line(latest_ns_, "log_opened");
  add(text_, "schema_version", std::uint64_t{1});
  add(text_, "wall_ns", static_cast<std::uint64_t>(wall_ns()));
  add(text_, "pid", static_cast<std::uint64_t>(getpid()));
  text_.append("}\n");
  flush();
  thread_ = std::thread(&EventLog::run, this);
}

EventLog::~EventLog() {
  close();
  ::close(fd_);
}

void EventLog::note(const QpEvent& event) {
  // Control messages are in the log already, and its lines are no packets of a message.
  if (event.kind == QpEventKind::message_nack_sent ||
      event.kind == QpEventKind::message_nack_received)
    return;
  QpEvent record = event;
  if (!ring_.push(record)) lost_.fetch_add(1, std::memory_order_relaxed);
}

void EventLog::close() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  thread_.join();
}

// ---------------------------------------------------------------- the writer's thread

void EventLog::run() {
  prctl(PR_SET_NAME, "event log");
  while (!stopping_) {
    drain();
    nanosleep(&kNap, nullptr);
  }
  drain();
  begin_line(latest_ns_, "log_closed");
  add(text_, "records", written());
  add(text_, "lost", lost());
  text_.append("}\n");
  flush();
}

void EventLog::drain() {
  for (QpEvent event; ring_.pop(event);) {
    latest_ns_ = config_.epoch_ns + event.at / kNanosecond;
    begin_line(latest_ns_, name_of(event));
    add(text_, "qp", event.qp);
    add_members(text_, event);
    text_.append("}\n");
    ++in_text_;
    if (text_.size() >= kTextBytes) flush();
  }
  say_lost();
  flush();
}

void EventLog::say_lost() {
  const std::uint64_t lost_now = lost();
  if (lost_now == reported_lost_ || error() != 0) return;
  begin_line(latest_ns_, "lost");
  add(text_, "records", lost_now - reported_lost_);
  text_.append("}\n");
  reported_lost_ = lost_now;
}

void EventLog::begin_line(std::int64_t at_ns, const char* event) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, at_ns).ptr;
  text_.append("{\"time_ns\":").append(digits, end).push_back(',');
  text_.append(config_.head).append("\"event\":\"").append(event).push_back('"');
}

// Whole lines, in one write, so that those of several processes do not mix. After an error, or
// beyond the file's bound, records are lost, and counted.
void EventLog::flush() {
  if (text_.empty()) return;
  if (error() == 0 && bytes_ + text_.size() > config_.most_bytes)
    error_.store(EFBIG, std::memory_order_relaxed);
  bool fine = error() == 0;
  if (fine) {
    const ssize_t wrote = write(fd_, text_.data(), text_.size());
    fine = wrote == static_cast<ssize_t>(text_.size());
    if (!fine) error_.store(wrote < 0 ? errno : ENOSPC, std::memory_order_relaxed);
  }
  bytes_ += text_.size();
  (fine ? written_ : lost_).fetch_add(in_text_, std::memory_order_relaxed);
  in_text_ = 0;
  text_.clear();
}

}  // namespace softroce
