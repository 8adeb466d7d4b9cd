// SPDX-License-Identifier: GPL-2.0-or-later
// Source of `reps` and `bitmap`: htsim, the simulator of the Ultra Ethernet Consortium (uec_mp.cpp,
// buffer_reps.cpp). [D]: this project's rule.
#include "path_picker.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "../../../xdp/lab_hash.h"

namespace softroce {
namespace {

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(lab_absorb(seed_, ++drawn_) % bound);
  }

 private:
  std::uint64_t seed_, drawn_ = 0;
};

// ---------------------------------------------------------------- turns, least-in-flight [D]

class Turns final : public PathPicker {
 public:
  explicit Turns(const PathsOfPeer& of) : schedule_(of.schedule) {}

  std::uint8_t pick(Time) override { return schedule_.next(); }
  std::uint8_t pick_again(std::uint8_t lost_on, Time) override {
    return schedule_.next_other(lost_on);
  }

 private:
  PathSchedule& schedule_;
};

// The path with the fewest packets on their way, ties in turn. The loads are the sender's: reports
// tell what has arrived. Marked paths count as fuller for a round trip; retransmissions do not heed
// that. They take the path with the fewest losses in a row: a dead path looks empty.
class LeastInFlight final : public PathPicker {
 public:
  explicit LeastInFlight(const PathsOfPeer& of) : of_(of) {}

  std::uint8_t pick(Time now) override {
    return cheapest(of_.schedule.next(), kAnyPath,
                    [&](std::uint8_t path) { return of_.loads.with_marks(path, now); });
  }
  std::uint8_t pick_again(std::uint8_t lost_on, Time) override {
    return cheapest(of_.schedule.next_other(lost_on), lost_on, [&](std::uint8_t path) {
      return std::pair(of_.loads.lost_in_row(path), of_.loads.of(path));
    });
  }
  void acked(std::uint8_t path, bool marked, Time now) override {
    if (marked) of_.loads.marked(path, now + of_.rtt.srtt);
    of_.loads.arrived(path);
  }
  void lost(std::uint8_t path, Time) override {
    of_.loads.left(path, 1);
    of_.loads.lost(path);
  }
  void timed_out(std::uint8_t path, Time now) override { lost(path, now); }

 private:
  void nacked(std::uint8_t path, Time) override { of_.loads.left(path, 1); }
  template <typename Cost>
  std::uint8_t cheapest(std::uint8_t next, std::uint8_t except, Cost cost) const {
    std::uint8_t best = next;
    for (std::uint8_t path = 0; path < of_.schedule.paths(); ++path)
      if (path != except && cost(path) < cost(best)) best = path;
    return best;
  }

  PathsOfPeer of_;
};

// ---------------------------------------------------------------- reps

// REPS (arXiv 2407.21625): the path of an acknowledgement without a mark is used once more. After a
// timeout the ring freezes: its paths are used over and over, because random ones might be dead.
class Reps final : public PathPicker {
 public:
  Reps(const PathsOfPeer& of, std::uint64_t seed) : paths_(of.schedule.paths()), draws_(seed) {}

  std::uint8_t pick(Time) override {
    if (exploring_ > 0) {
      --exploring_;
      return any();
    }
    if (frozen_until_ != 0 && filled_ != 0) {
      const std::uint8_t path = ring_[frozen_at_];
      frozen_at_ = (frozen_at_ + 1) % filled_;
      return path;
    }
    if (fresh_ == 0 || frozen_until_ != 0) return any();
    return ring_[(head_ + kRing - fresh_--) % kRing];
  }
  void acked(std::uint8_t path, bool marked, Time now) override {
    thaw_if_due(now);
    if (marked) return;
    ring_[head_] = path;
    head_ = (head_ + 1) % kRing;
    fresh_ = std::min(fresh_ + 1, kRing);
    filled_ = std::min(filled_ + 1, kRing);
  }
  void lost(std::uint8_t, Time now) override { thaw_if_due(now); }
  void timed_out(std::uint8_t, Time now) override {
    if (frozen_until_ == 0 && exploring_ == 0) frozen_until_ = now + kFrozenFor;
    thaw_if_due(now);
  }

 private:
  static constexpr std::uint32_t kRing = 8;              // buffer_reps.cpp: repsBufferSize
  static constexpr std::uint32_t kExplore = 16;          // uec_mp.cpp: explore_counter
  static constexpr Time kFrozenFor = 10 * kMillisecond;  // buffer_reps.cpp: exit_freeze_after

  void nacked(std::uint8_t, Time now) override { thaw_if_due(now); }
  std::uint8_t any() { return static_cast<std::uint8_t>(draws_.below(paths_)); }
  void thaw_if_due(Time now) {
    if (frozen_until_ == 0 || now <= frozen_until_) return;
    frozen_until_ = 0;
    head_ = fresh_ = filled_ = frozen_at_ = 0;
    exploring_ = kExplore;
  }

  std::uint32_t paths_;
  Draws draws_;
  std::array<std::uint8_t, kRing> ring_{};
  std::uint32_t head_ = 0;    // the slot that is written next
  std::uint32_t fresh_ = 0;   // slots before it that were not used yet
  std::uint32_t filled_ = 0;  // slots that were ever written
  std::uint32_t frozen_at_ = 0;
  Time frozen_until_ = 0;               // 0: it is not frozen
  std::uint32_t exploring_ = kExplore;  // random picks that are left
};

// ---------------------------------------------------------------- bitmap

// Paths in turn. A pick passes over paths with penalty points, at most as many as there are paths.
// The first one that it passes over loses a point.
class PenaltyBitmap final : public PathPicker {
 public:
  PenaltyBitmap(const PathsOfPeer& of, std::uint64_t seed)
      : paths_(of.schedule.paths()), draws_(seed), turn_(draws_.below(paths_)) {}

  std::uint8_t pick(Time) override {
    std::uint8_t path = current();
    if (points_[path] != 0) --points_[path], path = advance();
    for (std::uint32_t n = 1; n < paths_ && points_[path] != 0; ++n) path = advance();
    advance();
    return path;
  }
  void acked(std::uint8_t path, bool marked, Time) override {
    if (marked) punish(path, kMarked);
  }
  // [D]: as a NACK. In the source, only trimmed packets are reported as missing.
  void lost(std::uint8_t path, Time now) override { nacked(path, now); }
  void timed_out(std::uint8_t path, Time) override { punish(path, kMost); }

 private:
  // UecMpBitmap::processEv
  static constexpr std::uint32_t kMarked = 1, kNacked = 4, kMost = 15;

  void nacked(std::uint8_t path, Time) override { punish(path, kNacked); }
  void punish(std::uint8_t path, std::uint32_t points) {
    points_[path] = std::min(points_[path] + points, kMost);
  }
  std::uint8_t current() const { return static_cast<std::uint8_t>((at_ + turn_) % paths_); }
  // [D]: each rotation begins at a random path. In the source, an XOR permutes the rotation, for
  // which the number of paths must be a power of two.
  std::uint8_t advance() {
    if (++at_ == paths_) {
      at_ = 0;
      turn_ = draws_.below(paths_);
    }
    return current();
  }

  std::uint32_t paths_;
  Draws draws_;
  std::uint32_t at_ = 0, turn_;  // place in the rotation, and the path that the rotation began with
  std::array<std::uint32_t, kMaxPaths> points_{};
};

// ---------------------------------------------------------------- ev-states

// The states that MRC 1.0 (OCP) gives an entropy value, here a path. A mark, or a packet that was
// trimmed before the last switch: GOOD becomes SKIP. A timeout with neither an acknowledgement nor
// a trimmed packet: ASSUMED_BAD, of which a floor limits the number. DENIED is administrative: it
// is not here.
//
// [D]: SKIP becomes GOOD when a rotation has passed over the path, one path a pick. An inferred
// loss counts as a timeout. MRC has probes, whose answer makes an ASSUMED_BAD path GOOD. Here each
// 64th rotation sends a data packet over the path, and any acknowledged packet of the path is such
// an answer.
class EvStates final : public PathPicker {
 public:
  EvStates(const PathsOfPeer& of, std::uint64_t seed)
      : paths_(of.schedule.paths()), at_(Draws(seed).below(paths_)) {}

  std::uint8_t pick(Time) override {
    std::uint8_t restored = kAnyPath;
    for (std::uint32_t n = 0; n < paths_; ++n) {
      const auto path = static_cast<std::uint8_t>(at_);
      at_ = (at_ + 1) % paths_;
      Value& value = values_[path];
      if (value.state == State::good) return path;
      if (value.state == State::assumed_bad && ++value.passed == kProbeRotations)
        return value.passed = 0, path;
      if (value.state != State::skip || restored != kAnyPath) continue;
      value.state = State::good;
      restored = path;
    }
    at_ = (restored + 1) % paths_;
    return restored;  // the floor keeps a path that is not ASSUMED_BAD
  }
  void acked(std::uint8_t path, bool marked, Time) override {
    State& state = values_[path].state;
    if (state == State::assumed_bad) state = State::good;
    if (marked) state = State::skip;
  }
  void lost(std::uint8_t path, Time now) override { timed_out(path, now); }
  void timed_out(std::uint8_t path, Time now) override {
    const auto bad = std::ranges::count(values_, State::assumed_bad, &Value::state);
    if (paths_ - static_cast<std::uint32_t>(bad) <= least_active()) return nacked(path, now);
    if (values_[path].state != State::assumed_bad) values_[path] = {State::assumed_bad, 0};
  }

 private:
  enum class State : std::uint8_t { good, skip, assumed_bad };
  struct Value {
    State state = State::good;
    std::uint32_t passed = 0;  // rotations since it is ASSUMED_BAD, or since the last probe
  };
  static constexpr std::uint32_t kProbeRotations = 64;  // [D]

  void nacked(std::uint8_t path, Time) override {
    State& state = values_[path].state;
    if (state == State::good) state = State::skip;
  }
  // `ev_min_active`: a quarter, as in the examples of MRC's control interface (mrc_ctl).
  std::uint32_t least_active() const { return std::max(paths_ / 4, 1U); }

  std::uint32_t paths_;
  std::uint32_t at_;  // the path that the rotation comes to next
  std::array<Value, kMaxPaths> values_{};
};

// ---------------------------------------------------------------- by name

using Make = std::unique_ptr<PathPicker> (*)(const PathsOfPeer&, std::uint64_t);

struct Named {
  std::string_view name;
  Make make;
  bool heeds_marks;
};

template <typename Class>
std::unique_ptr<PathPicker> plain(const PathsOfPeer& of, std::uint64_t) {
  return std::make_unique<Class>(of);
}
template <typename Class>
std::unique_ptr<PathPicker> drawing(const PathsOfPeer& of, std::uint64_t seed) {
  return std::make_unique<Class>(of, seed);
}

constexpr Named kPickers[] = {
    {kPickPerMessage, plain<Turns>, false},           {kPickTurns, plain<Turns>, false},
    {kPickLeastInFlight, plain<LeastInFlight>, true}, {"reps", drawing<Reps>, true},
    {"bitmap", drawing<PenaltyBitmap>, true},         {"ev-states", drawing<EvStates>, true},
};

const Named& named(std::string_view name) {
  std::string known;
  for (const Named& each : kPickers) {
    if (each.name == name) return each;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  throw std::invalid_argument("unknown path_picker '" + std::string(name) + "'; known: " + known);
}

}  // namespace

const std::vector<std::string>& path_picker_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Named& each : kPickers) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

bool heeds_marks(std::string_view picker) { return named(picker).heeds_marks; }

std::unique_ptr<PathPicker> make_path_picker(std::string_view name, const PathsOfPeer& of,
                                             std::uint64_t seed) {
  return named(name).make(of, seed);
}

}  // namespace softroce
