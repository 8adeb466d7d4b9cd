# SPDX-License-Identifier: GPL-2.0-or-later
"""Names in run directories made before they were renamed: old and new."""

TIMING = {"alive_ns": "keepalive_interval_ns"}
