// SPDX-License-Identifier: GPL-2.0-or-later
#include "../engine/codec.hpp"

#include <vector>

#include "bindings.hpp"

namespace softroce {
namespace {

// The fields by the names that Wireshark gives them, our header's by those of lab_wire.h.
nb::dict fields(Packet& packet, bool striped) {
  nb::dict d;
  const bool ipv4 = packet.source.is_ipv4();
  d[ipv4 ? "ip.src" : "ipv6.src"] = packet.source;
  d[ipv4 ? "ip.dst" : "ipv6.dst"] = packet.destination;
  d["udp.srcport"] = packet.source_port;
  d["infiniband.bth.opcode"] = packet.opcode;
  d["infiniband.bth.p_key"] = packet.pkey;
  d["infiniband.bth.destqp"] = packet.destination_qp;
  d["infiniband.bth.psn"] = packet.psn;
  d["infiniband.deth.q_key"] = packet.qkey;
  d["infiniband.deth.srcqp"] = packet.source_qp;
  if (striped && decode_lab_header(packet)) {
    d["kind"] = packet.lab.kind;
    d["path"] = packet.lab.path;
    d["attempt"] = packet.lab.attempt;
    d["operation"] = packet.lab.operation;
    d["step"] = packet.lab.step;
    d["message"] = packet.lab.message;
    d["message_id"] = packet.lab.message_id;
    d["index"] = packet.lab.index;
    d["count"] = packet.lab.count;
    d["length"] = packet.lab.length;
    d["stamp_ns"] = packet.lab.stamp_ns;
  }
  d["payload"] = nb::bytes(packet.payload, packet.payload_bytes);
  return d;
}

}  // namespace

void bind_codec(nb::module_& m) {
  m.def(
      "icrc",
      [](const nb::bytes& frame) {
        const auto icrc =
            icrc_of_frame(static_cast<const std::uint8_t*>(frame.data()), frame.size());
        if (!icrc) throw nb::value_error("frame too short");
        return *icrc;
      },
      "ICRC of an Ethernet frame that carries RoCEv2 over IPv6, or else IPv4, as its last four "
      "bytes should be (little-endian)");
  m.def(
      "decode_frame",
      [](const nb::bytes& frame, bool striped) -> nb::object {
        Packet packet;
        const auto refusal =
            decode(static_cast<const std::uint8_t*>(frame.data()), frame.size(), packet);
        if (refusal) return nb::str(kCounterNames[static_cast<std::size_t>(*refusal)]);
        return fields(packet, striped);
      },
      nb::arg("frame"), nb::arg("striped") = false,
      "Fields of a UD frame, or the name of the counter under which it would be refused");
}

}  // namespace softroce
