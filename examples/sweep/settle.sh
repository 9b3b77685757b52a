#!/bin/sh
# usage: settle.sh RATE START -> "RATE START: the values that come round in the end, in order"
exec awk -v rate="$1" -v x="$2" 'BEGIN {
    for (step = 0; step < 10000; step++) x = rate * x * (1 - x)
    for (step = 0; step < 64; step++) { x = rate * x * (1 - x); seen[sprintf("%.4f", x)] }
    for (value in seen) print value | "sort -n | paste -s -d, | sed \"s/^/" rate " '"$2"': /\""
}'
