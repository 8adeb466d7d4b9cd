# SPDX-License-Identifier: GPL-2.0-or-later
"""Path pickers: what arrives, and which path leaves next; then each of them with a dead path."""

import collections

import pytest

from softroce_lab import _native
from softroce_lab.transports import registry
from softroce_lab.transports.options import OptionError
from tests.native import frames
from tests.native.by_hand import ByHand, Sent
from tests.transports.pair_rig import DATA, PairRig
from tests.transports.sabotage import packets_sent, rule

PATHS = 4
MILLISECOND_NS = 1_000_000
SRTT_NS = 10_000
ANY = "any"
BTH_AT = frames.IP_AT + 20 + frames.UDP


def played(picker, script):
    """Do what each step says: `pick` has a path as its answer, which the step's path must be."""
    found, wanted = [], []
    for what, *arguments in script:
        if what == "pick":
            path, *more = arguments
            found.append(picker.pick(*more))
            wanted.append(found[-1] if path == ANY else path)
        elif what == "again":
            path, *more = arguments
            found.append(picker.pick_again(*more))
            wanted.append(path)
        else:
            getattr(picker, what)(*arguments)
    return found, wanted


def picks(*paths):
    return [("pick", path) for path in paths]


def acks(*paths, marked=False):
    return [("acked", path, marked) for path in paths]


def check(name, script, first=None):
    """`first`: where a rotation has to begin; a seed that does so is looked for."""
    for seed in range(100):
        if first is None or _native.PathPicker(name, PATHS, seed).pick() == first:
            found, wanted = played(_native.PathPicker(name, PATHS, seed, SRTT_NS), script)
            assert found == wanted
            return
    raise AssertionError("no seed begins there")


# ---------------------------------------------------------------- turns, least-in-flight


@pytest.mark.parametrize(
    "script",
    [
        picks(0, 1, 2, 3, 0, 1),
        [*acks(2, 2), *picks(0, 1, 2, 3)],
        [*acks(1, marked=True), *picks(0, 1, 2)],
        [("timed_out", 1), *picks(0, 1, 2)],
        [("lost", 0), *picks(0, 1)],
        [("trimmed", 0), *picks(0, 1)],
        [*picks(0), ("again", 2, 1), *picks(3)],  # not where it was lost: the one after that
        [*picks(0), ("again", 1, 0), *picks(2)],
    ],
)
@pytest.mark.parametrize("name", ["turns", "per-message"])
def test_turns_go_on_whatever_arrives(name, script):
    check(name, script)


@pytest.mark.parametrize(
    "script",
    [
        picks(0, 1, 2, 3, 0, 1),
        [*picks(0, 1, 2, 3), *acks(2), *picks(2, 1)],
        [*picks(0, 1, 2, 3), *acks(3, 2), *picks(2, 3, 2)],
        [*picks(0, 1, 2, 3), ("lost", 3), *picks(3, 1)],
        [*picks(0, 1, 2, 3), ("timed_out", 1), *picks(1, 1)],
        [*picks(0, 1, 2, 3), ("trimmed", 2), *picks(2, 1)],
        [*acks(0, marked=True), *picks(1, 2, 3, 3, 0)],  # 3 * 0 + 1 for a marked path
        [*acks(0, marked=True), ("pick", 0, SRTT_NS), ("pick", 1, SRTT_NS)],  # for an SRTT
        [*picks(0, 1, 2), ("again", 0, 3)],  # not the empty one, which lost the packet
        [*acks(3, marked=True), *picks(0, 1, 2), ("again", 3, 0)],  # heeds no marks
        [*picks(0, 1, 2, 3), ("lost", 1), ("again", 2, 0)],  # 1 is empty because it lost a packet
        [*picks(0, 1, 2, 3), ("timed_out", 1), *acks(1), ("again", 1, 0)],  # and has brought one
    ],
)
def test_the_emptiest_path_goes_first(script):
    check("least-in-flight", script)


# ---------------------------------------------------------------- reps

EXPLORED = picks(*[ANY] * 16)
FROZEN_NS = 10 * MILLISECOND_NS


@pytest.mark.parametrize(
    "script",
    [
        [*EXPLORED, *acks(3, 1, 2), *picks(3, 1, 2)],
        [*acks(3, 1), *EXPLORED, *picks(3, 1)],  # exploring uses none up
        [*EXPLORED, *acks(3, 3, 3), *picks(3, 3, 3)],  # once for each acknowledgement
        [*EXPLORED, *acks(3), *acks(1, marked=True), *acks(2), *picks(3, 2)],
        [*EXPLORED, *acks(0, 1, 2, 3, 0, 1, 2, 3, 2), *picks(1, 2, 3, 0, 1, 2, 3, 2)],  # 8 slots
        [*EXPLORED, *acks(1), ("lost", 1), ("trimmed", 2), *picks(1)],
        [*EXPLORED, ("trimmed", 2, True), *picks(2)],  # by the last switch: the path is good
        [*EXPLORED, *acks(1, 2), *picks(1), ("timed_out", 3), *picks(1, 2, 1, 2)],
        [*EXPLORED, *acks(1), ("timed_out", 3), *acks(2), *picks(1, 2, 1)],
        [*EXPLORED, *acks(1, 2), ("timed_out", 3), ("acked", 3, False, FROZEN_NS),
         *picks(1, 2, 3, 1)],
        [*EXPLORED, *acks(1, 2), ("timed_out", 3), ("acked", 3, False, FROZEN_NS + 1), *EXPLORED,
         *picks(3)],
        [*acks(1, 2), ("timed_out", 3), *EXPLORED, *picks(1, 2, ANY)],  # no freeze while exploring
    ],
)  # fmt: skip
def test_reps_recycles_the_paths_of_acknowledgements(script):
    check("reps", script)


def test_reps_is_random_at_first_without_fresh_paths_and_after_a_freeze():
    """The picks that the table leaves open: all paths, about equally often."""
    picker = _native.PathPicker("reps", PATHS)
    for _ in range(2):
        counts = collections.Counter(picker.pick() for _ in range(400))
        assert sorted(counts) == [0, 1, 2, 3]
        assert min(counts.values()) > 60
        picker.acked(1)
        picker.timed_out(3)
        assert {picker.pick() for _ in range(100)} == {1}
        picker.lost(0, now_ns=FROZEN_NS + 1)


# ---------------------------------------------------------------- bitmap


@pytest.mark.parametrize(
    "script",
    [
        picks(0, 1, 2, 3),
        [*acks(1, marked=True), *picks(0, 2, 3)],
        [*acks(0, 1, 2, 3), *picks(0, 1, 2, 3)],
        [*acks(0, marked=True), *picks(1, 2, 3)],
        [*acks(1, 2, marked=True), *picks(0, 3)],
        [("trimmed", 1, True), *picks(0, 1)],
        [("trimmed", 1), *picks(0, 2)],
        [("lost", 3), *picks(0, 1, 2)],
    ],
)
def test_the_bitmap_passes_over_paths_with_points(script):
    check("bitmap", script, first=0)


@pytest.mark.parametrize(
    ("events", "points"),
    [
        ([], 0),
        ([("acked", 1, True)], 1),
        ([("acked", 1, True)] * 3, 3),
        ([("trimmed", 1)], 4),
        ([("trimmed", 1, True)], 0),
        ([("lost", 1)], 4),
        ([("lost", 1), ("acked", 1, True)], 5),
        ([("timed_out", 1)], 15),
        ([("timed_out", 1), ("timed_out", 1), ("trimmed", 1)], 15),
        ([("trimmed", 1)] * 4, 15),
    ],
)
def test_a_visit_takes_one_of_the_points(events, points):
    """A path with n points is passed over in n rotations."""
    picker = _native.PathPicker("bitmap", PATHS)
    played(picker, events)
    chosen = [picker.pick() for _ in range(200)]
    before = chosen.index(1)
    # A rotation comes to each path once. The last one may have come to path 0 before, and a pick
    # that ends one rotation may pass over the path in the next, too.
    assert points <= chosen[:before].count(0) <= points + 2


# ---------------------------------------------------------------- ev-states


@pytest.mark.parametrize(
    "script",
    [
        picks(0, 1, 2, 3, 0),
        [*acks(1, marked=True), *picks(0, 2, 3, 0, 1)],  # SKIP for a rotation
        [("trimmed", 1), *picks(0, 2, 3, 0, 1)],
        [("trimmed", 1, True), *picks(0, 1)],
        [*acks(1, 1, 1, marked=True), *picks(0, 2, 3, 0, 1)],  # more feedback changes nothing
        [*acks(1, marked=True), *acks(1), *picks(0, 2, 3, 0, 1)],
        [*acks(0, 1, 2, 3, marked=True), *picks(0, 0)],  # one becomes GOOD a pick
        [*acks(0, 1, marked=True), *picks(2, 3, 0, 2)],
        [("timed_out", 1), *picks(0, 2, 3, 0, 2, 3, 0, 2, 3)],  # ASSUMED_BAD
        [("lost", 1), *picks(0, 2, 3, 0, 2, 3)],
        [("timed_out", 1), *acks(1), *picks(0, 1)],  # what arrives from it makes it GOOD
        [("timed_out", 1), *acks(1, marked=True), *picks(0, 2, 3, 0, 1)],  # or SKIP
        [("timed_out", 1), ("trimmed", 1), *picks(0, 2, 3, 0, 2)],
        # The floor is a quarter, one path of four: the last one is only skipped.
        [("timed_out", 0), ("timed_out", 1), ("timed_out", 2), ("timed_out", 3), *picks(3, 3)],
    ],
)
def test_states_of_entropy_values(script):
    check("ev-states", script, first=0)


def test_a_bad_path_is_tried_in_each_64th_rotation():
    check("ev-states", [("timed_out", 1), *picks(*[0, 2, 3] * 63, 0, 1, 2, 3, 0, 2)], first=0)


# ---------------------------------------------------------------- by name, and by option


def test_an_unknown_picker_names_the_known_ones():
    known = "per-message, turns, least-in-flight, reps, bitmap, ev-states"
    with pytest.raises(ValueError, match=f"unknown path_picker 'rep'; known: {known}"):
        _native.PathPicker("rep", PATHS)
    with pytest.raises(OptionError, match="reps"):
        registry.find("irn").engine({"path_picker": "rep"})


@pytest.mark.parametrize("picker", ["per-message", "turns", "reps"])
def test_feedback_takes_the_packets_path_and_echoes_its_mark_if_the_picker_heeds_marks(picker):
    options = registry.find("srnic").engine({"path_picker": picker})["options"]
    talk = ByHand.begun("srnic", 6, paths=PATHS, options=options)
    out = talk.data_out()
    frame = bytearray(out[1].frame)
    frame[frames.IP_AT + 1] |= 3
    answers = talk.answers(out[0], Sent(frames.seal(bytes(frame)), out[1].reported))
    assert [each.reported["path"] for each in answers] == [
        out[index].reported["path"] for index in (0, 1)
    ]
    becn = [each.frame[BTH_AT + 4] for each in answers]
    assert becn == [0, 0x40 if picker == "reps" else 0]


# ---------------------------------------------------------------- a dead path

DEAD, ROUNDS = 3, 12
OF_TRANSPORTS = ["irn", "srnic", "rack_tlp"]


def share_of_dead_path(transport, picker):
    """How many data packets take the dead path in the second half of the run; 1: an equal share."""
    rig = PairRig(transport, options={"path_picker": picker}, paths=8, window_packets=64,
                  initial_rtt_ns=100_000, arena_bytes=1 << 25)  # fmt: skip
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 50_000, 1_000
    rig.cables[0].rules = [rule(path=DEAD)]
    rig.pair.keep_sent()
    for number in range(ROUNDS):
        rig.transfer((5, 0, number), 400_000)
    rig.finish()
    rig.check()
    sent = [each["path"] for each in packets_sent(rig, 0) if each["kind"] == DATA]
    later = sent[len(sent) // 2 :]
    return later.count(DEAD) / (len(later) / 8)


@pytest.mark.parametrize(
    ("picker", "most"), [("reps", 0.05), ("bitmap", 0.35), ("ev-states", 0.05)]
)
@pytest.mark.parametrize("transport", OF_TRANSPORTS)
def test_a_dead_path_is_left(transport, picker, most):
    """By `bitmap` for some rotations after each loss."""
    assert share_of_dead_path(transport, picker) < most


@pytest.mark.parametrize("picker", ["turns", "least-in-flight"])
def test_others_go_on_to_use_a_dead_path(picker):
    assert share_of_dead_path("rack_tlp", picker) > 0.5
