// SPDX-License-Identifier: GPL-2.0-or-later
#include "../engine/codec/codec.hpp"

#include <array>
#include <cstring>
#include <string>

#include "../engine/codec/crc.hpp"
#include "../engine/codec/sliced_crc.hpp"
#include "bindings.hpp"
#include "lent_bytes.hpp"

namespace softroce {
namespace {

// Calls `field(name, value)` or `field(name, value, bits)` for each field that the packet has: by
// the names that Wireshark gives them, our header's by those of lab_wire.h. What follows from
// other fields (lengths, padding, checksums) is not among them.
template <typename F>
void each_field(Packet& packet, F&& field) {
  field("eth.dst", packet.destination_mac, 48);
  if (packet.destination.is_ipv4()) {
    field("ip.src", packet.source);
    field("ip.dst", packet.destination);
    field("ip.dsfield", packet.traffic_class);
    field("ip.id", packet.ip_identifier);
    field("ip.ttl", packet.hop_limit);
  } else {
    field("ipv6.src", packet.source);
    field("ipv6.dst", packet.destination);
    field("ipv6.tclass", packet.traffic_class);
    field("ipv6.flow", packet.flow_label, 20);
    field("ipv6.hlim", packet.hop_limit);
  }
  field("udp.srcport", packet.source_port);
  field("infiniband.bth.opcode", packet.opcode);
  field("infiniband.bth.se", packet.solicited);
  field("infiniband.bth.m", packet.migrated);
  field("infiniband.bth.p_key", packet.pkey);
  field("infiniband.bth.reserved8", packet.reserved);
  field("infiniband.bth.destqp", packet.destination_qp, 24);
  field("infiniband.bth.a", packet.ack_request);
  field("infiniband.bth.psn", packet.psn, 24);
  const std::uint8_t headers = extensions_of(packet.opcode).headers;
  if (headers & kDeth) {
    field("infiniband.deth.q_key", packet.qkey);
    field("infiniband.deth.srcqp", packet.source_qp, 24);
  }
  if (headers & kReth) {
    field("infiniband.reth.va", packet.remote_address);
    field("infiniband.reth.r_key", packet.rkey);
    field("infiniband.reth.dmalen", packet.dma_length);
  }
  if (headers & kAtomicEth) {
    field("infiniband.atomiceth.va", packet.remote_address);
    field("infiniband.atomiceth.r_key", packet.rkey);
    field("infiniband.atomiceth.swapdt", packet.swap_or_add);
    field("infiniband.atomiceth.cmpdt", packet.compare);
  }
  if (headers & kAeth) {
    field("infiniband.aeth.syndrome", packet.syndrome);
    field("infiniband.aeth.msn", packet.msn, 24);
  }
  if (headers & kAtomicAckEth) field("infiniband.atomicacketh.origremdt", packet.original);
  if (headers & kImmediate) field("infiniband.immdt", packet.immediate);
  if (headers & kIeth) field("infiniband.ieth", packet.invalidate_rkey);
  if (!packet.has_lab_header) return;
  LabHeader& lab = packet.lab;
  field("kind", lab.kind, 3);
  field("trimmed", lab.trimmed);
  field("path", lab.path);
  field("attempt", lab.attempt);
  field("operation", lab.operation);
  field("step", lab.step);
  field("message", lab.message);
  field("message_id", lab.message_id);
  field("index", lab.index);
  field("count", lab.count, LAB_COUNT_BITS);
  field("code", lab.code);
  field("length", lab.length);
  field("stamp_ns", lab.stamp_ns);
  field("epoch", lab.epoch);
  field("number", lab.number, LAB_NUMBER_BITS);
  field("srtt", lab.srtt);
  field("rttvar", lab.rttvar);
  field("verb", lab.verb);
  if (!lab.of_operation()) return;
  field("receive", lab.receive, 24);
  field("connection", lab.connection, 24);
  field("remote_address", packet.remote_address);
  field("rkey", packet.rkey);
  field("argument", packet.immediate);
}

constexpr const char* kSourceMac = "eth.src";
constexpr const char* kPayload = "payload";

struct ToDict {
  nb::dict& fields;
  template <typename T>
  void operator()(const char* name, const T& value, unsigned = 0) {
    fields[name] = value;
  }
};

[[noreturn]] void refuse(const std::string& what) { throw nb::value_error(what.c_str()); }

// Fields that are not named keep the value that the packet has.
struct FromDict {
  const nb::dict& fields;
  std::size_t taken = 0;

  template <typename T>
  void operator()(const char* name, T& value, unsigned bits = 8 * sizeof(T)) {
    if constexpr (std::is_same_v<T, bool>) bits = 1;
    std::uint64_t number;
    if (!take(name, number)) return;
    if (bits < 64 && number >> bits != 0)
      refuse(std::string(name) + " has " + std::to_string(bits) + " bits");
    value = static_cast<T>(number);
  }
  void operator()(const char* name, Gid& value) {
    const bool ipv4 = value.is_ipv4();
    if (take(name, value) && value.is_ipv4() != ipv4)
      refuse(std::string(name) + " is an address of the other IP version");
  }
  void operator()(const char* name, nb::bytes& value) { take(name, value); }

  template <typename T>
  bool take(const char* name, T& value) {
    if (!fields.contains(name)) return false;
    ++taken;
    if (!nb::try_cast(fields[name], value))
      refuse(std::string(name) + " is not what belongs there");
    return true;
  }
};

std::uint64_t load_mac(const std::uint8_t* at) {
  return std::uint64_t{load16(at)} << 32 | load32(at + 2);
}

nb::object decode_frame(nb::handle lender, bool striped) {
  const LentBytes frame(lender);
  Packet packet;
  if (const auto refusal = decode(frame.data(), frame.size(), packet))
    return nb::str(kCounterNames[static_cast<std::size_t>(*refusal)]);
  packet.destination_mac = load_mac(frame.data());
  if (const Packet plain = packet; striped && !decode_lab_header(packet)) packet = plain;
  nb::dict fields;
  fields[kSourceMac] = load_mac(frame.data() + 6);
  each_field(packet, ToDict{fields});
  fields[kPayload] = nb::bytes(packet.payload, packet.payload_bytes);
  return fields;
}

void refuse_the_unknown(const nb::dict& fields, Packet& packet) {
  nb::dict known;
  each_field(packet, ToDict{known});
  known[kSourceMac] = known[kPayload] = nb::none();
  for (const auto& [name, value] : fields)
    if (!known.contains(name))
      refuse("a packet of this opcode has no " + std::string(nb::str(name).c_str()));
}

nb::bytes encode_frame(const nb::dict& fields) {
  FromDict from{fields};
  Packet packet;
  const bool ipv6 = fields.contains("ipv6.dst") || fields.contains("ipv6.src");
  packet.source = packet.destination = ipv6 ? Gid{} : Gid::of_ipv4(0);
  packet.has_lab_header = fields.contains("kind");
  std::uint64_t source_mac = 0;
  nb::bytes payload("", 0);
  from(kSourceMac, source_mac, 48);
  from(kPayload, payload);
  each_field(packet, from);
  if (from.taken != fields.size()) refuse_the_unknown(fields, packet);
  packet.payload = static_cast<const std::uint8_t*>(payload.data());
  packet.payload_bytes = static_cast<std::uint32_t>(payload.size());
  const Extensions& extensions = extensions_of(packet.opcode);
  if (!extensions.known) refuse("there is no such opcode");
  if (!extensions.carries_payload && payload.size() + packet.has_lab_header != 0)
    refuse("packets of this opcode carry no payload");
  if (payload.size() > kMostPathMtu) refuse("the payload is longer than any path MTU");
  std::array<std::uint8_t, kMostPathMtu + kMostOverheadBytes + kMostLabBytes> frame;
  return nb::bytes(frame.data(), encode(packet, source_mac, frame.data()));
}

// Of two runs of bytes: what the ICRC uses, and what it uses where ISA-L is not.
void bind_crc(nb::module_& m) {
#ifdef SOFTROCE_HAS_ISAL
  m.attr("has_isal") = true;
#else
  m.attr("has_isal") = false;
#endif
  m.def("crc32", [](nb::handle head_lender, nb::handle tail_lender) {
    const LentBytes head(head_lender), tail(tail_lender);
    return crc32(head.data(), head.size(), tail.data(), tail.size());
  });
  m.def("sliced_crc32", [](nb::handle head_lender, nb::handle tail_lender) {
    const LentBytes head(head_lender), tail(tail_lender);
    return sliced_crc32(sliced_crc32(0, head.data(), head.size()), tail.data(), tail.size());
  });
}

}  // namespace

void bind_codec(nb::module_& m) {
  bind_crc(m);
  m.def(
      "icrc",
      [](nb::handle lender) {
        const LentBytes frame(lender);
        const auto icrc = icrc_of_frame(frame.data(), frame.size());
        if (!icrc) throw nb::value_error("frame too short");
        return *icrc;
      },
      nb::arg("frame"),
      "ICRC of an Ethernet frame that carries RoCEv2 over IPv6, or else IPv4, as its last four "
      "bytes should be (little-endian)");
  m.def("decode_frame", &decode_frame, nb::arg("frame"), nb::arg("striped") = false,
        "Fields of a RoCEv2 frame by Wireshark's names, addresses and MACs as numbers, or the name "
        "of the counter under which it would be refused. `striped`: with those of the lab's "
        "headers, if it has them");
  m.def("encode_frame", &encode_frame, nb::arg("fields"),
        "The frame of which decode_frame gives these fields. Fields that are not named have the "
        "values of an RNIC's packet. ValueError: a field that the opcode does not have, or that "
        "its value does not fit in");
}

}  // namespace softroce
