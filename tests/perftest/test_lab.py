# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.perftest.lab import Where, chosen, two_hosts


@pytest.fixture(scope="module")
def plan():
    return topology.load("leaf-spine", name="perf")


def named(plan, *hosts):
    return tuple(host.name for host in two_hosts(plan, *hosts))


def test_the_first_hosts_that_are_left(plan):
    assert named(plan, None, None) == ("h1", "h2")
    assert named(plan, "h3", None) == ("h3", "h1")
    assert named(plan, None, "h1") == ("h2", "h1")
    assert named(plan, "h4", "h2") == ("h4", "h2")


def test_who_is_no_host(plan):
    with pytest.raises(UserError, match="has no host 'leaf1'"):
        two_hosts(plan, "leaf1", None)
    with pytest.raises(UserError, match="h2 would measure itself"):
        two_hosts(plan, "h2", "h2")


def test_one_place_at_a_time():
    where = Where("mine", "two-hosts", "perf")
    with pytest.raises(UserError, match="the lab mine, or a lab of two-hosts"):
        chosen(where, None, None, print).__enter__()
