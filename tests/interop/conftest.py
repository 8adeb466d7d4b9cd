# SPDX-License-Identifier: GPL-2.0-or-later
"""A soft host and a kernel host in one lab, and tests that outlive a guest's kernel.

A guest that died is booted again before the next test. Linux's rdma_rxe panics now and then,
between two of its own devices, too (docs/howto/kernel-hosts.md): a test during which a guest's
kernel panicked with rdma_rxe under way says so, and gets a second try. Nothing else that fails
does.
"""

import contextlib
import warnings

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.programs.kernel_host import console as guest_console
from softroce_lab.programs.kernel_host.guest import GuestDeadError
from tests.interop.rxe import Conversation

USERS = ("conversation", "lab")  # fixtures of guests that several tests use
MODULE = "rdma_rxe"
REPORT_S = 2  # in which a kernel that panics has said so, and ended

users_key = pytest.StashKey[list]()
second_key = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def conversation():
    """The lab takes seconds to boot: one for all cells."""
    with contextlib.ExitStack() as stack:
        lab = fabric.up(topology.load("kernel-peer", name="interop"), ephemeral=True)
        stack.callback(lab.down)
        yield Conversation(lab, stack)


@pytest.fixture(autouse=True)
def living_guests(request):
    """Guests that a test before this one killed live again."""
    users = [request.getfixturevalue(name) for name in USERS if name in request.fixturenames]
    request.node.stash[users_key] = users
    revive(users)


@pytest.fixture(autouse=True)
def clean_link(living_guests, request):
    """What a test before this one set on the link that all share is gone."""
    if "conversation" in request.fixturenames:
        request.getfixturevalue("conversation").clear_link()


def revive(users):
    for user, lab in zip(users, labs(users), strict=True):
        dead = [guest.node for guest in guests(lab) if not guest.is_alive()]
        for node in dead:
            lab.boot(node)
        if dead and isinstance(user, Conversation):
            user.begin()


def labs(users):
    return [user.lab if isinstance(user, Conversation) else user for user in users]


def guests(lab):
    return [lab.guest(node.name) for node in lab.plan.kernel_hosts]


def panic_behind(error, users):
    """What a guest's kernel reported, if it was a panic that made a test fail."""
    if isinstance(error, GuestDeadError):
        return error.panic
    for guest in (guest for lab in labs(users) for guest in guests(lab)):
        if guest.machine.wait(REPORT_S):
            return guest_console.read_panic(guest.console)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    users = pyfuncitem.stash.get(users_key, [])
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        panic = panic_behind(error, users)
        if panic is None or not panic.names(MODULE) or pyfuncitem.stash.get(second_key, False):
            raise
    say(pyfuncitem, panic)
    pyfuncitem.stash[second_key] = True
    revive(users)
    pyfuncitem.runtest()
    return True


def say(item, panic):
    """Shown at the end of the run, whichever process ran the test."""
    text = f"{item.nodeid}: {MODULE} of Linux panicked; once more. Its report:\n{panic.report}"
    warnings.warn(pytest.PytestWarning(text), stacklevel=1)
