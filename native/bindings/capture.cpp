// SPDX-License-Identifier: GPL-2.0-or-later
// Captures as arrays: softroce_lab/telemetry/capture_file.py feeds the file.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "../capture/reader.hpp"
#include "../capture/xxh64.hpp"
#include "bindings.hpp"
#include "lent_bytes.hpp"

namespace softroce {
namespace {

using namespace nb::literals;
using capture::NoteKind;
using capture::PacketRow;
using capture::Reader;

nb::str to_str(const std::string& text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void feed(Reader& reader, nb::handle lender) {
  const LentBytes bytes(lender);
  const nb::gil_scoped_release release;
  reader.feed({bytes.data(), bytes.size()});
}

// Rows as bytes, which move out of the reader: it may be fed on.
nb::object take_packets(Reader& reader) {
  auto* rows = new capture::Rows(std::move(reader.contents().rows()));
  const nb::capsule owner(rows, [](void* p) noexcept { delete static_cast<capture::Rows*>(p); });
  const nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<2>> array(
      rows->data(), {rows->size(), sizeof(PacketRow)}, owner);
  return nb::cast(array);
}

nb::list interfaces(Reader& reader) {
  nb::list all;
  for (const capture::Interface& each : reader.contents().interfaces())
    all.append(nb::make_tuple(each.name ? nb::object(to_str(*each.name)) : nb::none(),
                              each.link_type, each.snap_length, each.received, each.dropped));
  return all;
}

nb::list comments(Reader& reader) {
  nb::list all;
  for (const std::string& each : reader.contents().comments()) all.append(to_str(each));
  return all;
}

nb::list notes(Reader& reader) {
  nb::list all;
  for (std::size_t i = 0; i < capture::kNoteKinds; ++i) {
    const auto kind = static_cast<NoteKind>(i);
    const capture::Note& note = reader.contents().notes()[kind];
    if (note.count == 0) continue;
    const auto place = capture::has_place(kind) ? nb::cast(note.offset) : nb::none();
    all.append(nb::make_tuple(capture::kNoteTexts[i], note.count, note.first, place));
  }
  return all;
}

}  // namespace

void bind_capture(nb::module_& m) {
  nb::class_<Reader>(m, "CaptureReader", "Reads a pcap or pcapng file that is fed to it.")
      .def(nb::init<>())
      .def("feed", &feed, "piece"_a)
      .def("finish", &Reader::finish, "The file has no more.")
      .def_prop_ro("refusal", &Reader::refusal, "Why the file is no capture at all, or None.")
      .def_prop_ro("stopped", &Reader::stopped, "Nothing of what is still fed will be read.")
      .def("take_packets", &take_packets,
           "Rows of bytes, each a struct PacketRow: those since the last time.")
      .def("interfaces", &interfaces, "(name, link type, snap length, received, dropped) of each")
      .def("comments", &comments)
      .def("notes", &notes, "(what, how many, number of the first frame, offset or None) of each");
  m.attr("CAPTURE_REFUSALS") = nb::cast(capture::kRefusals);
  m.def(
      "xxh64",
      [](nb::handle lender) {
        const LentBytes bytes(lender);
        return capture::xxh64(bytes.data(), bytes.size());
      },
      "payload"_a, "The hash of a payload in a row: XXH64 with seed 0.");
}

}  // namespace softroce
