// SPDX-License-Identifier: GPL-2.0-or-later
// A path picker as tests drive it: alone, with a clock moved by hand.
#include "../engine/striped/path_picker.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bindings.hpp"

namespace softroce {
namespace {

// Keeps the loads as the engine does: a packet is on its way until it is acknowledged or lost.
class LonePicker {
 public:
  LonePicker(const std::string& name, std::uint32_t paths, std::uint64_t seed, std::int64_t srtt_ns)
      : schedule_(paths), picker_(make_path_picker(name, {schedule_, loads_, rtt_}, seed)) {
    if (paths == 0 || paths > kMaxPaths) throw std::invalid_argument("paths must be 1 to 16");
    rtt_.sample(from_ns(srtt_ns));
  }

  std::uint8_t pick(std::int64_t now_ns) { return sent(picker_->pick(from_ns(now_ns))); }
  std::uint8_t pick_again(std::uint8_t lost_on, std::int64_t now_ns) {
    return sent(picker_->pick_again(lost_on, from_ns(now_ns)));
  }
  void acked(std::uint8_t path, bool marked, std::int64_t now_ns) {
    loads_.left(path, 1);
    picker_->acked(path, marked, from_ns(now_ns));
  }
  PathPicker& picker() { return *picker_; }

 private:
  std::uint8_t sent(std::uint8_t path) {
    loads_.sent(path);
    return path;
  }

  PathSchedule schedule_;
  PathLoads loads_;
  RttEstimate rtt_;
  std::unique_ptr<PathPicker> picker_;
};

}  // namespace

void bind_path_picker(nb::module_& m) {
  using P = LonePicker;
  using nb::arg;
  nb::class_<P>(m, "PathPicker",
                "One peer's path picker, without a peer: the caller gives it the events.")
      .def(nb::init<const std::string&, std::uint32_t, std::uint64_t, std::int64_t>(), arg("name"),
           arg("paths"), arg("seed") = 1, arg("srtt_ns") = 10'000)
      .def("pick", &P::pick, arg("now_ns") = 0)
      .def("pick_again", &P::pick_again, arg("lost_on"), arg("now_ns") = 0)
      .def("acked", &P::acked, arg("path"), arg("marked") = false, arg("now_ns") = 0)
      .def(
          "trimmed",
          [](P& p, std::uint8_t path, bool last_hop, std::int64_t now_ns) {
            p.picker().trimmed(path, last_hop, from_ns(now_ns));
          },
          arg("path"), arg("last_hop") = false, arg("now_ns") = 0)
      .def(
          "lost",
          [](P& p, std::uint8_t path, std::int64_t now_ns) {
            p.picker().lost(path, from_ns(now_ns));
          },
          arg("path"), arg("now_ns") = 0)
      .def(
          "timed_out",
          [](P& p, std::uint8_t path, std::int64_t now_ns) {
            p.picker().timed_out(path, from_ns(now_ns));
          },
          arg("path"), arg("now_ns") = 0);
  m.def("path_picker_names", &path_picker_names);
}

}  // namespace softroce
