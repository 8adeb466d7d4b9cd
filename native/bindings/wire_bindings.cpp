// SPDX-License-Identifier: GPL-2.0-or-later
// The wire stage's links and wheel, and what it does to frames: for the tests, and for whoever
// wants to know what a shape does without a network.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "../wire/frame_edit.hpp"
#include "../wire/jitter.hpp"
#include "../wire/link.hpp"
#include "../wire/wheel.hpp"
#include "bindings.hpp"
#include "structures.hpp"

namespace softroce {

namespace {

using namespace nb::literals;
using wire::Departure;
using wire::Frame;
using wire::ShapedLink;
using Wheel = wire::Wheel<std::uint64_t>;
using TiedWheel = wire::Wheel<std::uint32_t, 10, 11>;  // as the simulated fabric's

// handle, length, marked, trimmed, due in picoseconds
using Gone = std::tuple<std::uint32_t, std::uint32_t, bool, bool, Time>;

// A link that reports its frames as released when they are due.
class LinkOnItsOwn {
 public:
  void shape(const nb::bytes& packed) { link_.shape(from_bytes<lab_shape>(packed)); }

  bool offer(Time now, std::uint32_t handle, std::uint32_t length, std::uint32_t trimmed_length,
             bool ecn_capable, bool roce, bool copy, std::uint32_t effects, std::uint32_t jitter) {
    Frame frame{.handle = handle,
                .length = length,
                .trimmed_length = trimmed_length,
                .ecn_capable = ecn_capable,
                .roce = roce,
                .copy = copy};
    return link_.offer(frame, {effects, jitter}, now, out_) == wire::Offered::taken;
  }
  void advance(Time now) { link_.advance(now, out_); }
  Time next() const { return link_.next(); }

  // What departed so far, in the order of transmission.
  std::vector<Gone> departures() {
    std::vector<Gone> gone;
    for (const Departure& each : std::exchange(out_, {})) {
      const Frame& frame = each.frame;
      gone.emplace_back(frame.handle, frame.length, frame.marked, frame.trimmed, each.at);
      on_wire_.push_back(each);
    }
    return gone;
  }
  // Releases all departed frames in order of time.
  void release() {
    std::stable_sort(on_wire_.begin(), on_wire_.end(),
                     [](const Departure& a, const Departure& b) { return a.at < b.at; });
    for (const Departure& each : std::exchange(on_wire_, {}))
      link_.released(each.frame, each.at, each.at);
  }
  nb::bytes figures() const {
    const wire::LinkFigures figures = link_.figures();
    return nb::bytes(reinterpret_cast<const char*>(&figures), sizeof figures);
  }

 private:
  ShapedLink link_;
  std::vector<Departure> out_, on_wire_;
};

std::vector<std::uint8_t> copied(const nb::bytes& frame) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.c_str());
  return {bytes, bytes + frame.size()};
}

nb::bytes as_bytes(const std::vector<std::uint8_t>& frame, std::size_t bytes) {
  return nb::bytes(frame.data(), bytes);
}

void bind_link(nb::module_& m) {
  nb::class_<LinkOnItsOwn>(m, "ShapedLink", "One directed link; times in picoseconds.")
      .def(nb::init<>())
      .def("shape", &LinkOnItsOwn::shape, "packed"_a, "Takes a struct lab_shape.")
      .def("offer", &LinkOnItsOwn::offer, "now"_a, "handle"_a, "length"_a, "trimmed_length"_a = 0,
           "ecn_capable"_a = false, "roce"_a = false, "copy"_a = false, "effects"_a = 0,
           "jitter"_a = 0, "Whether the frame was taken.")
      .def("advance", &LinkOnItsOwn::advance, "now"_a)
      .def("next", &LinkOnItsOwn::next, "When it must be advanced; the largest int: never.")
      .def("departures", &LinkOnItsOwn::departures,
           "New ones: (handle, length, marked, trimmed, due).")
      .def("release", &LinkOnItsOwn::release)
      .def("figures", &LinkOnItsOwn::figures, "A struct LinkFigures.");
}

template <typename W, typename Number>
void bind_wheel(nb::module_& m, const char* name) {
  nb::class_<W>(m, name, "Numbers in the order of their times, in picoseconds.")
      .def(nb::init<>())
      .def(
          "add",
          [](W& wheel, Time at, Number value, std::uint32_t tie) {
            if (tie >= W::kTies) throw std::invalid_argument("too large a tie");
            wheel.add(at, value, tie);
          },
          "at"_a, "value"_a, "tie"_a = 0)
      .def("next", &W::next)
      .def(
          "take",
          [](W& wheel, Time now) -> nb::object {
            Time at = 0;
            Number value = 0;
            if (!wheel.take(now, at, value)) return nb::none();
            return nb::make_tuple(at, value);
          },
          "now"_a, "(time, number) of the first that is due, or None.")
      .def("__len__", &W::size);
}

}  // namespace

void bind_wire(nb::module_& m) {
  bind_link(m);
  bind_wheel<Wheel, std::uint64_t>(m, "Wheel");
  bind_wheel<TiedWheel, std::uint32_t>(m, "TiedWheel");
  m.def(
      "jitter_of",
      [](std::uint32_t bits, std::int64_t jitter_ns, std::uint32_t distribution) {
        return wire::jitter_of(bits, jitter_ns, distribution);
      },
      "bits"_a, "jitter_ns"_a, "distribution"_a, "Nanoseconds that are added to a delay.");
  m.def(
      "frames_needed",
      [](const nb::bytes& packed) { return wire::frames_needed(from_bytes<lab_shape>(packed)); },
      "packed"_a, "Frames that a shape may have to hold.");
  m.def(
      "mark_ce",
      [](const nb::bytes& frame) {
        std::vector<std::uint8_t> bytes = copied(frame);
        if (!wire::ecn_capable(bytes.data(), bytes.size())) return frame;
        wire::mark_ce(bytes.data());
        return as_bytes(bytes, bytes.size());
      },
      "frame"_a, "The frame with CE, if its sender is ECN-capable.");
  m.def(
      "trim_frame",
      [](const nb::bytes& frame, bool last_hop) {
        std::vector<std::uint8_t> bytes = copied(frame);
        const std::size_t left = wire::trimmed_bytes(bytes.data(), bytes.size());
        if (left == 0) return frame;
        wire::trim(bytes.data(), bytes.size(), last_hop);
        return as_bytes(bytes, left);
      },
      "frame"_a, "last_hop"_a = false,
      "The frame without its data, if it is a whole data packet of ours.");
}

}  // namespace softroce
