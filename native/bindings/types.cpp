// SPDX-License-Identifier: GPL-2.0-or-later
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "../engine/rnic/rnic.hpp"
#include "../engine/striped/config_text.hpp"
#include "../transport/backoff.hpp"
#include "../transport/transports.hpp"
#include "bindings.hpp"

namespace softroce {
namespace {

void bind_timing(nb::module_& m) {
  nb::class_<SessionTiming>(m, "SessionTiming", "Timers and bounds of a session.")
      .def_rw("t_min_ns", &SessionTiming::t_min_ns)
      .def_rw("clock_granularity_ns", &SessionTiming::clock_granularity_ns)
      .def_rw("t_max_ns", &SessionTiming::t_max_ns)
      .def_rw("srtt_weight", &SessionTiming::srtt_weight)
      .def_rw("rttvar_weight", &SessionTiming::rttvar_weight)
      .def_rw("lost_rttvar_weight", &SessionTiming::lost_rttvar_weight)
      .def_rw("rto_srtt", &SessionTiming::rto_srtt)
      .def_rw("fixed_rto_ns", &SessionTiming::fixed_rto_ns)
      .def_rw("rto_rttvar_weight", &SessionTiming::rto_rttvar_weight)
      .def_rw("reordering_window_least_ns", &SessionTiming::reordering_window_least_ns)
      .def_rw("sack_interval_least_ns", &SessionTiming::sack_interval_least_ns)
      .def_rw("ack_delay_most_ns", &SessionTiming::ack_delay_most_ns)
      .def_rw("acks_in_batch", &SessionTiming::acks_in_batch)
      .def_rw("keepalive_interval_ns", &SessionTiming::keepalive_interval_ns)
      .def_rw("keepalive_interval_most_ns", &SessionTiming::keepalive_interval_most_ns)
      .def_rw("keepalive_probes", &SessionTiming::keepalive_probes)
      .def_rw("eager_rounds", &SessionTiming::eager_rounds)
      .def_rw("most_attempts", &SessionTiming::most_attempts)
      .def_rw("rnr_retry", &SessionTiming::rnr_retry);
}

TextForm form_of(bool one_line) { return one_line ? TextForm::one_line : TextForm::lines; }

void bind_config(nb::module_& m) {
  nb::class_<MessageConfig>(m, "MessageConfig", "Configuration of the message engine.")
      .def(nb::init<>())
      .def_rw("address", &MessageConfig::gid, "IP address as an integer")
      .def_rw("path_mtu", &MessageConfig::path_mtu, "IB path MTU, bytes")
      .def_rw("paths", &MessageConfig::paths)
      .def_rw("message_slots", &MessageConfig::message_slots)
      .def_rw("first_message_id", &MessageConfig::first_message_id)
      .def_rw("connection_epoch", &MessageConfig::connection_epoch)
      .def_rw("path_probes", &MessageConfig::path_probes,
              "losses are found by the numbers on paths; the same at both ends")
      .def_rw("without", &MessageConfig::without,
              "parts of recovery by path numbers that are switched off: bits of enum Mechanism")
      .def_rw("window_packets", &MessageConfig::window_packets)
      .def_rw("most_unacked", &MessageConfig::most_unacked,
              "packets of a queue pair of RC without acknowledgement; 2**23 - 1 at most")
      .def_rw("receive_ring_packets", &MessageConfig::receive_ring_packets)
      .def_rw("report_every_packets", &MessageConfig::report_every_packets)
      .def_rw("congestion_control", &MessageConfig::congestion_control)
      .def_rw("schedule", &MessageConfig::schedule, "least-left, fair or fifo")
      .def_rw("transport", &MessageConfig::transport,
              "a name of transports(); 'policy': events are taken by hand")
      .def_rw("timing", &MessageConfig::timing)
      .def_rw("options", &MessageConfig::options, "values of all options of the transport")
      .def_prop_rw(
          "rto_low_ns", [](const MessageConfig& c) { return to_ns(c.rto_low); },
          [](MessageConfig& c, std::int64_t ns) { c.rto_low = from_ns(ns); })
      .def_prop_rw(
          "rto_high_ns", [](const MessageConfig& c) { return to_ns(c.rto_high); },
          [](MessageConfig& c, std::int64_t ns) { c.rto_high = from_ns(ns); })
      .def_prop_rw(
          "timeout_ns", [](const MessageConfig& c) { return to_ns(c.timeout); },
          [](MessageConfig& c, std::int64_t ns) { c.timeout = from_ns(ns); })
      .def_rw("timeout_measured", &MessageConfig::timeout_measured)
      .def_prop_rw(
          "code_chunk_packets", [](const MessageConfig& c) { return c.code.chunk_packets; },
          [](MessageConfig& c, std::uint16_t packets) { c.code.chunk_packets = packets; },
          "packets of a chunk of coded messages")
      .def_prop_rw(
          "codes",
          [](const MessageConfig& c) {
            std::vector<std::pair<std::uint32_t, std::uint32_t>> codes;
            for (const CodeShape& each : c.code.shapes)
              codes.emplace_back(each.data_chunks, each.parity_chunks);
            return codes;
          },
          [](MessageConfig& c, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& codes) {
            c.code.shapes.clear();
            for (const auto& [k, m] : codes) c.code.shapes.push_back({k, m});
          },
          "(k, m) of the erasure codes that messages may have; the same at both ends")
      .def_rw("carries_payload", &MessageConfig::carries_payload,
              "False: packets have lengths and no bytes; requests need no memory")
      .def_rw("framing", &MessageConfig::framing, "how data packets name their fragment")
      .def_rw("line_rate_bps", &MessageConfig::line_rate_bps, "of the port; dcqcn paces below it")
      .def_prop_rw(
          "base_rtt_ns", [](const MessageConfig& c) { return to_ns(c.base_rtt); },
          [](MessageConfig& c, std::int64_t ns) { c.base_rtt = from_ns(ns); },
          "of the fabric while its queues are empty; 0: initial_rtt_ns")
      .def_prop_rw(
          "cnp_interval_ns", [](const MessageConfig& c) { return to_ns(c.cnp_interval); },
          [](MessageConfig& c, std::int64_t ns) { c.cnp_interval = from_ns(ns); },
          "dcqcn: least time between two CNPs of a flow")
      .def_prop_rw(
          "target_delay_ns", [](const MessageConfig& c) { return to_ns(c.target_delay); },
          [](MessageConfig& c, std::int64_t ns) { c.target_delay = from_ns(ns); },
          "swift: base target; 0: 5/4 of base_rtt_ns")
      .def_prop_rw(
          "hop_delay_ns", [](const MessageConfig& c) { return to_ns(c.hop_delay); },
          [](MessageConfig& c, std::int64_t ns) { c.hop_delay = from_ns(ns); },
          "swift: more for each switch; 0: 1/8 of base_rtt_ns")
      .def_prop_rw(
          "pacing_slack_ns", [](const MessageConfig& c) { return to_ns(c.pacing_slack); },
          [](MessageConfig& c, std::int64_t ns) { c.pacing_slack = from_ns(ns); },
          "by how much late a paced packet may leave and the next still keep its time")
      .def_prop_rw(
          "initial_rtt_ns", [](const MessageConfig& c) { return to_ns(c.initial_rtt); },
          [](MessageConfig& c, std::int64_t ns) { c.initial_rtt = from_ns(ns); })
      .def_prop_rw(
          "persist_least_ns", [](const MessageConfig& c) { return to_ns(c.persist_least); },
          [](MessageConfig& c, std::int64_t ns) { c.persist_least = from_ns(ns); })
      .def_prop_rw(
          "packet_lifetime_ns", [](const MessageConfig& c) { return to_ns(c.packet_lifetime); },
          [](MessageConfig& c, std::int64_t ns) { c.packet_lifetime = from_ns(ns); },
          "the longest that a packet is on its way: no name of a message is used again within it")
      .def_prop_rw(
          "report_least_interval_ns",
          [](const MessageConfig& c) { return to_ns(c.report_least_interval); },
          [](MessageConfig& c, std::int64_t ns) { c.report_least_interval = from_ns(ns); })
      .def_rw("carries_operations", &MessageConfig::carries_operations,
              "queue pairs of reliable connections are carried by striped messages")
      .def(
          "text",
          [](const MessageConfig& c, bool one_line) { return write_config(c, form_of(one_line)); },
          nb::arg("one_line") = false,
          "all fields: NAME VALUE in a line each; in one line NAME=VALUE, with ',' between")
      .def_static(
          "from_text",
          [](const std::string& text, bool one_line) {
            return read_config(text, form_of(one_line));
          },
          nb::arg("text"), nb::arg("one_line") = false,
          "the inverse of text; ValueError for an unknown name or a bad value")
      .def_prop_ro("digest", &digest_of, "equal at two ends that understand each other");
}

void bind_event(nb::module_& m) {
  nb::enum_<EventKind>(m, "EventKind", "What the engine tells a recovery policy.")
      .value("SEND_POSTED", EventKind::send_posted)
      .value("SENT", EventKind::sent)
      .value("RECEIVE_POSTED", EventKind::receive_posted)
      .value("FIRST_PACKET", EventKind::first_packet)
      .value("TAIL_SEEN", EventKind::tail_seen)
      .value("RECEIVE_COMPLETE", EventKind::receive_complete)
      .value("TIMER", EventKind::timer)
      .value("PEER_TIMER", EventKind::peer_timer)
      .value("CONTROL", EventKind::control)
      .value("NO_RECEIVE", EventKind::no_receive)
      .value("TOO_LONG", EventKind::too_long)
      .value("LATE_PACKET", EventKind::late_packet)
      .value("GAP", EventKind::gap)
      .value("LOSS", EventKind::loss)
      .value("PARITY", EventKind::parity)
      .value("CHUNK", EventKind::chunk)
      .value("TRIMMED", EventKind::trimmed);

  nb::class_<Event>(m, "Event")
      .def_ro("kind", &Event::kind)
      .def_prop_ro(
          "number", [](const Event& e) { return static_cast<int>(e.kind); }, "of its kind")
      .def_ro("peer", &Event::peer)
      .def_ro("handle", &Event::message)
      .def_prop_ro("at_ns", [](const Event& e) { return to_ns(e.at); })
      .def_prop_ro(
          "key",
          [](const Event& e) { return nb::make_tuple(e.key.operation, e.key.step, e.key.message); })
      .def_ro("id", &Event::id)
      .def_ro("length", &Event::length)
      .def_ro("count", &Event::count)
      .def_prop_ro("body", [](const Event& e) { return nb::bytes(e.body.data(), e.body.size()); });
}

void bind_completion(nb::module_& m) {
  nb::class_<WorkCompletion>(m, "WorkCompletion")
      .def_ro("wr_id", &WorkCompletion::wr_id)
      .def_prop_ro("status", [](const WorkCompletion& c) { return static_cast<int>(c.status); })
      .def_prop_ro("opcode", [](const WorkCompletion& c) { return static_cast<int>(c.opcode); })
      .def_ro("flags", &WorkCompletion::flags)
      .def_ro("byte_len", &WorkCompletion::byte_len)
      .def_ro("immediate", &WorkCompletion::immediate, "or the key that was invalidated")
      .def_prop_ro(
          "imm_data_or_invalidated_rkey",
          [](const WorkCompletion& c) {
            return c.flags & kWithImmediate ? __builtin_bswap32(c.immediate) : c.immediate;
          },
          "the union of struct ibv_wc: an immediate stands in network byte order")
      .def_ro("qp_num", &WorkCompletion::qp_num)
      .def_ro("src_qp", &WorkCompletion::src_qp)
      .def_ro("solicited", &WorkCompletion::solicited)
      .def_ro("peer", &WorkCompletion::peer)
      .def_prop_ro("key",
                   [](const WorkCompletion& c) {
                     return nb::make_tuple(c.key.operation, c.key.step, c.key.message);
                   })
      .def_ro("packets", &WorkCompletion::packets)
      .def_ro("retransmitted", &WorkCompletion::retransmitted)
      .def_ro("duplicates", &WorkCompletion::duplicates)
      .def_prop_ro("posted_ns", [](const WorkCompletion& c) { return to_ns(c.posted_at); })
      .def_prop_ro("first_ns", [](const WorkCompletion& c) { return to_ns(c.first_at); })
      .def_prop_ro("completed_ns", [](const WorkCompletion& c) { return to_ns(c.completed_at); });
}

// What Python reads of a transport, and checks what a user sets by.
void bind_transports(nb::module_& m) {
  nb::class_<Option>(m, "TransportOption")
      .def_prop_ro("name", [](const Option& o) { return o.name; })
      .def_ro("default", &Option::usual)
      .def_prop_ro("help", [](const Option& o) { return o.help; })
      .def_prop_ro("unit", [](const Option& o) { return o.unit; })
      .def_ro("least", &Option::least)
      .def_ro("most", &Option::most)
      .def_ro("choices", &Option::choices)
      .def_ro("part", &Option::part);
  nb::class_<Transport>(m, "Transport")
      .def_prop_ro("name", [](const Transport& t) { return t.name; })
      .def_ro("framings", &Transport::framings)
      .def_ro("options", &Transport::options)
      .def_ro("has_rto", &Transport::has_rto)
      .def_ro("sends_sacks", &Transport::sends_sacks)
      .def_prop_ro("congestion_control", [](const Transport& t) { return t.congestion_control; })
      .def_prop_ro("schedule", [](const Transport& t) { return t.schedule; })
      .def_ro("path_probes", &Transport::path_probes)
      .def_ro("omniscient", &Transport::omniscient)
      .def_prop_ro("has_codes", [](const Transport& t) { return t.codes != nullptr; })
      .def(
          "codes",
          [](const Transport& t, const Options& values) {
            std::vector<std::pair<std::uint32_t, std::uint32_t>> codes;
            try {
              for (const CodeShape& each : t.codes(values))
                codes.emplace_back(each.data_chunks, each.parity_chunks);
            } catch (const OptionMistake& error) {
              const nb::object raised =
                  nb::module_::import_("builtins")
                      .attr("ValueError")(error.option, error.what(), error.hint);
              PyErr_SetObject(PyExc_ValueError, raised.ptr());
              throw nb::python_error();
            }
            return codes;
          },
          "(k, m) of the codes that its messages may have; ValueError(option, what, hint)");
  m.def("backed_off", &backed_off, nb::arg("interval_ns"), nb::arg("doublings"), nb::arg("most_ns"),
        "native/transport/backoff.hpp");
  m.def("varied_share", &varied_share, nb::arg("whole_ns"), nb::arg("number"));
  m.def("transports", &transports, nb::rv_policy::reference);
}

}  // namespace

void bind_types(nb::module_& m) {
  bind_timing(m);
  bind_config(m);
  bind_event(m);
  bind_completion(m);
  m.def("framing_names", &framing_names);
  bind_transports(m);
  nb::list decisions;
  for (const char* each : kDecisionNames) decisions.append(each);
  m.attr("DECISIONS") = nb::tuple(decisions);
  nb::list causes;
  for (std::size_t cause = 0; cause < kCauses; ++cause) causes.append(cause_name(cause));
  m.attr("RETRANSMIT_CAUSES") = nb::tuple(causes);
}

}  // namespace softroce
