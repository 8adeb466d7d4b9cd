# SPDX-License-Identifier: GPL-2.0-or-later
"""The session below the policies: what every striped message needs, whatever finds its losses."""
