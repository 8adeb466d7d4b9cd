# SPDX-License-Identifier: GPL-2.0-or-later
"""The paths that `Tracer` computes; tests/cli/test_inspect.py holds them to a real fabric."""

import collections
import dataclasses

import pytest

from softroce_lab import topology
from softroce_lab.fabric.net import routes
from softroce_lab.fabric.observe import trace
from softroce_lab.plan import locate

PLAN = topology.load("fat-tree-k4")


def tracer(plan=PLAN, **changed):
    return trace.Tracer(dataclasses.replace(plan, **changed), routes.planned(plan))


def flow(source, target, plan=PLAN, **more):
    return trace.Flow(locate.rail(plan, source), locate.rail(plan, target), **more)


@pytest.mark.parametrize(("target", "nodes"), [("h2", 3), ("h3", 5), ("h16", 7)])
def test_paths_are_shortest_and_whole(target, nodes):
    ends = {
        near.node + far.node: number for link in PLAN.links for number, near, far in link.halves
    }
    for sport in range(50):
        path = tracer().path(flow("h1", target), sport)
        assert path.end == "arrived"
        assert (path.nodes[0], path.nodes[-1], len(path.nodes)) == ("h1", target, nodes)
        steps = zip(path.nodes, path.nodes[1:], strict=False)
        assert path.links == tuple(ends[a + b] for a, b in steps)


def test_all_equal_cost_paths_are_used_and_known():
    between_pods = flow("h1", "h16")
    every = tracer().all_paths(between_pods)
    taken = collections.Counter(tracer().path(between_pods, sport) for sport in range(200))
    assert len(every) == 4
    assert set(taken) == set(every)


def test_without_a_route_the_path_ends():
    nowhere = trace.Tracer(PLAN, lambda node, address: ())
    path = nowhere.path(flow("h1", "h16"), 1)
    assert (path.nodes, path.end) == (("h1", PLAN.links[0].b.node), "no route")
    assert str(path).endswith("(no route)")


def test_a_loop_ends_too():
    plan = topology.load("dumbbell")
    between = {node.name: node.ports[-1] for node in plan.nodes}
    looping = trace.Tracer(plan, lambda node, address: (between[node.name],))
    path = looping.path(flow("h1", "h8", plan), 1)
    assert path.end == "loop"
    assert path.nodes == ("h1", "s1", "s2", "s1")
