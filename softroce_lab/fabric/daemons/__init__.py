# SPDX-License-Identifier: GPL-2.0-or-later
"""The native and Python processes of a lab: monitor, wire stage, routes."""
