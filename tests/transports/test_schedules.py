# SPDX-License-Identifier: GPL-2.0-or-later
"""Random schedules of loss, duplication, reordering, delay and corruption, each from its seed."""

import collections

import pytest

from tests.transports import schedule

BLOCKS = 20
SHORT, FULL = 20_000, 1_000_000


def replay(seed: int) -> str:
    return f"replay: ./lab test -- tests/transports/test_schedules.py --case-seed {seed}"


def pytest_generate_tests(metafunc):
    if "block" in metafunc.fixturenames:
        one = metafunc.config.getoption("--case-seed") is not None
        metafunc.parametrize("block", [None] if one else range(BLOCKS))


@pytest.mark.full("schedules")
def test_every_schedule_ends_with_the_right_bytes_exactly_once(block, full, pytestconfig):
    """A million random schedules on the pair; right bytes, once, in bounded steps."""
    each = (FULL if full else SHORT) // BLOCKS
    one = pytestconfig.getoption("--case-seed")
    for seed in [one] if block is None else range(block * each, (block + 1) * each):
        try:
            schedule.run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{replay(seed)}") from error


def test_the_schedules_have_all_there_is_to_meet():
    """What the generator is for: every fault, size, direction and setting occurs."""
    met = collections.Counter()
    for seed in range(2_000):
        case = schedule.make(seed)
        chunk = case.settings["path_mtu"] - 40
        for cable in case.cables:
            met.update(name for name, value in cable.items() if value)
        met["asymmetric"] += case.cables[0] != case.cables[1]
        met["both ways"] += len({message.sender for message in case.messages}) == 2
        met["key again"] += len({(m.sender, m.key) for m in case.messages}) < len(case.messages)
        met[f"paths {case.settings['paths']}"] += 1
        met[f"mtu {case.settings['path_mtu']}"] += 1
        met[case.transport] += 1
        for message in case.messages:
            named = {0: "0", 1: "1", chunk - 1: "chunk-1", chunk: "chunk", chunk + 1: "chunk+1"}
            met[f"size {named.get(message.length, 'many')}"] += 1
            met["late send"] += message.send_at_ns > message.receive_at_ns
            met["late receive"] += message.receive_at_ns > message.send_at_ns
    everything = {
        *("loss", "duplicate", "corrupt", "delay_ns", "jitter_ns", "packet_time_ns"),
        *("asymmetric", "both ways", "key again", "late send", "late receive", "csa_ud", "ud_rto"),
        *(f"size {size}" for size in ("0", "1", "chunk-1", "chunk", "chunk+1", "many")),
        *(f"paths {paths}" for paths in range(1, 17)),
        *(f"mtu {mtu}" for mtu in (256, 512, 1024, 2048, 4096)),
    }
    assert {what for what in everything if met[what] < 50} == set()


def test_one_seed_makes_one_run():
    first, again = schedule.run(16946), schedule.run(16946)
    assert first.steps == again.steps
    assert [first.counters(side) for side in (0, 1)] == [again.counters(side) for side in (0, 1)]


def test_a_failure_names_its_seed_and_how_to_see_it_again(monkeypatch):
    """The message of a failing case, tried with a case that cannot succeed."""

    def broken(seed):
        raise AssertionError("bytes wrong")

    monkeypatch.setattr(schedule, "run", broken)
    with pytest.raises(AssertionError, match=r"seed 7: bytes wrong\nreplay: .* --case-seed 7"):
        test_every_schedule_ends_with_the_right_bytes_exactly_once(
            None, False, type("Config", (), {"getoption": lambda self, name: 7})()
        )
