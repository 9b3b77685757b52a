#!/bin/sh
# usage: count.sh FILE -> a line "COUNT WORD" for each word in it, in small letters
tr -cs '[:alpha:]' '\n' <"$1" | tr '[:upper:]' '[:lower:]' | sort | uniq -c
