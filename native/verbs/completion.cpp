// SPDX-License-Identifier: GPL-2.0-or-later
// Completion channels and queues. To poll a queue turns the engine.
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

constexpr int kLeastCqe = 255;

// At least as many as asked for, as hardware has it: perftest's queues of one entry hold two for a
// moment, when a loss delays the first completion.
int granted(int cqe) { return static_cast<int>(std::bit_ceil(std::max(cqe, kLeastCqe) + 1U)) - 1; }

// RoCEv2 has no service level. The kind of a datagram's IP header, which a completion must tell
// (IBA A17.4.5.1) and ibv_wc has no place for, is here, as NVIDIA's adapters report it: 1, IPv6, or
// 2, IPv4; and 8, behind it is UDP. UCX reads it, and drops each datagram over IPv4 without it.
std::uint8_t service_level(const WorkCompletion& from) {
  if (!(from.flags & kWithGrh)) return 0;
  return from.over_ipv4 ? 8 | 2 : 8 | 1;
}

void put(const WorkCompletion& from, ibv_wc& to) {
  to.wr_id = from.wr_id;
  to.status = static_cast<ibv_wc_status>(from.status);
  to.opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to.vendor_err = 0;
  to.byte_len = from.byte_len;
  if (from.flags & kWithInvalidate)
    to.invalidated_rkey = from.immediate;
  else
    to.imm_data = __builtin_bswap32(from.immediate);
  to.qp_num = from.qp_num;
  to.src_qp = from.src_qp;
  to.wc_flags = from.flags;
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = service_level(from);
  to.dlid_path_bits = 0;
}

void ring(Channel& channel, Cq& cq) {
  const std::lock_guard lock(channel.lock);
  channel.events.push_back(&cq);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(channel.fd, &one, sizeof one);
}

// Who finds no event is about to sleep: what it posted leaves first.
void await_passively(Channel& channel) {
  {
    const std::lock_guard lock(channel.lock);
    if (!channel.events.empty()) return;
  }
  Engine& engine = engine_of(channel.context);
  const auto held = engine.hold();
  engine.turn();
  engine.sleeps();
}

// Of an empty queue, the engine is asked.
std::size_t take_own(Cq& cq, std::size_t most, ibv_wc* wc) {
  Engine& engine = engine_of(cq.context);
  const auto drain = [&] {
    return cq.queue->drain(most, [&](const WorkCompletion& each) { put(each, *wc++); });
  };
  const auto held = engine.hold();
  if (engine.orphan()) return 0;  // what completed before fork(2) is the parent's
  const std::size_t ready = drain();
  if (ready != 0) {
    engine.polled();
    return ready;
  }
  return engine.poll() ? drain() : 0;
}

void poll_engine(Engine& engine) {
  const auto held = engine.hold();
  engine.poll();
}

// While a queue pair moves, or is at its backup.
std::size_t take_from_both(Cq& cq, std::size_t most, ibv_wc* wc) {
  Engine& engine = engine_of(cq.context);
  if (engine.orphan()) return 0;
  poll_engine(engine);
  poll_engine(*shadow_of(cq.context));
  const auto polled = cq.both->completions.poll_both(most);
  for (const WorkCompletion& each : polled) put(each, *wc++);
  return polled.size();
}

std::size_t take(Cq& cq, std::size_t most, ibv_wc* wc) {
  if (shift::Completions* both = cq.at_both.load(std::memory_order_acquire)) {
    const shift::Completions::PlainPoll plain(*both);
    if (plain) return take_own(cq, most, wc);
  } else {
    return take_own(cq, most, wc);
  }
  return take_from_both(cq, most, wc);
}

}  // namespace

std::function<void()> ring_of(Cq& cq) {
  if (cq.channel == nullptr) return {};
  return [to = static_cast<Channel*>(cq.channel), raw = &cq] { ring(*to, *raw); };
}

int create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
              int vector, Cq*& created) {
  if (cqe <= 0 || cqe > kMostCqe || vector < 0 || vector >= context->num_comp_vectors)
    return EINVAL;
  auto cq = std::make_unique<Cq>();
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->cqe = granted(cqe);
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  const auto held = engine_of(context).hold();
  cq->queue = engine_of(context).rnic().create_cq(static_cast<std::size_t>(cq->cqe));
  if (channel != nullptr) {
    cq->queue->on_event(ring_of(*cq));
    ++channel->refcnt;
  }
  created = cq.release();
  return 0;
}

// Its peer may need this very processor. Who lets it run looks once more: a program that polls and
// then reads the events of its connections must not see the end of one before its last message.
int poll_cq(ibv_cq* base, int most, ibv_wc* wc) {
  if (most <= 0) return 0;
  Cq& cq = *static_cast<Cq*>(base);
  std::size_t polled = take(cq, static_cast<std::size_t>(most), wc);
  if (polled == 0 && cq.waits_long()) {
    sched_yield();
    polled = take(cq, static_cast<std::size_t>(most), wc);
  }
  if (polled != 0) cq.empty_polls.store(0, std::memory_order_relaxed);
  return static_cast<int>(polled);
}

// Who asks to be woken is about to sleep: what is due leaves first, and the helper looks after it.
int req_notify_cq(ibv_cq* base, int solicited_only) {
  Cq& cq = *static_cast<Cq*>(base);
  Engine& engine = engine_of(base->context);
  shift::Completions* both = engine.orphan() ? nullptr : cq.at_both.load(std::memory_order_acquire);
  if (both != nullptr) both->arm(solicited_only != 0);
  const auto held = engine.hold();
  if (both == nullptr) cq.queue->arm(solicited_only != 0);
  engine.turn();
  engine.sleeps();
  return 0;
}

int modify_cq(ibv_cq* base, ibv_modify_cq_attr* attr) {
  if (attr->attr_mask != IBV_CQ_ATTR_MODERATE) return EINVAL;
  return guarded([&] {
    Engine& engine = engine_of(base->context);
    const auto held = engine.hold();
    engine.rnic().moderate_cq(static_cast<Cq*>(base)->queue, attr->moderate.cq_count,
                              attr->moderate.cq_period * kMicrosecond);
    return 0;
  });
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

// Counts as a semaphore: readable as long as events wait. Programs set O_NONBLOCK themselves.
ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return made<Channel>([&](Channel*& channel) {
    auto fresh = std::make_unique<Channel>();
    fresh->context = context;
    fresh->refcnt = 0;
    fresh->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (fresh->fd < 0) return errno;
    channel = fresh.release();
    return 0;
  });
}

int ibv_destroy_comp_channel(ibv_comp_channel* base) {
  const auto held = engine_of(base->context).hold();
  if (base->refcnt != 0) return EBUSY;
  ::close(base->fd);
  delete static_cast<Channel*>(base);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  return made<Cq>(
      [&](Cq*& cq) { return create_cq(context, cqe, cq_context, channel, vector, cq); });
}

// Refused by what is asked for, although more is granted.
int ibv_resize_cq(ibv_cq* base, int cqe) {
  if (cqe <= 0 || cqe > kMostCqe) return EINVAL;
  const auto held = engine_of(base->context).hold();
  auto& queue = *static_cast<Cq*>(base)->queue;
  const int entries = granted(cqe);
  if (queue.size() > static_cast<std::size_t>(cqe) ||
      !queue.resize(static_cast<std::size_t>(entries)))
    return EINVAL;
  base->cqe = entries;
  return 0;
}

// As rdma-core's: waits until all events of it that the program took are acknowledged.
int ibv_destroy_cq(ibv_cq* base) {
  Cq* cq = static_cast<Cq*>(base);
  {
    const auto held = engine_of(cq->context).hold();
    if (cq->users != 0) return EBUSY;
    cq->queue->on_event({});
    cq->both.reset();
    forget_events_of(cq);
    if (cq->channel != nullptr) --cq->channel->refcnt;
  }
  pthread_mutex_lock(&cq->mutex);
  while (cq->comp_events_completed != cq->events_taken) pthread_cond_wait(&cq->cond, &cq->mutex);
  pthread_mutex_unlock(&cq->mutex);
  if (cq->parent_domain != nullptr) --cq->parent_domain->users;
  pthread_cond_destroy(&cq->cond);
  pthread_mutex_destroy(&cq->mutex);
  delete cq;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** cq, void** cq_context) {
  Channel& channel = *static_cast<Channel*>(base);
  await_passively(channel);
  for (;;) {
    std::uint64_t count;
    if (read(channel.fd, &count, sizeof count) < 0) return -1;
    const std::lock_guard lock(channel.lock);
    if (channel.events.empty()) continue;  // it went with its queue
    Cq* from = channel.events.front();
    channel.events.pop_front();
    pthread_mutex_lock(&from->mutex);
    ++from->events_taken;
    pthread_mutex_unlock(&from->mutex);
    *cq = from;
    *cq_context = from->cq_context;
    return 0;
  }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // extern "C"
