#!/bin/sh
# Turns what container platforms give (secrets in files, a few well-known variables) into configuration, then
# becomes the command.
set -eu

# ROOST_AMQP_URL_FILE=/path: the value is that file's content. So for each of these.
for name in ROOST_AMQP_URL ROOST_REDIS_URL; do
    eval "file=\${${name}_FILE:-}"
    if [ -n "$file" ]; then
        if [ ! -r "$file" ]; then
            echo "roost-entrypoint: ${name}_FILE is $file, which this user can not read" >&2
            exit 1
        fi
        export "$name=$(cat "$file")"
        unset "${name}_FILE"
    fi
done

# The names that HTCondor's own images take. Empty means: not set.
[ -z "${CONDOR_SERVICE_HOST:-}" ] || CONDOR_HOST=${CONDOR_HOST:-$CONDOR_SERVICE_HOST}
for name in CONDOR_HOST NUM_CPUS MEMORY RESERVED_DISK; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || export "_CONDOR_$name=$value"
done

# One of several alike keeps the name that it had at first: by it a startd finds its jobs again in a new container.
if [ -n "${ROOST_NAME_FILE:-}" ]; then
    [ -s "$ROOST_NAME_FILE" ] || echo "startd-$(uname -n | cut -c1-6)" >"$ROOST_NAME_FILE"
    _CONDOR_FULL_HOSTNAME=$(cat "$ROOST_NAME_FILE")
    export _CONDOR_FULL_HOSTNAME _CONDOR_HOSTNAME="$_CONDOR_FULL_HOSTNAME"
fi

exec "$@"
