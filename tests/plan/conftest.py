# SPDX-License-Identifier: GPL-2.0-or-later
from tests.topology.conftest import trunk

__all__ = ["trunk"]
