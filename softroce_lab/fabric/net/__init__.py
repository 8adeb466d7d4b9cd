# SPDX-License-Identifier: GPL-2.0-or-later
"""Namespaces, links, addresses and routes of a lab, by netlink and system calls."""
