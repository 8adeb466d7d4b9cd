// SPDX-License-Identifier: GPL-2.0-or-later
#include "tail_parity.hpp"

#include <bit>
#include <optional>
#include <string>
#include <variant>

#include "../mutant.hpp"
#include "receiver.hpp"
#include "sender.hpp"

namespace softroce {
namespace {

constexpr std::size_t kMostTails = 64;  // the oldest tail gives way to a newer one

std::uint32_t packets_of_block(const SendMessage& message) {
  return std::min(message.count, kMostBlockPackets);
}

}  // namespace

ParityConfig parity_of(const Options& options) {
  const auto rows = options.find("parity");
  if (rows == options.end()) return {};
  const std::string& count = std::get<std::string>(rows->second);
  return {.enabled = true,
          .fixed_rows = count == "auto" ? -1 : std::stoi(count),
          .budget = std::get<double>(options.at("parity_budget"))};
}

// ---------------------------------------------------------------- coding

const ErasureCode& TailCoder::code(std::uint32_t packets, std::uint32_t rows) {
  std::unique_ptr<ErasureCode>& made = codes_[{packets, rows}];
  if (made == nullptr) made = make_mds_code(packets, rows, false);
  return *made;
}

std::vector<std::uint8_t*> TailCoder::chunks_of(const Block& block) {
  std::vector<std::uint8_t*> chunks;
  for (std::uint32_t i = 0; i < block.packets; ++i)
    chunks.push_back(block.data + std::uint64_t{i} * block.row_bytes);
  last_.assign(block.row_bytes, 0);
  std::copy_n(chunks.back(), block.last_bytes, last_.data());
  chunks.back() = last_.data();
  return chunks;
}

void TailCoder::encode(const Block& block, std::uint32_t rows, std::uint8_t* parity) {
  const std::vector<std::uint8_t*> data = chunks_of(block);
  std::vector<std::uint8_t*> results;
  for (std::uint32_t row = 0; row < rows; ++row)
    results.push_back(parity + std::uint64_t{row} * block.row_bytes);
  code(block.packets, rows).encode(data.data(), results.data(), block.row_bytes);
}

void TailCoder::restore(const Block& block, const std::vector<std::uint32_t>& missing,
                        std::uint8_t rows, std::uint8_t* parity) {
  const std::vector<std::uint8_t*> data = chunks_of(block);
  Presence present(block.packets, true);
  for (const std::uint32_t packet : missing) present[packet] = false;
  std::vector<std::uint8_t*> sources;
  for (std::uint32_t row = 0; row < kMostParity; ++row) {
    present.push_back((rows >> row & 1) != 0);
    sources.push_back(parity + std::uint64_t{row} * block.row_bytes);
  }
  code(block.packets, kMostParity).decode(present, data.data(), sources.data(), block.row_bytes);
  if (missing.back() == block.packets - 1)
    std::copy_n(last_.data(), block.last_bytes,
                block.data + std::uint64_t{block.packets - 1} * block.row_bytes);
}

// ---------------------------------------------------------------- sender: when and how much

// Called for each first transmission of a packet of data.
void Sender::note_sent_data(const SendMessage& message, Time now) {
  ++data_sent_;
  if (!message.all_sent()) return;
  if (tails_.size() == kMostTails) tails_.erase(tails_.begin());
  tails_.push_back(message.handle);
  queue_parity(now);
}

// Decides about parity for each message in `tails_`:
// - If the send is over, or an acknowledgement can have arrived by now, no parity is sent.
// - If parity may leave now, it is encoded and queued.
// - Otherwise the message stays in `tails_`, and the next call decides again.
// Returns whether parity was queued.
bool Sender::queue_parity(Time now) {
  const std::size_t before = parity_ring_.size();
  std::erase_if(tails_, [&](Handle handle) {
    SendMessage* message = messages_.find(handle);
    if (message == nullptr) return true;
    Peer& peer = state_.peers[message->peer];
    const Time last_at = message->sent[message->count - 1].at_ns() * kNanosecond;
    const Time srtt = srtt_to(peer);
    if (state_.has(kParityUnacknowledged) && now - last_at > srtt) return true;
    if (!flow_.may_send(peer, now)) return false;
    const std::uint32_t rows = rows_for(*message, peer);
    if (rows == 0 || !has_memory(*message)) return false;
    const auto why = reason_for(*message, peer, rows);
    if (!why) return false;
    encode_tail(*message, rows);
    const EventQueue::Parity queued{.block = message->tail.block,
                                    .rows = rows,
                                    .why = *why,
                                    .loss = flow_.loss_to(peer).loss()};
    state_.events.note_parity(*message, queued, peer.address.gid, now);
    parity_ring_.push_back({handle, peer.index});
    ++peer.parity_waiting;
    return true;
  });
  return parity_ring_.size() != before;
}

// How many rows the message gets now: as many as the option or the measured loss asks for, and as
// the budget allows. Congestion marks from the peer forbid parity.
std::uint32_t Sender::rows_for(const SendMessage& message, const Peer& peer) const {
  // Others may write what a READ returns while it leaves: packets and parity would not agree.
  if (message.qp != 0 && is_result(message.key)) return 0;
  const bool marked = peer.marked && !mutated(Mutant::parity_despite_marks);
  if (state_.has(kParityUncongested) && marked) return 0;
  const LossEstimate& loss = flow_.loss_to(peer);
  const std::uint32_t block = packets_of_block(message);
  const std::uint32_t most = std::min(block / 4, kMostParity);
  const double burst = state_.has(kParityBursts) ? loss.burst_packets() : 1;
  const std::uint32_t wanted = state_.parity.fixed_rows >= 0
                                   ? static_cast<std::uint32_t>(state_.parity.fixed_rows)
                                   : parity_rows(block, loss.loss(), burst, most);
  const double left =
      state_.parity.budget * static_cast<double>(data_sent_) - static_cast<double>(parity_sent_);
  if (mutated(Mutant::parity_over_budget)) return wanted;
  return left >= wanted ? wanted : static_cast<std::uint32_t>(std::max(left, 0.0));
}

// Why the parity may leave now; nothing: it may not. While no other packet may leave, parity costs
// nothing. Otherwise parity must gain more than it costs. The gain is a round trip, if a packet of
// the block is lost. The cost is the time of the rows, for each message that waits to be sent.
std::optional<ParityReason> Sender::reason_for(const SendMessage& message, const Peer& peer,
                                               std::uint32_t rows) const {
  if (order_.empty()) return ParityReason::idle;
  if (!state_.has(kParityIdle) || mutated(Mutant::parity_while_busy)) return ParityReason::gain;
  const LossEstimate& loss = flow_.loss_to(peer);
  const std::uint32_t block = packets_of_block(message);
  const Time srtt = srtt_to(peer);
  const double gain =
      (1 - std::pow(1 - loss.loss(), block / loss.burst_packets())) * static_cast<double>(srtt);
  const double cost =
      static_cast<double>(rows) * order_.messages() * static_cast<double>(state_.packet_time);
  return gain > cost ? std::optional(ParityReason::gain) : std::nullopt;
}

void Sender::encode_tail(SendMessage& message, std::uint32_t rows) {
  const std::uint32_t block = packets_of_block(message);
  message.tail.block = static_cast<std::uint8_t>(block);
  message.tail.rows = static_cast<std::uint8_t>(rows);
  message.tail.sent = 0;
  parity_sent_ += rows;
  if (!state_.config.carries_payload) return;
  TailCoder::Block data =
      state_.tail_block(const_cast<std::uint8_t*>(message.base), message.length, block);
  if (mutated(Mutant::tail_block_shifted) && block < message.count) data.data -= data.row_bytes;
  message.tail.bytes.resize(std::uint64_t{rows} * data.row_bytes);
  coder_.encode(data, rows, message.tail.bytes.data());
}

// ---------------------------------------------------------------- sender: packets

bool Sender::poll_parity(Packet& packet, Time now) {
  while (!parity_ring_.empty()) {
    const auto [handle, index] = parity_ring_.front();
    Peer& peer = state_.peers[index];
    SendMessage* message = messages_.find(handle);
    const bool sends = message != nullptr && flow_.may_send(peer, now);
    if (sends) build_parity(peer, *message, now, packet);
    if (!sends || message->tail.sent == message->tail.rows) {
      parity_ring_.pop_front();
      --peer.parity_waiting;
      probe_when_idle(peer, now);
    }
    if (sends) return true;
  }
  return false;
}

void Sender::build_parity(Peer& peer, SendMessage& message, Time now, Packet& packet) {
  const std::uint32_t row = message.tail.sent++;
  const std::uint8_t path = peer.picker->pick(kNever);
  const TailCoder::Block block = state_.tail_block(nullptr, message.length, message.tail.block);
  packet.lab = {.path = path, .index = message.count + row, .code = message.tail.block};
  packet.payload_bytes = block.row_bytes;
  const bool neighbour = mutated(Mutant::tail_row_of_neighbour) && row != 0;
  if (state_.config.carries_payload)
    packet.payload = message.tail.bytes.data() + std::uint64_t{row - neighbour} * block.row_bytes;
  complete_packet(peer, message, false, now, packet);
  state_.counters.add(Counter::tx_parity);
}

// ---------------------------------------------------------------- receiver

// The block of the last `packets` packets of a message: `length` bytes at `base`.
TailCoder::Block EngineState::tail_block(std::uint8_t* base, std::uint32_t length,
                                         std::uint32_t packets) const {
  const std::uint32_t count = packets_of(length, chunk_bytes);
  const std::uint32_t last = packet_bytes(count - 1, count, length, chunk_bytes);
  return {.data = base + std::uint64_t{count - packets} * chunk_bytes,
          .packets = packets,
          .row_bytes = packets == 1 ? last : chunk_bytes,
          .last_bytes = last};
}

void Receiver::take_parity(ReceiveMessage& message, const Packet& packet, Time now) {
  TailReceive& tail = message.tail;
  const std::uint32_t row = packet.lab.index - packet.lab.count;
  relaxed_store(message.last_at, now);
  if (tail.block != 0 && tail.block != packet.lab.code)
    return state_.counters.add(Counter::rx_inconsistent);
  if ((tail.rows >> row & 1) != 0) return state_.counters.add(Counter::rx_late_parity);
  tail.block = packet.lab.code;
  tail.rows |= static_cast<std::uint8_t>(1U << row);
  if (mutated(Mutant::tail_row_too_few)) tail.rows |= (tail.rows + 1) & ((1U << kMostParity) - 1);
  if (state_.config.carries_payload && packet.payload != nullptr) {
    const std::uint32_t bytes = packet.payload_bytes;
    tail.bytes.resize(std::uint64_t{kMostParity} * bytes);
    std::copy_n(packet.payload, bytes, tail.bytes.data() + std::uint64_t{row} * bytes);
  }
  restore_tail(message, now);
}

// The same where the last packet may not be seen yet: apart from its place.
void Receiver::restore_held(ReceiveMessage& message, const std::vector<std::uint32_t>& missing) {
  TailCoder::Block block = state_.tail_block(message.base, message.length, message.tail.block);
  std::uint8_t* const place = block.data;
  const std::uint32_t last = block.packets - 1, row = block.row_bytes;
  std::vector<std::uint8_t> apart(std::uint64_t{block.packets} * row);
  std::copy_n(place, std::uint64_t{last} * row + block.last_bytes, apart.data());
  std::ranges::copy(message.held, apart.data() + std::uint64_t{last} * row);
  block.data = apart.data();
  coder_.restore(block, missing, message.tail.rows, message.tail.bytes.data());
  for (const std::uint32_t packet : missing) {
    const std::uint8_t* bytes = apart.data() + std::uint64_t{packet} * row;
    if (packet == last)
      message.held.assign(bytes, bytes + block.last_bytes);
    else
      std::copy_n(bytes, row, place + std::uint64_t{packet} * row);
  }
}

// Restores the missing packets of the block if there are at most as many as rows have arrived.
void Receiver::restore_tail(ReceiveMessage& message, Time now) {
  TailReceive& tail = message.tail;
  if (message.is_overwritten) return;
  const std::uint32_t first = message.count - tail.block;
  std::vector<std::uint32_t> missing;
  for (std::uint32_t index = message.bitmap.next_clear(first);
       index < message.count && missing.size() <= kMostParity;
       index = message.bitmap.next_clear(index + 1))
    missing.push_back(index - first);
  if (missing.empty() || missing.size() > static_cast<std::size_t>(std::popcount(tail.rows)))
    return;
  if (state_.config.carries_payload && message.holds_last)
    restore_held(message, missing);
  else if (state_.config.carries_payload)
    coder_.restore(state_.tail_block(message.base, message.length, tail.block), missing, tail.rows,
                   tail.bytes.data());
  for (const std::uint32_t packet : missing) note_restored(message, first + packet, now);
  relaxed_store(message.highest, message.count - 1);
  if (message.lacking == 0) finish(message, now);
}

}  // namespace softroce
