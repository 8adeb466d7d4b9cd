#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# hostile_frames.sh WAY HARNESS FRAMES SEED FOLDER
#
# In network and mount namespaces of its own: a cable, the library's port at one end, HARNESS at the
# other. WAY is softroce-veth. FOLDER has the settings afterwards, in kept/ what the library counted, and in
# losses/ what it did about losses.
set -e
way=$1 harness=$2 frames=$3 seed=$4 folder=$5
mkdir "$folder/bpf" "$folder/sys" "$folder/kept" "$folder/losses"
mount -t bpf bpf "$folder/bpf"
mount -t sysfs sysfs "$folder/sys" # of this network namespace
ip link add va type veth peer name vb
for end in va vb; do
  echo 1 >/proc/sys/net/ipv6/conf/$end/disable_ipv6
  ip link set $end mtu 2200 up
done
"$way" va vb "$folder/bpf/xsks"
ip link set vb xdpgeneric off # what comes out there is for the harness
cat >"$folder/settings" <<END
device softroce0
guid 1
interface va
ifindex $(cat "$folder/sys/class/net/va/ifindex")
mac 0x$(tr -d : <"$folder/sys/class/net/va/address")
next_hop_mac 0x$(tr -d : <"$folder/sys/class/net/vb/address")
gid ::ffff:10.9.0.1
path_mtu 1024
generic 1
xsks_map $folder/bpf/xsks
statistics $folder/statistics
END
export SOFTROCE_COUNTERS="$folder/kept" SOFTROCE_LOSSES="$folder/losses"
SOFTROCE_VERBS=$folder/settings exec "$harness" vb "$frames" "$seed"
