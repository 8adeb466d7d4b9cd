// SPDX-License-Identifier: GPL-2.0-or-later
// Work requests and attributes of queue pairs, plain: what the classes of softroce_lab.verbs are
// made of, so that a post copies them without a call into Python.
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace softroce {
namespace {

using nb::literals::operator""_a;

void bind_requests(nb::module_& m) {
  nb::class_<ScatterGather>(m, "ScatterGather", "A piece of memory, by the key of its region.")
      .def(nb::init<std::uint64_t, std::uint32_t, std::uint32_t>(), "addr"_a, "length"_a, "lkey"_a)
      .def_rw("addr", &ScatterGather::address)
      .def_rw("length", &ScatterGather::length)
      .def_rw("lkey", &ScatterGather::lkey);
  nb::class_<AddressVector>(m, "AddressVector", "Where packets go.")
      .def(nb::init<>())
      .def_rw("destination", &AddressVector::destination, "IP address as an integer")
      .def_rw("mac", &AddressVector::mac, "of the next hop")
      .def_rw("sgid_index", &AddressVector::sgid_index)
      .def_rw("hop_limit", &AddressVector::hop_limit)
      .def_rw("traffic_class", &AddressVector::traffic_class)
      .def_rw("flow_label", &AddressVector::flow_label);
  nb::class_<SendRequest>(m, "SendRequest", "A send work request; enums by their values.")
      .def(nb::init<>())
      .def_rw("wr_id", &SendRequest::wr_id)
      .def_prop_rw(
          "opcode", [](const SendRequest& r) { return static_cast<int>(r.opcode); },
          [](SendRequest& r, std::uint8_t opcode) { r.opcode = static_cast<WrOpcode>(opcode); })
      .def_rw("send_flags", &SendRequest::flags)
      .def_rw("sources", &SendRequest::sources)
      .def_rw("imm_data", &SendRequest::immediate)
      .def_prop_rw(
          "imm_data_or_invalidated_rkey",
          [](const SendRequest& r) {
            const bool key = r.opcode == WrOpcode::send_with_invalidate;
            return key ? r.invalidate_rkey : __builtin_bswap32(r.immediate);
          },
          [](SendRequest& r, std::uint32_t value) {
            r.immediate = __builtin_bswap32(value);
            r.invalidate_rkey = value;
          },
          "the union of struct ibv_send_wr: an immediate stands in network byte order")
      .def_rw("invalidate_rkey", &SendRequest::invalidate_rkey)
      .def_rw("remote_addr", &SendRequest::remote_address)
      .def_rw("rkey", &SendRequest::rkey)
      .def_rw("compare_add", &SendRequest::compare_add)
      .def_rw("swap", &SendRequest::swap)
      .def_rw("address", &SendRequest::address)
      .def_rw("remote_qpn", &SendRequest::remote_qp)
      .def_rw("remote_qkey", &SendRequest::remote_qkey)
      .def(
          "assign", [](SendRequest& to, const SendRequest& from) { to = from; }, "other"_a);
  nb::class_<ReceiveRequest>(m, "ReceiveRequest", "A receive work request.")
      .def(nb::init<>())
      .def_rw("wr_id", &ReceiveRequest::wr_id)
      .def_rw("targets", &ReceiveRequest::targets)
      .def(
          "assign", [](ReceiveRequest& to, const ReceiveRequest& from) { to = from; }, "other"_a);
}

void bind_attributes(nb::module_& m) {
  nb::class_<QpAttr>(m, "QpAttr", "Attributes of a queue pair; enums by their values.")
      .def(nb::init<>())
      .def_prop_rw(
          "qp_state", [](const QpAttr& a) { return static_cast<int>(a.state); },
          [](QpAttr& a, std::uint8_t state) { a.state = static_cast<QpState>(state); })
      .def_prop_rw(
          "cur_qp_state", [](const QpAttr& a) { return static_cast<int>(a.current_state); },
          [](QpAttr& a, std::uint8_t state) { a.current_state = static_cast<QpState>(state); })
      .def_rw("path_mtu_bytes", &QpAttr::path_mtu)
      .def_rw("qkey", &QpAttr::qkey)
      .def_rw("rq_psn", &QpAttr::rq_psn)
      .def_rw("sq_psn", &QpAttr::sq_psn)
      .def_rw("dest_qp_num", &QpAttr::dest_qp)
      .def_rw("qp_access_flags", &QpAttr::access)
      .def_rw("pkey_index", &QpAttr::pkey_index)
      .def_rw("port_num", &QpAttr::port)
      .def_rw("max_rd_atomic", &QpAttr::max_rd_atomic)
      .def_rw("max_dest_rd_atomic", &QpAttr::max_dest_rd_atomic)
      .def_rw("min_rnr_timer", &QpAttr::min_rnr_timer)
      .def_rw("timeout", &QpAttr::timeout)
      .def_rw("retry_cnt", &QpAttr::retry_count)
      .def_rw("rnr_retry", &QpAttr::rnr_retry)
      .def_rw("en_sqd_async_notify", &QpAttr::sqd_notify)
      .def_rw("address", &QpAttr::address);
}

}  // namespace

void bind_work_requests(nb::module_& m) {
  bind_requests(m);
  bind_attributes(m);
}

}  // namespace softroce
