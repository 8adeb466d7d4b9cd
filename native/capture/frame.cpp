// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <optional>

#include "../engine/codec/codec.hpp"
#include "../engine/striped/ud_framing.hpp"
#include "contents.hpp"
#include "xxh64.hpp"

namespace softroce::capture {
namespace {

// tcpdump.org/linktypes.html
enum LinkType : std::uint32_t {
  kNull = 0,
  kEthernet = 1,
  kRawBsd = 12,
  kRawOpenBsd = 14,
  kRaw = 101,
  kLoop = 108,
  kLinuxCooked = 113,
  kIpv4 = 228,
  kIpv6 = 229,
  kLinuxCooked2 = 276,
};

constexpr std::uint16_t kRoceV1Ethertype = 0x8915;
constexpr std::uint8_t kFragmentHeader = 44;  // RFC 8200

bool is_vlan(std::uint16_t ethertype) {  // 802.1Q, 802.1ad, and QinQ before it
  return ethertype == 0x8100 || ethertype == 0x88A8 || ethertype == 0x9100;
}

// Where the network layer begins, and which it is. `type` 0: the packet's first four bits say.
struct Network {
  std::uint32_t at = 0;
  std::uint16_t type = 0;
};

// Where a link layer has its type field, and where it ends.
struct LinkLayer {
  std::uint32_t type_at, bytes;
};

std::optional<LinkLayer> link_layer(std::uint32_t link_type) {
  switch (link_type) {
    case kEthernet:
      return LinkLayer{12, 14};
    case kLinuxCooked:
      return LinkLayer{14, 16};
    case kLinuxCooked2:
      return LinkLayer{0, 20};
    default:
      return std::nullopt;
  }
}

// Bytes ahead of the IP header of a link layer without a type field.
std::optional<std::uint32_t> bare_bytes(std::uint32_t link_type) {
  switch (link_type) {
    case kNull:
    case kLoop:
      return 4;
    case kRawBsd:
    case kRawOpenBsd:
    case kRaw:
    case kIpv4:
    case kIpv6:
      return 0;
    default:
      return std::nullopt;
  }
}

class FrameReader {
 public:
  FrameReader(const std::uint8_t* frame, PacketRow& row, Notes& notes)
      : frame_(frame), row_(row), notes_(notes) {}

  void read(std::uint32_t link_type) {
    row_.kind = Kind::other;
    if (row_.captured == row_.length) row_.has |= kHasWhole;
    if (const auto bare = bare_bytes(link_type)) return read_network({*bare, 0});
    const auto layer = link_layer(link_type);
    if (!layer) return note(NoteKind::link_type);
    Network network{layer->bytes, 0};
    if (!step_over(*layer, network)) return leave_out();
    read_network(network);
  }

 private:
  void note(NoteKind kind) { notes_.add(kind, row_.number, row_.offset); }
  bool cut() const { return row_.captured < row_.length; }

  void leave_out() { note(too_short_ ? NoteKind::cut_early : NoteKind::not_roce); }

  bool step_over(const LinkLayer& layer, Network& network) {
    if (!has(layer.bytes)) return false;
    network.type = load16(frame_ + layer.type_at);
    while (is_vlan(network.type)) {
      row_.has |= kHasVlan;
      if (!has(network.at + 4)) break;
      network.type = load16(frame_ + network.at + 2);
      network.at += 4;
    }
    if (row_.has & kHasVlan) note(NoteKind::vlan);
    return !is_vlan(network.type);
  }

  // Remembers if the frame does not reach that far only because it was cut.
  bool has(std::uint32_t bytes) {
    if (bytes <= row_.captured) return true;
    too_short_ = cut();
    return false;
  }

  void read_network(const Network& network) {
    if (network.type == kRoceV1Ethertype) return note(NoteKind::roce_v1);
    if (!has(network.at + 1)) return leave_out();
    const std::uint8_t version = frame_[network.at] >> 4;
    const bool ipv4 = version == 4 && (network.type == 0 || network.type == Ipv4::kEthertype);
    const bool ipv6 = version == 6 && (network.type == 0 || network.type == Ipv6::kEthertype);
    if (!ipv4 && !ipv6) return note(NoteKind::not_roce);
    if (has(network.at + (ipv4 ? Ipv4::kBytes : Ipv6::kBytes)) && is_fragment(network.at))
      return note(NoteKind::fragment);
    if (ipv6) row_.has |= kHasIpv6;
    read_packet(network.at);
  }

  bool is_fragment(std::uint32_t at) const {
    const std::uint8_t* ip = frame_ + at;
    return ip[0] >> 4 == 4 ? (load16(ip + 6) & 0x3FFF) != 0 : ip[6] == kFragmentHeader;
  }

  void read_packet(std::uint32_t at) {
    Packet packet;
    const Inspection found = inspect(frame_ + at, row_.captured - at, row_.length - at, packet);
    if (found.extent == Extent::unknown) return note(NoteKind::cut_early);
    if (found.extent == Extent::not_roce) return note(NoteKind::not_roce);
    put_addresses(packet);
    if (found.extent >= Extent::base) put_base(packet, frame_ + at);
    if (found.icrc) put_icrc(found);
    if (found.refusal) return refuse(*found.refusal);
    if (found.extent != Extent::all) return put_cut();
    row_.kind = Kind::roce;
    put_extensions(packet);
    put_payload(packet);
  }

  void put_cut() {
    row_.kind = Kind::cut;
    note(NoteKind::cut_headers);
  }

  void refuse(Counter refusal) {
    row_.kind = Kind::malformed;
    row_.refusal = refusal == Counter::rx_truncated ? 0 : refusal == Counter::rx_bad_opcode ? 1 : 2;
    note(NoteKind::malformed);
  }

  static void put_gid(const Gid& gid, GidBytes& out) {
    store64(out.data(), gid.high);
    store64(out.data() + 8, gid.low);
  }
  void put_addresses(const Packet& packet) {
    row_.traffic_class = packet.traffic_class;
    row_.hop_limit = packet.hop_limit;
    row_.source_port = packet.source_port;
    put_gid(packet.source, row_.source);
    put_gid(packet.destination, row_.destination);
  }
  void put_base(const Packet& packet, const std::uint8_t* ip) {
    const std::size_t ip_bytes = row_.has & kHasIpv6 ? Ipv6::kBytes : Ipv4::kBytes;
    row_.pad = ip[ip_bytes + kUdpBytes + 1] >> 4 & 3;
    row_.pkey = packet.pkey;
    row_.opcode = packet.opcode;
    row_.bth_flags = static_cast<std::uint8_t>(
        (packet.solicited ? kSolicited : 0) | (packet.migrated ? kMigReq : 0) |
        (packet.ack_request ? kAckReq : 0) | (packet.reserved & 0x80 ? kFecn : 0) |
        (packet.reserved & 0x40 ? kBecn : 0));
    row_.destination_qp = packet.destination_qp;
    row_.psn = packet.psn;
  }
  void put_icrc(const Inspection& found) {
    row_.icrc = *found.icrc;
    row_.has |= kHasIcrcChecked | (found.icrc_is_right ? kHasIcrcGood : 0);
  }
  void put_extensions(const Packet& packet) {
    const std::uint8_t headers = traits_of(packet.opcode).headers;
    row_.has |= headers;
    row_.qkey = packet.qkey;
    row_.source_qp = packet.source_qp;
    row_.rkey = headers & kIeth ? packet.invalidate_rkey : packet.rkey;
    row_.remote_address = packet.remote_address;
    row_.dma_length = packet.dma_length;
    row_.swap_or_add = packet.swap_or_add;
    row_.compare = packet.compare;
    row_.syndrome = packet.syndrome;
    row_.msn = packet.msn;
    row_.original = packet.original;
    row_.immediate = packet.immediate;
  }

  // The payload, of which `here` bytes were captured, and our headers at its head.
  void put_payload(Packet& packet) {
    const std::uint8_t* begin = packet.payload;
    const std::uint32_t here = row_.captured - static_cast<std::uint32_t>(begin - frame_);
    const std::uint32_t headers = here == 0 ? LAB_HDR_BYTES : lab_bytes(begin[0]);
    if (packet.opcode == LAB_BTH_OPCODE_UD_SEND_ONLY && packet.payload_bytes >= headers) {
      if (here < headers) {
        if (looks_like_ours(packet, here)) put_cut();
      } else if (const Packet plain = packet; ud_framing::open(packet)) {
        put_lab(packet);
      } else {
        packet = plain;
      }
    }
    row_.payload_bytes = packet.payload_bytes;
    row_.payload_at = static_cast<std::uint32_t>(packet.payload - frame_);
    if (row_.kind == Kind::roce && !(row_.has & kHasIcrcChecked)) note(NoteKind::cut_payload);
    if (row_.captured - row_.payload_at < packet.payload_bytes) return;
    row_.payload_hash = xxh64(packet.payload, packet.payload_bytes);
    row_.has |= kHasPayloadHash;
  }

  static bool is_of_operation(std::uint8_t version_kind) {
    return version_kind >> 4 == LAB_OPERATION_VERSION;
  }
  // Bytes of our headers, if that is the first one of them.
  static std::uint32_t lab_bytes(std::uint8_t version_kind) {
    return is_of_operation(version_kind) ? LAB_HDR_BYTES + LAB_OPERATION_BYTES : LAB_HDR_BYTES;
  }

  // As far as one can see of headers that were cut off.
  static bool looks_like_ours(const Packet& packet, std::uint32_t here) {
    const std::uint8_t* at = packet.payload;
    if (here < 2 || packet.source_port != LAB_UDP_SPORT_BASE + at[1]) return false;
    const int kind = at[0] & LAB_HDR_KIND;
    if (is_of_operation(at[0])) return kind == LAB_KIND_DATA || kind == LAB_KIND_PARITY;
    return at[0] >> 4 == LAB_HDR_VERSION && kind <= LAB_KIND_PARITY;
  }

  void put_lab(const Packet& packet) {
    const LabHeader& lab = packet.lab;
    row_.has |= kHasLab;
    if (lab.trimmed) row_.has |= kHasTrimmed;
    if (lab.trimmed && packet.trimmed_at_last_hop()) row_.has |= kHasTrimmedLast;
    row_.lab_kind = lab.kind;
    row_.lab_path = lab.path;
    row_.lab_attempt = lab.attempt;
    row_.lab_operation = lab.operation;
    row_.lab_step = lab.step;
    row_.lab_message = lab.message;
    row_.lab_message_id = lab.message_id;
    row_.lab_index = lab.index;
    row_.lab_count = lab.count;
    row_.lab_code = lab.code;
    row_.lab_length = lab.length;
    row_.lab_stamp_ns = lab.stamp_ns;
    row_.lab_epoch = lab.epoch;
    row_.lab_number = lab.number;
    row_.lab_srtt_ns = lab_time_ns(lab.srtt);
    row_.lab_rttvar_ns = lab_time_ns(lab.rttvar);
    if (lab.of_operation()) put_operation(packet);
  }
  void put_operation(const Packet& packet) {
    row_.has |= kHasOperation;
    row_.lab_verb = packet.lab.verb;
    row_.lab_receive = packet.lab.receive;
    row_.lab_connection = packet.lab.connection;
    row_.lab_remote_address = packet.remote_address;
    row_.lab_rkey = packet.rkey;
    row_.lab_argument = packet.immediate;
  }

  const std::uint8_t* frame_;
  PacketRow& row_;
  Notes& notes_;
  bool too_short_ = false;
};

}  // namespace

void read_frame(const std::uint8_t* frame, std::uint32_t link_type, PacketRow& row, Notes& notes) {
  FrameReader(frame, row, notes).read(link_type);
}

}  // namespace softroce::capture
