#!/bin/busybox sh
# How every guest begins: its first process mounts what a system has, and knows how to run a command. What a guest does follows.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
echo /bin/modprobe > /proc/sys/kernel/modprobe
ulimit -l unlimited
set -o pipefail
failures=0

# Runs a command, and says how it ended. What it says is no terminal's: no progress bars.
run() {
    echo "== $*"
    "$@" 2>&1 < /dev/null | cat
    code=$?
    echo "== exit code $code: $1 $2 $3"
    [ $code -eq 0 ] || failures=$((failures + 1))
}
