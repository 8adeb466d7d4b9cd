# SPDX-License-Identifier: GPL-2.0-or-later
"""When the port of a host takes a frame (native/live/port_pace.hpp), on a clock moved by hand."""

import ctypes
import subprocess

import pytest

from softroce_lab.paths import PROJECT_ROOT

US = 1_000_000  # picoseconds
MS = 1_000 * US
GBIT = 10**9
FRAME = 1_250  # bytes: 10 us at 1 Gbit/s
FRAME_PS = 10 * US
LEAST, MOST = 250 * US, 2 * MS  # how far ahead of its link the port takes frames

# The map of queues is an array here.
SOURCE = """
#include "native/system/mapped_map.hpp"
#include "xdp/lab_maps.h"

static lab_backlog uplink;
namespace softroce {
template <> MappedMap<lab_backlog>::MappedMap(const std::string&) : cells_(&uplink) {}
template <> MappedMap<lab_backlog>::~MappedMap() {}
}

#include "native/live/port_pace.hpp"

extern "C" {
softroce::PortPace* pace_begin() {
  return new softroce::PortPace(std::make_unique<softroce::wire::QueueMap>("pin"), 0, 0);
}
void pace_end(softroce::PortPace* pace) { delete pace; }
void pace_link(std::uint64_t rate_bps, std::uint64_t clear_ns) {
  uplink = {0, rate_bps, clear_ns};
}
bool pace_has_room(softroce::PortPace* pace, std::int64_t now) { return pace->has_room(now); }
void pace_hold_back(softroce::PortPace* pace) { pace->hold_back(); }
void pace_nothing_waits(softroce::PortPace* pace) { pace->nothing_waits(); }
std::int64_t pace_wakes_at(softroce::PortPace* pace) { return pace->wakes_at(); }
void pace_sent(softroce::PortPace* pace, std::uint32_t bytes, std::int64_t now) {
  pace->sent(bytes, now);
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pace")
    source, built = folder / "pace.cpp", folder / "pace.so"
    source.write_text(SOURCE)
    command = ["c++", "-std=c++20", "-shared", "-fPIC", f"-I{PROJECT_ROOT}", source, "-o", built]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    made = ctypes.CDLL(str(built))
    made.pace_begin.restype = ctypes.c_void_p
    made.pace_has_room.restype = ctypes.c_bool
    made.pace_wakes_at.restype = ctypes.c_int64
    return made


class Port:
    """A port on a link of 1 Gbit/s."""

    def __init__(self, library):
        self._library = library
        self._pace = ctypes.c_void_p(library.pace_begin())
        self.link(GBIT)

    def close(self):
        self._library.pace_end(self._pace)

    def link(self, rate_bps, clear_ps=0):
        """What the wire stage knows of the link."""
        self._library.pace_link(ctypes.c_uint64(rate_bps), ctypes.c_uint64(clear_ps // 1_000))

    def has_room(self, now):
        return self._library.pace_has_room(self._pace, ctypes.c_int64(now))

    def wakes_at(self):
        return self._library.pace_wakes_at(self._pace)

    def nothing_waits(self):
        self._library.pace_nothing_waits(self._pace)

    def send(self, now):
        self._library.pace_sent(self._pace, FRAME, ctypes.c_int64(now))

    def send_all(self, now):
        """As many frames as the port takes; one more waits. Their number."""
        count = 0
        while self.has_room(now):
            self.send(now)
            count += 1
            assert count < 10_000
        self._library.pace_hold_back(self._pace)
        return count


@pytest.fixture
def port(library):
    made = Port(library)
    yield made
    made.close()


def test_a_port_takes_frames_at_the_rate_of_its_link_and_little_ahead(port):
    assert port.send_all(0) == LEAST // FRAME_PS + 1
    sent = sum(port.send_all(now) for now in range(FRAME_PS, 50 * MS + 1, FRAME_PS))
    assert sent == 50 * MS // FRAME_PS


def test_a_link_that_is_busy_with_frames_of_others_takes_none(port):
    port.link(GBIT, clear_ps=5 * MS)
    assert not port.has_room(5 * MS - LEAST - 1)
    assert port.has_room(5 * MS - LEAST)


@pytest.mark.parametrize(("late", "ahead"), [(300 * US, LEAST + 300 * US), (10 * MS, MOST)])
def test_a_link_that_idled_although_a_frame_waited_gets_more_ahead_the_next_time(port, late, ahead):
    now = port.send_all(0) * FRAME_PS + late
    assert port.send_all(now) == ahead // FRAME_PS + 1


def test_what_was_not_needed_for_long_is_given_up(port):
    now = port.send_all(0) * FRAME_PS + MS
    assert port.send_all(now) > 2 * LEAST // FRAME_PS
    for _ in range(2_500):
        now += 100 * US
        port.send_all(now)
    port.nothing_waits()
    assert port.send_all(now + 100 * MS) == LEAST // FRAME_PS + 1


@pytest.mark.parametrize("rate_bps", [GBIT, 0], ids=["with a rate", "while there is no rate"])
def test_a_link_that_idles_for_want_of_frames_gets_no_more_ahead(port, rate_bps):
    """The frame that waited has gone, or need not go any more: a window was closed."""
    port.send_all(0)
    port.link(rate_bps)
    if rate_bps:
        port.nothing_waits()
    else:
        port.send(MS)
    port.link(GBIT)
    assert port.send_all(100 * MS) == LEAST // FRAME_PS + 1
