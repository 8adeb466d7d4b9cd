// SPDX-License-Identifier: GPL-2.0-or-later
#include "perf.hpp"

#include <algorithm>
#include <utility>

namespace softroce {
namespace {

constexpr std::size_t kPolled = 64;  // completions a turn
constexpr unsigned kIndexShift = 48;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kIndexShift) - 1;
constexpr std::uint32_t kAtomicBytes = 8;

WrOpcode opcode_of(PerfVerb verb) {
  switch (verb) {
    case PerfVerb::send:
      return WrOpcode::send;
    case PerfVerb::write:
      return WrOpcode::rdma_write;
    case PerfVerb::read:
      return WrOpcode::rdma_read;
    case PerfVerb::atomic:
      return WrOpcode::fetch_add;
  }
  return WrOpcode::send;
}

SendRequest request_of(const PerfConfig& config, const PerfQp& qp) {
  SendRequest request;
  request.opcode = opcode_of(config.verb);
  request.sources = {{config.send_address, config.bytes, config.lkey}};
  request.remote_address = qp.remote_address;
  request.rkey = qp.rkey;
  request.compare_add = config.verb == PerfVerb::atomic;
  request.address = qp.address;
  request.remote_qp = qp.remote_qp;
  request.remote_qkey = qp.remote_qkey;
  return request;
}

}  // namespace

// ---------------------------------------------------------------- what both have in common

Perf::Perf(const PerfConfig& config, std::shared_ptr<CompletionQueue> queue)
    : config_(config), progress_(config.qps.size()), queue_(std::move(queue)) {
  if (config_.verb == PerfVerb::atomic) config_.bytes = kAtomicBytes;
  config_.signal_every = std::clamp(config_.signal_every, 1U, std::max(config_.depth, 1U));
  for (const PerfQp& qp : config_.qps) requests_.push_back(request_of(config_, qp));
  if (!config_.posts) return;
  result_.posted_ns.reserve(config_.iterations * qps());
  result_.completed_ns.reserve(config_.iterations * qps());
}

void Perf::prepare(Rnic& rnic, Time now) {
  for (std::size_t index = 0; index < qps(); ++index)
    for (std::uint32_t n = 0; n < config_.receives; ++n) post_receive(rnic, index, now);
}

void Perf::post_receive(Rnic& rnic, std::size_t index, Time now) {
  ReceiveRequest request{.wr_id = index};
  if (config_.receive_bytes != 0)
    request.targets = {{config_.receive_address, config_.receive_bytes, config_.lkey}};
  const int error = rnic.post_receive(config_.qps[index].number, std::move(request), now);
  if (error != 0) refuse(error, now);
}

bool Perf::post(Rnic& rnic, std::size_t index, bool signaled, Time now) {
  Progress& progress = progress_[index];
  SendRequest request = requests_[index];
  const std::uint64_t offset = posted_ % config_.slots * config_.bytes;
  request.sources[0].address += offset;
  request.remote_address += offset;
  request.wr_id = index << kIndexShift | (progress.posted + 1);
  if (signaled) request.flags |= kSignaled;
  if (config_.iterations != 0) result_.posted_ns.push_back(now / kNanosecond);
  const int error = rnic.post_send(config_.qps[index].number, std::move(request), now);
  if (error != 0) {
    refuse(error, now);
    return false;
  }
  ++progress.posted;
  ++posted_;
  return true;
}

bool Perf::turn(Rnic& rnic, Time now) {
  if (result_.end != PerfEnd::running) return false;
  if (began_ < 0) began_ = moved_at_ = result_.began_at = now;
  bool moved = false;
  for (const WorkCompletion& completion : queue_->poll(kPolled)) {
    if (result_.end != PerfEnd::running) return true;
    take(rnic, completion, now);
    moved = true;
  }
  if (result_.end == PerfEnd::running) moved |= work(rnic, now);
  if (result_.end != PerfEnd::running) return true;
  if (moved) moved_at_ = now;
  const bool stopping = is_stopping();
  const bool ended = posts_ended();
  if (ended) tell_posts_ended();
  if (ended && (stopping || received_ >= config_.expected))
    finish(stopping ? PerfEnd::stopped : PerfEnd::done, now);
  else if ((config_.posts || config_.receives != 0) && now - moved_at_ > config_.patience)
    finish(PerfEnd::stalled, now);
  return moved;
}

// A send's completion covers all sends posted before it: its number is their count.
void Perf::take(Rnic& rnic, const WorkCompletion& completion, Time now) {
  if (completion.status != WcStatus::success) {
    result_.status = completion.status;
    return finish(PerfEnd::failed, now);
  }
  if (completion.opcode >= WcOpcode::recv) {
    if (received_++ == 0) result_.received_first_at = now;
    result_.received_last_at = now;
    post_receive(rnic, completion.wr_id, now);
    return message_received(now);
  }
  Progress& progress = progress_[completion.wr_id >> kIndexShift];
  const std::uint64_t count = completion.wr_id & kCountMask;
  if (config_.iterations != 0)
    result_.completed_ns.insert(result_.completed_ns.end(), count - progress.completed,
                                now / kNanosecond);
  completed_ += count - progress.completed;
  progress.completed = count;
  result_.ended_at = now;
}

void Perf::refuse(int error, Time now) {
  result_.error = error;
  finish(PerfEnd::refused, now);
}

void Perf::finish(PerfEnd end, Time now) {
  if (result_.end != PerfEnd::running) return;
  result_.end = end;
  if (result_.ended_at == 0) result_.ended_at = now;
  result_.posted = posted_;
  result_.completed = completed_;
  result_.received = received_;
  const std::lock_guard lock(mutex_);
  published_ = std::move(result_);
  result_.end = end;
  news_.notify_all();
}

bool Perf::wait(std::chrono::nanoseconds longest) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, longest, [this] { return published_.end != PerfEnd::running; });
}

bool Perf::wait_posts(std::chrono::nanoseconds longest) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, longest,
                        [this] { return posts_published_ || published_.end != PerfEnd::running; });
}

void Perf::tell_posts_ended() {
  if (posts_published_) return;  // written here alone
  const std::lock_guard lock(mutex_);
  posts_published_ = true;
  news_.notify_all();
}

PerfResult Perf::result() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

// ---------------------------------------------------------------- streams

namespace {

class Stream final : public Perf {
 public:
  using Perf::Perf;

 private:
  bool work(Rnic& rnic, Time now) override {
    if (!config_.posts) return false;
    const std::uint64_t before = posted_;
    if (!closed_ && is_over(now)) close(rnic, now);
    while (!closed_ && post_round(rnic, now)) continue;
    return posted_ != before;
  }

  // One request at each QP that has room.
  bool post_round(Rnic& rnic, Time now) {
    bool any = false;
    for (std::size_t index = 0; index < qps(); ++index) {
      const Progress& progress = progress_[index];
      const std::uint64_t number = progress.posted + 1;
      if (number - progress.completed > config_.depth) continue;
      if (config_.iterations != 0 && number > config_.iterations) continue;
      const bool signaled = number % config_.signal_every == 0 || number == config_.iterations;
      if (!post(rnic, index, signaled, now)) return false;
      any = true;
    }
    return any;
  }

  // Time is up: the completion of a last request covers unsignaled ones before it.
  void close(Rnic& rnic, Time now) {
    closed_ = true;
    for (std::size_t index = 0; index < qps(); ++index)
      if (progress_[index].posted % config_.signal_every != 0) post(rnic, index, true, now);
  }

  bool posts_ended() const override {
    if (!config_.posts) return true;
    const bool all = config_.iterations != 0 ? posted_ == config_.iterations * qps() : closed_;
    return all && completed_ == posted_;
  }

  bool closed_ = false;
};

// ---------------------------------------------------------------- ping-pongs

class PingPong final : public Perf {
 public:
  using Perf::Perf;

 private:
  bool work(Rnic& rnic, Time now) override {
    const std::uint64_t before = answers_;
    if (!config_.posts) return false;
    note_answer(now);
    const bool mine = config_.begins ? posted_ == answers_ : posted_ < answers_;
    if (config_.begins && mine && is_over(now)) closed_ = true;
    if (!mine || closed_ || is_last()) return answers_ != before;
    const std::uint64_t number = posted_ + 1;
    if (config_.verb == PerfVerb::write) mark(number);
    post(rnic, 0, number == config_.iterations || number % config_.signal_every == 0, now);
    return true;
  }

  bool is_last() const { return config_.iterations != 0 && posted_ == config_.iterations; }

  // A WRITE completes only at its sender: its last byte is the number of the round (perftest,
  // write_lat.c).
  void note_answer(Time now) {
    if (config_.verb == PerfVerb::read || config_.verb == PerfVerb::atomic) answers_ = completed_;
    if (config_.verb == PerfVerb::write &&
        last_byte(config_.receive_address).load() == static_cast<std::uint8_t>(answers_ + 1))
      message_received(now);
  }
  void message_received(Time now) override {
    ++answers_;
    result_.ended_at = now;
  }
  void mark(std::uint64_t round) const {
    last_byte(config_.send_address).store(static_cast<std::uint8_t>(round));
  }
  std::atomic_ref<std::uint8_t> last_byte(std::uint64_t address) const {
    return std::atomic_ref(*reinterpret_cast<std::uint8_t*>(address + config_.bytes - 1));
  }

  bool posts_ended() const override {
    if (!config_.posts) return true;
    if (config_.iterations == 0) return config_.begins ? closed_ : is_stopping();
    return posted_ == config_.iterations && answers_ == posted_ && completed_ == posted_;
  }

  std::uint64_t answers_ = 0;
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<Perf> make_perf_stream(const PerfConfig& config,
                                       std::shared_ptr<CompletionQueue> queue) {
  return std::make_shared<Stream>(config, std::move(queue));
}

std::shared_ptr<Perf> make_perf_ping_pong(const PerfConfig& config,
                                          std::shared_ptr<CompletionQueue> queue) {
  return std::make_shared<PingPong>(config, std::move(queue));
}

}  // namespace softroce
