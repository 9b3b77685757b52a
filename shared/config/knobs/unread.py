"""Knobs that are declared, and checked where a settings class holds them, but that nothing goes by yet.

HTCondor's files set them, so they are known and not taken for misspellings. A test compares this list with what the
code reads, both ways: a knob that gets its effect leaves the list in the same change.
"""

from __future__ import annotations

from typing import Final

UNREAD: Final = frozenset(
    {
        "<NAME>.REPLICATION_SOCKET_NAME",
        "<NAME>_ARGS",
        "ACCOUNTANT_DATABASE_FILE",
        "BIN",
        "COLLECTOR",
        "COLLECTOR_PORT",
        "CONDOR_IDS",
        "DC_DAEMON_LIST",
        "DEFRAG",
        "DEFRAG_STATE_FILE",
        "DOCKER",
        "HAD",
        "HAD_ARGS",
        "HAD_CONNECTION_TIMEOUT",
        "HAD_USE_SHARED_PORT",
        "HOUSEKEEPING_INTERVAL",
        "JOB_QUEUE_LOG",
        "LIB",
        "LOCK",
        "MASTER",
        "MASTER_NAME",
        "MASTER_NEGOTIATOR_CONTROLLER",
        "MAX_ACCOUNTANT_DATABASE_SIZE",
        "MAX_SHADOW_EXCEPTIONS",
        "NEGOTIATOR",
        "NEGOTIATOR_NUM_THREADS",
        "NEGOTIATOR_SOCKET_CACHE_SIZE",
        "PROCD_LOG",
        "REPLICATION",
        "REPLICATION_ARGS",
        "REPLICATION_LIST",
        "REPLICATION_USE_SHARED_PORT",
        "RUN",
        "SBIN",
        "SHARED_PORT_PORT",
        "STARTER",
        "TRANSFERER",
        "USE_PROCD",
        "USERPRIO_USE_NEGOTIATOR_MODULAR_QUERY",
        "VM_GAHP_LOG",
        "VM_GAHP_SERVER",
        "WANT_UDP_COMMAND_SOCKET",
    }
)
