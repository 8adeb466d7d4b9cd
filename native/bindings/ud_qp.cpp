// SPDX-License-Identifier: GPL-2.0-or-later
// Ordinary UD queue pairs and completion queues of their own. Calls return errno values, as the
// verbs of the C library do.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace softroce {
namespace {

using Cq = std::shared_ptr<CompletionQueue>;

std::uint32_t create_ud_qp(Endpoint& endpoint, Cq send_cq, Cq receive_cq, std::uint32_t max_send_wr,
                           std::uint32_t max_recv_wr, std::uint32_t protection_domain) {
  const UdQpConfig config{protection_domain, max_send_wr, max_recv_wr, std::move(send_cq),
                          std::move(receive_cq)};
  return call_in_engine(endpoint, [config](Rnic& rnic, Time) { return rnic.create_ud_qp(config); });
}

int modify_ud_qp(Endpoint& endpoint, std::uint32_t qp, int state, std::uint32_t qkey,
                 std::uint32_t first_psn) {
  return call_in_engine(endpoint, [=](Rnic& rnic, Time now) {
    return rnic.modify_ud_qp(qp, static_cast<QpState>(state), qkey, first_psn, now);
  });
}

int post_ud_send(Endpoint& endpoint, std::uint32_t qp, std::uint64_t wr_id, std::uint64_t address,
                 std::uint32_t length, std::uint32_t lkey, Gid ip, std::uint64_t mac,
                 std::uint32_t remote_qp, std::uint32_t remote_qkey, bool signaled,
                 bool solicited) {
  const UdSend request{wr_id,    {address, length, lkey}, ip, mac, remote_qp, remote_qkey, signaled,
                       solicited};
  return call_in_engine(endpoint,
                        [=](Rnic& rnic, Time now) { return rnic.post_ud_send(qp, request, now); });
}

int post_ud_receive(Endpoint& endpoint, std::uint32_t qp, std::uint64_t wr_id,
                    std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
  const UdReceive request{wr_id, {address, length, lkey}};
  return call_in_engine(
      endpoint, [=](Rnic& rnic, Time now) { return rnic.post_ud_receive(qp, request, now); });
}

}  // namespace

void bind_ud_qp(EndpointClass& cls) {
  using nb::literals::operator""_a;
  nb::class_<CompletionQueue>(cls, "CompletionQueue")
      .def(
          "poll_completions", [](CompletionQueue& cq, std::size_t most) { return cq.poll(most); },
          "most"_a = 64);
  cls.def(
         "create_cq", [](Endpoint& e) { return e.rnic().create_cq(); }, nb::keep_alive<0, 1>())
      .def("create_ud_qp", &create_ud_qp, "send_cq"_a, "receive_cq"_a, "max_send_wr"_a,
           "max_recv_wr"_a, "protection_domain"_a)
      .def("modify_ud_qp", &modify_ud_qp, "qp"_a, "state"_a, "qkey"_a, "first_psn"_a)
      .def("destroy_ud_qp",
           [](Endpoint& e, std::uint32_t qp) {
             return call_in_engine(e, [=](Rnic& rnic, Time) { return rnic.destroy_ud_qp(qp); });
           })
      .def("ud_qp_state",
           [](Endpoint& e, std::uint32_t qp) {
             return call_in_engine(
                 e, [=](Rnic& rnic, Time) { return static_cast<int>(rnic.ud_qp_state(qp)); });
           })
      .def("post_ud_send", &post_ud_send, "qp"_a, "wr_id"_a, "address"_a, "length"_a, "lkey"_a,
           "ip"_a, "mac"_a, "remote_qp"_a, "remote_qkey"_a, "signaled"_a, "solicited"_a)
      .def("post_ud_receive", &post_ud_receive, "qp"_a, "wr_id"_a, "address"_a, "length"_a,
           "lkey"_a);
}

}  // namespace softroce
