// SPDX-License-Identifier: GPL-2.0-or-later
#include "control.hpp"

#include "../engine/codec/bytes.hpp"

namespace softroce {
namespace {

constexpr std::size_t kNameBytes = 12;

void put_name(const MessageName& name, std::uint8_t* at) {
  store32(at, name.id);
  store16(at + 4, name.key.operation);
  store16(at + 6, name.key.step);
  store32(at + 8, name.key.message);
}

MessageName take_name(const std::uint8_t* at) {
  return {load32(at), {load16(at + 4), load16(at + 6), load32(at + 8)}};
}

std::vector<std::uint8_t> of_type(BodyType type, std::size_t bytes) {
  std::vector<std::uint8_t> body(1 + bytes);
  body[0] = static_cast<std::uint8_t>(type);
  return body;
}

}  // namespace

std::vector<std::uint8_t> write_ack(std::span<const std::uint32_t> ids, std::size_t most_bytes) {
  const std::size_t count = std::min(ids.size(), (most_bytes - 1) / 4);
  std::vector<std::uint8_t> body = of_type(BodyType::ack, 4 * count);
  for (std::size_t i = 0; i < count; ++i) store32(&body[1 + 4 * i], ids[i]);
  return body;
}

bool read_ack(std::span<const std::uint8_t> body, std::vector<std::uint32_t>& ids) {
  ids.clear();
  if ((body.size() - 1) % 4 != 0 || (body.size() - 1) / 4 > kMostAcked) return false;
  for (std::size_t at = 1; at < body.size(); at += 4) ids.push_back(load32(&body[at]));
  return true;
}

std::vector<std::uint8_t> write_keepalive(std::span<const MessageName> names,
                                          std::size_t most_bytes) {
  const std::size_t count = std::min(names.size(), (most_bytes - 1) / kNameBytes);
  std::vector<std::uint8_t> body = of_type(BodyType::keepalive, kNameBytes * count);
  for (std::size_t i = 0; i < count; ++i) put_name(names[i], &body[1 + kNameBytes * i]);
  return body;
}

bool read_keepalive(std::span<const std::uint8_t> body, std::vector<MessageName>& names) {
  names.clear();
  if ((body.size() - 1) % kNameBytes != 0) return false;
  if ((body.size() - 1) / kNameBytes > kMostInKeepalive) return false;
  for (std::size_t at = 1; at < body.size(); at += kNameBytes)
    names.push_back(take_name(&body[at]));
  return true;
}

std::vector<std::uint8_t> write_missing(const Missing& missing, std::size_t most_bytes) {
  const bool by_chunks = missing.chunk_packets != 0;
  std::vector<std::uint8_t> body =
      of_type(by_chunks ? BodyType::chunks : BodyType::sack, kNameBytes + 2 * by_chunks);
  put_name(missing.name, &body[1]);
  if (by_chunks) store16(&body[1 + kNameBytes], missing.chunk_packets);
  if (missing.set) write(*missing.set, most_bytes - body.size(), body);
  return body;
}

std::optional<Missing> read_missing(std::span<const std::uint8_t> body) {
  const bool by_chunks = static_cast<BodyType>(body[0]) == BodyType::chunks;
  const std::size_t head = 1 + kNameBytes + 2 * by_chunks;
  if (body.size() < head) return std::nullopt;
  Missing missing{.name = take_name(&body[1])};
  if (by_chunks) missing.chunk_packets = load16(&body[1 + kNameBytes]);
  if (by_chunks && missing.chunk_packets == 0) return std::nullopt;
  if (body.size() == head) return missing;
  missing.set = read_packet_set(body.subspan(head));
  if (!missing.set) return std::nullopt;
  return missing;
}

}  // namespace softroce
