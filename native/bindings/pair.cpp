// SPDX-License-Identifier: GPL-2.0-or-later
#include "../pair/pair.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "../endpoint/endpoint.hpp"
#include "../engine/striped/tail_parity.hpp"
#include "../transport/path_health.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

class PairSide final : public DirectEndpoint {
 public:
  PairSide(Pair& pair, int which) : pair_(pair), which_(which) {}
  Rnic& rnic() override { return pair_.side(which_); }
  Time now() const override { return pair_.now(); }

 private:
  Pair& pair_;
  int which_;
};

struct PairWithSides : Pair {
  using Pair::Pair;
  std::array<PairSide, 2> sides{PairSide(*this, 0), PairSide(*this, 1)};
};

// An RNIC of which frames go in and come out by hand.
class FrameEndpoint final : public DirectEndpoint {
 public:
  FrameEndpoint(const MessageConfig& config, std::uint64_t mac) : rnic_(config), mac_(mac) {}
  Rnic& rnic() override { return rnic_; }
  Time now() const override { return now_; }

  void handle_frame(const nb::bytes& frame, std::int64_t now_ns) {
    now_ = from_ns(now_ns);
    Packet packet;
    if (const auto refusal =
            decode(static_cast<const std::uint8_t*>(frame.data()), frame.size(), packet))
      rnic_.counters().add(*refusal);
    else
      rnic_.handle_packet(packet, now_);
    rnic_.end_turn(now_);
  }
  nb::object poll_frame(std::int64_t now_ns) {
    now_ = from_ns(now_ns);
    rnic_.end_turn(now_);  // of what was posted
    Packet packet;
    if (!rnic_.poll_packet(packet, now_)) return nb::none();
    std::vector<std::uint8_t> out(kMostPathMtu + kMostOverheadBytes + kMostLabBytes);
    const std::size_t bytes = encode(packet, mac_, out.data());
    rnic_.packet_done(now_);
    return nb::bytes(out.data(), bytes);
  }
  void handle_timeout(std::int64_t now_ns) {
    now_ = from_ns(now_ns);
    rnic_.handle_timeout(now_);
    rnic_.end_turn(now_);
  }

 private:
  Rnic rnic_;
  std::uint64_t mac_;
  Time now_ = 0;
};

void bind_cable(nb::module_& m) {
  nb::class_<DropRule>(m, "DropRule", "Drops packets that match all fields; -1 matches all.")
      .def(nb::init<>())
      .def_rw("kind", &DropRule::kind)
      .def_rw("message", &DropRule::message)
      .def_rw("body", &DropRule::body)
      .def_rw("index_first", &DropRule::index_first)
      .def_rw("index_last", &DropRule::index_last)
      .def_rw("attempt_first", &DropRule::attempt_first)
      .def_rw("attempt_last", &DropRule::attempt_last)
      .def_rw("path", &DropRule::path)
      .def_rw("limit", &DropRule::limit);
  nb::class_<Cable>(m, "Cable", "One direction of a pair's cable; probabilities as thresholds.")
      .def_rw("loss", &Cable::loss)
      .def_rw("duplicate", &Cable::duplicate)
      .def_rw("corrupt", &Cable::corrupt)
      .def_rw("down", &Cable::down)
      .def_rw("carries", &Cable::carries, "so many packets, and then it is down")
      .def_rw("loses", &Cable::loses, "the packets of these numbers, from 0")
      .def_rw("rules", &Cable::rules)
      .def_rw("mark_from", &Cable::mark_from, "packets in the queue that it is marked for")
      .def_rw("lose_from", &Cable::lose_from, "packets in the queue that it is lost for")
      .def_prop_rw(
          "service_time_ns", [](const Cable& c) { return to_ns(c.service_time); },
          [](Cable& c, std::int64_t ns) { c.service_time = from_ns(ns); },
          "of a packet, on a slower link behind this one, which has a queue; 0: none")
      .def_prop_rw(
          "delay_ns", [](const Cable& c) { return to_ns(c.delay); },
          [](Cable& c, std::int64_t ns) { c.delay = from_ns(ns); })
      .def_prop_rw(
          "jitter_ns", [](const Cable& c) { return to_ns(c.jitter); },
          [](Cable& c, std::int64_t ns) { c.jitter = from_ns(ns); })
      .def_prop_rw(
          "packet_time_ns", [](const Cable& c) { return to_ns(c.packet_time); },
          [](Cable& c, std::int64_t ns) { c.packet_time = from_ns(ns); });
}

void bind_path_health(nb::module_& m) {
  nb::class_<PathHealth>(m, "PathHealth", "Which paths to a peer lose more than the others.")
      .def(nb::init<std::uint32_t>(), nb::arg("paths"))
      .def("note_sent", &PathHealth::note_sent, nb::arg("counts"))
      .def("note_lost", &PathHealth::note_lost, nb::arg("path"))
      .def("leave",
           [](PathHealth& health) {
             const std::vector<std::uint8_t> paths = health.leave();
             return std::vector<int>(paths.begin(), paths.end());
           })
      .def("left", &PathHealth::left);
}

void bind_tail_parity(nb::module_& m) {
  nb::class_<LossEstimate>(m, "LossEstimate", "The part of packets that are lost, by reports.")
      .def(nb::init<>())
      .def("note", &LossEstimate::note, nb::arg("packets"), nb::arg("lost"), nb::arg("bursts"))
      .def_prop_ro("loss", &LossEstimate::loss)
      .def_prop_ro("burst_packets", &LossEstimate::burst_packets);
  m.def("parity_rows", &parity_rows, nb::arg("block"), nb::arg("loss"), nb::arg("burst_packets"),
        nb::arg("most"), "How many packets of parity a block of so many packets of data needs");
}

}  // namespace

void bind_pair(nb::module_& m) {
  bind_cable(m);
  bind_path_health(m);
  bind_tail_parity(m);
  nb::class_<PairSide, Endpoint>(m, "PairSide")
      .def(
          "set_next_message_id",
          [](PairSide& side, PeerIndex peer, std::uint32_t id) {
            side.rnic().messages().set_next_id(peer, id);
          },
          nb::arg("peer"), nb::arg("id"), "sends go on with this id, as after so many messages")
      .def(
          "awaits",
          [](PairSide& side, PeerIndex peer,
             std::tuple<std::uint16_t, std::uint16_t, std::uint32_t> key) {
            const auto [operation, step, message] = key;
            return side.rnic().messages().find_posted(peer, {operation, step, message}) != nullptr;
          },
          nb::arg("peer"), nb::arg("key"), "a receive of this key is posted and has not begun");
  using P = PairWithSides;
  nb::class_<P>(m, "Pair", "Two RNICs on an imagined cable, with a clock moved by hand.")
      .def(nb::init<const MessageConfig&, const MessageConfig&, std::uint64_t>(), nb::arg("a"),
           nb::arg("b"), nb::arg("seed"))
      .def(
          "side", [](P& p, int which) -> Endpoint& { return p.sides.at(which); },
          nb::rv_policy::reference_internal)
      .def(
          "cable", [](P& p, int from) -> Cable& { return p.cable(from); },
          nb::rv_policy::reference_internal)
      .def_prop_ro("now_ns", [](const P& p) { return to_ns(p.now()); })
      .def("run", [](P& p, std::int64_t until_ns) { return p.run(from_ns(until_ns)); })
      .def("keep_sent", &P::keep_sent, "Keep a copy of every frame that is sent from now on.")
      .def(
          "take_sent",
          [](P& p) {
            nb::list sent;
            for (const Pair::Sent& each : p.take_sent())
              sent.append(nb::make_tuple(to_ns(each.at), each.from,
                                         nb::bytes(each.frame.data(), each.frame.size())));
            return sent;
          },
          "What was kept since the last time: (time in ns, from which side, frame)")
      .def("inject",
           [](P& p, int to, const nb::bytes& frame) {
             p.inject(to, static_cast<const std::uint8_t*>(frame.data()), frame.size());
           })
      .def("totals", [](const P& p, int from) {
        const auto& t = p.totals(from);
        nb::dict d;
        d["sent"] = t.sent;
        d["lost"] = t.lost;
        d["duplicated"] = t.duplicated;
        d["corrupted"] = t.corrupted;
        d["marked"] = t.marked;
        return d;
      });
  nb::class_<FrameEndpoint, Endpoint>(m, "FrameEndpoint",
                                      "An RNIC of which frames go in and come out by hand.")
      .def(nb::init<const MessageConfig&, std::uint64_t>(), nb::arg("config"), nb::arg("mac"))
      .def("handle_frame", &FrameEndpoint::handle_frame)
      .def("poll_frame", &FrameEndpoint::poll_frame)
      .def("handle_timeout", &FrameEndpoint::handle_timeout);
  m.def(
      "bare_loop",
      [](std::uintptr_t source, std::uintptr_t target, std::uint64_t bytes,
         std::uint32_t chunk_bytes) {
        return bare_loop(reinterpret_cast<const std::uint8_t*>(source),
                         reinterpret_cast<std::uint8_t*>(target), bytes, chunk_bytes);
      },
      nb::arg("source"), nb::arg("target"), nb::arg("bytes"), nb::arg("chunk_bytes"),
      "Copies and CRCs of a pair's packets and nothing else; returns the number of packets");
}

}  // namespace softroce
