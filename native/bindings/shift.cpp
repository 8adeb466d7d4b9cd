// SPDX-License-Identifier: GPL-2.0-or-later
// SHIFT as softroce_lab.transports.shift uses it. Who holds the backup's lock may wait for
// Python's: nothing here waits for the backup's lock with Python's held.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <tuple>

#include "../endpoint/completion_channel.hpp"
#include "../engine/codec/bytes.hpp"
#include "../shift/backup.hpp"
#include "../shift/stepped_machine.hpp"
#include "bindings.hpp"

namespace softroce::shift {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

// ---------------------------------------------------------------- surroundings

class EndpointNic final : public Nic {
 public:
  EndpointNic(Endpoint& endpoint, std::uint64_t next_hop_mac)
      : endpoint_(endpoint), next_hop_mac_(next_hop_mac) {}
  void call(std::function<void(Rnic&, Time)> action) override { endpoint_.call(std::move(action)); }
  Time now() const override { return endpoint_.now(); }
  Gid gid() const override { return endpoint_.rnic().gid(); }
  AddressVector route_to(const Gid& destination) const override {
    return {.destination = destination, .mac = next_hop_mac_};
  }

 private:
  Endpoint& endpoint_;
  const std::uint64_t next_hop_mac_;
};

// A Python object that may go where Python's lock is not held.
class Held {
 public:
  explicit Held(nb::object object) : object_(std::move(object)) {}
  ~Held() {
    const nb::gil_scoped_acquire gil;
    object_.reset();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  template <typename R, typename... Arguments>
  R call(const char* method, const Arguments&... arguments) const {
    const nb::gil_scoped_acquire gil;
    return nb::cast<R>(object_.attr(method)(arguments...));
  }
  nb::handle attr(const char* name) const { return object_.attr(name); }

 private:
  nb::object object_;
};

using Published = std::tuple<Gid, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint64_t, std::uint32_t>;

// Its methods raise `Unreachable` where the service does not answer.
class PythonDirectory final : public Directory {
 public:
  explicit PythonDirectory(nb::object directory) : directory_(std::move(directory)) {}

  void publish(std::uint32_t qp, const BackupAddress& backup) override {
    const auto& [gid, number, psn, control] = backup;
    directory_.call<nb::object>(
        "publish", qp,
        Published{gid, number, psn, control.qp, control.psn, control.mailbox, control.rkey});
  }
  std::optional<BackupAddress> find(const Gid& nic, std::uint32_t qp) override {
    const auto found = ask<std::optional<Published>>("find", nic, qp);
    if (!found) return std::nullopt;
    const auto [gid, number, psn, control_qp, control_psn, mailbox, rkey] = *found;
    return BackupAddress{gid, number, psn, {control_qp, control_psn, mailbox, rkey}};
  }
  Keys region_keys(const Gid& nic) override { return ask<Keys>("region_keys", nic); }

 private:
  template <typename R, typename... Arguments>
  R ask(const char* method, const Arguments&... arguments) {
    const nb::gil_scoped_acquire gil;
    try {
      return directory_.call<R>(method, arguments...);
    } catch (const nb::python_error& error) {
      if (!error.matches(
              nb::module_::import_("softroce_lab._native").attr("shift").attr("Unreachable")))
        throw;
      throw Unreachable(nb::str(error.value()).c_str());
    }
  }

  const Held directory_;
};

class PythonWay final : public Way {
 public:
  explicit PythonWay(nb::object way) : way_(std::move(way)) {}

  std::optional<std::vector<std::string>> order_steps() override {
    return way_.call<std::optional<std::vector<std::string>>>("order_steps");
  }
  std::optional<Answer> divide(const std::vector<UnfinishedSend>& unfinished, std::int64_t executed,
                               std::int64_t now_ns) override {
    using Places = std::vector<std::size_t>;
    auto answer = way_.call<std::optional<std::pair<Places, std::optional<Places>>>>(
        "divide", unfinished, executed, now_ns);
    if (!answer) return std::nullopt;
    return Answer{std::move(answer->first), std::move(answer->second)};
  }
  std::uint64_t notifications_taken() override {
    return way_.call<std::uint64_t>("notifications_taken");
  }
  void step_done() override { way_.call<nb::object>("step_done"); }
  void write_down(const std::string& text, std::int64_t now_ns) override {
    way_.call<nb::object>("write_down", text, now_ns);
  }

 private:
  const Held way_;
};

std::shared_ptr<Backup> make_backup(Endpoint& near, std::uint64_t near_hop, Endpoint& far,
                                    std::uint64_t far_hop, nb::object directory,
                                    std::uint32_t control_domain, CompletionChannel& channel,
                                    std::uint64_t cookie,
                                    std::function<void(const Transition&)> on_transition,
                                    const Settings& settings, bool in_background) {
  Backup::Surroundings around{std::make_unique<EndpointNic>(near, near_hop),
                              std::make_unique<EndpointNic>(far, far_hop),
                              std::make_unique<PythonDirectory>(std::move(directory)),
                              control_domain,
                              false,
                              [to = channel.shared_from_this(), cookie] { to->ring(cookie); },
                              std::move(on_transition)};
  const nb::gil_scoped_release release;
  return std::make_shared<Backup>(std::move(around), settings, in_background);
}

std::shared_ptr<Completions> make_completions(Backup& backup, CompletionQueue& near,
                                              std::size_t capacity, CompletionChannel* channel,
                                              std::uint64_t cookie) {
  std::function<void()> ring;
  if (channel != nullptr) ring = [to = channel->shared_from_this(), cookie] { to->ring(cookie); };
  return std::make_shared<Completions>(backup, near.shared_from_this(), capacity, std::move(ring));
}

using Capacities = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                              std::uint32_t>;  // in the order of struct ibv_qp_cap

std::shared_ptr<ShiftQp> add_qp(Backup& backup, std::uint32_t number, const Capacities& cap,
                                bool signal_all, std::shared_ptr<Completions> sends,
                                std::shared_ptr<Completions> receives,
                                std::function<std::shared_ptr<ShadowDomain>()> shadow_domain) {
  const auto [send_wr, recv_wr, send_sge, recv_sge, inline_data] = cap;
  ShiftQp::Config config{number,
                         {send_wr, recv_wr, send_sge, recv_sge, inline_data},
                         signal_all,
                         std::move(sends),
                         std::move(receives),
                         std::move(shadow_domain)};
  const nb::gil_scoped_release release;
  return backup.add(std::move(config));
}

// ---------------------------------------------------------------- posting and polling

Posted post_shift_sends(ShiftQp& qp, Endpoint& endpoint, std::vector<SendRequest> requests) {
  {
    const ShiftQp::PlainPost plain(qp);
    if (plain) return softroce::post_sends(endpoint, qp.number(), std::move(requests));
  }
  const Posted taken = take_inline(endpoint, requests);
  const nb::gil_scoped_release release;
  const Posted posted = qp.post_sends(std::move(requests));
  return posted.first != 0 ? posted : taken;
}

Posted post_shift_receives(ShiftQp& qp, Endpoint& endpoint, std::vector<ReceiveRequest> receives) {
  {
    const ShiftQp::PlainPost plain(qp);
    if (plain) return softroce::post_receives(endpoint, qp.number(), std::move(receives));
  }
  const nb::gil_scoped_release release;
  return qp.post_receives(std::move(receives));
}

std::vector<WorkCompletion> poll_completions(Completions& queue, std::size_t most) {
  {
    const Completions::PlainPoll plain(queue);
    if (plain) return queue.near()->poll(most);
  }
  const nb::gil_scoped_release release;
  return queue.poll_both(most);
}

// ---------------------------------------------------------------- messages and classes

void bind_protocol(nb::module_& m) {
  const Settings usual;
  nb::class_<Settings>(m, "Settings", "Times in ns (native/shift/protocol.hpp).")
      .def(
          "__init__",
          [](Settings* self, std::int64_t handshake, std::int64_t probe, std::int64_t most_probe,
             std::int64_t drain) {
            new (self) Settings{handshake, probe, most_probe, drain};
          },
          nb::kw_only(), "handshake_timeout_ns"_a = usual.handshake_timeout_ns,
          "probe_interval_ns"_a = usual.probe_interval_ns,
          "most_probe_interval_ns"_a = usual.most_probe_interval_ns,
          "drain_timeout_ns"_a = usual.drain_timeout_ns)
      .def_ro("handshake_timeout_ns", &Settings::handshake_timeout_ns)
      .def_ro("probe_interval_ns", &Settings::probe_interval_ns)
      .def_ro("most_probe_interval_ns", &Settings::most_probe_interval_ns)
      .def_ro("drain_timeout_ns", &Settings::drain_timeout_ns);
  nb::enum_<Sender>(m, "Sender", "States of the sending side.")
      .value("DEFAULT", Sender::primary)
      .value("FALLBACK", Sender::fallback)
      .value("WAIT_SIGNALED", Sender::wait_signaled)
      .value("WAIT_DRAINED", Sender::wait_drained)
      .value("FAILED", Sender::failed);
  nb::enum_<Kind>(m, "Kind", "What a control message is for.")
      .value("MOVE", Kind::move)
      .value("DRAINED", Kind::drained)
      .value("RESUME", Kind::resume)
      .value("FAILED", Kind::failed);
  nb::class_<Message>(m, "Message", "What one end tells the other.")
      .def(nb::init<Kind, std::uint32_t, std::uint64_t, std::uint32_t>(), "kind"_a, "epoch"_a,
           "received"_a = 0, "next_psn"_a = 0)
      .def("__eq__", [](const Message& a, const Message& b) { return a == b; })
      .def_ro("kind", &Message::kind)
      .def_ro("epoch", &Message::epoch)
      .def_ro("received", &Message::received)
      .def_ro("next_psn", &Message::next_psn)
      .def(
          "encode",
          [](const Message& message, std::uint32_t sequence) {
            const MessageBytes bytes = shift::encode(message, sequence, {});
            return nb::bytes(bytes.data(), bytes.size());
          },
          "sequence"_a);
  m.attr("MESSAGE_BYTES") = kMessageBytes;
  m.def(
      "read_message",
      [](const nb::bytes& bytes) -> nb::object {
        const auto found =
            shift::read({static_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
        if (!found) return nb::none();
        const auto& [message, sequence, owner] = *found;
        std::array<std::uint8_t, 16> gid{};
        store64(gid.data(), owner.gid.high);
        store64(gid.data() + 8, owner.gid.low);
        return nb::make_tuple(message, sequence, nb::bytes(gid.data(), gid.size()),
                              owner.default_qp, owner.backup_qp);
      },
      "bytes"_a,
      "(message, its number, GID of 16 bytes and queue pairs of its end); None: no message");
  nb::class_<Transition>(m, "Transition", "A transition of one side.")
      .def_ro("at_ns", &Transition::at_ns)
      .def_ro("qp_num", &Transition::qp_num)
      .def_ro("epoch", &Transition::epoch)
      .def_ro("side", &Transition::side)
      .def_ro("before", &Transition::before)
      .def_ro("after", &Transition::after)
      .def_ro("why", &Transition::why)
      .def_ro("consumed", &Transition::consumed)
      .def_ro("resubmitted", &Transition::resubmitted)
      .def_ro("receives", &Transition::receives)
      .def_ro("peer_gid", &Transition::peer_gid)
      .def_ro("peer_qp_num", &Transition::peer_qp);
  nb::class_<UnfinishedSend>(m, "UnfinishedSend", "A request that did not succeed.")
      .def_prop_ro("request", [](const UnfinishedSend& s) { return s.request; })
      .def_ro("begun", &UnfinishedSend::begun, "a packet of it has left");
  m.def(
      "classify",
      [](const std::vector<UnfinishedSend>& unfinished, std::int64_t executed) {
        const Classes classes = classify(unfinished, executed);
        return std::tuple(classes.done, classes.again, classes.culprit);
      },
      "unfinished"_a, "executed"_a,
      "places of what is done, of what may be repeated, and of the first that may be neither");
}

// ---------------------------------------------------------------- what drives it

void bind_backup(nb::module_& m) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::exception<Unreachable>(m, "Unreachable");
  nb::class_<ShadowDomain>(m, "ShadowDomain").def(nb::init<std::uint32_t>(), "number"_a);
  nb::class_<Completions>(m, "Completions")
      .def("poll_completions", &poll_completions, "most"_a = 64)
      .def("arm", &Completions::arm, "solicited_only"_a, Release());
  nb::class_<Backup>(m, "Backup")
      .def_static("create", &make_backup, "near"_a, "near_hop"_a, "far"_a, "far_hop"_a,
                  "directory"_a, "control_domain"_a, "channel"_a, "cookie"_a, "on_transition"_a,
                  "settings"_a, "in_background"_a, nb::keep_alive<0, 1>(), nb::keep_alive<0, 3>())
      .def("completions", &make_completions, "near"_a, "capacity"_a, "channel"_a.none(), "cookie"_a,
           nb::keep_alive<0, 1>())
      .def("add", &add_qp, "number"_a, "cap"_a, "signal_all"_a, "sends"_a, "receives"_a,
           "shadow_domain"_a, nb::keep_alive<0, 1>())
      .def(
          "add_region",
          [](Backup& backup, ShadowDomain& domain, std::uint32_t key, std::uint32_t other) {
            const auto held = backup.hold();
            domain.to_backup[key] = other;
            domain.to_default[other] = key;
          },
          "domain"_a, "key"_a, "backup_key"_a, Release())
      .def(
          "acquire", [](Backup& backup) { backup.hold().release(); }, Release(),
          "the lock of all that it does")
      .def("release", [](Backup& backup) { backup.release(); })
      .def("advance", &Backup::advance, Release())
      .def("next_time_ns", &Backup::next_time_ns, Release())
      .def("arm", &Backup::arm, Release())
      .def("is_active", &Backup::is_active, Release())
      .def("fail_all", &Backup::fail_all, "why"_a, Release())
      .def("work", &Backup::work, Release())
      .def("tasks", &Backup::tasks, Release());
}

void bind_queue_pair(nb::module_& m) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<ShiftQp>(m, "ShiftQp")
      .def("post_sends", &post_shift_sends, "endpoint"_a, "requests"_a,
           "(errno, index of the one refused)")
      .def("post_receives", &post_shift_receives, "endpoint"_a, "requests"_a,
           "(errno, index of the one refused)")
      .def("connect", &ShiftQp::connect, Release(), "False: the peer has published no backup")
      .def("abandon", &ShiftQp::abandon, Release())
      .def("close", &ShiftQp::close, Release())
      .def(
          "decide_by",
          [](ShiftQp& qp, nb::object way) {
            qp.decide_by<SteppedMachine>(std::make_unique<PythonWay>(std::move(way)));
          },
          "way"_a, "ask it for the steps of a failover, and for what is done (stepped_machine.hpp)")
      .def_prop_ro("twin_number", &ShiftQp::twin_number, Release())
      .def_prop_ro("control_number", &ShiftQp::control_number, Release())
      .def_prop_ro("backup_ready", &ShiftQp::backup_ready, Release())
      .def_prop_ro("waiting_requests", &ShiftQp::waiting_requests, Release())
      .def_prop_ro("plain", [](const ShiftQp& qp) { return qp.machine().plain(); })
      .def_prop_ro("sender", [](const ShiftQp& qp) { return qp.machine().sender(); })
      .def_prop_ro("epoch", [](const ShiftQp& qp) { return qp.machine().epoch(); });
}

}  // namespace
}  // namespace softroce::shift

namespace softroce {

void bind_shift(nb::module_& m) {
  nb::module_ shift = m.def_submodule("shift", "Failover of queue pairs to another NIC.");
  shift::bind_protocol(shift);
  shift::bind_backup(shift);
  shift::bind_queue_pair(shift);
}

}  // namespace softroce
