#!/bin/sh
# The most frequent words of some files, counted by the pool.
# usage: wordcount.sh FILE...        (files whose names hold no blanks or commas)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$@"; do
    realpath "$file" >>"$work/files.txt"
done
cp "$here/count.sh" "$here/wordcount.sub" "$work"
cd "$work"

submitted=$(roost submit -terse wordcount.sub)             # map: "CLUSTER.FIRST - CLUSTER.LAST"
roost wait "${submitted%%.*}" >&2                          # fails when a job was held or removed
awk 'NF == 2 { total[$2] += $1 } END { for (word in total) print total[word], word }' counts.*.txt |  # reduce
    sort -k1,1nr -k2 | head -n 10
