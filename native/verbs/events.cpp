// SPDX-License-Identifier: GPL-2.0-or-later
// Asynchronous events: from the RNIC to the contexts whose objects they concern, and events that go
// with their object.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "objects.hpp"

namespace softroce::verbs {
namespace {

void add(ibv_context* to, const ibv_async_event& event) {
  Context& context = of(to);
  const std::lock_guard lock(context.events_lock);
  context.events.push_back(event);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(to->async_fd, &one, sizeof one);
}

bool is_of_port(const ibv_async_event& event) {
  return event.event_type == IBV_EVENT_PORT_ACTIVE || event.event_type == IBV_EVENT_PORT_ERR;
}

bool concerns(const ibv_async_event& event, const void* object) {
  if (is_of_port(event)) return false;
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq == object;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq == object;
    default:
      return event.element.qp == object;
  }
}

void forget_events(ibv_context* base, const void* object) {
  Context& context = of(base);
  const std::lock_guard lock(context.events_lock);
  std::erase_if(context.events, [&](const auto& event) { return concerns(event, object); });
}

// The one of its queues that is in error.
ibv_cq* overrun(const Qp& qp) {
  return static_cast<Cq*>(qp.send_cq)->queue->overrun() ? qp.send_cq : qp.recv_cq;
}

void hand_out(Engine& engine, const AsyncEvent& event) {
  ibv_async_event made{};
  made.event_type = static_cast<ibv_event_type>(event.type);
  if (event.type == AsyncEventType::srq_limit_reached) {
    const auto found = engine.srqs.find(event.number);
    if (found == engine.srqs.end()) return;
    made.element.srq = found->second;
    return add(found->second->context, made);
  }
  const auto found = engine.qps.find(event.number);
  if (found == engine.qps.end()) return;
  Qp& qp = *found->second;
  if (event.type == AsyncEventType::cq_err)
    made.element.cq = overrun(qp);
  else
    made.element.qp = &qp;
  add(qp.context, made);
}

// Waits until those events of an object that the program took are acknowledged.
template <typename T>
void await_acknowledged(T* object) {
  pthread_mutex_lock(&object->mutex);
  while (object->events_completed != object->events_taken)
    pthread_cond_wait(&object->cond, &object->mutex);
  pthread_mutex_unlock(&object->mutex);
}

template <typename T>
void count_taken(T* object) {
  pthread_mutex_lock(&object->mutex);
  ++object->events_taken;
  pthread_mutex_unlock(&object->mutex);
}

template <typename T>
void acknowledge(T* object, std::uint32_t& completed) {
  pthread_mutex_lock(&object->mutex);
  ++completed;
  pthread_cond_signal(&object->cond);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace

void hand_out_async_events(Engine& engine) {
  if (!engine.rnic().has_async_events()) return;
  for (const AsyncEvent& event : engine.rnic().take_async_events()) hand_out(engine, event);
}

void hand_out_port_event(Engine& engine, bool up) {
  ibv_async_event made{};
  made.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  made.element.port_num = kPort;
  for (Context* context : engine.contexts)
    if (!context->home->backup) add(&context->context, made);
}

void hand_out_last_wqe(Qp& qp) {
  ibv_async_event made{};
  made.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
  made.element.qp = &qp;
  add(qp.context, made);
}

void forget(Qp* qp) {
  forget_events(qp->context, qp);
  await_acknowledged(qp);
}

void forget(Srq* srq) {
  forget_events(srq->context, srq);
  await_acknowledged(srq);
}

void forget_events_of(Cq* cq) {
  forget_events(cq->context, static_cast<ibv_cq*>(cq));
  if (cq->channel == nullptr) return;
  Channel& channel = *static_cast<Channel*>(cq->channel);
  const std::lock_guard lock(channel.lock);
  std::erase(channel.events, cq);
}

}  // namespace softroce::verbs

using namespace softroce::verbs;  // NOLINT: the C functions are outside of it

extern "C" {

int ibv_get_async_event(ibv_context* base, ibv_async_event* event) {
  Context& context = of(base);
  for (;;) {
    std::uint64_t count;
    if (read(base->async_fd, &count, sizeof count) < 0) return -1;
    const std::lock_guard lock(context.events_lock);
    if (context.events.empty()) continue;  // it went with its object
    *event = context.events.front();
    context.events.pop_front();
    if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
      count_taken(static_cast<Srq*>(event->element.srq));
    else if (event->event_type != IBV_EVENT_CQ_ERR && !is_of_port(*event))
      count_taken(static_cast<Qp*>(event->element.qp));
    return 0;
  }
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (is_of_port(*event)) return;
  if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
    acknowledge(event->element.srq, event->element.srq->events_completed);
  else if (event->event_type == IBV_EVENT_CQ_ERR)
    acknowledge(event->element.cq, event->element.cq->async_events_completed);
  else
    acknowledge(event->element.qp, event->element.qp->events_completed);
}

}  // extern "C"
