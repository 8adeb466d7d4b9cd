# SPDX-License-Identifier: GPL-2.0-or-later
"""The checkers of `lab fuzz` are able to fail: every mistake made on purpose is noticed.

The short form has each mistake meet the first seed that notices it; `--full mutants` looks for that
seed from the beginning.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab import _native
from softroce_lab.experiment.fuzz import seeds as fuzz
from softroce_lab.paths import PROJECT_ROOT
from tests import native_build
from tests.experiment.fuzz import workload_mutants
from tests.experiment.fuzz.mutants import NativeMutants, first_violation

MOST_SEEDS = 200
ANSWERS_IN_S = 300  # of the wall: what never ends is stuck, and that was noticed as well

NATIVE = {  # transport, and the first seed that notices it
    "bit_skipped": ("csa_ud", 2),
    "bytes_skipped": ("csa_ud", 0),
    "one_too_early": ("csa_ud", 0),
    "duplicate_counts": ("irn", 1),
    "slot_reused_early": ("csa_ud", 49),
    "retransmit_of_neighbour": ("csa_ud", 1),
    "attempt_not_counted": ("csa_ud", 21),
    "timer_not_armed": ("csa_ud", 7),
    "peer_timer_not_armed": ("ud_rto", 0),
    "connection_timer_not_armed": ("falcon", 1),
    "hold_not_released": ("falcon", 1),
    "persist_not_armed": ("sdr_sr", 28),
    "holes_shifted": ("csa_ud", 2),
    "loss_forgotten": ("csa_ud", 1),
    "pace_not_armed": ("ud_rto", 41),
    "generation_unchecked": ("sdr_sr", 41),
    "clearance_not_repeated": ("sdr_sr", 2),
    "slot_given_twice": ("sdr_sr", 1),
    "decode_skipped": ("sdr_ec", 1),
    "parity_of_neighbour": ("sdr_ec", 1),
    "restored_too_much": ("sdr_ec", 5),
    "tail_row_of_neighbour": ("csa_ud", 47),
    "tail_block_shifted": ("csa_ud", 92),
    "tail_row_too_few": ("csa_ud", 2),
    "ack_of_next": ("csa_ud", 0),
    "ack_of_any_generation": ("csa_ud", 1),
    "outcome_of_any_generation": ("csa_ud", 41),
    "keepalives_not_counted": ("csa_ud", 14),
    "one_keepalive": ("ud_rto", 72),
    "third_attempt_fails": ("csa_ud", 11),
    "status_not_answered": ("csa_ud", 66),
    "losses_ignored": ("csa_ud", 1),
    "first_lost_forgotten": ("csa_ud", 1),
    "asks_once": ("csa_ud", 15),
    "rto_not_armed": ("ud_rto", 1),
    "missing_is_first": ("ud_rto", 1),
    "missing_inverted": ("ud_rto", 1),
    "cumulative_chunk_too_far": ("sdr_sr", 56),
    "chunk_timer_not_armed": ("sdr_sr", 2),
    "chunk_without_its_last_packet": ("sdr_sr", 2),
    "state_asked_for_once": ("sdr_ec", 15),
    "repeats_what_is_here": ("sdr_ec", 2),
    "ack_one_too_many": ("irn", 0),
    "ends_before_last": ("irn", 0),
    "timeout_not_armed": ("irn", 1),
    "sack_shifted": ("srnic", 0),
    "rack_loss_forgotten": ("rack_tlp", 2),
    "rack_timer_not_armed": ("rack_tlp", 1),
    "psn_of_next_acknowledged": ("falcon", 7),
    "packet_timer_not_armed": ("mrc", 2),
    "packet_timeout_ignored": ("falcon", 3),
    "dcp_front_kept": ("dcp", 2),
    "dcp_restart_ignored": ("dcp", 2),
    "ndp_pull_forgotten": ("ndp", 56),
    "trimmed_acknowledged": ("uet_rud", 47),
    "expected_one_too_many": ("uet_rod", 0),
    "dropped_counts": ("uet_rod", 0),
    "mrc_base_left_out": ("mrc", 2),
    "uccl_timer_not_armed": ("uccl", 2),
    "uccl_oldest_left_out": ("uccl", 2),
    "rc_gap_accepted": ("rc", 1),
    "rc_ack_one_too_many": ("rc", 0),
    "rc_timer_not_armed": ("rc", 2),
    "rc_goes_back_too_little": ("rc", 2),
    "rc_duplicate_executed": ("rc", 1),
    "rc_retries_unlimited": ("rc", 14),
    "dcqcn_stops": ("irn", 0),
    "swift_stops": ("ud_rto", 103),
}


TIME_ALONE = {  # its sender's timers bring all there, so that no promise is broken
    "never_falls_back": "fell back from parity",
    "never_decodes": "restored from parity",
}


SHIFT = {  # seeds of `lab fuzz failover` that notice it
    "shift_counts_one_more": 1,
    "shift_counts_one_less": 3,
    "shift_notified_repeated": 48,
    "shift_unsignaled_completes": 12,
    "shift_atomic_repeated": 5,
    "shift_receives_not_counted": 1,
    "shift_receives_reversed": 1,
    "shift_receives_forgotten": 1,
    "shift_sends_do_not_wait": 30,
    "shift_held_forgotten": 1,
    "shift_psns_kept": 14,
    "shift_probe_forgotten": 14,
    "shift_fence_skipped": 1,
    "shift_moves_alone": 14,
    "shift_mailbox_stuck": 1,
}


OPERATIONS = [name for name in NATIVE if name.startswith("rc_")]
"""What the first seeds of `lab fuzz operations` notice, too."""
OPERATION_SEEDS = 50
CARRIED = {  # seeds of `lab fuzz operations --transport irn` that notice it
    "fence_ignored": 5,
    "last_packet_not_held": 3,
    "effects_out_of_order": 3,
}


_SHIFT = "tests/transports/shift/"
_TAIL_PARITY = "tests/native/test_tail_parity.py::test_"
BY_A_TEST = {  # no seed notices it: the test that fails
    "stale_connection_taken": "tests/verbs/test_stale.py::test_an_operation_of_an_earlier_"
    "connection_is_not_executed",
    "parity_while_busy": _TAIL_PARITY + "parity_waits_until_nothing_else_may_leave",
    "parity_despite_marks": _TAIL_PARITY + "no_parity_to_a_peer_whose_newest_report_has_marks",
    "parity_over_budget": _TAIL_PARITY + "parity_stays_within_its_budget[0.15-1]",
    "shift_lost_result_is_done": _SHIFT
    + "test_trilemma.py::test_a_read_is_repeated_and_what_was_executed_behind_it_ends_behind_it",
    "shift_keys_kept": _SHIFT + "test_failures.py::test_a_key_that_was_not_fetched_ahead[True]",
    "shift_waits_for_ever": _SHIFT + "test_failures.py::test_a_peer_that_does_not_answer",
    "shift_resume_ignored": _SHIFT
    + "test_failures.py::test_a_failback_that_takes_too_long_is_given_up",
    "shift_number_of_backup": _SHIFT
    + "test_as_a_qp.py::test_completions_have_the_number_of_the_qp_that_the_program_made",
}


def seeds_for(first, full):
    return range(MOST_SEEDS) if full else [first]


@pytest.mark.full("mutants")
def test_every_mistake_in_python_is_noticed(full, monkeypatch):
    """Seeds of `lab fuzz` against every mistake made on purpose, from the first seed on."""
    mutants, found = workload_mutants.MUTANTS, {}
    for name, mutant in mutants.items():
        with monkeypatch.context() as patch, workload_mutants.forgetting():
            original = getattr(mutant.owner, mutant.method)
            patch.setattr(mutant.owner, mutant.method, mutant.mistake(original))
            found[name] = first_violation([mutant.transport], seeds_for(mutant.seed, full))
    for name, mutant in mutants.items():
        assert first_violation([mutant.transport], [mutant.seed]) is None, f"{name} or not"
    tell(found)
    assert [name for name, violation in found.items() if violation is None] == []
    # A mistake that no longer fits what it is made in would be noticed for that.
    assert [name for name, violation in found.items() if "TypeError" in violation[-1]] == []
    if full:
        assert {name: each[0] for name, each in found.items()} == {
            name: mutant.seed for name, mutant in mutants.items()
        }


def tell(found):
    for name, violation in found.items():
        print(f"{name:36} {violation}")


# --- Native ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def native_mutants():
    """The module with mistakes, made in the tree in which `_native` was made."""
    tree = native_build.of_the_module("_native_mutants")
    [module] = tree.glob("native/_native_mutants*.so")
    return str(module)


def test_the_product_has_no_mistakes_in_it(native_mutants):
    assert {*NATIVE, *SHIFT, *CARRIED, *TIME_ALONE, *BY_A_TEST, "none"} == set(
        NativeMutants(native_mutants).names
    )
    product = Path(_native.__file__).read_bytes()
    mutants = Path(native_mutants).read_bytes()
    for word in (b"softroce_choose_mutant", b"rc_gap_accepted", b"chosen_mutant"):
        assert word not in product
    assert b"softroce_choose_mutant" in mutants


@contextlib.contextmanager
def asking(native_mutants):
    """A function that has seeds run with a native mistake: [mutant, transports, seeds, what]."""
    argv = [sys.executable, "-m", "tests.experiment.fuzz.mutants", native_mutants]

    def ask(*line):
        print(json.dumps(line), file=process.stdin, flush=True)
        ready, _, _ = select.select([process.stdout], [], [], ANSWERS_IN_S)
        if not ready:
            process.kill()
            pytest.fail(f"{line[0]}: no end")
        return json.loads(process.stdout.readline())

    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT_ROOT,
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
    ) as process:  # fmt: skip
        yield ask
        process.stdin.close()


@pytest.mark.full("mutants")
def test_every_native_mistake_is_noticed(full, native_mutants):
    """Seeds of `lab fuzz` against every mistake made on purpose, from the first seed on."""
    with asking(native_mutants) as ask:
        found = {
            name: ask(name, [transport], [*seeds_for(seed, full)], "violation")
            for name, (transport, seed) in NATIVE.items()
        }
    tell(found)
    assert [name for name, violation in found.items() if violation is None] == []
    if full:
        assert {name: each[0] for name, each in found.items()} == {
            name: seed for name, (_, seed) in NATIVE.items()
        }


def test_every_mistake_of_a_failover_is_noticed(native_mutants):
    with asking(native_mutants) as ask:
        found = {name: ask(name, ["shift"], [seed], "violation") for name, seed in SHIFT.items()}
    tell(found)
    assert [name for name, violation in found.items() if violation is None] == []


def test_every_mistake_of_operations_is_noticed(native_mutants):
    with asking(native_mutants) as ask:
        seeds = [*range(OPERATION_SEEDS)]
        found = {name: ask(name, ["operations", "rc"], seeds, "violation") for name in OPERATIONS}
        found |= {
            name: ask(name, ["operations", "irn"], [seed], "violation")
            for name, seed in CARRIED.items()
        }
    tell(found)
    assert [name for name, violation in found.items() if violation is None] == []


def test_a_mistake_that_costs_time_alone_is_missed_in_what_was_met(native_mutants):
    """A receiver that never falls back, or never decodes."""
    with asking(native_mutants) as ask:
        met = {
            name: set(ask(name, ["sdr_ec"], [10, 13, 20], "met")) for name in ("none", *TIME_ALONE)
        }
    for name, missed in TIME_ALONE.items():
        assert missed in met["none"]
        assert missed not in met[name]
        assert missed in fuzz.expected_features()


@pytest.mark.parametrize("mistake", BY_A_TEST)
def test_a_mistake_that_no_seed_notices_is_noticed_by_its_test(native_mutants, mistake):
    noticed = []
    for name in ("none", mistake):
        with asking(native_mutants) as ask:  # a process each: pytest leaves what it changed
            noticed.append(ask(name, [], [], BY_A_TEST[mistake]))
    assert noticed == [False, True]
