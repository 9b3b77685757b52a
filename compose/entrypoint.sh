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

# Who has a join token in place of a user of the broker gets one at its first start, by a gateway, and keeps it. The
# password is made here; the registrar sees its hash.
if [ -n "${ROOST_JOIN_TOKEN_FILE:-}" ]; then
    name=${_CONDOR_STARTD_NAME:-${_CONDOR_FULL_HOSTNAME:-$(uname -n)}}
    identities=${ROOST_IDENTITIES:-/var/lib/roost/spool/identities}
    until [ -s "$identities/startd.$name/amqp_url" ]; do
        for gateway in ${ROOST_JOIN_GATEWAYS:-https://gateway:9680}; do
            roost enroll -pool "$gateway" -role startd -name "$name" -token-file "$ROOST_JOIN_TOKEN_FILE" \
                -directory "$identities" && break
        done || sleep 5
    done
    ROOST_AMQP_URL=$(cat "$identities/startd.$name/amqp_url")
    export ROOST_AMQP_URL
fi

exec "$@"
