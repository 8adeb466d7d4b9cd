// SPDX-License-Identifier: GPL-2.0-or-later
// `sdr_auto`: selective repeat or erasure coding, message by message, by SDR-RDMA's model.
//
// [D] All of it is this project's definition; the paper (arXiv 2505.05366) leaves the choice to the
// user. The sender knows from the receiver's reports which share of its packets arrives, and the
// RTT. For a size of messages it takes the code, or none, whose mean completion time the model puts
// lowest. It looks again with every message, so it changes its mind while it runs: a loss that
// differs from what was measured so far by more than chance makes it forget that.
//
// Packets carry the place of their message's code in the list of codes. Immediates have no room for
// it, so the framing is `ud`.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sdr_ec.hpp"
#include "sdr_model.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

constexpr std::uint8_t kNoCode = UINT8_MAX;
constexpr std::uint32_t kLeastPackets = 1024;  // that a measurement of the loss has
constexpr double kPriorLost = 0.5;             // packets: Jeffreys' prior of a Poisson rate
constexpr double kMostPackets = 1 << 21;       // that are remembered
constexpr double kDeviations = 4;  // of a measurement from those before it, beyond chance
constexpr double kPerDecade = 4;   // losses, and RTTs, that are distinguished

// What a sender knows of a peer: packets that had time to arrive, and those that did not.
class Losses {
 public:
  // The newest figures of its reports, modulo 2^32.
  void note(std::uint32_t echoed, std::uint32_t reported) {
    if (echoed - echoed_before_ < kLeastPackets) return;
    const double packets = echoed - echoed_before_, arrived = reported - reported_before_;
    echoed_before_ = echoed;
    reported_before_ = reported;
    const double lost = std::max(packets - arrived, 0.0);
    const double expected = packets_ != 0 ? lost_ / packets_ * packets : lost;
    if (std::abs(lost - expected) > kDeviations * std::sqrt(std::max({expected, lost, 1.0})))
      packets_ = lost_ = 0;  // that was another network
    packets_ += packets;
    lost_ += lost;
    if (packets_ <= kMostPackets) return;
    packets_ /= 2;
    lost_ /= 2;
  }
  bool is_known() const { return packets_ != 0; }
  // The mean of what a packet's loss may be after these: where none was lost, it is not 0.
  double loss() const { return (lost_ + kPriorLost) / packets_; }

  std::array<std::uint8_t, 33> codes{};  // by the number of bits in a message's length

 private:
  std::uint32_t echoed_before_ = 0, reported_before_ = 0;
  double packets_ = 0, lost_ = 0;
};

// The nearest of some values a decade, so that few predictions are made.
double graded(double value) {
  return std::pow(10, std::nearbyint(std::log10(value) * kPerDecade) / kPerDecade);
}

class SdrAuto final : public SdrEc {
 public:
  using SdrEc::SdrEc;

  Figures figures() const override;

 private:
  void send_posted(SendMessage& message) override;
  void feedback_arrived(SendMessage& message) override;

  void choose(const SendMessage& message);
  std::uint8_t best(std::uint64_t length, double loss, double rtt_ns);
  std::uint8_t predicted_best(std::uint64_t length, double loss, double rtt_ns) const;

  std::map<PeerIndex, Losses> losses_;
  std::map<std::tuple<std::uint64_t, double, double>, std::uint8_t> predictions_;
  std::map<std::string, std::int64_t> used_;  // messages by their codes
};

Figures SdrAuto::figures() const {
  Figures all = SdrEc::figures();
  all.emplace_back("codes", used_);
  return all;
}

void SdrAuto::send_posted(SendMessage& message) {
  const CodeLayout& layout = message.coded.layout;
  const auto [k, m] = layout.shape();
  ++used_[layout.coded() ? "(" + std::to_string(k) + ", " + std::to_string(m) + ")" : "none"];
  SdrEc::send_posted(message);
  choose(message);
}

// Without parity it is `sdr_sr_nack`.
void SdrAuto::feedback_arrived(SendMessage& message) {
  SdrEc::feedback_arrived(message);
  if (!message.coded.layout.coded()) repeat_overtaken(message);
}

// Another code for messages of this size that follow, if the losses call for it.
void SdrAuto::choose(const SendMessage& message) {
  Losses& measured = losses_[message.peer];
  const Peer& to = peer(message.peer);
  measured.note(static_cast<std::uint32_t>(to.flight.echoed()), to.reported_packets);
  if (!measured.is_known()) return;
  // A message of a power of two bytes ends within its last packet, and is not of the next one.
  const std::uint64_t shortest = std::uint64_t{message.count - 1} * chunk_bytes() + 1;
  const std::uint64_t longest = std::uint64_t{message.count} * chunk_bytes();
  const std::uint8_t choice =
      best(std::bit_ceil(shortest), graded(sdr_model::chunk_loss(measured.loss(), chunk_packets())),
           graded(static_cast<double>(rtt(message.peer).srtt_ns)));
  const auto first = measured.codes.begin() + static_cast<int>(std::bit_width(shortest));
  const auto last = measured.codes.begin() + std::min<int>(std::bit_width(longest), 32) + 1;
  if (std::all_of(first, last, [&](std::uint8_t code) { return code == choice; })) return;
  std::fill(first, last, choice);
  engine().set_codes(message.peer, measured.codes);
}

std::uint8_t SdrAuto::best(std::uint64_t length, double loss, double rtt_ns) {
  const auto [known, is_new] = predictions_.try_emplace({length, loss, rtt_ns});
  if (is_new) known->second = predicted_best(length, loss, rtt_ns);
  return known->second;
}

// The place of the code with the least mean time for a message, or kNoCode.
std::uint8_t SdrAuto::predicted_best(std::uint64_t length, double loss, double rtt_ns) const {
  if (loss < sdr_model::kLeastLoss) return kNoCode;
  const auto bytes = static_cast<std::int64_t>(length);
  const auto chunk = std::int64_t{chunk_packets()} * chunk_bytes();
  const std::vector<CodeShape>& codes = config().code.shapes;
  const std::vector<double> means_ns =
      sdr_model::expected_ns({.message_bytes = bytes,
                              .chunk_bytes = std::min(chunk, bytes),
                              .chunk_packets = chunk_packets(),
                              .loss = loss,
                              .rtt_ns = rtt_ns,
                              .bandwidth_bps = static_cast<double>(config().line_rate_bps),
                              .beta = beta()},
                             codes);
  const auto place =
      static_cast<std::size_t>(std::ranges::min_element(means_ns) - means_ns.begin());
  return place < codes.size() ? static_cast<std::uint8_t>(place) : kNoCode;
}

}  // namespace

Transport sdr_auto_transport() {
  return {
      .name = "sdr_auto",
      .make = make<SdrAuto>,
      .framings = {"ud"},
      .options = coding_options(),
      .has_rto = true,
      .sends_sacks = true,
      .codes = [](const Options&) {
        std::vector<CodeShape> codes;
        for (const std::uint32_t parity : {8, 1, 2, 4, 16, 32})  // the first until losses are known
          codes.push_back({32, parity});
        return codes;
      }};
}

}  // namespace softroce
