# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run will need is known before it starts."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import memory, spec


def of(*changes, name="permutation"):
    return spec.load(name, [spec.parse_override(text) for text in changes])


def test_a_small_run_fits():
    memory.check_fits(of())


def test_a_run_that_would_not_fit_is_refused_before_it_starts():
    huge = of("workload.bytes=4TB", "payload=verify", "workload.message=1GiB")
    with pytest.raises(UserError, match=r"would need \d+ TiB of memory, .* are free\n  hint: few"):
        memory.check_fits(huge)
    memory.check_fits(of("workload.bytes=4TB", "workload.message=1GiB"))  # no bytes are carried


def test_messages_count():
    few, many = (of(f"workload.message={size}") for size in ("2MB", "1kB"))
    assert memory.needed_bytes(many) > memory.needed_bytes(few) + 31_000 * 500


def test_what_is_free_is_known():
    assert memory.available_bytes() > 1 << 20


def test_what_many_runs_leave_counts():
    one, many = (of(f"seeds={seeds}") for seeds in (1, 1000))
    links, transports = 2 * len(one.plan(1).links), len(one.transports)
    more = memory.needed_bytes(many) - memory.needed_bytes(one)
    assert 1000 * transports * links * 1000 < more < 1000 * transports * links * 10_000
    with pytest.raises(UserError, match="of memory"):
        memory.check_fits(of("seeds=1048576"))
