// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "records.hpp"
#include "sink.hpp"

namespace softroce::monitor {

// All captures of a lab: passes each packet to the captures of its link, and has the XDP programs
// copy as much of a link's packets as the largest snap length of its captures.
class Captures {
 public:
  // Throws std::system_error.
  Captures(const std::string& bpffs, const std::string& rules);

  int epoll_fd() const { return ring_.epoll_fd(); }
  const TapMap& taps() const { return taps_; }

  // Takes what the ring holds now.
  void drain();
  // Parses a list with a line "NUMBER NAME" for each directed link. Throws
  // std::system_error.
  std::vector<Interface> interfaces_in(const Descriptor& list) const;
  // What is captured from now on goes into `sink`, until it is removed.
  void add(Sink& sink);
  void remove(Sink& sink);
  // Whether something waits for a reader.
  bool is_waiting() const;

 private:
  struct Target {
    Sink* sink;
    std::uint32_t interface;
  };

  void take(const void* record, std::size_t bytes);
  void set_snaps(const Sink& of);

  TapMap taps_;
  RuleTexts rules_;
  std::vector<std::vector<Target>> targets_;  // by directed link
  std::vector<Sink*> sinks_;
  RingDrain ring_;
};

}  // namespace softroce::monitor
