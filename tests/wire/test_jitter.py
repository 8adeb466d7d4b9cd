# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of jitter, which the build makes (native/wire/jitter_tables.py), against formulas."""

from __future__ import annotations

import hashlib
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native

UNIFORM, NORMAL, PARETO = 0, 1, 2
STEPS, SCALE, MOST = 4096, 8192, 32767
# Of the tables that were committed before the build made them: virtual runs depend on each byte.
TABLES_SHA256 = "51566b95e41d41ca9174d9417388abe17e413c67d9c7f40ef31d1565427317f2"
MIDDLES = [(step + 0.5) / STEPS for step in range(STEPS)]


def table(kind: int) -> list[int]:
    """What is added for each part of the 32 bits, to a jitter of 8192 ns."""
    return [_native.jitter_of(step << 20, SCALE, kind) for step in range(STEPS)]


def cut(number: float) -> int:
    return max(-MOST, min(MOST, round(number)))


def test_normal_is_the_inverse_of_its_distribution_function():
    inverse = statistics.NormalDist().inv_cdf
    assert table(NORMAL) == [cut(SCALE * inverse(p)) for p in MIDDLES]


def test_pareto_is_that_of_netem():
    assert table(PARETO) == [cut(SCALE * 4 / 3 * ((1 - p) ** (-1 / 3) - 1.5)) for p in MIDDLES]


def test_tables_are_those_of_all_runs_before():
    tables = np.array([table(NORMAL), table(PARETO)], dtype="<i2")
    assert hashlib.sha256(tables.tobytes()).hexdigest() == TABLES_SHA256


def test_normal_has_mean_zero_and_the_jitter_as_deviation():
    values = np.array(table(NORMAL)) / SCALE
    assert abs(values.mean()) < 1e-4
    assert values.std() == pytest.approx(1, abs=2e-3)


def test_pareto_has_mean_zero_nearly():
    assert -0.04 < np.mean(table(PARETO)) / SCALE < 0  # what is cut off is missing


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**40))
def test_uniform_stays_within_the_jitter(bits, jitter_ns):
    assert _native.jitter_of(bits, jitter_ns, UNIFORM) == bits * 2 * jitter_ns // 2**32 - jitter_ns


@pytest.mark.parametrize("kind", [NORMAL, PARETO])
@given(bits=st.integers(0, 2**32 - 1), jitter_ns=st.integers(1, 2**40))
def test_jitter_scales(kind, bits, jitter_ns):
    step = _native.jitter_of(bits >> 20 << 20, SCALE, kind)
    exact = jitter_ns * step / SCALE
    assert abs(_native.jitter_of(bits, jitter_ns, kind) - exact) < 1 + abs(exact) * 1e-12
