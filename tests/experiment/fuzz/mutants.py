# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs seeds of `lab fuzz` with a planted mistake: `python -m tests.experiment.fuzz.mutants`.

A line of standard input is a JSON list [mutant, transports, seeds, question]; the answer is a line,
too. To "violation" it is the first one as [seed, transport, what], or null. To "met" it is what the
seeds met, in the words of `lab fuzz`. To the name of a test it is whether that test fails. Native
mistakes need `_native_mutants`, whose path is the one argument: it takes the place of `_native` in
this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import sys

import pytest


def load_native(path):
    """Put the module with mistakes in the place of `softroce_lab._native`."""
    import softroce_lab

    spec = importlib.util.spec_from_file_location("softroce_lab._native", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["softroce_lab._native"] = softroce_lab._native = module
    spec.loader.exec_module(module)


class NativeMutants:
    """The mistakes of engine/mutant.hpp, by name."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.softroce_mutant_name.restype = ctypes.c_char_p
        self._library.softroce_mutant_description.restype = ctypes.c_char_p
        self.names = []
        while name := self._library.softroce_mutant_name(len(self.names)):
            self.names.append(name.decode())

    def description(self, name):
        """What the mistake is."""
        return self._library.softroce_mutant_description(self.names.index(name)).decode()

    @contextlib.contextmanager
    def made(self, name):
        """Meanwhile the mistake is made."""
        self._library.softroce_choose_mutant(self.names.index(name))
        yield
        self._library.softroce_choose_mutant(0)


def first_violation(transports, seeds):
    """[seed, transport, what] of the first seed that breaks a promise, or None.

    With a deadline of a second, which makes hanging cheap; seeds that need more are left out.
    """
    from softroce_lab.experiment.fuzz import draw
    from softroce_lab.experiment.fuzz import seeds as fuzz

    chosen = fuzz.transports_of(transports)
    for seed in seeds:
        case = draw.draw(seed)
        if case["deadline"] != draw.DEADLINE:
            continue
        case["deadline"] = "1s"
        for violation in fuzz.run_case(case, seed, chosen).violations:
            return [seed, violation.transport.label, violation.what]
    return None


def first_failover(seeds):
    """[seed, "shift", what] of the first seed of `lab fuzz failover` that breaks a promise."""
    from softroce_lab.experiment.fuzz.failover import campaign

    found = (campaign.run_seed(seed) for seed in seeds)
    broken = next((each for each in found if each.outcome is None), None)
    return broken and [broken.seed, "shift", broken.what]


def first_operation(transport, seeds):
    """[seed, "operations", what] of the first seed of `lab fuzz operations` that breaks a rule."""
    from softroce_lab.experiment.fuzz import operations

    for seed in seeds:
        for violation in operations.run_trial(operations.Trial(seed), [transport]).violations:
            return [seed, "operations", violation.what]
    return None


def met(transports, seeds):
    """What runs of these seeds met."""
    from softroce_lab.experiment.fuzz import seeds as fuzz

    chosen = fuzz.transports_of(transports)
    return sorted({each for seed in seeds for each in fuzz.run_seed(seed, chosen).features})


def fails(test):
    """Whether this test fails in this process; what pytest writes goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        ended = pytest.main([test, "-q", "-p", "no:cacheprovider"])
    assert ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), f"{test}: {ended}"
    return ended == pytest.ExitCode.TESTS_FAILED


def answer(transports, seeds, question):
    if "::" in question:
        return fails(question)
    if transports == ["shift"]:
        return first_failover(seeds)
    if transports[:1] == ["operations"]:
        return first_operation(transports[1], seeds)
    return (met if question == "met" else first_violation)(transports, seeds)


def main():
    """Answer lines until there are no more."""
    path = sys.argv[1]
    load_native(path)
    native = NativeMutants(path)
    for line in sys.stdin:
        mutant, transports, seeds, question = json.loads(line)
        with native.made(mutant):
            found = answer(transports, seeds, question)
        if question == "violation" and found and answer(transports, found[:1], question):
            found = None  # it breaks without the mistake, too
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
