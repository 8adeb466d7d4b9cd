# SPDX-License-Identifier: GPL-2.0-or-later
"""`sdr_auto`: the code follows the losses, and both ends agree on it."""

import itertools

import pytest

from softroce_lab.recovery import sdr_auto
from softroce_lab.recovery.policy import NO_CODE
from softroce_lab.recovery.sdr_auto import PARITY, Measured, best, graded, parity_packets
from tests.recovery.pair_rig import MILLISECOND_NS, SECOND_NS, PairRig, threshold

MTU = 1024
PACKET = MTU - 40
CHUNK = {"chunk": f"{MTU} B"}
LONG_HAUL = {
    "rtt_ns": 25e6, "rate_bps": 400 * 10**9, "chunk_bytes": 65536, "chunk_packets": 16, "beta": 1.0
}  # fmt: skip


def make(seed=1, **settings):
    rig = PairRig(
        "sdr_auto", options=CHUNK, path_mtu=MTU, seed=seed, arena_bytes=1 << 26, **settings
    )
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 10 * MILLISECOND_NS, 1_000
    return rig


def send(rig, messages, packets=2000, first=0):
    for number in range(first, first + messages):
        rig.transfer((1, 1, number), packets * PACKET)
        rig.finish(20 * SECOND_NS)


def used(rig):
    return rig.sides[0].policy.summary()["codes"]


def parity(rig):
    """Chunks of parity of the newest choice, for these messages."""
    choice = next(iter(rig.sides[0].policy.hosted._peers.values()))
    place = choice.by_bits[(2000 * PACKET).bit_length()]
    return 0 if place == NO_CODE else PARITY[place]


def test_it_begins_with_the_papers_code_and_takes_less_parity_where_nothing_is_lost():
    """The more packets arrive the less it fears: after so many none is lost seldom."""
    rig = make()
    send(rig, 1)
    assert used(rig) == {"(32, 8)": 1}
    chosen = []
    for number in range(1, 16):
        send(rig, 1, first=number)
        chosen.append(parity(rig))
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] <= 8
    assert chosen[-1] <= 2
    rig.check()


def test_it_changes_its_mind_when_the_loss_jumps_and_when_it_goes():
    rig = make()
    send(rig, 8)
    quiet = parity(rig)
    rig.cables[0].loss = threshold(0.02)
    send(rig, 3, first=8)  # it needs to see it
    lossy = parity(rig)
    assert lossy >= 16 > quiet
    rig.cables[0].loss = 0
    send(rig, 4, first=11)
    assert parity(rig) < lossy
    rig.check()


@pytest.mark.parametrize("loss", [0.001, 0.02, 0.15])
def test_every_byte_arrives_whatever_it_chooses(loss):
    for seed in range(1, 6):
        rig = make(seed)
        rig.cables[0].loss = rig.cables[1].loss = threshold(loss)
        for number, packets in enumerate((1, 3, 31, 32, 33, 64, 65, 1000)):
            rig.transfer((1, 2, number), packets * PACKET - 5)
        send(rig, 3)
        rig.check()


def test_both_ends_tell_the_same_code_from_the_number_of_packets():
    """Two codes with as many packets of parity have the same parity for that message."""
    policy = make().sides[0].policy.hosted
    for packets in [*range(1, 140), 1000, 1023, 1024, 1025]:
        for chunk in (1, 2, 16):
            policy.chunk_packets = chunk
            for m in PARITY:
                parity = parity_packets(packets, chunk, m)
                k, found = policy.shape(packets, parity)
                assert parity_packets(packets, chunk, found) == parity
                if found == m:
                    continue
                chunks = -(-packets // chunk)
                assert chunks <= k  # one submessage, whose code is the same
                assert -(-chunks * m // k) == -(-chunks * found // k)


def test_the_engine_counts_parity_as_the_policy_does():
    rig = make()
    sizes = (1, 2, 31, 32, 33, 64, 65, 100)
    for number, packets in enumerate(sizes):
        rig.transfer((1, 2, number), packets * PACKET - 1)
    rig.finish()
    assert rig.counters(0)["tx_parity"] <= sum(parity_packets(n, 1, PARITY[0]) for n in sizes)
    assert rig.counters(0)["stale_action"] == 0


def test_a_message_is_judged_by_its_own_length(monkeypatch):
    """One that ends within its last packet is not judged as the next power of two."""
    asked = []
    monkeypatch.setattr(
        sdr_auto, "best", lambda *, length, **_: asked.append(length) or sdr_auto.PARITY.index(4)
    )
    rig = make()
    for number in range(3):
        rig.transfer((1, 1, number), 2 << 20)
        rig.finish(20 * SECOND_NS)
    assert asked
    assert set(asked) == {2 << 20}


def test_the_choice_is_that_of_the_model():
    size = 128 << 20
    chosen = [best(length=size, loss=loss, **LONG_HAUL) for loss in (0, 1e-8, 1e-3, 1e-2, 1e-1)]
    assert chosen[:2] == [NO_CODE, NO_CODE]
    parity = [PARITY[place] for place in chosen[2:]]
    assert parity == sorted(parity)
    assert parity[0] < parity[-1]


def test_selective_repeat_is_judged_as_one_that_keeps_what_arrived_of_a_chunk():
    """Over 75 km it is faster than (32, 1), which whole chunks that are repeated would not be."""
    short_haul = LONG_HAUL | {"rtt_ns": graded(0.5e6)}
    assert best(length=128 << 20, loss=0.1, **short_haul) == NO_CODE
    whole = short_haul | {"chunk_packets": 1}
    assert best(length=128 << 20, loss=0.1, **whole) != NO_CODE


def test_a_loss_that_chance_does_not_explain_replaces_what_was_known():
    measured = Measured()
    assert measured.loss is None
    measured.add(500, 500)  # too few
    assert measured.loss is None
    echoed = lost = 0
    for _ in range(100):
        echoed, lost = echoed + 10_000, lost + 10
        measured.add(echoed % (1 << 32), echoed - lost)
    assert measured.loss == pytest.approx(1e-3, rel=0.01)
    measured.add(echoed + 10_000, echoed + 10_000 - lost - 1000)
    assert measured.loss == pytest.approx(0.1, rel=0.01)


def test_numbers_of_reports_wrap():
    measured = Measured(echoed_before=(1 << 32) - 1000, reported_before=(1 << 32) - 1000)
    measured.add(3000, 2960)
    assert measured.loss == pytest.approx(0.01, rel=0.02)


def test_where_nothing_was_lost_the_loss_is_not_taken_for_nothing():
    measured = Measured()
    measured.add(10_000, 10_000)
    assert 0 < measured.loss < 1e-4
    before = measured.loss
    measured.add(20_000, 20_000)
    assert measured.loss == pytest.approx(before / 2)


def test_few_predictions_are_made():
    assert graded(0) == 0
    assert graded(1e-3) == pytest.approx(1e-3)
    values = [graded(10 ** (step / 100)) for step in range(100)]
    assert len(set(values)) == 5
    assert all(one <= two for one, two in itertools.pairwise(values))


def test_another_framing_is_refused():
    with pytest.raises(ValueError, match="tell codes apart"):
        make(framing="uc_immediate")
    assert sdr_auto.SdrAuto.framings == ("ud",)
