#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Process 1 of a guest: runs the demo, what artifacts repeat, and the fabric's tests on its kernel,
# then powers it off.
# Says everything on the first serial port, and on the second one line for each job:
# NAME EXIT_CODE SECONDS.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
export LAB_NO_APT=1 # there is no network; machines within this machine are not tried
results=/dev/ttyS1
exec </dev/null

uptime() { cut -d. -f1 /proc/uptime; }

# Debian's initramfs has mounted /proc, /sys, /dev and, from version 12 on, /run.
mountpoint -q /run || mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
ip link set lo up
echo "kernel-$(uname -r) 0 0" >$results
echo "boot 0 $(uptime)" >$results

# job NAME SECONDS COMMAND...: each has its time.
job() {
  name=$1 bound=$2
  shift 2
  began=$(uptime)
  echo "== $name: $*"
  { timeout -k 10 "$bound" "$@"; echo $? >/run/exit-code; } 2>&1 | cat # to no terminal
  echo "$name $(cat /run/exit-code) $(($(uptime) - began))" >$results
}

cd -- "$(dirname -- "$0")/../.." || exit
job doctor 300 ./lab doctor
job demo 900 ./lab demo --seed 1
for each in /artifacts/*/; do # which the host made: the same fates on this kernel
  [ -d "$each" ] && job "artifact-$(basename "$each")" 1800 env LAB_PROGRAM="$PWD/lab" sh "$each/reproduce.sh"
done
# An emulated processor is twenty to fifty times slower: what needs a kernel of its own goes first,
# and the killing and cycling of whole labs is left to machines with KVM.
if grep -q 'QEMU TCG' /proc/cpuinfo; then
  set -- tests/fabric/bpf/test_xdp.py tests/fabric/bpf/test_xdp_faults.py tests/fabric/daemons/test_wire.py \
    tests/fabric/test_rails.py tests/fabric/net/test_links.py tests/fabric/test_lab.py
else
  set -- tests/fabric tests/xdp tests/cli
fi
job tests 7200 ./lab test --all -- -v "$@"

sync
echo o >/proc/sysrq-trigger
sleep 60 # the kernel powers off meanwhile; process 1 must not end before
