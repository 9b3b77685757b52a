"""Knobs that are declared, and checked where a settings class holds them, but that nothing goes by.

HTCondor's files set them, so they are known and not taken for misspellings, and whoever sets one hears why it does
nothing. A test compares this list with what the code reads, both ways: a knob that gets its effect leaves the list in
the same change.
"""

from __future__ import annotations

from typing import Final

_PROGRAM = "daemons are started by `python -m services.<daemon>`, and a personal pool's by `roost up`"
_HAD_STATE = "accounting is kept in Redis, which copies it itself"
_MASTER = "there is no condor_master: systemd, a container engine or `roost up` starts daemons again"
_PORT = "daemons speak over RabbitMQ and have no port of their own"
_PROCESSES = "the processes of a job are followed by cgroups and by the startd's fork server"
_QEMU = "virtual machines run under QEMU, without a helper"

#: Name -> why nothing goes by it, and what there is in its place.
UNREAD: Final = {
    "<NAME>.REPLICATION_SOCKET_NAME": _HAD_STATE,
    "ACCOUNTANT_DATABASE_FILE": _HAD_STATE,
    "BIN": "commands are part of the Python package",
    "COLLECTOR": _PROGRAM,
    "COLLECTOR_PORT": _PORT,
    "CONDOR_IDS": "daemons keep the account that starts them",
    "DC_DAEMON_LIST": _MASTER,
    "DEFRAG": _PROGRAM,
    "DEFRAG_STATE_FILE": "the past of defrag is kept in Redis",
    "DOCKER": "the engine is spoken to over its socket: see ROOST_DOCKER",
    "HAD": _PROGRAM,
    "HAD_ARGS": "a HAD has the name of its negotiator, and no port of its own",
    "HAD_SOCKET_NAME": _PORT,
    "HAD_USE_SHARED_PORT": _PORT,
    "HOUSEKEEPING_INTERVAL": "an ad is gone at the moment its lifetime ends",
    "JOB_QUEUE_LOG": "the queue is kept in SPOOL, in a database",
    "LIB": "programs are part of the Python package",
    "LOCK": "lock files are in SPOOL",
    "MASTER": _MASTER,
    "MASTER_NAME": _MASTER,
    "MASTER_NEGOTIATOR_CONTROLLER": "HAD decides which negotiator leads, and the others wait",
    "MAX_ACCOUNTANT_DATABASE_SIZE": _HAD_STATE,
    "MAX_SHADOW_EXCEPTIONS": "a machine that fails jobs is left alone by its own back-off",
    "NEGOTIATOR": _PROGRAM,
    "NEGOTIATOR_NUM_THREADS": "slots are compared as columns, in one thread",
    "NEGOTIATOR_SOCKET_CACHE_SIZE": _PORT,
    "PROCD_LOG": _PROCESSES,
    "REPLICATION": _HAD_STATE,
    "REPLICATION_ARGS": _HAD_STATE,
    "REPLICATION_LIST": _HAD_STATE,
    "REPLICATION_SOCKET_NAME": _HAD_STATE,
    "REPLICATION_USE_SHARED_PORT": _HAD_STATE,
    "RUN": "what lives as long as a daemon is in SPOOL",
    "SBIN": _PROGRAM,
    "SHARED_PORT_PORT": _PORT,
    "SOFT_UID_DOMAIN": "no user numbers travel: who has no account runs as the slot's user (SLOT<N>_USER), or nobody",
    "STARTER": "the startd's fork server starts jobs",
    "TRANSFERER": _HAD_STATE,
    "USE_PROCD": _PROCESSES,
    "TRUST_UID_DOMAIN": "the broker's user, not its host, says which access point holds a claim and names the user",
    "USERPRIO_USE_NEGOTIATOR_MODULAR_QUERY": "userprio asks the gateway, which always answers in parts",
    "VM_GAHP_LOG": _QEMU,
    "VM_GAHP_SERVER": _QEMU,
    "WANT_UDP_COMMAND_SOCKET": _PORT,
}
