// SPDX-License-Identifier: GPL-2.0-or-later
// Erasure-coded messages: the packets of the data, and behind them, with higher indices, those of
// the parity. Chunks of data are coded k at a time, as submessages. What the parity
// is, and what can be restored with it, is the session's; here is where its packets lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace softroce {

struct CodeShape {  // of a whole submessage; all zero: no code
  std::uint32_t data_chunks = 0, parity_chunks = 0;
};

inline constexpr std::uint32_t kMostCodeChunks = 256;  // of a submessage: elements of GF(2^8)

// Which codes an endpoint may use; the same at both ends.
struct CodeConfig {
  std::uint32_t chunk_packets = 0;
  std::vector<CodeShape> shapes;  // none: no message is coded
};

class CodeLayout {
 public:
  struct Submessage {
    std::uint32_t first_chunk, data_chunks, parity_chunks;
    std::uint32_t first_parity;  // packet of the parity
    std::uint32_t chunk_bytes;   // of each chunk; a short last one is padded with zeros
    std::uint32_t chunk_packets;
  };

  CodeLayout() = default;  // of a message without parity
  CodeLayout(CodeShape shape, std::uint32_t chunk_packets, std::uint32_t packet_bytes,
             std::uint32_t length)
      : shape_(shape), chunk_packets_(chunk_packets), packet_bytes_(packet_bytes), length_(length) {
    if (length == 0) return;  // it has nothing to restore
    const std::uint64_t packets = (std::uint64_t{length} + packet_bytes - 1) / packet_bytes;
    chunks_ = static_cast<std::uint32_t>((packets + chunk_packets - 1) / chunk_packets);
    submessages_ = (chunks_ + shape.data_chunks - 1) / shape.data_chunks;
    const Submessage last = submessage(submessages_ - 1);
    const std::uint64_t parity =
        std::uint64_t{submessages_ - 1} * shape.parity_chunks * chunk_packets +
        std::uint64_t{last.parity_chunks} * last.chunk_packets;
    fits_ = packets + parity <= INT32_MAX;
    parity_packets_ = fits_ ? static_cast<std::uint32_t>(parity) : 0;
  }

  bool fits() const { return fits_; }  // into the numbers of packets
  bool coded() const { return parity_packets_ != 0; }
  std::uint32_t chunks() const { return chunks_; }  // of data
  std::uint32_t submessages() const { return submessages_; }
  std::uint32_t parity_packets() const { return parity_packets_; }
  std::uint64_t parity_bytes() const { return std::uint64_t{parity_packets_} * packet_bytes_; }
  std::uint32_t chunk_packets() const { return chunk_packets_; }
  std::uint64_t chunk_bytes() const { return std::uint64_t{chunk_packets_} * packet_bytes_; }
  CodeShape shape() const { return shape_; }

  Submessage submessage(std::uint32_t number) const {
    const std::uint32_t k = shape_.data_chunks, m = shape_.parity_chunks;
    const std::uint32_t first = number * k, data = std::min(k, chunks_ - first);
    const std::uint64_t rest = length_ - first * chunk_bytes();
    const auto bytes = static_cast<std::uint32_t>(std::min(chunk_bytes(), rest));
    return {.first_chunk = first,
            .data_chunks = data,
            .parity_chunks = (data * m + k - 1) / k,
            .first_parity = number * m * chunk_packets_,
            .chunk_bytes = bytes,
            .chunk_packets = (bytes + packet_bytes_ - 1) / packet_bytes_};
  }

  std::uint32_t submessage_of_parity(std::uint32_t packet) const {
    return std::min(packet / (shape_.parity_chunks * chunk_packets_), submessages_ - 1);
  }
  // The packets of data that go before the parity of a submessage, `packets` in all.
  std::uint32_t data_end(std::uint32_t number, std::uint32_t packets) const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(
        std::uint64_t{number + 1} * shape_.data_chunks * chunk_packets_, packets));
  }
  std::uint32_t parity_end(std::uint32_t number) const {
    const Submessage part = submessage(number);
    return part.first_parity + part.parity_chunks * part.chunk_packets;
  }
  // Bytes in a packet of the parity.
  std::uint32_t bytes_of_parity(std::uint32_t packet) const {
    const Submessage part = submessage(submessage_of_parity(packet));
    const std::uint32_t within = (packet - part.first_parity) % part.chunk_packets;
    return std::min(packet_bytes_, part.chunk_bytes - within * packet_bytes_);
  }

 private:
  CodeShape shape_;
  std::uint32_t chunk_packets_ = 0, packet_bytes_ = 0, length_ = 0;
  std::uint32_t chunks_ = 0, submessages_ = 0, parity_packets_ = 0;
  bool fits_ = true;
};

// What a send keeps of its parity. The bytes are made by the session, or by a user's policy on a
// thread of its own under the message's lock, and read by the engine after their release.
struct CodedSend {
  CodeLayout layout;
  std::uint32_t next = 0;      // packets of parity [0, next) have been sent,
  std::uint32_t released = 0;  // and [0, released) may be
  std::uint8_t code = 0;       // as packets carry it
  bool open = false;           // memory may be read, of the data and of this
  std::unique_ptr<std::uint8_t[]> bytes;

  void begin(const CodeLayout& with, std::uint32_t place) {
    layout = with;
    code = static_cast<std::uint8_t>(layout.coded() ? place + 1 : 0);
    next = released = 0;
    open = layout.coded();
  }
  bool all_sent() const { return next == layout.parity_packets(); }
  // The next packet of parity goes before the data packet `data_next` of `data_packets`.
  bool is_due(std::uint32_t data_next, std::uint32_t data_packets) const {
    return next < released &&
           layout.data_end(layout.submessage_of_parity(next), data_packets) <= data_next;
  }
};

// What a receive keeps of its chunks; of data first, and of the parity, m for each submessage.
struct CodedReceive {
  CodeLayout layout;
  bool open = false;
  std::unique_ptr<std::uint8_t[]> bytes;    // of the parity, since its first packet
  std::vector<std::uint16_t> left;          // packets that each chunk lacks
  std::vector<std::uint16_t> chunks_there;  // of each submessage
  std::vector<std::uint16_t> data_there;

  void begin(const CodeLayout& with, std::uint32_t packets);
  struct Arrival {
    std::uint32_t submessage;
    bool completes;  // a chunk, with which there are as many as there are chunks of data
  };
  Arrival arrived(std::uint32_t index, std::uint32_t packets);
  // All data of a submessage is there.
  void restored(std::uint32_t submessage);
};

}  // namespace softroce
