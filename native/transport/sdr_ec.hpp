// SPDX-License-Identifier: GPL-2.0-or-later
// Erasure coding with selective repeat as its fallback; what `sdr_auto` shares with `sdr_ec`
// (sdr_ec.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "coding.hpp"
#include "sdr_sr.hpp"
#include "transports.hpp"

namespace softroce {

class SdrEc : public SdrSr {
 public:
  explicit SdrEc(MessageEngine& engine);

  bool turn(Time now) override;
  void set_clock(std::int64_t (*now_ns)()) override { clock_ns_ = now_ns; }
  Figures figures() const override;

 protected:
  double beta() const { return beta_; }

  void send_posted(SendMessage& message) override;
  void feedback_arrived(SendMessage& message) override;

 private:
  struct Job {
    Handle message;
    std::uint32_t submessage;
    Coding work;
  };

  void sent(SendMessage& message) final;
  void send_timer(SendMessage& message) final;
  void parity_released(SendMessage& message, std::uint32_t submessage) final;
  void first_packet(ReceiveMessage& message) final;
  void last_packet(ReceiveMessage& message) final;
  void receive_timer(ReceiveMessage& message) final;
  void chunk_arrived(ReceiveMessage& message, std::uint32_t submessage) final;

  void encode(SendMessage& message, std::uint32_t submessage);
  bool repeats(const SendMessage& message);
  Nanoseconds quiet_ns(const SendMessage& message);
  Nanoseconds fto_ns(const ReceiveMessage& message) const;
  Nanoseconds slack_ns(PeerIndex peer) const;
  const ErasureCode& code_of(const CodeLayout::Submessage& part);
  void begin(Job job);
  void end(const Job& job, Time now);
  bool work_a_slice(Time now);

  const bool xor_;  // else the code is MDS
  const double beta_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<ErasureCode>> codes_;
  std::int64_t (*clock_ns_)() = nullptr;
  std::deque<Job> jobs_;        // that a running clock cuts into slices
  std::int64_t restored_ = 0;   // submessages
  std::int64_t fallbacks_ = 0;  // messages
};

std::vector<Option> coding_options();  // of each transport with codes

}  // namespace softroce
