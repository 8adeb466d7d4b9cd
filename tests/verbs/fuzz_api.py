# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls everything that the verbs offer with anything at all: `python fuzz_api.py SEED CALLS`.

Run in a process of its own, so that a crash is seen. An exception that a program is not told to
expect ends it with a traceback; at the end a connection must still carry data.
"""

import collections
import faulthandler
import inspect
import random
import sys

import numpy as np

from softroce_lab import _native, verbs
from softroce_lab.verbs import (
    AH,
    CQ,
    GID,
    MR,
    PD,
    QP,
    SGE,
    SRQ,
    WC,
    AHAttr,
    CompChannel,
    Context,
    GlobalRoute,
    ModerateCQ,
    ModifyCQAttr,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    SrqAttr,
    SrqInitAttr,
    utils,
)
from softroce_lab.verbs.base import Closable
from softroce_lab.verbs.enums import *
from tests.verbs.conftest import ADDRESSES, message_config
from tests.verbs.sides import connected, run

# The last: of attributes that contain themselves, when they are printed.
EXPECTED = (verbs.PyverbsError, TypeError, ValueError, OverflowError, RecursionError)
PLAIN = (SGE, RecvWR, SendWR, QPCap, QPInitAttr, QPAttr, AHAttr, GlobalRoute, SrqAttr,
         SrqInitAttr, ModerateCQ, ModifyCQAttr, WC, GID)  # fmt: skip
OWNING = (PD, MR, CQ, CompChannel, SRQ, QP, AH)
MOST_OBJECTS = 40  # of each class, the oldest are forgotten
WAITS = ("timeout_s",)

# Memory that stays: what an MR at an address may be of.
ARENA = np.zeros(1 << 16, np.uint8)
NUMBERS = [0, 1, 2, 3, 7, 8, 64, 100, 255, 256, 4096, 65535, 65536, -1, -(2**31), -(2**63), 2**31,
           2**31 - 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30]  # fmt: skip
NONSENSE = [None, "", "text", b"", b"bytes", 1.5, float("nan"), float("inf"), [], [1], (), {},
            {"a": 1}, object(), int, len, True, False, ..., 1j, bytearray(9), range(3)]  # fmt: skip


class Fuzzer:
    """Objects that are there, open and closed, and calls of them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pair = _native.Pair(*(message_config(address) for address in ADDRESSES), seed)
        self.contexts = [Context(self.pair.side(which)) for which in range(2)]
        self.known = collections.defaultdict(lambda: collections.deque(maxlen=MOST_OBJECTS))
        self.known[Context].extend(self.contexts)
        self.raised = collections.Counter()
        self.done = 0
        for side in connected(self.contexts):
            for each in (side.pd, side.cq, side.mr, side.qp, side.attr(side)):
                self.keep(each)

    def keep(self, thing):
        if isinstance(thing, (*PLAIN, *OWNING)):
            self.known[type(thing)].append(thing)

    def number(self):
        choice = self.random.random()
        if choice < 0.15:
            return int(ARENA.ctypes.data) + self.random.choice((0, 1, 64, 65535))
        if choice < 0.25:
            return self.random.getrandbits(self.random.choice((3, 8, 16, 32, 64)))
        if choice < 0.35:
            return self.random.choice([*ibv_qp_type, *ibv_qp_attr_mask])
        return self.random.choice(NUMBERS)

    def thing(self):
        kinds = [kind for kind in self.known if self.known[kind]]
        return self.random.choice(self.known[self.random.choice(kinds)])

    def value(self, name=""):
        """Something for a parameter: what it may want, as often as not."""
        value = self.any_value(name)
        if name == "length" and isinstance(value, int) and 1 << 24 < value < 1 << 40:
            return value << 30  # this machine may have that much memory, and is not to use it
        return value

    def any_value(self, name):
        if name in WAITS:
            return self.random.choice(
                [0, 0.001, -1, "soon", None, float("nan"), float("inf"), 10**30]
            )
        wanted = {"creator": PD, "pd": PD, "context": Context, "attr": None, "wr": None,
                  "scq": CQ, "rcq": CQ, "srq": SRQ, "channel": CompChannel, "cap": QPCap,
                  "init_attr": QPInitAttr, "qp_attr": QPAttr, "gr": GlobalRoute, "dgid": GID,
                  "ah": AH, "expected_cq": CQ, "ah_attr": AHAttr, "moderate": ModerateCQ,
                  "gid": GID}  # fmt: skip
        if name == "sg" and self.random.random() < 0.7:
            return list(self.known[SGE])[: self.random.choice((1, 2, 9, 33))]
        if self.random.random() < 0.7 and self.known[wanted.get(name)]:
            return self.random.choice(self.known[wanted[name]])
        if self.random.random() < 0.6:
            return self.number()
        return self.thing() if self.random.random() < 0.5 else self.random.choice(NONSENSE)

    def call(self, function, names):
        """With anything for each parameter; some are left out, some are given by name."""
        given = {
            name: self.value(name) for name in names if name in WAITS or self.random.random() < 0.8
        }
        try:
            self.keep(function(**given))
        except EXPECTED as error:
            self.raised[type(error).__name__] += 1
        else:
            self.done += 1

    def step(self):
        choice = self.random.random()
        if choice < 0.35:
            made = self.random.choice(PLAIN + OWNING)
            self.call(made, parameters(made))
        elif choice < 0.85:
            thing = self.thing()
            method = self.random.choice(methods(type(thing)))
            if method == "close" and self.random.random() < 0.8:
                return  # now and then
            if isinstance(thing, Context) and method == "close":
                return
            bound = getattr(thing, method)
            self.call(bound, parameters(bound))
        elif choice < 0.95:
            self.set_field()
        else:
            name = self.random.choice([each for each in dir(utils) if each.endswith("_to_str")])
            self.call(getattr(utils, name), parameters(getattr(utils, name)))
        if self.random.random() < 0.02:
            run(self.pair, 100_000)

    def set_field(self):
        thing = self.thing()
        names = [name for name in fields(thing) if not name.startswith("_")]
        if not isinstance(thing, PLAIN) or not names:
            return
        name = self.random.choice(names)
        value = self.value(name)
        try:
            setattr(thing, name, value)
        except (AttributeError, *EXPECTED) as error:  # read-only
            self.raised[type(error).__name__] += 1


def parameters(function):
    try:
        return [each for each in inspect.signature(function).parameters if each != "self"]
    except ValueError:  # of the native classes
        return []


_METHODS = {}


def methods(kind):
    """Public methods and the ways to print it."""
    if kind not in _METHODS:
        found = [
            name
            for name, _ in inspect.getmembers(kind, callable)
            if not name.startswith("_") and name not in ("adopt", "know_qp", "know_srq", "of",
                                                         "take_messages", "native", "assign")
        ]  # fmt: skip
        _METHODS[kind] = [*found, "__str__", "__repr__", "__hash__"]
    return [name for name in _METHODS[kind] if getattr(kind, name) is not None]


def fields(thing):
    own = list(getattr(thing, "__dict__", {}))
    return own + [name for name, each in inspect.getmembers(type(thing))
                  if isinstance(each, property)]  # fmt: skip


def main(seed, calls):
    faulthandler.dump_traceback_later(100, exit=True)
    fuzzer = Fuzzer(seed)
    for _ in range(calls):
        fuzzer.step()
    for kind in OWNING:  # and all of it can be closed
        for thing in list(fuzzer.known[kind]):
            assert isinstance(thing, Closable)
            thing.close()
    alice, bob = connected(fuzzer.contexts)
    data = alice.fill()
    bob.receive(5000)
    alice.post(IBV_WR_SEND, bob, 5000)
    run(fuzzer.pair)
    assert bytes(bob.memory[:5000]) == data[:5000]
    print(fuzzer.done, dict(fuzzer.raised))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
