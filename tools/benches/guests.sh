#!/bin/bash
# perftest between two virtual machines of one CPU each: over Linux's rxe, and over our library with
# a link of its own on the same interface. The same commands in turn, medians of the rounds, ratios.
#
#   FERROCE_LAB=SCRIPT tools/benches/guests.sh [ROUNDS]
#
# SCRIPT runs the machines; docs/interop.md says what commands it needs. FERROCE is the command that
# is installed there (target/release/ferroce, unless set). Emulation makes every figure small:
# compare ratios alone.
set -euo pipefail

lab=${FERROCE_LAB:?names no script for virtual machines}
rounds=${1:-5}
root=$(cd "$(dirname "$0")/../.." && pwd)
ferroce=${FERROCE:-${CARGO_TARGET_DIR:-$root/target}/release/ferroce}
link=${LINK:-packet:eth0}
work=$(mktemp -d)
export ROCE_LAB_RUN=$work/run
network=ferroce$$
# Where perftest's servers listen.
port=18515
server_address=10.77.0.11

# Program, bytes of a message, messages, and the column of the result that is the figure.
rows=(
    "ib_send_bw 4096 2000 4"
    "ib_write_bw 4096 2000 4"
    "ib_send_bw 65536 150 4"
    "ib_write_bw 65536 150 4"
    "ib_write_bw 1048576 15 4"
    "ib_send_lat 8 300 5"
    "ib_write_lat 8 300 5"
    "ib_write_lat 4096 300 5"
    "ib_write_lat 65536 60 5"
)

finish() {
    "$lab" down >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

start() {
    "$ferroce" install --prefix "$work/ferroce" >/dev/null
    tar -C "$work" -cf "$work/ferroce.tar" ferroce
    "$lab" build >/dev/null
    for guest in a b; do
        "$lab" up --name "$guest" --cpus 1 --mtu 9000 --netns "$network" >/dev/null
        "$lab" put --name "$guest" "$work/ferroce.tar" /opt/ferroce.tar
        "$lab" run --name "$guest" -- tar -C /opt -xf /opt/ferroce.tar
    done
}

# Makes a stack the guests' own. While there is rxe, it would answer our packets too.
become() {
    local guest words=(rdma link del rxe0)
    if [ "$1" = rxe ]; then words=(rdma link add rxe0 type rxe netdev eth0); fi
    if [ "$1" != "$current" ]; then
        for guest in a b; do "$lab" run --name "$guest" -- "${words[@]}"; done
    fi
    current=$1
}

# One measurement: the figure, or nothing if the program fails.
measure() {
    local stack=$1 program=$2 size=$3 count=$4 column=$5
    local words=("$program" -F -x 1 -u 18 -m 4096 -p "$port" -s "$size" -n "$count")
    if [ "$stack" = ferroce ]; then
        words=(/opt/ferroce/bin/ferroce run --link "$link" -- "${words[@]}")
    fi
    local job printed
    job=$("$lab" run --name a -t 120 -d -- "${words[@]}")
    # What it prints is not there before it ends.
    if "$lab" run --name a -t 60 -s -- "until ss -ltn | grep -q :$port; do sleep 0.1; done" &&
        printed=$("$lab" run --name b -t 120 -- "${words[@]}" "$server_address" 2>>"$work/errors")
    then
        awk -v size="$size" -v column="$column" '$1 == size { print $column }' <<<"$printed"
    fi
    "$lab" kill --name a "$job" KILL >/dev/null 2>&1 || true
    "$lab" wait --name a "$job" >/dev/null 2>&1 || true
}

# The middle one of the numbers in a file, the least and the greatest.
summary() {
    sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)], v[1], v[NR] }'
}

table() {
    local row program size count column index
    printf '\n%-24s %10s %10s %7s  %s\n' '' ferroce rxe ratio 'better'
    for index in "${!rows[@]}"; do
        read -r program size count column <<<"${rows[index]}"
        if [ ! -s "$work/ferroce.$index" ] || [ ! -s "$work/rxe.$index" ]; then
            printf '%-24s skipped: it does not run\n' "$program $size"
            continue
        fi
        echo "$(summary "$work/ferroce.$index") $(summary "$work/rxe.$index")" |
            awk -v name="$program $size" -v latency=$((column == 5)) '{
                ratio = $1 / $4
                better = latency ? ratio < 1 : ratio > 1
                printf "%-24s %10.2f %10.2f %7.2f  %-4s", name, $1, $4, ratio, better ? "yes" : "NO"
                printf " (%s .. %s; %s .. %s)\n", $2, $3, $5, $6
            }'
    done
    echo 'bandwidth in MiB/s, latency in µs; medians (from .. to of both)'
}

start
# They come up with it.
current=rxe
for round in $(seq "$rounds"); do
    order=(rxe ferroce)
    if ((round % 2 == 0)); then order=(ferroce rxe); fi
    for stack in "${order[@]}"; do
        echo "round $round of $rounds, $stack" >&2
        become "$stack"
        for index in "${!rows[@]}"; do
            # shellcheck disable=SC2086
            measure "$stack" ${rows[index]} >>"$work/$stack.$index"
        done
    done
done
table
if [ -s "$work/errors" ]; then
    sort "$work/errors" | uniq -c | sort -rn | head -5 >&2
fi
