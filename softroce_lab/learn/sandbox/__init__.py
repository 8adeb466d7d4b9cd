# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that a submission's policy runs in: the only part of `learn` that it can see."""
