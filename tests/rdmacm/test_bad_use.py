# SPDX-License-Identifier: GPL-2.0-or-later
"""Every entry point of RDMA CM with wrong types, hostile sizes, closed objects: never a crash."""

import inspect
import random

import pytest

from softroce_lab.rdmacm import CMID, AddrInfo, CmAgent, CMEvent, CMEventChannel, ConnParam, UDParam
from softroce_lab.rnic import PD, QPInitAttr
from softroce_lab.rnic.errors import PyverbsError

ALLOWED = (PyverbsError, TypeError, OverflowError)
ROUNDS = 40


def hostile(stream, objects):
    return stream.choice(
        [None, 0, 1, -1, 7, 255, 256, 1 << 16, 1 << 31, 1 << 32, 1 << 64, -(1 << 63), 1.5, True,
         "", "10.0.0.1", "10.0.0.2", "x" * 300, "a\0b", b"", b"7471", b"\xff" * 400, [], {}, (),
         object(), type, *objects]
    )  # fmt: skip


def methods(kind):
    return [
        (name, method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in ("adopt", "check_open")  # all Closables'
    ]


def shake(call, stream, objects):
    count = len(inspect.signature(call).parameters)
    for _ in range(ROUNDS):
        arguments = [hostile(stream, objects) for _ in range(stream.randint(0, count))]
        try:
            made = call(*arguments)
        except ALLOWED:
            continue
        if hasattr(made, "close") and hasattr(made, "closed"):
            made.close()


@pytest.fixture
def objects(agents, contexts):
    channel = CMEventChannel()
    channel.timeout_s = 0.001
    pd = PD(contexts[0])
    closed = CMID(channel)
    closed.close()
    return [agents[0], contexts[0], channel, pd, closed, QPInitAttr(), ConnParam(),
            AddrInfo(src="10.0.0.1", dst="10.0.0.2", dst_service="1"),
            AddrInfo(src="10.0.0.1", src_service="1", flags=1)]  # fmt: skip


@pytest.mark.parametrize(
    "kind", [AddrInfo, ConnParam, CMEventChannel, CMEvent, UDParam, CMID, CmAgent]
)
def test_nothing_is_made_of_nonsense(objects, kind):
    shake(kind, random.Random(kind.__name__), objects)


@pytest.mark.parametrize("name", [name for name, _ in methods(CMID)])
@pytest.mark.parametrize("state", ["new", "bound", "resolved", "with a queue pair", "closed"])
def test_no_call_of_a_cmid_crashes(objects, name, state):
    stream = random.Random(f"{name} {state}")
    for _ in range(3):
        cmid = CMID(objects[2])
        if state not in ("new",):
            cmid.bind_addr(objects[-1])
        if state in ("resolved", "with a queue pair"):
            cmid.resolve_addr(objects[-2])
        if state == "with a queue pair":
            cmid.create_qp(rc())
        if state == "closed":
            cmid.close()
        cmid.timeout_s = 0.001
        shake(getattr(cmid, name), stream, [*objects, cmid])
        cmid.close()


def rc():
    from softroce_lab.rnic.enums import IBV_QPT_RC

    return QPInitAttr(qp_type=IBV_QPT_RC)


@pytest.mark.parametrize("kind", [ConnParam, CMEventChannel], ids=lambda kind: kind.__name__)
def test_no_call_of_a_helper_crashes(objects, kind):
    stream = random.Random(kind.__name__)
    for name, _ in methods(kind):
        shake(getattr(kind(), name), stream, objects)


def test_closing_an_agent_closes_its_ids(agents):
    cmid = CMID(AddrInfo(src="10.0.0.1", src_service="7471", flags=1))
    cmid.listen()
    agents[0].close()
    assert cmid.closed
    with pytest.raises(PyverbsError):
        cmid.connect()
