#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Makes a fresh Debian machine, which has this checkout somewhere, ready for the lab and its tests.
# Vagrant's machines and the test suite's QEMU guests are provisioned by this and nothing else.
set -eu
cd -- "$(dirname -- "$0")/../.."
./lab run --list
# Python's packages for tests, which run there without a network; no machines within this one.
LAB_NO_APT=1 exec ./lab test --all --list
