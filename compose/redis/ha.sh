#!/bin/sh
# Starts one of the servers of a highly available Redis in the role that it had last:
#     ha.sh PRIMARY [OPTION ...]     PRIMARY: "host port" that it follows when it starts for the first time; "": nobody
# Sentinels have each server write its role into its configuration. A server that began in its first role again would,
# after all were stopped at once, have the newest data follow an older primary, and so forget it.
set -eu
umask 077
settings=${REDIS_SETTINGS:-/usr/local/etc/redis/ha.conf}
kept=${REDIS_DATA:-/data}/redis.conf
first=$1
shift
if [ -e "$kept" ]; then
    role=$(sed -n '/^replicaof /p' "$kept")
else
    role=${first:+replicaof $first}
fi
# All but the role is as this release says.
printf 'include %s\n%s\n' "$settings" "$role" >"$kept.new"
mv "$kept.new" "$kept"
exec "${REDIS_SERVER:-redis-server}" "$kept" "$@"
