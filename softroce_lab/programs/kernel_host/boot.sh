#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=dash
#
# The first process of a kernel host, from its initramfs: loads the modules, puts a file system in
# memory over the read-only image, and hands over to the agent (agent.py).
export PATH=/bin
for tool in cp insmod mkdir mount poweroff sleep switch_root; do
  /bin/busybox ln -s busybox /bin/$tool
done

# What is said here is what `lab up` shows of a guest that does not come up.
fail() {
  echo "softroce_lab: $*"
  poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
  case $module in
    \?*) insmod "/modules/${module#?}" 2>/dev/null ;;
    *) insmod "/modules/$module" || fail "cannot load $module" ;;
  esac
done </modules/order

if [ -n "$lab_probe" ]; then # does a kernel come up under this accelerator?
  echo "softroce_lab: it does"
  poweroff -f
fi

tries=0
until [ -b /dev/vda ]; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || fail "there is no disk"
  sleep 0.05
done
mount -t ext4 -o ro,noload /dev/vda /image || fail "cannot mount the image"
mount -t tmpfs tmpfs /changes || fail "cannot mount a file system in memory"
mkdir /changes/upper /changes/work
mount -t overlay -o lowerdir=/image,upperdir=/changes/upper,workdir=/changes/work overlay /root ||
  fail "cannot put a file system over the image"

for each in proc sys dev; do
  mount --move /$each /root/$each
done
mount -t tmpfs run /root/run
mount -t tmpfs tmp /root/tmp
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t bpf bpf /root/sys/fs/bpf
mount -t debugfs debug /root/sys/kernel/debug
cp /agent.py /root/run/lab-agent.py
exec switch_root /root /usr/bin/python3 -I -S /run/lab-agent.py
