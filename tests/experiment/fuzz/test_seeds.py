# SPDX-License-Identifier: GPL-2.0-or-later
"""Deterministic simulation testing: seeds hold, what is broken is found, and made small."""

import collections
import json
import os

import pytest

from softroce_lab.errors import LabError
from softroce_lab.experiment import spec
from softroce_lab.experiment.fuzz import draw, pool, workload_invariants, workloads
from softroce_lab.experiment.fuzz import seeds as fuzz
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.transports import registry
from softroce_lab.transports.policy import MessagePolicy
from tests.own_policy import named

CASES = PROJECT_ROOT / "tests" / "experiment" / "fuzz" / "cases"  # that failed once, and why
FULL_SEEDS = 100_000
TUTORIAL_SEEDS = 2_000
TUTORIAL = ("nack.py:Nack", "sack_timer.py:SackTimer", "gap_nack.py:GapNack")
SHORT_SEEDS = 20  # the same ones every time
RARELY = 0.05
THREE = ("csa_ud", "irn", "rc")
RC = (Transport.named("rc"),)
CSA_UD = (Transport.named("csa_ud"),)


@pytest.mark.full("fuzz-seeds")
def test_no_seed_breaks_a_promise(full):
    """Run 100,000 seeds over every transport; hours."""
    transports = fuzz.transports_of(None)
    seeds = range(FULL_SEEDS if full else SHORT_SEEDS)
    seen = fuzz.in_processes(seeds, transports, os.cpu_count() or 1) if full else None
    found = fuzz.campaign(seen or fuzz.in_process(seeds, transports), transports)
    document = found.document()
    print(json.dumps({**document, "violations": len(found.violations)}, indent=1))
    assert [(v.replay, v.what) for v in found.violations] == []
    assert found.median_hosts >= 8
    if full:
        assert min(document["coverage"].values()) >= RARELY


@pytest.mark.full("fuzz-tutorial")
@pytest.mark.parametrize("policy", TUTORIAL)
def test_no_seed_breaks_a_promise_over_a_tutorial_policy(policy, full):
    """Run 2,000 seeds over each policy of the tutorial; 10 minutes."""
    transports = fuzz.transports_of([f"{PROJECT_ROOT}/examples/transports/{policy}"])
    seeds = range(TUTORIAL_SEEDS if full else SHORT_SEEDS)
    seen = fuzz.in_processes(seeds, transports, os.cpu_count() or 1) if full else None
    found = fuzz.campaign(seen or fuzz.in_process(seeds, transports), transports)
    assert [(v.replay, v.what) for v in found.violations] == []
    assert found.runs == len(seeds)
    assert found.features["retransmissions"] >= len(seeds) / 5


@pytest.mark.parametrize("case", sorted(CASES.glob("*.yaml")), ids=lambda case: case.stem)
def test_what_broke_a_promise_once_keeps_it(case):
    source = yaml_source.read(case)
    experiment = spec.of(source)
    assert fuzz.run_case(source.data, experiment.seeds[0], experiment.transports).violations == ()


def test_whatever_can_be_drawn_is_drawn_often():
    cases = [draw.draw(seed) for seed in range(400)]
    drawn = collections.Counter(fault["name"] for case in cases for fault in case["faults"])
    least = 1.2 * RARELY * len(cases)  # some hit nothing
    assert drawn.keys() == set(draw.FAULTS)
    assert min(drawn.values()) >= least, drawn
    assert sum("stalls" in case for case in cases) >= least
    kinds = collections.Counter(case["topology"]["generator"]["kind"] for case in cases)
    assert kinds.keys() == set(draw.FABRICS)
    assert min(kinds.values()) >= RARELY * len(cases) - 2, kinds
    assert sum("rnic" in case for case in cases) >= least
    sizes = sorted(len(fuzz._experiment(case).plan(0).plain_hosts) for case in cases[:100])
    assert sizes[len(sizes) // 2] >= 8


def test_what_is_drawn_is_met():
    """By one transport of each kind, and one with parity, which is enough for all of them."""
    four = fuzz.transports_of((*THREE, "sdr_ec"))
    found = fuzz.campaign(fuzz.in_process(range(481, 481 + 34), four), four)
    others = set(registry.transports()) - set(THREE)
    missing = set(fuzz.expected_features()) - found.features.keys() - others
    assert not missing


def test_parity_of_csa_ud_is_lost_late_and_restored_from():
    found = fuzz.campaign(fuzz.in_process(range(20), CSA_UD), CSA_UD)
    for feature in ("fault: parity", "late parity", "restored from parity"):
        assert found.features[feature] >= 2, feature


@pytest.fixture(scope="module")
def cases_by_kind():
    """Some cases of each kind of workload with times or dependencies of its own."""
    found = {kind: [] for kind in workloads.KINDS}
    for seed in range(600):
        case = draw.draw(seed)
        found.get(case["workload"]["kind"], []).append((seed, case))
    return found


def test_what_is_drawn_is_valid(cases_by_kind):
    for cases in cases_by_kind.values():
        assert len(cases) > 20
        for seed, case in cases:
            workload = fuzz._experiment(case).workload(seed)
            assert 0 < workload.message_count < 600
            assert {workload.ranks} <= {tuple(dict.fromkeys(workload.ranks))}
    programs = "".join(case["workload"]["program"] for _, case in cases_by_kind["goal"])
    for word in ("send 0b", "calc 0", "cpu 1", "irequires", "tag 0", "tag 9"):
        assert word in programs


def test_jobs_beside_jobs_of_another_transport_keep_all_promises(cases_by_kind):
    mixed = [
        (seed, case)
        for seed, case in cases_by_kind["jobs"]
        if any("transport" in job for job in case["workload"]["jobs"])
    ]
    assert len(mixed) > 5
    for seed, case in mixed[:6]:
        seen = fuzz.run_case(case, seed, fuzz.transports_of(THREE))
        assert seen.violations == ()
        assert "jobs of two transports" in seen.features


def test_a_case_of_every_kind_of_workload_can_be_made_smaller(cases_by_kind):
    for cases in cases_by_kind.values():
        _, case = cases[0]
        steps = [{**case, "workload": work} for work in workloads.less(case["workload"])]
        assert case not in steps
        assert any(map(runs, steps))


PROGRAM = """\
num_ranks 3
rank 0 {
l0: calc 100 cpu 0
l1: send 100b to 1 tag 0
l2: send 9000b to 1 tag 1
l2 requires l0
l2 irequires l1
}
rank 1 {
l0: recv 100b from 0 tag 0
l1: recv 9000b from 0 tag 1
l2: send 1b to 2 tag 0
l2 requires l1
}
rank 2 {
l0: recv 1b from 1 tag 0
}
"""


def test_a_program_shrinks_to_what_breaks(monkeypatch):
    case = draw.draw(1) | {"faults": [], "workload": {"kind": "goal", "program": PROGRAM}}
    monkeypatch.setattr(
        workload_invariants, "violations",
        lambda _, run: ["misreads: it"] if (run.messages["bytes"] == 9000).any() else [],
    )  # fmt: skip
    [broken] = fuzz.run_case(case, 1, RC).violations
    small = yaml_source.parse(fuzz.shrink(broken).case).data["workload"]["program"]
    words = ("num_ranks", "send", "recv", "calc", "requires")
    assert [small.count(word) for word in words] == [1, 1, 1, 0, 0]


def test_what_is_drawn_and_refused_is_a_finding():
    case = draw.draw(1) | {"workload": {"kind": "moe", "tokens": 1, "hidden": 1, "experts": 3}}
    [found] = fuzz.run_case(case, 1, RC).violations
    assert found.what.startswith("refused: 3 experts are not spread evenly")
    assert not found.shrinks


def test_a_case_is_a_function_of_its_seed_and_an_experiment():
    for seed in range(40):
        case = draw.draw(seed)
        assert case == draw.draw(seed)
        assert yaml_source.parse(fuzz.text(case)).data == case
    assert len({fuzz.text(draw.draw(seed)) for seed in range(40)}) == 40


class Forgetful(MessagePolicy):
    """Does nothing about a loss."""

    name = "forgetful"


@pytest.fixture
def forgetful(monkeypatch):
    monkeypatch.setitem(registry._entries, "forgetful", registry.Entry.of(Forgetful))


def test_what_is_broken_is_found_and_made_small(forgetful):
    chosen = fuzz.transports_of(["forgetful"])
    found = fuzz.campaign(fuzz.in_process(range(10), chosen), chosen)
    first = found.violations[0]
    assert first.what.startswith("hangs:")
    assert first.replay == f"lab fuzz --seed {first.seed} --seeds 1 --transport forgetful"
    small = fuzz.shrink(first)
    assert small.manner == first.manner
    assert len(small.case) < len(first.case)
    case = yaml_source.parse(small.case).data
    again = fuzz.run_case(case, first.seed, chosen)
    assert [each.what for each in again.violations] == [small.what]


def test_a_policys_option_takes_no_value_that_was_drawn_for_another(tmp_path):
    file = tmp_path / "own.py"
    option = "Option('path_health', 5_000, 'how long', unit='time')"
    file.write_text(
        named("Own", f"    name = 'own'\n    options = (*SackTimer.options, {option})\n")
    )
    seeds = (seed for seed in range(40) if "path_health" in fuzz.text(draw.draw(seed)))
    [own] = fuzz.transports_of([f"{file}:Own"])
    seen = fuzz.run_case(draw.draw(next(seeds)), 1, (own,))
    assert not [each.what for each in seen.violations if each.what.startswith("crashes")]


def test_a_case_of_every_kind_of_fabric_can_be_made_smaller():
    """Most steps are experiments; in some a fault would lose its link, or the fabric its sense."""
    seeds = {}
    for seed in range(400):
        seeds.setdefault(draw.draw(seed)["topology"]["generator"]["kind"], seed)
    assert seeds.keys() == set(draw.FABRICS)
    for seed in seeds.values():
        steps = list(fuzz._simpler(draw.draw(seed)))
        assert len(steps) > 2
        assert sum(map(runs, steps)) > len(steps) / 2


def runs(case):
    try:
        fuzz._experiment(case).plan(0)
    except LabError:
        return False
    return True


# --- Processes -------------------------------------------------------------------------------


def test_processes_come_to_the_same_as_one():
    transports = fuzz.transports_of(("rc", "srnic"))
    alone = fuzz.campaign(fuzz.in_process(range(20), transports), transports)
    together = fuzz.campaign(fuzz.in_processes(range(20), transports, 2), transports)
    assert together.document() == alone.document()


class Killed(pool._Worker):
    """Its process is gone as soon as it is to run seed 3."""

    def give(self, place, seed):
        super().give(place, seed)
        if seed == 3:
            self.process.kill()


def test_a_process_that_dies_is_a_finding(monkeypatch):
    monkeypatch.setattr(pool, "_Worker", Killed)
    found = fuzz.campaign(fuzz.in_processes(range(3, 5), RC, 1), RC)
    assert found.seeds == 2
    assert [(each.seed, each.what) for each in found.violations] == [
        (3, "dies: the process ended with signal 9")
    ]


def test_a_process_that_loops_is_a_finding(monkeypatch):
    monkeypatch.setattr(pool, "SEED_CPU_S", 0)  # starting takes longer
    monkeypatch.setattr(pool, "_LOOK_S", 0.05)
    [seen] = fuzz.in_processes([5], RC, 1)
    assert [each.what for each in seen.violations] == ["loops: no end within 0 s of processor time"]


def test_ctrl_c_keeps_what_was_found():
    def seeds():
        yield fuzz.run_seed(0, RC)
        raise KeyboardInterrupt

    found = fuzz.campaign(seeds(), RC)
    assert (found.seeds, found.interrupted) == (1, True)
