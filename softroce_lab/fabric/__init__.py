# SPDX-License-Identifier: GPL-2.0-or-later
"""The real clock: namespaces, links, XDP programs and processes, and the ledger of them all."""
