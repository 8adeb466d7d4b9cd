// SPDX-License-Identifier: GPL-2.0-or-later
#include "../endpoint/endpoint.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "bindings.hpp"

namespace softroce {
namespace {

using Indices = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct SendProgress {
  std::uint32_t count, sent, retransmit_pending;
  bool paused;
};

struct SendState : SendProgress {
  std::uint32_t parity;
  std::vector<Sent> packets;
  std::vector<std::uint64_t> waiting;
};

template <typename T>
auto of_each(const SendState& state, T (Sent::*what)() const) {
  std::vector<T> values(state.packets.size());
  std::ranges::transform(state.packets, values.begin(), what);
  return to_numpy(std::move(values));
}

struct ReceiveState {
  PeerIndex peer;
  bool open;
  std::uint32_t id, count, received, highest, duplicates, parity;
  Time first_at, last_at;
  std::vector<std::uint64_t> words;
  std::uint32_t first_missing;
};

std::uint32_t first_clear_bit(const std::vector<std::uint64_t>& words) {
  for (std::uint32_t word = 0; word < words.size(); ++word)
    if (~words[word] != 0)
      return word * 64 + static_cast<std::uint32_t>(std::countr_one(words[word]));
  return static_cast<std::uint32_t>(words.size() * 64);
}

template <typename T>
std::vector<T> copy_relaxed(const std::vector<T>& from) {
  std::vector<T> copy(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) copy[i] = relaxed_load(from[i]);
  return copy;
}

std::vector<Sent> copy_relaxed(const std::vector<Sent>& from) {
  std::vector<Sent> copy(from.size());
  std::ranges::transform(from, copy.begin(), &Sent::snapshot);
  return copy;
}

template <typename State, typename Table, typename Copy>
nb::object snapshot(Table& table, Handle handle, Copy copy) {
  State state;
  const bool found = table.snapshot(handle, [&](const auto& message) { state = copy(message); });
  return found ? nb::cast(std::move(state)) : nb::none();
}

SendProgress progress(const SendMessage& m) {
  return {m.count, relaxed_load(m.next), relaxed_load(m.retransmit_pending),
          relaxed_load(m.paused)};
}

nb::object send_progress(Endpoint& endpoint, Handle handle) {
  return snapshot<SendProgress>(endpoint.rnic().messages().sends(), handle, &progress);
}

nb::object send_state(Endpoint& endpoint, Handle handle) {
  return snapshot<SendState>(endpoint.rnic().messages().sends(), handle,
                             [](const SendMessage& m) -> SendState {
                               auto packets = copy_relaxed(m.sent);
                               packets.resize(m.count);  // those of parity are sent once
                               return {progress(m), m.coded.layout.parity_packets(),
                                       std::move(packets), copy_relaxed(m.retransmit.words())};
                             });
}

nb::object receive_state(Endpoint& endpoint, Handle handle) {
  return snapshot<ReceiveState>(endpoint.rnic().messages().receives(), handle,
                                [](const ReceiveMessage& m) -> ReceiveState {
                                  const auto words = copy_relaxed(m.bitmap.words());
                                  const std::uint32_t parity = m.coded.layout.parity_packets();
                                  return {m.peer,
                                          m.open,
                                          m.id,
                                          m.count,
                                          relaxed_load(m.received),
                                          relaxed_load(m.highest),
                                          relaxed_load(m.duplicates),
                                          parity,
                                          relaxed_load(m.first_at),
                                          relaxed_load(m.last_at),
                                          words,
                                          std::min(first_clear_bit(words), m.count)};
                                });
}

nb::dict counters(Endpoint& endpoint, bool zeros) {
  nb::dict result;
  const Counters& values = endpoint.rnic().counters();
  for (std::size_t i = 0; i < kCounterNames.size(); ++i)
    if (const auto count = values[static_cast<Counter>(i)]; zeros || count != 0)
      result[kCounterNames[i]] = count;
  return result;
}

Counter counter_named(const std::string& name) {
  const auto found = std::ranges::find(kCounterNames, name);
  if (found == kCounterNames.end()) throw std::invalid_argument("no counter is called " + name);
  return static_cast<Counter>(found - kCounterNames.begin());
}

// A posted work request that the engine cannot take completes in error at once.
void post(Endpoint& endpoint, bool is_send, PeerIndex peer,
          std::tuple<std::uint16_t, std::uint16_t, std::uint32_t> name, std::uint32_t memory_key,
          std::uint64_t offset, std::uint64_t length, std::uint64_t wr_id,
          std::uint32_t protection_domain) {
  if (length > UINT32_MAX) throw std::invalid_argument("a message has at most 4 GiB - 1 bytes");
  const std::uint32_t access = is_send ? 0U : kLocalWrite;
  const bool carries = endpoint.rnic().messages().config().carries_payload;
  std::uint8_t* base =
      carries ? endpoint.rnic().memory().pin(memory_key, offset, length, access, protection_domain)
              : nullptr;
  const auto [operation, step, message] = name;
  const MessageEngine::WorkRequest request{peer,       {operation, step, message},
                                           base,       static_cast<std::uint32_t>(length),
                                           memory_key, wr_id};
  endpoint.submit([request, is_send, carries](Rnic& rnic, Time now) {
    MessageEngine& engine = rnic.messages();
    if (is_send ? engine.post_send(request, now) : engine.post_receive(request, now)) return;
    if (carries) rnic.memory().unpin(request.memory_key);
    rnic.completions().push({.wr_id = request.wr_id,
                             .status = WcStatus::loc_qp_op_err,
                             .opcode = is_send ? WcOpcode::send : WcOpcode::recv,
                             .qp_num = rnic.data_qp(),
                             .peer = request.peer,
                             .key = request.key,
                             .posted_at = now,
                             .completed_at = now});
  });
}

void bind_states(nb::module_& m) {
  nb::class_<SendProgress>(m, "SendProgress", "How far a send was when asked about.")
      .def_ro("count", &SendProgress::count)
      .def_ro("sent", &SendProgress::sent, "packets [0, sent) have been sent at least once")
      .def_ro("retransmit_pending", &SendProgress::retransmit_pending)
      .def_ro("paused", &SendProgress::paused);

  nb::class_<SendState, SendProgress>(m, "SendState", "A send as it was when asked about.")
      .def_ro("parity", &SendState::parity, "packets of parity, behind those of the data")
      .def_prop_ro(
          "attempts", [](const SendState& s) { return of_each(s, &Sent::attempts); },
          nb::rv_policy::move)
      .def_prop_ro(
          "paths", [](const SendState& s) { return of_each(s, &Sent::path); }, nb::rv_policy::move)
      .def_prop_ro(
          "sent_ns", [](const SendState& s) { return of_each(s, &Sent::at_ns); },
          nb::rv_policy::move)
      .def_prop_ro(
          "waiting", [](const SendState& s) { return to_numpy(std::vector(s.waiting)); },
          nb::rv_policy::move, "bitmap of the packets to be retransmitted that have not left yet");
  nb::class_<ReceiveState>(m, "ReceiveState", "A receive as it was when asked about.")
      .def_ro("peer", &ReceiveState::peer)
      .def_ro("open", &ReceiveState::open)
      .def_ro("id", &ReceiveState::id)
      .def_ro("count", &ReceiveState::count)
      .def_ro("received", &ReceiveState::received)
      .def_ro("highest", &ReceiveState::highest)
      .def_ro("duplicates", &ReceiveState::duplicates)
      .def_ro("parity", &ReceiveState::parity, "packets of parity, behind those of the data")
      .def_ro("first_missing", &ReceiveState::first_missing)
      .def_prop_ro("first_ns", [](const ReceiveState& s) { return to_ns(s.first_at); })
      .def_prop_ro("last_ns", [](const ReceiveState& s) { return to_ns(s.last_at); })
      .def_prop_ro(
          "words", [](const ReceiveState& s) { return to_numpy(std::vector(s.words)); },
          nb::rv_policy::move);
  nb::class_<MessageEngine::PeerState>(m, "PeerState", "What is known of a peer.")
      .def_prop_ro("srtt_ns", [](const MessageEngine::PeerState& s) { return to_ns(s.srtt); })
      .def_prop_ro("rttvar_ns", [](const MessageEngine::PeerState& s) { return to_ns(s.rttvar); })
      .def_prop_ro("remote_srtt_ns",
                   [](const MessageEngine::PeerState& s) { return to_ns(s.remote_srtt); })
      .def_prop_ro("remote_rttvar_ns",
                   [](const MessageEngine::PeerState& s) { return to_ns(s.remote_rttvar); })
      .def_prop_ro("last_received_ns",
                   [](const MessageEngine::PeerState& s) {
                     return s.last_received_at < 0 ? std::int64_t{-1} : to_ns(s.last_received_at);
                   })
      .def_ro("reported_packets", &MessageEngine::PeerState::reported_packets)
      .def_ro("echoed_packets", &MessageEngine::PeerState::echoed_packets)
      .def_ro("newest_stamp_ns", &MessageEngine::PeerState::newest_stamp_ns)
      .def_prop_ro("newest_stamp_at_ns",
                   [](const MessageEngine::PeerState& s) {
                     return s.newest_stamp_at < 0 ? std::int64_t{-1} : to_ns(s.newest_stamp_at);
                   })
      .def_prop_ro("reordering_extent_ns",
                   [](const MessageEngine::PeerState& s) { return to_ns(s.reordering_extent); })
      .def_ro("receive_bytes_per_second", &MessageEngine::PeerState::receive_bytes_per_second);
}

void bind_messages(EndpointClass& cls) {
  cls.def_prop_ro("now_ns", [](const Endpoint& e) { return to_ns(e.now()); })
      .def_prop_ro(
          "address", [](Endpoint& e) { return e.rnic().gid(); }, "IP address as an integer")
      .def_prop_ro("data_qp", [](Endpoint& e) { return e.rnic().data_qp(); })
      .def_prop_ro("recovery_qp", [](Endpoint& e) { return e.rnic().recovery_qp(); })
      .def_prop_ro(
          "chunk_bytes", [](Endpoint& e) { return e.rnic().messages().chunk_bytes(); },
          "data bytes a packet of a striped message carries")
      .def_prop_ro(
          "window_packets", [](Endpoint& e) { return e.rnic().messages().config().window_packets; },
          "one bandwidth-delay product")
      .def_prop_ro(
          "control_bytes", [](Endpoint& e) { return e.rnic().messages().control_bytes(); },
          "bytes that the body of a control message has at most")
      .def_prop_ro(
          "line_rate_bps", [](Endpoint& e) { return e.rnic().messages().config().line_rate_bps; },
          "of the port, as far as it is known")
      .def_prop_ro("paths", [](Endpoint& e) { return e.rnic().messages().config().paths; })
      .def_prop_ro("message_slots",
                   [](Endpoint& e) { return e.rnic().messages().config().message_slots; })
      .def(
          "register_memory",
          [](Endpoint& e, std::uintptr_t address, std::uint64_t length, std::uint32_t access,
             std::uint32_t protection_domain, std::optional<std::uint64_t> iova) {
            return e.rnic().memory().add(reinterpret_cast<std::uint8_t*>(address), length, access,
                                         protection_domain, iova.value_or(address));
          },
          nb::arg("address"), nb::arg("length"), nb::arg("access"),
          nb::arg("protection_domain") = 0, nb::arg("iova") = nb::none())
      .def(
          "deregister_memory",
          [](Endpoint& e, std::uint32_t key) {
            call_in_engine(e, [=](Rnic& rnic, Time) { return rnic.memory().remove(key), 0; });
          },
          "nothing touches the memory any more, when this returns")
      .def("set_qkey",
           [](Endpoint& e, std::uint32_t qkey) {
             call_in_engine(e, [=](Rnic& rnic, Time) { return rnic.set_qkey(qkey), 0; });
           })
      .def(
          "connect",
          [](Endpoint& e, Gid ip, std::uint64_t mac, std::uint32_t data_qp,
             std::uint32_t recovery_qp, std::uint32_t qkey) {
            return call_in_engine(e, [=](Rnic& rnic, Time) {
              return rnic.messages().connect({ip, mac, data_qp, recovery_qp, qkey});
            });
          },
          nb::arg("ip"), nb::arg("mac"), nb::arg("data_qp"), nb::arg("recovery_qp"),
          nb::arg("qkey"))
      .def(
          "flush_messages",
          [](Endpoint& e, std::optional<PeerIndex> peer) {
            call_in_engine(
                e, [=](Rnic& rnic, Time now) { return rnic.messages().flush(peer, now), 0; });
          },
          nb::arg("peer") = nb::none(),
          "end the work requests of all striped messages, or of a peer's, in IBV_WC_WR_FLUSH_ERR")
      .def(
          "post_send",
          [](Endpoint& e, PeerIndex peer,
             std::tuple<std::uint16_t, std::uint16_t, std::uint32_t> key, std::uint32_t memory_key,
             std::uint64_t offset, std::uint64_t length, std::uint64_t wr_id,
             std::uint32_t pd) { post(e, true, peer, key, memory_key, offset, length, wr_id, pd); },
          nb::arg("peer"), nb::arg("key"), nb::arg("memory_key"), nb::arg("offset"),
          nb::arg("length"), nb::arg("wr_id"), nb::arg("protection_domain") = 0)
      .def(
          "post_receive",
          [](Endpoint& e, PeerIndex peer,
             std::tuple<std::uint16_t, std::uint16_t, std::uint32_t> key, std::uint32_t memory_key,
             std::uint64_t offset, std::uint64_t length, std::uint64_t wr_id, std::uint32_t pd) {
            post(e, false, peer, key, memory_key, offset, length, wr_id, pd);
          },
          nb::arg("peer"), nb::arg("key"), nb::arg("memory_key"), nb::arg("offset"),
          nb::arg("length"), nb::arg("wr_id"), nb::arg("protection_domain") = 0)
      .def(
          "poll_completions",
          [](Endpoint& e, std::size_t most) { return e.rnic().completions().poll(most); },
          nb::arg("most") = 64)
      .def("counters", &counters, nb::arg("zeros") = true, "every counter by its name");
}

void bind_session(EndpointClass& cls) {
  cls.def(
         "figures",
         [](Endpoint& e) {
           nb::dict figures;
           const auto found = call_in_engine(e, [](Rnic& rnic, Time) {
             MessageSession* session = rnic.messages().session();
             return session == nullptr ? Figures() : session->figures();
           });
           for (const auto& [name, value] : found) figures[name.c_str()] = nb::cast(value);
           return figures;
         },
         "what the transport counted, by name")
      .def(
          "record_decisions",
          [](Endpoint& e) {
            call_in_engine(e, [](Rnic& rnic, Time) {
              if (MessageSession* session = rnic.messages().session()) session->record_decisions();
              return 0;
            });
          },
          "from now on a session's decisions are kept until they are taken")
      .def(
          "take_decisions",
          [](Endpoint& e) {
            const auto taken = call_in_engine(e, [](Rnic& rnic, Time) {
              MessageSession* session = rnic.messages().session();
              return session == nullptr ? std::vector<Decision>() : session->take_decisions();
            });
            return nb::bytes(taken.data(), taken.size() * sizeof(Decision));
          },
          "struct Decision of each, in the order of time");
}

void bind_policy_face(EndpointClass& cls) {
  cls.def("take_events",
          [](Endpoint& e) {
            auto* by_hand = dynamic_cast<DirectEndpoint*>(&e);
            if (by_hand == nullptr) throw std::invalid_argument("the endpoint runs by itself");
            return by_hand->take_events();
          })
      .def("send_progress", &send_progress, "None: the handle is stale")
      .def("send_state", &send_state, "None: the handle is stale")
      .def("receive_state", &receive_state, "None: the handle is stale")
      .def("peer_state",
           [](Endpoint& e, PeerIndex peer) { return e.rnic().messages().peer_state(peer); })
      .def(
          "sent_on_paths",
          [](Endpoint& e, PeerIndex peer) {
            const auto sent = e.rnic().messages().sent_on_paths(peer);
            return std::vector(sent.begin(), sent.begin() + e.rnic().messages().config().paths);
          },
          "data packets ever sent to the peer on each path, modulo 2**32")
      .def(
          "retransmit",
          [](Endpoint& e, Handle handle, const Indices& indices, bool urgent,
             std::uint32_t copies) {
            e.submit([handle, urgent, copies,
                      list = std::vector(indices.data(), indices.data() + indices.size())](
                         Rnic& rnic, Time now) {
              rnic.messages().retransmit(handle, list, urgent, copies, now);
            });
          },
          nb::arg("handle"), nb::arg("indices"), nb::arg("urgent") = false, nb::arg("copies") = 1)
      .def("pause",
           [](Endpoint& e, Handle handle, bool paused) {
             e.submit([=](Rnic& rnic, Time) { rnic.messages().pause(handle, paused); });
           })
      .def("control",
           [](Endpoint& e, PeerIndex peer, const nb::bytes& body) {
             const auto* data = static_cast<const std::uint8_t*>(body.data());
             e.submit([peer, copy = std::vector(data, data + body.size())](Rnic& rnic, Time) {
               rnic.messages().control(peer, copy);
             });
           })
      .def("set_timer",
           [](Endpoint& e, Handle handle, std::int64_t at_ns) {
             e.submit([=](Rnic& rnic, Time) { rnic.messages().set_timer(handle, from_ns(at_ns)); });
           })
      .def("set_peer_timer",
           [](Endpoint& e, PeerIndex peer, std::int64_t at_ns) {
             e.submit(
                 [=](Rnic& rnic, Time) { rnic.messages().set_peer_timer(peer, from_ns(at_ns)); });
           })
      .def("complete_send",
           [](Endpoint& e, Handle handle, int status) {
             e.submit([=](Rnic& rnic, Time now) {
               rnic.messages().complete_send(handle, static_cast<WcStatus>(status), now);
             });
           })
      .def("fail_receive",
           [](Endpoint& e, Handle handle, int status) {
             e.submit([=](Rnic& rnic, Time now) {
               rnic.messages().fail_receive(handle, static_cast<WcStatus>(status), now);
             });
           })
      .def("detect_gaps",
           [](Endpoint& e, Handle handle, std::int64_t window_ns) {
             e.submit([=](Rnic& rnic, Time now) {
               rnic.messages().detect_gaps(handle, from_ns(window_ns), now);
             });
           })
      .def("nack",
           [](Endpoint& e, PeerIndex peer) {
             e.submit([=](Rnic& rnic, Time) { rnic.messages().nack(peer); });
           })
      .def("move_path",
           [](Endpoint& e, PeerIndex peer, std::uint32_t path) {
             e.submit([=](Rnic& rnic, Time now) { rnic.messages().move_path(peer, path, now); });
           })
      .def("set_path_weights",
           [](Endpoint& e, PeerIndex peer, const std::vector<std::uint16_t>& weights) {
             std::array<std::uint16_t, kMaxPaths> all{};
             std::copy_n(weights.begin(), std::min<std::size_t>(weights.size(), kMaxPaths),
                         all.begin());
             e.submit([=](Rnic& rnic, Time) { rnic.messages().set_path_weights(peer, all); });
           })
      .def("count", [](Endpoint& e, const std::string& name) {
        const Counter which = counter_named(name);
        e.submit([=](Rnic& rnic, Time) { rnic.counters().add(which); });
      });
}

}  // namespace

void bind_endpoint(nb::module_& m) {
  bind_states(m);
  EndpointClass cls(m, "Endpoint", "An RNIC as a program holds it, whatever drives it.");
  bind_messages(cls);
  bind_verbs(cls);
  bind_session(cls);
  bind_policy_face(cls);
  bind_policy(m, cls);
  bind_coding(cls);
  bind_congestion(m, cls);
  bind_path_picker(m);
}

}  // namespace softroce
