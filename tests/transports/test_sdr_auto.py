# SPDX-License-Identifier: GPL-2.0-or-later
"""`sdr_auto`: the code follows the losses, and both ends agree on it."""

import dataclasses

import pytest

from softroce_lab import _native
from softroce_lab.transports import registry
from softroce_lab.transports.model import sdr
from tests.transports.pair_rig import MILLISECOND_NS, SECOND_NS, PairRig, threshold

MTU = 1024
PACKET = MTU - 40
CHUNK = {"chunk": f"{MTU} B"}
CODES = registry.find("sdr_auto").codes({})
K, AUTO_PARITY = CODES[0][0], [m for _, m in CODES]
LONG_HAUL = {
    "chunk_bytes": 65536, "chunk_packets": 16, "rtt_ns": 25e6, "bandwidth_bps": 400e9, "beta": 1.0,
    "codes": CODES,
}  # fmt: skip
JUMP, JUMP_CHANCE = 100, 1 / 64


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
    return rig.sides[0].endpoint.figures()["codes"]


def parity(rig, number):
    """Chunks of parity that this message, the next one, is sent with."""
    before = used(rig)
    send(rig, 1, first=number)
    (code,) = (code for code, count in used(rig).items() if count != before.get(code, 0))
    return 0 if code == "none" else int(code.strip("()").split(", ")[1])


def test_it_begins_with_the_papers_code_and_takes_less_parity_where_nothing_is_lost():
    """The more packets arrive the less it fears: after so many none is lost seldom."""
    rig = make()
    send(rig, 1)
    assert used(rig) == {"(32, 8)": 1}
    chosen = [parity(rig, number) for number in range(1, 17)]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] <= 8
    assert chosen[-1] <= 2
    rig.check()


def test_it_changes_its_mind_when_the_loss_jumps_and_when_it_goes():
    rig = make()
    send(rig, 8)
    quiet = parity(rig, 8)
    rig.cables[0].loss = threshold(0.02)
    send(rig, 3, first=9)  # it needs to see it
    lossy = parity(rig, 12)
    assert lossy >= 16 > quiet
    rig.cables[0].loss = 0
    send(rig, 6, first=13)
    assert parity(rig, 19) <= 4
    rig.check()


def test_it_forgets_packets_and_losses_alike():
    """Of more than 2^21 packets it forgets half: the same share of them was lost."""
    options = {"chunk": "4 KiB"}
    rig = PairRig(
        "sdr_auto", options=options, path_mtu=256, carries_payload=False, arena_bytes=1 << 24
    )
    rig.cables[0].delay_ns = rig.cables[1].delay_ns = 10 * MILLISECOND_NS
    rig.cables[0].loss = threshold(0.006)
    for number in range(40):
        for side, verb in zip(rig.sides, ("post_send", "post_receive"), strict=True):
            side._free = 0  # the same buffers again
            side._post(getattr(side.endpoint, verb), (1, 1, number), 60_000 * (256 - 40))
        rig.finish(20 * SECOND_NS)
    assert used(rig) == {"(32, 8)": 2, "(32, 16)": 38}


@pytest.mark.parametrize("loss", [0.001, 0.02, 0.15])
def test_every_byte_arrives_whatever_it_chooses(loss):
    for seed in range(1, 6):
        rig = make(seed)
        rig.cables[0].loss = rig.cables[1].loss = threshold(loss)
        for number, packets in enumerate((1, 3, 31, 32, 33, 64, 65, 1000)):
            rig.transfer((1, 2, number), packets * PACKET - 5)
        send(rig, 3)
        rig.check()


def best(**of):
    """Chunks of parity of the code whose mean is the least; 0: selective repeat has it."""
    means_ns = _native.sdr_expected_ns(**LONG_HAUL | of)
    place = min(range(len(means_ns)), key=means_ns.__getitem__)
    return 0 if place == len(CODES) else AUTO_PARITY[place]


def test_the_choice_is_that_of_the_model():
    parity = [best(message_bytes=128 << 20, loss=loss) for loss in (1e-8, 1e-3, 1e-2, 1e-1)]
    assert parity[0] == 0
    assert parity == sorted(parity)
    assert parity[1] < parity[-1]


def expected_ns(scenario, m, loss):
    """Of two outcomes, decoded or one round after the NACK; without m of selective repeat."""
    at = dataclasses.replace(scenario, loss=loss)
    if m is None:
        return at.repeated(0).mean_ns
    at = dataclasses.replace(at, parity_chunks=m, kept_packets=1)
    fallback_ns = at.fallback("mds") * (at.beta + 1) * at.rtt_ns
    return (at.chunks + at.parity) * at.inject_ns + at.rtt_ns + fallback_ns


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 20) + 1, 16 << 20, 128 << 20])
@pytest.mark.parametrize("rtt_ns", [1e4, 1e6, 1e8])
def test_the_means_are_those_of_the_model(size, rtt_ns):
    """Native code has a part of transports/model: of few chunks exactly, of many within 0.2 %."""
    for loss in (1e-8, 1e-5, 1e-3, 0.1, 0.3):
        for packets in (1, 16):
            native = _native.sdr_expected_ns(
                **LONG_HAUL
                | {"message_bytes": size, "chunk_bytes": min(size, 65536), "rtt_ns": rtt_ns}
                | {"chunk_packets": packets, "loss": loss}
            )
            scenario = sdr.Scenario(
                size, loss, rtt_ns, 400e9, min(size, 65536), 0.0, 1.0, K, kept_packets=packets
            )
            later = min(max(JUMP * loss, sdr.LEAST_LOSS), sdr.MOST_LOSS)
            for mean_ns, m in zip(native, (*AUTO_PARITY, None), strict=True):
                now = (1 - JUMP_CHANCE) * expected_ns(scenario, m, loss)
                expected = now + JUMP_CHANCE * expected_ns(scenario, m, later)
                tolerance = 1e-9 if m or scenario.chunks <= 256 else 2e-3
                assert mean_ns == pytest.approx(expected, rel=tolerance), (m, loss, packets)


def test_another_framing_is_refused():
    with pytest.raises(ValueError, match="tell codes apart"):
        make(framing="uc_immediate")
    assert registry.find("sdr_auto").framings == ("ud",)
