"""Knobs of the availability daemon. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class HadSettings(CommonSettings):
    """What the availability daemon reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "HAD"

    had_attrs: tuple[str, ...] = knob("HAD_ATTRS", meaning="macros whose values are attributes of the HAD's ad")
    transferer: str = knob(
        "TRANSFERER",
        "$(LIBEXEC)/condor_transferer",
        meaning="helper that moves state files; must not be in DAEMON_LIST",
    )
    had_list: tuple[str, ...] = knob(
        "HAD_LIST", meaning="host:port of every HAD; same order as CONDOR_HOST; first is the primary"
    )
    replication_list: tuple[str, ...] = knob("REPLICATION_LIST", meaning="host:port of every replication daemon")
    had_use_shared_port: bool = knob("HAD_USE_SHARED_PORT", "false", meaning="entries of HAD_LIST use the shared port")
    replication_use_shared_port: bool = knob(
        "REPLICATION_USE_SHARED_PORT", "$(HAD_USE_SHARED_PORT)", meaning="same for REPLICATION_LIST"
    )
    had_use_primary: bool = knob("HAD_USE_PRIMARY", "false", meaning="first of HAD_LIST takes over whenever it is up")
    had_controllee: str = knob(
        "HAD_CONTROLLEE", "NEGOTIATOR", meaning="daemon that HAD starts and stops through the master"
    )
    had_use_replication: bool = knob("HAD_USE_REPLICATION", "false", meaning="use the replication daemon")
    state_file: str = knob("STATE_FILE", "$(SPOOL)/Accountantnew.log", meaning="file that is replicated")
    had_connection_timeout: int = knob(
        "HAD_CONNECTION_TIMEOUT",
        "5",
        unit="s",
        least=0,
        meaning="a central manager that is silent for so long is dead, however slow the machines: the longest lease",
    )
    had_socket_name: str = knob("HAD_SOCKET_NAME", "had", meaning="shared-port socket name")
    replication_socket_name: str = knob(
        "REPLICATION_SOCKET_NAME", "replication", meaning="shared-port socket name of the replication daemon"
    )
    had_args: str = knob("HAD_ARGS", "-sock $(HAD_SOCKET_NAME)", meaning="arguments (sample: -f -p $(HAD_PORT))")
    replication_args: str = knob(
        "REPLICATION_ARGS", "-sock $(REPLICATION_SOCKET_NAME)", meaning="arguments (sample: -p $(REPLICATION_PORT))"
    )
    replication_interval: int = knob(
        "REPLICATION_INTERVAL", "300", unit="s", least=0, meaning="between wake-ups of the replication daemon"
    )
    max_transfer_lifetime: int = knob(
        "MAX_TRANSFER_LIFETIME", "300", unit="s", least=0, meaning="a transfer helper may take"
    )
    had_update_interval: int = knob("HAD_UPDATE_INTERVAL", "300", unit="s", least=0, meaning="between HAD ad updates")
    roost_had_lease: float | None = knob(
        "ROOST_HAD_LEASE",
        unit="s",
        least=0.3,
        meaning="a dead leader is replaced after this time and a sixth; unset: 0.6 s, longer while machines are slow, "
        "HAD_CONNECTION_TIMEOUT at most",
    )
    master_had_backoff_constant: int = knob(
        "MASTER_HAD_BACKOFF_CONSTANT",
        "$(MASTER_BACKOFF_CONSTANT)",
        unit="s",
        least=0,
        meaning="a HAD whose negotiator died as leader stands behind all others; make it longer than a cycle",
    )
    master_backoff_factor: float = knob(
        "MASTER_BACKOFF_FACTOR", "2.0", least=0, meaning="by which that time grows with each further death"
    )
    master_backoff_ceiling: int = knob("MASTER_BACKOFF_CEILING", "3600", unit="s", least=1, meaning="longest such time")
