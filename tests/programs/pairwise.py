# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest's programs with their flags: few runs in which every two values meet.

A greedy covering array of strength two: each run is the one of all that are allowed which has the
most pairs that no run had before. So no pair of values that may meet is left out.
"""

import functools
import itertools

BANDWIDTH, LATENCY = "bw", "lat"
FLAGS = {  # as each program's help has them
    "ib_send_bw": "-a -b -e -q -D --use-srq", "ib_send_lat": "-a -e -D --use-srq",
    "ib_write_bw": "-a -b -q -D", "ib_write_lat": "-a -D",
    "ib_read_bw": "-a -b -e -q -D", "ib_read_lat": "-a -e -D",
    "ib_atomic_bw": "-b -e -q -D", "ib_atomic_lat": "-e -D",
}  # fmt: skip
SERVICES = {"send": ("RC", "UC", "UD"), "write": ("RC", "UC")}
ARGUMENTS = {"-q": ("-q", "4"), "-D": ("-D", "3")}
CHOICES = ("-a", "-b", "-e", "-q", "-D", "--use-srq")
CONDITIONS = ("none", "loss", "kill")


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
            SERVICES.get(verb(program), ("RC",)), (0, 1), CONDITIONS
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
