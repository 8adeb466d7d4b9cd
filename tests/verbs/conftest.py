# SPDX-License-Identifier: GPL-2.0-or-later
"""Two RNICs on an imagined cable, and their verbs."""

import pytest

from softroce_lab import _native
from softroce_lab.transports import registry
from softroce_lab.verbs import PD, Context

ADDRESSES = (0x0A000001, 0x0A000002)
QKEY = 0x11111111


def message_config(address, **settings):
    config = _native.MessageConfig()
    config.address = address
    for name, value in settings.items():
        setattr(config, name, value)
    return config


def pytest_generate_tests(metafunc):
    """Reliable connections have packets of their own (rc), or each of CARRIED_BY carries them.

    A module has that list; the mark `only_rc` is for tests of what RC's packets alone have.
    """
    if "carried_by" in metafunc.fixturenames:
        only_rc = metafunc.definition.get_closest_marker("only_rc")
        carried_by = ("rc",) if only_rc else getattr(metafunc.module, "CARRIED_BY", ("rc",))
        metafunc.parametrize("carried_by", carried_by)


@pytest.fixture
def pair(carried_by):
    """For all verbs, and for the policy csa_ud on them."""
    if carried_by == "rc":
        engine = registry.find("csa_ud").engine()
        return _native.Pair(*(message_config(address, **engine) for address in ADDRESSES), 1)
    return carrying_pair(carried_by)


def carrying_pair(transport, seed=1, **settings):
    """A pair whose reliable connections use a transport, and whose RNICs know each other."""
    engine = registry.find(transport).engine() | {"carries_operations": True} | settings
    pair = _native.Pair(*(message_config(address, **engine) for address in ADDRESSES), seed)
    for here, there in ((0, 1), (1, 0)):
        side, other = pair.side(here), pair.side(there)
        side.set_qkey(QKEY)
        side.connect(ADDRESSES[there], 0, other.data_qp, other.recovery_qp, QKEY)
    return pair


@pytest.fixture
def contexts(pair):
    made = [Context(pair.side(which)) for which in range(2)]
    yield made
    for context in made:
        context.close()


@pytest.fixture
def context(contexts):
    return contexts[0]


@pytest.fixture
def pd(context):
    return PD(context)
