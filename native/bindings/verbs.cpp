// SPDX-License-Identifier: GPL-2.0-or-later
// Verbs of an endpoint: completion queues, queue pairs, shared receive queues, asynchronous events.
// Calls return errno values, as the verbs of the C library do; each is one turn of the engine,
// however many work requests it posts.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <tuple>

#include "../endpoint/completion_channel.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

using nb::literals::operator""_a;
using Capacities = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                              std::uint32_t>;  // in the order of struct ibv_qp_cap

Capacities tuple_of(const QpCapacities& cap) {
  return {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge,
          cap.max_inline_data};
}

// ---------------------------------------------------------------- memory

// Copies memory of this process that need not be there: false, where a plain copy would crash.
bool read_memory(std::uint64_t address, std::size_t bytes, std::uint8_t* to) {
  if (bytes == 0) return true;
  const iovec target{to, bytes};
  const iovec source{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == static_cast<ssize_t>(bytes);
}

nb::bytes read_bytes(std::uint64_t address, std::size_t bytes) {
  std::vector<std::uint8_t> copy(bytes);
  if (!read_memory(address, bytes, copy.data()))
    throw std::system_error(EFAULT, std::generic_category(), "read memory");
  return nb::bytes(copy.data(), copy.size());
}

// The message of an inline request, taken when it is posted: its memory needs no region.
int take_inline(SendRequest& request, std::uint64_t most) {
  const std::uint64_t bytes = request.bytes();
  if (bytes > most) return EINVAL;
  request.inline_bytes.resize(bytes);
  std::uint8_t* to = request.inline_bytes.data();
  for (auto& source : request.sources) {
    if (!read_memory(source.address, source.length, to)) return EFAULT;
    to += source.length;
    source.length = 0;  // the number of elements is still checked
  }
  return 0;
}

// ---------------------------------------------------------------- completion queues

std::shared_ptr<CompletionQueue> create_cq(Endpoint& endpoint, std::size_t capacity) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time) { return rnic.create_cq(capacity); });
}

void moderate_cq(Endpoint& endpoint, CompletionQueue& queue, std::uint32_t count,
                 std::int64_t period_ns) {
  call_in_engine(endpoint, [cq = queue.shared_from_this(), count, period_ns](Rnic& rnic, Time) {
    rnic.moderate_cq(cq, count, from_ns(period_ns));
    return 0;
  });
}

void bind_completion_queue(EndpointClass& cls) {
  nb::class_<CompletionChannel>(cls, "CompletionChannel", "Where queues tell of completions.")
      .def_static("create", [] { return std::make_shared<CompletionChannel>(); })
      .def_prop_ro("fd", &CompletionChannel::fd, "readable: events wait")
      .def("take", &CompletionChannel::take, "cookie of the queue that rang first; None: none did")
      .def("ring", &CompletionChannel::ring, "cookie"_a)
      .def("forget", &CompletionChannel::forget, "cookie"_a);
  nb::class_<CompletionQueue>(cls, "CompletionQueue")
      .def(
          "poll_completions", [](CompletionQueue& cq, std::size_t most) { return cq.poll(most); },
          "most"_a = 64)
      .def("__len__", &CompletionQueue::size)
      .def_prop_ro("overrun", &CompletionQueue::overrun)
      .def("arm", &CompletionQueue::arm, "solicited_only"_a)
      .def("resize", &CompletionQueue::resize, "capacity"_a)
      .def(
          "ring",
          [](CompletionQueue& cq, CompletionChannel& channel, std::uint64_t cookie) {
            cq.on_event([to = channel.shared_from_this(), cookie] { to->ring(cookie); });
          },
          "channel"_a, "cookie"_a, "ring this channel, when the queue is armed")
      .def("ring_nobody", [](CompletionQueue& cq) { cq.on_event({}); });
  cls.def("create_cq", &create_cq, "capacity"_a = CompletionQueue::kUnbounded,
          nb::keep_alive<0, 1>())
      .def("moderate_cq", &moderate_cq, "cq"_a, "count"_a, "period_ns"_a);
}

// ---------------------------------------------------------------- queue pairs

std::tuple<int, std::uint32_t, Capacities> create_qp(
    Endpoint& endpoint, int type, CompletionQueue& send_cq, CompletionQueue& receive_cq,
    std::uint32_t srq, const Capacities& cap, std::uint32_t protection_domain, bool signal_all) {
  if (type < static_cast<int>(QpType::rc) || type > static_cast<int>(QpType::ud))
    return {EOPNOTSUPP, 0, cap};
  const auto [send_wr, recv_wr, send_sge, recv_sge, inline_data] = cap;
  const QpConfig config{static_cast<QpType>(type),
                        protection_domain,
                        {send_wr, recv_wr, send_sge, recv_sge, inline_data},
                        send_cq.shared_from_this(),
                        receive_cq.shared_from_this(),
                        nullptr,
                        signal_all};
  return call_in_engine(endpoint, [config, srq](Rnic& rnic, Time) {
    QpConfig full = config;
    std::uint32_t number = 0;
    if (srq != 0) full.srq = rnic.find_srq(srq);
    const int error = srq != 0 && !full.srq ? EINVAL : rnic.create_qp(full, number);
    return std::tuple{error, number, tuple_of(full.cap)};
  });
}

int modify_qp(Endpoint& endpoint, std::uint32_t qp, const QpAttr& attr, std::uint32_t mask) {
  if (attr.state > QpState::err || attr.current_state > QpState::err) return EINVAL;
  return call_in_engine(endpoint,
                        [=](Rnic& rnic, Time now) { return rnic.modify_qp(qp, attr, mask, now); });
}

// To INIT, RTR and RTS, from where the QP is now, as far as there are masks. Returns (0, number of
// masks), or the errno value and the index of the step that was refused.
std::pair<int, std::size_t> bring_qp(Endpoint& endpoint, std::uint32_t number, const QpAttr& attr,
                                     std::vector<std::uint32_t> masks) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time now) {
    const QueuePair* qp = rnic.find_qp(number);
    if (qp == nullptr) return std::pair{EINVAL, std::size_t{0}};
    std::size_t step = 0;
    if (masks.size() > 1 && qp->state() == QpState::init) step = 1;
    if (masks.size() > 2 && qp->state() == QpState::rtr) step = 2;
    QpAttr next = attr;
    for (; step < masks.size(); ++step) {
      next.state = static_cast<QpState>(step + 1);
      const int error = rnic.modify_qp(number, next, masks[step], now);
      if (error != 0) return std::pair{error, step};
    }
    return std::pair{0, step};
  });
}

using QpQuery = std::tuple<QpAttr, Capacities, bool>;  // the last: draining, in SQD

std::optional<QpQuery> query_qp(Endpoint& endpoint, std::uint32_t number) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time) -> std::optional<QpQuery> {
    const QueuePair* qp = rnic.find_qp(number);
    if (qp == nullptr) return std::nullopt;
    QpAttr attr = qp->attributes();
    attr.state = attr.current_state = qp->state();
    return QpQuery{attr, tuple_of(qp->config().cap),
                   qp->state() == QpState::sqd && qp->is_draining()};
  });
}

int destroy_qp(Endpoint& endpoint, std::uint32_t qp) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time) { return rnic.destroy_qp(qp); });
}

template <typename Request, typename Post>
Posted post_all(Endpoint& endpoint, std::vector<Request>&& requests, Post post) {
  const auto chain = std::make_shared<std::vector<Request>>(std::move(requests));
  return call_in_engine(endpoint, [chain, post](Rnic& rnic, Time now) {
    std::size_t index = 0;
    int error = 0;
    for (; index < chain->size(); ++index)
      if ((error = post(rnic, std::move((*chain)[index]), now)) != 0) break;
    return Posted{error, index};
  });
}

void bind_queue_pairs(EndpointClass& cls) {
  cls.def("create_qp", &create_qp, "type"_a, "send_cq"_a, "receive_cq"_a, "srq"_a, "cap"_a,
          "protection_domain"_a, "signal_all"_a, "(errno, number, capacities); srq 0: none")
      .def("modify_qp", &modify_qp, "qp"_a, "attr"_a, "mask"_a)
      .def("bring_qp", &bring_qp, "qp"_a, "attr"_a, "masks"_a, "(errno, step that was refused)")
      .def("query_qp", &query_qp, "qp"_a, "(attributes, capacities, draining); None: no such QP")
      .def("destroy_qp", &destroy_qp, "qp"_a)
      .def("post_sends", &post_sends, "qp"_a, "requests"_a, "(errno, index of the one refused)")
      .def("post_receives", &post_receives, "qp"_a, "requests"_a,
           "(errno, index of the one refused)");
}

// ---------------------------------------------------------------- shared receive queues

std::pair<int, std::uint32_t> create_srq(Endpoint& endpoint, std::uint32_t protection_domain,
                                         std::uint32_t max_wr, std::uint32_t max_sge) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time) {
    std::uint32_t number = 0;
    const int error = rnic.create_srq(protection_domain, max_wr, max_sge, number);
    return std::pair{error, number};
  });
}

int modify_srq(Endpoint& endpoint, std::uint32_t srq, std::optional<std::uint32_t> max_wr,
               std::optional<std::uint32_t> limit) {
  return call_in_engine(endpoint,
                        [=](Rnic& rnic, Time) { return rnic.modify_srq(srq, max_wr, limit); });
}

using SrqQuery = std::pair<std::uint32_t, std::uint32_t>;  // max_wr, limit

std::optional<SrqQuery> query_srq(Endpoint& endpoint, std::uint32_t number) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time) -> std::optional<SrqQuery> {
    const auto srq = rnic.find_srq(number);
    if (!srq) return std::nullopt;
    return SrqQuery{srq->queue.max_requests(), srq->limit};
  });
}

Posted post_srq_receive(Endpoint& endpoint, std::uint32_t srq,
                        std::vector<ReceiveRequest> requests) {
  return post_all(endpoint, std::move(requests), [srq](Rnic& rnic, ReceiveRequest&& request, Time) {
    return rnic.post_srq_receive(srq, std::move(request));
  });
}

void bind_shared_receive_queues(EndpointClass& cls) {
  cls.def("create_srq", &create_srq, "protection_domain"_a, "max_wr"_a, "max_sge"_a,
          "(errno, number)")
      .def("modify_srq", &modify_srq, "srq"_a, "max_wr"_a.none(), "limit"_a.none())
      .def("query_srq", &query_srq, "srq"_a, "(max_wr, limit); None: no such queue")
      .def("destroy_srq",
           [](Endpoint& endpoint, std::uint32_t srq) {
             return call_in_engine(endpoint,
                                   [=](Rnic& rnic, Time) { return rnic.destroy_srq(srq); });
           })
      .def("post_srq_receives", &post_srq_receive, "srq"_a, "requests"_a,
           "(errno, index of the one refused)");
}

// ---------------------------------------------------------------- the device

std::vector<std::pair<int, std::uint32_t>> take_async_events(Endpoint& endpoint) {
  return call_in_engine(endpoint, [](Rnic& rnic, Time) {
    std::vector<std::pair<int, std::uint32_t>> events;
    for (const AsyncEvent& event : rnic.take_async_events())
      events.emplace_back(static_cast<int>(event.type), event.number);
    return events;
  });
}

nb::dict limits(Endpoint& endpoint) {
  const RnicLimits& most = endpoint.rnic().limits();
  nb::dict d;
  d["max_qp"] = most.max_qp;
  d["max_qp_wr"] = most.max_qp_wr;
  d["max_sge"] = most.max_sge;
  d["max_inline_data"] = most.max_inline_data;
  d["max_srq_wr"] = most.max_srq_wr;
  d["max_srq"] = most.max_srq;
  return d;
}

void bind_device(EndpointClass& cls) {
  cls.def("gids",
          [](Endpoint& endpoint) {
            return call_in_engine(endpoint, [](Rnic& rnic, Time) { return rnic.gids(); });
          })
      .def(
          "add_gid",
          [](Endpoint& endpoint, Gid gid) {
            return call_in_engine(endpoint, [=](Rnic& rnic, Time) { return rnic.add_gid(gid); });
          },
          "gid"_a, "index in the port's table")
      .def_prop_ro("path_mtu", [](Endpoint& endpoint) { return endpoint.rnic().path_mtu(); })
      .def("limits", &limits, "what the RNIC offers at most, by the names of ibv_device_attr")
      .def("take_async_events", &take_async_events, "[(type, number)], oldest first");
}

}  // namespace

Posted take_inline(Endpoint& endpoint, std::vector<SendRequest>& requests) {
  const std::uint64_t most = endpoint.rnic().limits().max_inline_data;
  const bool carries = endpoint.rnic().messages().config().carries_payload;
  Posted taken{0, requests.size()};
  for (std::size_t i = 0; i < requests.size() && taken.first == 0; ++i) {
    if (!(requests[i].flags & kInline) || !carries) continue;
    if (const int error = take_inline(requests[i], most)) taken = {error, i};
  }
  requests.resize(taken.second);
  return taken;
}

Posted post_sends(Endpoint& endpoint, std::uint32_t qp, std::vector<SendRequest> requests) {
  const Posted taken = take_inline(endpoint, requests);
  const Posted posted =
      post_all(endpoint, std::move(requests), [qp](Rnic& rnic, SendRequest&& request, Time now) {
        return rnic.post_send(qp, std::move(request), now);
      });
  return posted.first != 0 ? posted : taken;
}

Posted post_receives(Endpoint& endpoint, std::uint32_t qp, std::vector<ReceiveRequest> requests) {
  return post_all(endpoint, std::move(requests),
                  [qp](Rnic& rnic, ReceiveRequest&& request, Time now) {
                    return rnic.post_receive(qp, std::move(request), now);
                  });
}

void bind_verbs(EndpointClass& cls) {
  bind_completion_queue(cls);
  bind_queue_pairs(cls);
  bind_shared_receive_queues(cls);
  bind_device(cls);
}

void bind_own_memory(nb::module_& m) {
  m.def("read_memory", &read_bytes, "address"_a, "length"_a,
        "bytes at an address of this process; OSError (EFAULT), if there is no memory");
}

}  // namespace softroce
