# SPDX-License-Identifier: GPL-2.0-or-later
"""xdp/lab_fault.h: what it decides, that it is random enough, and that it never changes.

tests/fabric/bpf/test_xdp.py holds the BPF build of the same header to these answers.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from dataclasses import asdict, dataclass

import pytest

from softroce_lab import _native
from softroce_lab.faults.layout import link_rules, rule_hits
from softroce_lab.plan.effects import (
    CERTAIN,
    Corrupt,
    Cut,
    Drop,
    Fault,
    FaultKey,
    Filter,
    NamedDrop,
    RandomLoss,
    Reorder,
    Window,
)
from softroce_lab.structs import CONSTANTS, enumerators
from tests.xdp.packets import packet as native_packet

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
H1, H3 = 0x0A000001, 0x0A000003
DATA, CONTROL, REPORT, PATH_PROBE, PARITY = range(5)


@dataclass(frozen=True)
class Packet:
    src: int = H1
    dst: int = H3
    kind: int = DATA
    operation: int = 0
    step: int = 0
    message: int = 0
    index: int = 0
    attempt: int = 0

    def native(self) -> bytes:
        return native_packet(**asdict(self))


def mix64(word: int) -> int:
    """SplitMix64's finaliser, written again from its definition."""
    word ^= word >> 30
    word = word * 0xBF58476D1CE4E5B9 & MASK
    word ^= word >> 27
    word = word * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def absorb(state: int, word: int) -> int:
    return mix64(((state ^ word) + GOLDEN) & MASK)


def digest(packet: Packet) -> int:
    words = [packet.src << 32 | packet.dst, packet.kind << 40, packet.message << 32]
    if packet.kind in (DATA, PARITY):
        words[1] |= packet.attempt << 32 | packet.operation << 16 | packet.step
        words[2] |= packet.index
    state = 0
    for word in words:
        state = absorb(state, word)
    return state


def draw(stream: int, name: int) -> int:
    return absorb(mix64((stream + GOLDEN) & MASK), name)


def rule(stream: int, threshold: int, key: FaultKey = "identity", rule_id: int = 0) -> Fault:
    return Fault("r", rule_id, 0, key, stream, RandomLoss(threshold))


def link(*faults: Fault) -> _native.LinkFaults:
    return _native.LinkFaults(link_rules(faults).value)


def lost(faults: list[Fault], packet: Packet) -> int | None:
    """The id of the rule that drops the packet, the first one on its link."""
    verdict = link(*faults).decide(packet.native())
    return verdict.rule_ids[0] if verdict.effects else None


@pytest.mark.parametrize("period_ns", [0, 1_000])
def test_a_window_is_exact_to_the_nanosecond(period_ns):
    """It includes its beginning and excludes its end; so does the plan's own statement of it."""
    window = Window(begin_ns=500, length_ns=100, period_ns=period_ns)
    fault = dataclasses.replace(rule(1, MASK), window=window)
    for turn in range(3 if period_ns else 1):
        begin = 500 + turn * period_ns
        for now_ns, acts in ((begin - 1, 0), (begin, 1), (begin + 99, 1), (begin + 100, 0)):
            verdict = link(fault).decide(Packet().native(), now_ns)
            assert bool(verdict.effects) == window.acts(now_ns) == bool(acts), now_ns


SOME = [
    Packet(),
    Packet(index=511, attempt=3),
    Packet(operation=7, step=65535, message=2**32 - 1, index=2**32 - 1, attempt=255),
    Packet(src=H3, dst=H1, kind=CONTROL, message=12),
    Packet(src=0xFFFFFFFF, dst=0, kind=REPORT, message=12),
    Packet(kind=PARITY, operation=1, step=2, message=12, index=17),
]


@pytest.mark.parametrize("packet", SOME)
def test_digest_and_draw_are_what_the_definition_says(packet):
    assert _native.identity_digest(packet.native()) == digest(packet)
    for stream in (0, 1, 0x0123456789ABCDEF, MASK):
        assert _native.fault_draw(stream, digest(packet)) == draw(stream, digest(packet))


def test_digests_stay_for_ever():
    """A change of these numbers changes which packets every recorded seed drops."""
    assert [_native.identity_digest(packet.native()) for packet in SOME] == [
        0x3B0E0FE7B63CF40F,
        0xE4F981A766C3EF7F,
        0x06FAE4ACD5A5282E,
        0x6B5CEBBF3BBF041C,
        0x3A8A86F4CEB143E9,
        0xB13BDD7BB50E5F12,
    ]


@pytest.mark.parametrize("kind", [CONTROL, REPORT])
def test_control_and_reports_are_named_by_kind_and_sequence_alone(kind):
    plain = Packet(kind=kind, message=77).native()
    busy = Packet(kind=kind, message=77, operation=1, step=2, index=3, attempt=4).native()
    assert _native.identity_digest(plain) == _native.identity_digest(busy)


KINDS = {DATA: "data", CONTROL: "control", REPORT: "report", PATH_PROBE: "probe", PARITY: "parity",
         CONSTANTS["LAB_KIND_NONE"]: "other"}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (Filter(), set(KINDS.values())),
        (Filter(kinds=("parity",)), {"parity"}),
        (Filter(kinds=("data",)), {"data"}),
        (Filter(kinds=("control",)), {"control", "probe"}),
        (Filter(kinds=("data", "parity", "report")), {"data", "parity", "report"}),
        (Filter(opcode=0x64), set(KINDS.values())),
        (Filter(message=12), {"data", "parity"}),
        (Filter(message=12, kinds=("parity",)), {"parity"}),
        (Filter(iters=(1,)), {"data", "parity", "probe"}),
        (Filter(tail=1), {"data"}),
        (Filter(tail=3, iters=(1,)), {"data"}),
        (Filter(tail=1, kinds=("data", "parity")), {"data"}),
    ],
    ids=lambda case: str(case) if isinstance(case, Filter) else "",
)
def test_which_kinds_of_packets_a_filter_takes(wanted, taken):
    """Beside another rule with a filter: then each rule's is looked at."""
    faults = [
        Fault("a", 1, 0, "identity", 1, Drop(), wanted),
        Fault("b", 2, 0, "identity", 1, Drop(), Filter(opcode=0)),
    ]
    dropped = set()
    for kind, name in KINDS.items():
        values = dataclasses.asdict(Packet(kind=kind, message=12, index=17))
        # Parity lies behind the data: `tail` of the first row is 0.
        one = native_packet(**values, opcode=0x64, tail=0 if kind == PARITY else 1)
        if link(*faults).decide(one).effects:
            dropped.add(name)
    assert dropped == taken


NAMELESS = CONSTANTS["LAB_KIND_NONE"]


@pytest.mark.parametrize(
    ("kind", "trimmed", "effect", "seen"),
    [
        (DATA, 0, "cut", 1),
        (PARITY, 0, "cut", 1),
        (DATA, 1, "corrupt", 0),
        (PARITY, 1, "corrupt", 0),
        (CONTROL, 0, "drop", 1),
        (PATH_PROBE, 0, "drop", 1),
        (REPORT, 0, "drop", 1),
        (NAMELESS, 0, "drop", 1),
    ],
)
def test_a_rule_cuts_once_what_has_a_payload_and_drops_the_rest(kind, trimmed, effect, seen):
    """The rule behind it sees what passes alone."""
    cut = Fault("a", 1, 0, "identity", 1, Cut(CERTAIN))
    both = link(cut, Fault("b", 2, 0, "identity", 1, Corrupt(CERTAIN)))
    verdict = both.decide(native_packet(kind=kind, trimmed=trimmed))
    assert verdict.effects == enumerators("lab_effect")[effect]
    hits, behind = rule_hits(both.state, [1, 2])
    assert (hits.seen, hits.hits, behind.seen) == (seen, seen, 1 - seen)


@pytest.mark.parametrize("row", range(4))
def test_a_packet_of_parity_has_no_name(row):
    """A message of eight packets of data: named drops name data."""
    blank = {"qpn": None, "psn": None, "absolute": False, "iters": ()}
    name = NamedDrop(message=0, packet=8 + row, **blank)
    named = _native.LinkFaults(link_rules([Fault("r", 0, 0, "identity", 1, name)]).value)
    parity = native_packet(
        **dataclasses.asdict(Packet(kind=PARITY, index=8 + row)), tail=-row % 2**32
    )
    assert not named.decide(parity).effects


def test_the_first_rule_that_hits_decides():
    never, always = rule(1, 0), rule(2, MASK, rule_id=7)
    assert lost([], Packet()) is None
    assert lost([never, always, rule(3, MASK)], Packet()) == 7
    assert lost([never] * 7 + [always], Packet()) == 7
    with pytest.raises(ValueError, match="9 rules"):
        link_rules([never] * 9)


@pytest.mark.parametrize("key", ["identity", "index"])
def test_a_nameless_frame_is_decided_by_its_count(key):
    half = 2**63
    counted = link(rule(9, half, key))
    nameless = Packet(kind=CONSTANTS["LAB_KIND_NONE"]).native()
    for n in range(200):
        expected = draw(9, mix64((n + GOLDEN) & MASK)) < half
        assert bool(counted.decide(nameless).effects) is expected


@pytest.mark.parametrize("iters", [(), (1,), (64,), (1, 2, 64)])
def test_a_transmission_behind_the_64th_is_none_that_can_be_listed(iters: tuple[int, ...]):
    dropping = link(Fault("r", 0, 0, "identity", 1, Drop(), Filter(iters=iters)))
    blank = {"qpn": None, "psn": None, "absolute": False}
    name = NamedDrop(message=0, packet=0, iters=iters, **blank)
    (named,) = link_rules([Fault("r", 0, 0, "identity", 1, name)]).names.values()
    for attempt in range(256):
        packet = Packet(attempt=attempt).native()
        expected = not iters or attempt + 1 in iters
        assert bool(dropping.decide(packet).effects) is expected, attempt
        assert _native.named_hits(named, packet)[0] is expected, attempt


@pytest.mark.parametrize(
    ("gap", "chosen"),
    [(0, range(20)), (1, range(20)), (2, range(1, 20, 2)), (5, range(4, 20, 5))],
)
def test_a_gap_lies_before_the_first_chosen_packet_as_in_netem(gap: int, chosen: range):
    """sch_netem's netem_enqueue(): what finds counter < gap - 1 is delayed."""
    counted = link(Fault("r", 0, 0, "index", 1, Reorder(CERTAIN, gap, 0)))
    assert counted.run(20).tolist() == list(chosen)


def chi_square(counts: list[int]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def assert_uniform(counts: list[int]) -> None:
    """Within 5 standard deviations of chi-square's mean, either way; the inputs are fixed."""
    freedom = len(counts) - 1
    assert abs(chi_square(counts) - freedom) < 5 * math.sqrt(2 * freedom)


DRAWS = 1 << 15

SEQUENCES = {
    "index": lambda n: Packet(index=n),
    "message and index": lambda n: Packet(message=n >> 9, index=n & 511),
    "attempt": lambda n: Packet(index=n >> 3, attempt=n & 7),
    "step": lambda n: Packet(step=n & 0xFFFF),
    "operation": lambda n: Packet(operation=n & 0xFFFF),
    "addresses": lambda n: Packet(src=0x0A000000 + (n >> 8), dst=0x0A000000 + (n & 255)),
    "control": lambda n: Packet(kind=CONTROL, message=n),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_draws_over_consecutive_names_are_uniform(name):
    digests = [_native.identity_digest(SEQUENCES[name](n).native()) for n in range(DRAWS)]
    draws = [_native.fault_draw(3, digest) for digest in digests]
    for shift in (0, 28, 56):
        counts = collections.Counter(draw >> shift & 255 for draw in draws)
        assert_uniform([counts[value] for value in range(256)])
