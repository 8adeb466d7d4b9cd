# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for operations of reliable connections that travel as striped messages."""
