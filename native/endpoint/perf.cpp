// SPDX-License-Identifier: GPL-2.0-or-later
#include "perf.hpp"

#include <algorithm>
#include <utility>

namespace softroce {
namespace {

constexpr std::size_t kPolled = 64;  // completions a turn

SendRequest request_of(const PerfConfig& config) {
  SendRequest request;
  request.opcode = config.verb == PerfVerb::send ? WrOpcode::send : WrOpcode::rdma_write;
  request.sources = {{config.send_address, config.bytes, config.lkey}};
  request.remote_address = config.remote_address;
  request.rkey = config.rkey;
  return request;
}

}  // namespace

// ---------------------------------------------------------------- what both have in common

Perf::Perf(const PerfConfig& config, std::shared_ptr<CompletionQueue> queue)
    : config_(config), queue_(std::move(queue)), request_(request_of(config)) {
  config_.signal_every = std::clamp(config_.signal_every, 1U, std::max(config_.depth, 1U));
}

void Perf::prepare(Rnic& rnic, Time now) {
  for (std::uint32_t n = 0; n < config_.receives; ++n) post_receive(rnic, now);
}

void Perf::post_receive(Rnic& rnic, Time now) {
  ReceiveRequest request;
  if (config_.receive_bytes != 0)
    request.targets = {{config_.receive_address, config_.receive_bytes, config_.lkey}};
  const int error = rnic.post_receive(config_.qp, std::move(request), now);
  if (error != 0) refuse(error, now);
}

// The number of a request is the count of requests until then.
bool Perf::post(Rnic& rnic, bool signaled, Time now) {
  SendRequest request = request_;
  const std::uint64_t offset = posted_ % config_.slots * config_.bytes;
  request.sources[0].address += offset;
  request.remote_address += offset;
  request.wr_id = posted_ + 1;
  if (signaled) request.flags |= kSignaled;
  const int error = rnic.post_send(config_.qp, std::move(request), now);
  if (error != 0) {
    refuse(error, now);
    return false;
  }
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
  if (result_.end == PerfEnd::running && config_.posts) moved |= work(rnic, now);
  if (result_.end != PerfEnd::running) return true;
  if (moved) moved_at_ = now;
  const bool stopping = stopping_.load(std::memory_order_relaxed);
  if (config_.posts ? posts_ended() : stopping)
    finish(stopping ? PerfEnd::stopped : PerfEnd::done, now);
  else if ((config_.posts || config_.receives != 0) && now - moved_at_ > config_.patience)
    finish(PerfEnd::stalled, now);
  return moved;
}

// A send's completion covers all sends posted before it.
void Perf::take(Rnic& rnic, const WorkCompletion& completion, Time now) {
  if (completion.status != WcStatus::success) {
    result_.status = completion.status;
    return finish(PerfEnd::failed, now);
  }
  if (completion.opcode >= WcOpcode::recv) {
    ++received_;
    post_receive(rnic, now);
    return message_received(now);
  }
  completed_ = completion.wr_id;
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
    const std::uint64_t before = posted_;
    if (!closed_ && is_over(now)) {
      closed_ = true;
      // The completion of a last request covers unsignaled ones before it.
      if (posted_ % config_.signal_every != 0) post(rnic, true, now);
    }
    while (!closed_ && posted_ - completed_ < config_.depth)
      if (!post(rnic, (posted_ + 1) % config_.signal_every == 0, now)) break;
    return posted_ != before;
  }

  bool posts_ended() const override { return closed_ && completed_ == posted_; }

  bool closed_ = false;
};

// ---------------------------------------------------------------- ping-pongs

class PingPong final : public Perf {
 public:
  PingPong(const PerfConfig& config, std::shared_ptr<CompletionQueue> queue)
      : Perf(config, std::move(queue)) {
    result_.posted_ns.reserve(config.iterations);
  }

 private:
  bool work(Rnic& rnic, Time now) override {
    const bool mine = config_.begins ? posted_ == received_ : posted_ < received_;
    if (!mine || posted_ == config_.iterations) return false;
    const std::uint64_t number = posted_ + 1;
    result_.posted_ns.push_back(now / kNanosecond);
    post(rnic, number == config_.iterations || number % config_.signal_every == 0, now);
    return true;
  }

  void message_received(Time now) override { result_.ended_at = now; }

  bool posts_ended() const override {
    return posted_ == config_.iterations && received_ == posted_ && completed_ == posted_;
  }
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
