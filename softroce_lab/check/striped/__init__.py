# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks of the lab's own transports over striped messages."""
