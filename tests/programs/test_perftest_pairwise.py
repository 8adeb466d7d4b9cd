# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest with every two of its flags together: see pairwise.py."""

import itertools
import re

import pytest

from tests.programs import acceptance, pairwise
from tests.programs.pair import TCP_PORT

ROW = re.compile(r"^ (\d+) +(\d+) +[\d.inf]+ ", re.MULTILINE)  # bytes, iterations
MESSAGES, MESSAGES_OF_ALL_SIZES = "100", "10"
SHORT = 4  # runs without --full
LONGEST_S = (
    240  # of a size, latency tests measure how fast the processor is, which takes 0.2 s of it
)


def packets(program, flags):
    """Who sends the payload, by what perftest prints of it."""
    senders = {"h2"} if pairwise.verb(program) in ("read", "atomic") else {"h1"}
    if "-b" in flags or program in ("ib_send_lat", "ib_write_lat"):
        senders = {"h1", "h2"}
    if {"-b", "-D"} <= flags:  # it counts what came, too
        senders = {"h1+h2"}

    def count(printed):
        rows = [(int(size), int(number)) for size, number in ROW.findall(printed)]
        return dict.fromkeys(senders, sum(acceptance.packets_of(n, size) for size, n in rows))

    return count


def line(run):
    """As acceptance.py runs it."""
    program, service, gid, _, flags = run
    words = [program, "-F", "-x", str(gid)]
    words += ["-c", service]
    lasting = [flag for flag in sorted(flags) if flag not in ("-a", "-D")]
    words += itertools.chain.from_iterable(pairwise.ARGUMENTS.get(f, (f,)) for f in lasting)
    endless = (*words, "-n", "1000000")
    if "-D" in flags:
        words += pairwise.ARGUMENTS["-D"]
    elif "-a" in flags:
        words += ["-a", "-n", MESSAGES_OF_ALL_SIZES]
    else:
        words += ["-n", MESSAGES]
    return acceptance.Line(
        tuple(words), packets(program, flags), TCP_PORT, endless, tries=3, timeout_s=LONGEST_S
    )


def name(number):
    program, service, gid, condition, flags = pairwise.array()[number]
    return "-".join([program, service, f"gid{gid}", condition, *sorted(flags)])


def test_every_two_values_meet():
    met = frozenset().union(*map(pairwise.pairs, pairwise.array()))
    assert met == frozenset().union(*map(pairwise.pairs, pairwise.runs()))
    assert len(pairwise.array()) < 40


@pytest.mark.full("verbs-acceptance")
@pytest.mark.parametrize("number", range(len(pairwise.array())), ids=name)
def test_it_runs(pair, full, number):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    if not full and number >= SHORT:
        pytest.skip("with --full verbs-acceptance")
    run = pairwise.array()[number]
    acceptance.run(pair, line(run), run[3], f"h{number % 2 + 1}")
