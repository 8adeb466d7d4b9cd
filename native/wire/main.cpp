// SPDX-License-Identifier: GPL-2.0-or-later
// softroce-wire BPFFS DIRECTORY FRAMES PORT_FRAMES
//
// Holds the frames of shaped links: those that XDP redirects to it come in by AF_XDP, wait in
// queues and for delays, and leave by the port that they were meant for. FRAMES is the number of
// frames in its pool, of 4 KiB each, and PORT_FRAMES how many of them lie ready at each port.
// The control socket is DIRECTORY/wire.sock (protocol.hpp). SIGTERM or SIGINT ends it; the frames
// that it holds then are lost.
#include <sys/eventfd.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "control.hpp"
#include "stage.hpp"

namespace {

using softroce::wire::Control;
using softroce::wire::FrameArea;
using softroce::wire::Stage;

bool parse(const char* text, std::uint32_t& number) {
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, number);
  return result.ec == std::errc() && result.ptr == end && number != 0;
}

// Runs the loop in a thread of its own; what ends it early ends us.
void work(Stage& stage, Control& control) {
  const int over = eventfd(0, EFD_CLOEXEC);
  std::exception_ptr failure;
  std::thread loop([&] {
    try {
      stage.run();
    } catch (...) {
      failure = std::current_exception();
    }
    eventfd_write(over, 1);
  });
  try {
    control.serve(over);
  } catch (...) {
    stage.stop();
    loop.join();
    throw;
  }
  stage.stop();
  loop.join();
  close(over);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint32_t frames = 0, port_frames = 0;
  if (argc != 5 || !parse(argv[3], frames) || !parse(argv[4], port_frames) ||
      port_frames > FrameArea::kRing) {
    std::fprintf(stderr, "usage: softroce-wire BPFFS DIRECTORY FRAMES PORT_FRAMES\n");
    return 2;
  }
  try {
    Stage stage({argv[1], frames, port_frames});
    Control control(stage, std::string(argv[2]) + "/wire.sock");
    work(stage, control);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softroce-wire: %s\n", error.what());
    return 1;
  }
  return 0;
}
