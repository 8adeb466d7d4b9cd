# SPDX-License-Identifier: GPL-2.0-or-later
"""The transports of an experiment: built-in ones by name, a user's own by file."""
