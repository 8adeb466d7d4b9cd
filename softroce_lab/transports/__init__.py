# SPDX-License-Identifier: GPL-2.0-or-later
"""The registry of transports with their options, knobs and timers, and the API of users' policies.

Pure: no clock, no socket, no chance.
"""
