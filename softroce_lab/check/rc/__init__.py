# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks of reliable connections: PSNs, NAKs, retransmissions, results."""
