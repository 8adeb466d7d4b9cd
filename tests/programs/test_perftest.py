# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest as Debian ships it, with its flags: few runs in which every two values meet.

A greedy covering array of strength two: each run is the one of all that are allowed which has the
most pairs that no run had before. So no pair of values that may meet is left out.
"""

import functools
import itertools
import re

import pytest

from tests.programs import acceptance
from tests.programs.pair import TCP_PORT

BYTES = 65536
QUICK = [
    ("ib_write_bw", 0, ["-n", "100"]),
    ("ib_read_bw", 1, ["-n", "100"]),
    ("ib_send_bw", 1, ["-n", "100", "-q", "4", "-b"]),
]
LOSSY = [
    ("ib_write_bw", ["-n", "50"]),
    ("ib_write_lat", ["-n", "100"]),
    ("ib_send_bw", ["-n", "50", "-q", "4"]),
    ("ib_send_lat", ["-n", "100", "-e"]),
    ("ib_read_bw", ["-n", "50"]),
    ("ib_read_lat", ["-n", "100"]),
    ("ib_atomic_bw", ["-n", "200"]),
    ("ib_atomic_lat", ["-n", "100"]),
]


def measure(pair, program, gid, flags, tries=1):
    _, client = pair.converse(program, "-F", "-x", str(gid), *flags, tries=tries)
    # `inf`: perftest could not measure the processor's frequency on a busy machine.
    assert re.search(r"^ \d+ +\d+ +([\d.]+|inf) ", client.stdout, re.MULTILINE), client.stdout


@pytest.mark.parametrize(("program", "gid", "flags"), QUICK)
def test_bandwidth(pair, program, gid, flags):
    sender = "h2" if program == "ib_read_bw" else "h1"
    with pair.sending(sender, 100 * BYTES):
        measure(pair, program, gid, flags)


@pytest.mark.parametrize(("program", "flags"), LOSSY)
def test_over_a_lossy_link(pair, program, flags):
    pair.lose("1%")
    before = pair.roce_packets("h2") + pair.roce_packets("h1")
    gid = [each for each, _ in LOSSY].index(program) % 2
    measure(pair, program, gid, flags, tries=3)
    assert pair.roce_packets("h2") + pair.roce_packets("h1") - before >= 50


# --- Every two flags -----------------------------------------------------------------------------

FLAGS = {  # as each program's help has them
    "ib_send_bw": "-a -b -e -q -D --use-srq", "ib_send_lat": "-a -e -D --use-srq",
    "ib_write_bw": "-a -b -q -D", "ib_write_lat": "-a -D",
    "ib_read_bw": "-a -b -e -q -D", "ib_read_lat": "-a -e -D",
    "ib_atomic_bw": "-b -e -q -D", "ib_atomic_lat": "-e -D",
}  # fmt: skip
SERVICES = {"send": ("RC", "UC", "UD"), "write": ("RC", "UC")}
ARGUMENTS = {"-q": ("-q", "4"), "-D": ("-D", "3")}
CHOICES = ("-a", "-b", "-e", "-q", "-D", "--use-srq")


def verb(program):
    """As perftest calls it."""
    return program.split("_")[1]


def allowed(program, service, gid, condition, flags):
    """Whether such a run ends well with any RNIC."""
    if not flags <= set(FLAGS[program].split()):
        return False
    if service not in SERVICES.get(verb(program), ("RC",)):
        return False
    if "-D" in flags and flags & {"-a", "-e"}:  # perftest refuses it
        return False
    if "--use-srq" in flags and service == "UC":
        return False
    if {"--use-srq", "-q"} <= flags and service == "UD":  # its SRQ is as deep as one queue pair's
        return False
    # A message that is lost stays lost, and somebody waits for it. Only who writes does not.
    return condition != "loss" or service == "RC" or program == "ib_write_bw"


def runs():
    """All that are allowed: program, service, GID, condition, flags."""
    for program in FLAGS:
        own = FLAGS[program].split()
        for service, gid, condition in itertools.product(
            SERVICES.get(verb(program), ("RC",)), (0, 1), acceptance.CONDITIONS
        ):
            for count in range(len(own) + 1):
                for flags in map(frozenset, itertools.combinations(own, count)):
                    if allowed(program, service, gid, condition, flags):
                        yield program, service, gid, condition, flags


def pairs(run):
    """Every two of its values; a flag has two, there or not."""
    program, service, gid, condition, flags = run
    values = [program, service, gid, condition]
    values += [(flag, flag in flags) for flag in FLAGS[program].split()]
    return frozenset(itertools.combinations(values, 2))


@functools.cache
def array():
    """Runs that have all pairs."""
    known = [(run, pairs(run)) for run in runs()]
    left = frozenset().union(*(each for _, each in known))
    chosen = []
    while left:
        run, had = max(known, key=lambda each: len(each[1] & left))
        chosen.append(run)
        left -= had
    return chosen


ROW = re.compile(r"^ (\d+) +(\d+) +[\d.inf]+ ", re.MULTILINE)  # bytes, iterations
MESSAGES, MESSAGES_OF_ALL_SIZES = "100", "10"
SHORT = 8  # runs without --full
LONGEST_S = 240  # latency tests measure the processor's speed for each size, which takes 0.2 s


def packets(program, flags):
    """Who sends the payload, by what perftest prints of it."""
    senders = {"h2"} if verb(program) in ("read", "atomic") else {"h1"}
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
    words += itertools.chain.from_iterable(ARGUMENTS.get(f, (f,)) for f in lasting)
    endless = (*words, "-n", "1000000")
    if "-D" in flags:
        words += ARGUMENTS["-D"]
    elif "-a" in flags:
        words += ["-a", "-n", MESSAGES_OF_ALL_SIZES]
    else:
        words += ["-n", MESSAGES]
    return acceptance.Line(
        tuple(words), packets(program, flags), TCP_PORT, endless, tries=3, timeout_s=LONGEST_S
    )


def name(number):
    program, service, gid, condition, flags = array()[number]
    return "-".join([program, service, f"gid{gid}", condition, *sorted(flags)])


def test_every_two_values_meet():
    met = frozenset().union(*map(pairs, array()))
    assert met == frozenset().union(*map(pairs, runs()))
    assert len(array()) < 40


@pytest.mark.full("verbs-acceptance")
@pytest.mark.parametrize("number", range(len(array())), ids=name)
def test_flags(pair, full, number):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    if not full and number >= SHORT:
        pytest.skip("with --full verbs-acceptance")
    run = array()[number]
    acceptance.run(pair, line(run), run[3], f"h{number % 2 + 1}")
