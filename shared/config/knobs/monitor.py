"""Knobs of the monitor (GANGLIAD). One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class MonitorSettings(CommonSettings):
    """What the monitor reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "GANGLIAD"

    gangliad_attrs: tuple[str, ...] = knob(
        "GANGLIAD_ATTRS", meaning="macros whose values are attributes of the monitor's ad"
    )
    gangliad_interval: int = knob(
        "GANGLIAD_INTERVAL", "60", unit="s", least=1, most=31536000, meaning="between two looks at the pool"
    )
    roost_gangliad_port: int = knob(
        "ROOST_GANGLIAD_PORT",
        "0",
        least=0,
        most=65535,
        meaning="port of /metrics of its own, at ROOST_HEALTH_BIND, for pools of one process; 0: none",
    )
    gangliad_metrics_config_dir: str = knob(
        "GANGLIAD_METRICS_CONFIG_DIR",
        "$(ETC)/ganglia.d",
        meaning="directory of metric definition files (00_default_metrics)",
    )
    gangliad_verbosity: int = knob(
        "GANGLIAD_VERBOSITY", "0", meaning="metrics with a higher Verbosity are not published"
    )
    gangliad_per_execute_node_metrics: bool = knob(
        "GANGLIAD_PER_EXECUTE_NODE_METRICS", "true", meaning="false drops execute node metrics; sums over them stay"
    )
    gangliad_requirements: Expr | None = knob(
        "GANGLIAD_REQUIREMENTS", meaning="limits the ads queried (sums then cover only those)"
    )
    gangliad_default_cluster: str | None = knob(
        "GANGLIAD_DEFAULT_CLUSTER", meaning="default Cluster of a metric: a text, or an expression of the ad"
    )
    gangliad_default_machine: str | None = knob(
        "GANGLIAD_DEFAULT_MACHINE", meaning="default Machine of a metric: a text, or an expression of the ad"
    )
    gangliad_default_ip: str | None = knob(
        "GANGLIAD_DEFAULT_IP", meaning="default IP of a metric: a text, or an expression of the ad"
    )
    gangliad_min_metric_lifetime: int = knob(
        "GANGLIAD_MIN_METRIC_LIFETIME",
        "86400",
        unit="s",
        least=0,
        most=2147483647,
        meaning="lower bound of the computed Lifetime (DMAX)",
    )
    ganglia_gstat_command: str = knob(
        "GANGLIA_GSTAT_COMMAND",
        "gstat --all --mpifile --gmond_ip=localhost --gmond_port=8649",
        meaning="command that lists monitored hosts",
    )
    ganglia_send_data_for_all_hosts: bool = knob(
        "GANGLIA_SEND_DATA_FOR_ALL_HOSTS", "false", meaning="also publish for hosts that the monitor does not know"
    )
    ganglia_config: str = knob(
        "GANGLIA_CONFIG",
        "/etc/ganglia/gmond.conf",
        meaning="its udp_send_channels are where packets go; where there is no such file nothing goes to Ganglia",
    )
    ganglia_gmetric: str | None = knob(
        "GANGLIA_GMETRIC", meaning="gmetric command to publish with, one call for each metric, in place of packets"
    )
    roost_ganglia_channels: tuple[str, ...] = knob(
        "ROOST_GANGLIA_CHANNELS", meaning="host[:port] of the gmonds that packets go to, in place of GANGLIA_CONFIG's"
    )
