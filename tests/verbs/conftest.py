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


@pytest.fixture
def carried_by():
    """The transport of reliable connections: rc, by packets of their own. See `over`."""
    import os; return os.environ.get("CARRIED", "rc")


def over(*transports):
    """Run a test, or a module's (`pytestmark`), with connections over each of these transports."""
    return pytest.mark.parametrize("carried_by", transports)


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
