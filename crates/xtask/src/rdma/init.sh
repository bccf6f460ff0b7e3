# Makes a card, runs tests and logs on it, says how it ended, and turns the guest off. It follows what every guest begins with.
for module in crc32_generic ib_uverbs rdma_rxe; do modprobe $module || failures=$((failures + 1)); done
modprobe dummy numdummies=1
ip link set lo up
ip link set dummy0 up
ip addr add 10.0.0.1/24 dev dummy0
run rdma link add rxe0 type rxe netdev dummy0
grep -H . /sys/class/infiniband/rxe0/ports/1/state /sys/class/infiniband/rxe0/ports/1/gids/1

export TOMBOLO_RDMA=rxe0
run /usr/bin/segment-tests rdma:: --test-threads=1 --nocapture
run /usr/bin/segment-tests node::lending:: --test-threads=1

# A log on three nodes, whose memory the writers' card writes to.
export TOMBOLO_NODE_SECRET=a-secret-of-the-guest-and-of-nobody-else
nodes=
log=near://
for port in 7421 7422 7423; do
    tombolo --json serve node --listen 10.0.0.1:$port --memory 192MiB --domain rack-$port --rdma rxe0 --drain-seconds 5 > /tmp/node-$port 2> /tmp/node-$port.log &
    nodes="$nodes $!"
    log="${log}10.0.0.1:$port,"
done
for port in 7421 7422 7423; do
    until grep -q listening /tmp/node-$port; do
        kill -0 $nodes || break
        sleep 0.1
    done
done
log=${log%,}
mkdir /tmp/tree
for number in $(seq 1 300); do echo "file $number" > /tmp/tree/$number; done
for way in "over cards" "over TCP (rdma=off)"; do
    uri=$log
    [ "$way" = "over cards" ] || uri="$log?rdma=off"
    echo "== durable puts of 100 B to three nodes, one writer, $way"
    run tombolo bench --store file:///tmp/bench --log "$uri" --benchmarks fillrandom --durability durable --num PUTS
    rm -rf /tmp/bench
done
run tombolo demo --store file:///tmp/demo --log "$log" --source /tmp/tree --seconds SECONDS --rounds 2
kill -TERM $nodes
wait $nodes
for port in 7421 7422 7423; do
    paired=$(grep -o '"regions_paired":[ 0-9]*' /tmp/node-$port | tail -1 | grep -o '[0-9]*$')
    echo "== node $port: ${paired:-0} regions written by cards"
    [ "${paired:-0}" -gt 0 ] || failures=$((failures + 1))
    grep -E 'WARN|ERROR' /tmp/node-$port.log | tail -5
done
dmesg | grep -iE 'rxe|infiniband|oops|BUG|call trace' | tail -5
echo "== guest: $failures failed after $(cut -d' ' -f1 /proc/uptime) s"
poweroff -f
