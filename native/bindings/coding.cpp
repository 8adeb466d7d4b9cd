// SPDX-License-Identifier: GPL-2.0-or-later
// Codes of messages, and encoding and decoding by a user's policy: on the thread of the policy that
// asks for it, not on the engine's. The message's lock keeps the memory from going meanwhile.
#include "../transport/coding.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <vector>

#include "../system/clock.hpp"
#include "bindings.hpp"

namespace softroce {

void bind_coding(EndpointClass& cls) {
  cls.def(
         "code_in_slices",
         [](Endpoint& e) {
           e.submit([](Rnic& rnic, Time) { rnic.messages().session()->set_clock(monotonic_ns); });
         },
         "let a session code as in a thread: a slice a turn, timed by the real clock")
      .def(
          "set_codes",
          [](Endpoint& e, PeerIndex peer, const std::vector<std::uint8_t>& by_bits) {
            std::array<std::uint8_t, 33> codes{};
            std::copy_n(by_bits.begin(), std::min(by_bits.size(), codes.size()), codes.begin());
            e.submit([=](Rnic& rnic, Time) { rnic.messages().set_codes(peer, codes); });
          },
          nb::arg("peer"), nb::arg("by_bits"),
          "codes of messages to a peer, by the number of bits in their length: places in the "
          "configuration's `codes`, 255 for none")
      .def(
          "encode",
          [](Endpoint& e, Handle handle, std::uint32_t submessage, const ErasureCode& code) {
            const nb::gil_scoped_release release;
            bool encoded = false;
            e.rnic().messages().sends().snapshot(handle, [&](const SendMessage& message) {
              auto work = Coding::encode(const_cast<SendMessage&>(message), submessage, code);
              if (work) work->finish();
              encoded = work.has_value();
            });
            if (!encoded) return;
            e.submit([=](Rnic& rnic, Time now) {
              rnic.messages().release_parity(handle, submessage, now);
            });
          },
          nb::arg("handle"), nb::arg("submessage"), nb::arg("code"),
          "compute a submessage's parity, then let it be sent; nothing if the message has none")
      .def(
          "restore",
          [](Endpoint& e, Handle handle, std::uint32_t submessage, const ErasureCode& code) {
            const nb::gil_scoped_release release;
            bool restored = false;
            e.rnic().messages().receives().snapshot(handle, [&](const ReceiveMessage& message) {
              auto work = Coding::restore(const_cast<ReceiveMessage&>(message), submessage, code);
              if (work) work->finish();
              restored = work.has_value();
            });
            if (restored)
              e.submit(
                  [=](Rnic& rnic, Time now) { rnic.messages().restored(handle, submessage, now); });
            return restored;
          },
          nb::arg("handle"), nb::arg("submessage"), nb::arg("code"),
          "restore the data that a submessage lacks; False: it cannot be, nothing was written");
}

}  // namespace softroce
