# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of jitter, which the build makes (native/wire/jitter_tables.py), against formulas."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native

UNIFORM, NORMAL, PARETO = 0, 1, 2
STEPS, SCALE, MOST = 4096, 8192, 32767
# Of the tables that were committed before the build made them: virtual runs depend on each byte.
TABLES_SHA256 = "51566b95e41d41ca9174d9417388abe17e413c67d9c7f40ef31d1565427317f2"


def table(kind: int) -> list[int]:
    """What is added for each part of the 32 bits, to a jitter of 8192 ns."""
    return [_native.jitter_of(step << 20, SCALE, kind) for step in range(STEPS)]


def test_tables_are_those_of_all_runs_before():
    tables = np.array([table(NORMAL), table(PARETO)], dtype="<i2")
    assert hashlib.sha256(tables.tobytes()).hexdigest() == TABLES_SHA256


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**40))
def test_uniform_stays_within_the_jitter(bits, jitter_ns):
    assert _native.jitter_of(bits, jitter_ns, UNIFORM) == bits * 2 * jitter_ns // 2**32 - jitter_ns


@pytest.mark.parametrize("kind", [NORMAL, PARETO])
@given(bits=st.integers(0, 2**32 - 1), jitter_ns=st.integers(1, 2**40))
def test_jitter_scales(kind, bits, jitter_ns):
    step = _native.jitter_of(bits >> 20 << 20, SCALE, kind)
    exact = jitter_ns * step / SCALE
    assert abs(_native.jitter_of(bits, jitter_ns, kind) - exact) < 1 + abs(exact) * 1e-12
