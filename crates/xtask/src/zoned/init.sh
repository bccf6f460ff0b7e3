# Asks the host for its turn, and does it. A cut of the power ends it anywhere. It follows what every guest begins with.
# A command that must be refused.
refused() {
    echo "== refused? $*"
    if "$@" 2>&1 < /dev/null | cat; then
        echo "== it was not refused"
        failures=$((failures + 1))
    fi
}

modprobe nvme || failures=$((failures + 1))
tries=0
until [ -b /dev/nvme0n1 ] && [ -b /dev/nvme0n2 ] || [ $tries -ge 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
# One writer at a time, in order, as zones are written.
for disk in nvme0n1 nvme0n2; do echo mq-deadline > /sys/block/$disk/queue/scheduler; done

exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
small=zoned:///dev/nvme0n2
store=zoned:///dev/nvme0n1/orders
settings="--set memory_bytes=8388608 --set memtable_bytes=262144"
echo "== booted"
read -r turn numbers <&3
case $turn in
tests)
    grep -H . /sys/block/nvme0n*/queue/zoned /sys/block/nvme0n*/queue/max_*_zones
    run tombolo zoned mkfs $small
    export TOMBOLO_ZONED_DEVICE=$small
    run /usr/bin/zoned-tests conformance::a_device_that_is_named --test-threads=1 --nocapture
    unset TOMBOLO_ZONED_DEVICE
    run tombolo zoned fsck $small --scrub
    refused tombolo zoned mkfs $small
    run tombolo zoned mkfs $small --force
    run tombolo bench --store $small/bench --benchmarks fillrandom,overwrite,readrandom --num PUTS
    run tombolo zoned df $small
    run tombolo zoned fsck $small
    run tombolo zoned mkfs zoned:///dev/nvme0n1
    mkdir /tmp/tree
    for number in $(seq 1 300); do echo "file $number" > /tmp/tree/$number; done
    run tombolo demo --store zoned:///dev/nvme0n1/demo --source /tmp/tree --seconds SECONDS --rounds 2
    run tombolo db destroy zoned:///dev/nvme0n1/demo --yes
    dmesg | grep -iE 'oops|BUG|call trace|I/O error' | tail -5
    echo "== guest: $failures failed after $(cut -d' ' -f1 /proc/uptime) s"
    ;;
write)
    # What was heard before the power was cut, then the next writer's turn.
    echo "== judging $numbers"
    heard=$(tombolo --json crash-judge --store $store $settings --seed SEED $numbers < /dev/null)
    echo "== judged ($?): $heard"
    run tombolo zoned fsck zoned:///dev/nvme0n1
    echo "== looked: $failures failed"
    read -r last <&3
    # Its standard input stays open: it writes until the power is gone.
    tail -f /dev/null | tombolo crash-writer --store $store $settings --seed SEED --round 1 --parent 1 $last >&3
    echo "== the writer ended ($?)"
    ;;
esac
sleep 1000000
