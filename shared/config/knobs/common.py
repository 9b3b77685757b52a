"""Knobs that every daemon reads. One line adds another."""

from __future__ import annotations

from collections.abc import Mapping

from shared.classad import Expr
from shared.config.knobs.base import declared, family, knob
from shared.config.knobs.tls import TlsSettings


@declared
class CommonSettings(TlsSettings):
    """What all daemons read of their configuration, in HTCondor's names and, with ROOST_, in ours."""

    want_udp_command_socket: bool = knob(
        "WANT_UDP_COMMAND_SOCKET", "true", meaning="whether daemons open UDP command sockets"
    )
    statistics_window_seconds: float = knob(
        "STATISTICS_WINDOW_SECONDS",
        "1200",
        unit="s",
        least=1,
        meaning="what the Recent... statistics in daemons' ads cover",
    )
    enable_chirp: bool = knob(
        "ENABLE_CHIRP", "true", meaning="running jobs may ask for what lies at their access point (Chirp)"
    )
    enable_chirp_io: bool = knob(
        "ENABLE_CHIRP_IO", "true", meaning="these jobs may use files there: at the access point, and at this machine"
    )
    enable_chirp_updates: bool = knob(
        "ENABLE_CHIRP_UPDATES", "true", meaning="these jobs may change their own ads and write in their logs"
    )
    condor_host: str | None = knob("CONDOR_HOST", meaning="central manager name(s)")
    daemon_shutdown: Expr | None = knob(
        "DAEMON_SHUTDOWN",
        meaning="looked at in each ad that a daemon sends to the pool: where true, the daemon is off until `roost on`",
    )
    daemon_shutdown_fast: Expr | None = knob("DAEMON_SHUTDOWN_FAST", meaning="the same, as `roost off -fast` does it")
    release_dir: str = knob("RELEASE_DIR", "/usr", meaning="install prefix")
    libexec: str = knob("LIBEXEC", "$(RELEASE_DIR)/libexec", meaning="helper programs directory")
    sbin: str = knob("SBIN", "$(RELEASE_DIR)/sbin", meaning="daemon programs directory")
    local_dir: str = knob("LOCAL_DIR", "$(TILDE)", meaning="local state directory")
    log: str = knob("LOG", "$(LOCAL_DIR)/log", meaning="log directory")
    spool: str = knob("SPOOL", "$(LOCAL_DIR)/spool", meaning="spool directory")
    condor_ids: str | None = knob("CONDOR_IDS", meaning="uid.gid the daemons use when started as root")
    bin: str = knob("BIN", "$(RELEASE_DIR)/bin", meaning="directory of the programs that users start")
    lib: str = knob("LIB", "$(RELEASE_DIR)/lib", meaning="directory of libraries")
    etc: str = knob("ETC", "$(LOCAL_DIR)", meaning="directory of further configuration files")
    run: str = knob("RUN", "$(LOG)", meaning="directory of what lives as long as a daemon")
    lock: str = knob("LOCK", "$(LOG)", meaning="directory of lock files")
    collector_host: tuple[str, ...] = knob("COLLECTOR_HOST", "$(CONDOR_HOST)", meaning="host[:port] of the collectors")
    collector_port: int = knob("COLLECTOR_PORT", "9618", least=0, most=65535, meaning="port of the collector")
    negotiator_name: str | None = knob(
        "NEGOTIATOR_NAME",
        meaning="Name of the negotiator ad where a pool has several negotiators; its HAD reads it too",
    )
    collector_name: str = knob(
        "COLLECTOR_NAME", "My Pool - $(CONDOR_HOST)", meaning="name of the pool, for people to read"
    )
    uid_domain: str = knob("UID_DOMAIN", "$(FULL_HOSTNAME)", meaning="domain in which user names mean the same person")
    trust_uid_domain: bool = knob(
        "TRUST_UID_DOMAIN", "false", meaning="take the UID_DOMAIN that an access point says without comparing its host"
    )
    soft_uid_domain: bool = knob(
        "SOFT_UID_DOMAIN", "false", meaning="run jobs of users that have no account on the machine by their number"
    )
    filesystem_domain: str = knob(
        "FILESYSTEM_DOMAIN", "$(FULL_HOSTNAME)", meaning="machines of one domain share their files"
    )
    default_domain_name: str | None = knob("DEFAULT_DOMAIN_NAME", meaning="domain of machines whose host name has none")
    shutdown_graceful_timeout: int = knob(
        "SHUTDOWN_GRACEFUL_TIMEOUT",
        "1800",
        unit="s",
        least=0,
        meaning="longest gentle stop of a daemon; where nobody set it, 10 s",
    )
    shutdown_fast_timeout: int = knob(
        "SHUTDOWN_FAST_TIMEOUT",
        "300",
        unit="s",
        least=0,
        meaning="longest hard stop of a daemon; where nobody set it, 10 s",
    )
    master_update_interval: int = knob(
        "MASTER_UPDATE_INTERVAL", "300", unit="s", least=1, meaning="time between two ads of a daemon about itself"
    )
    local_config_dir: tuple[str, ...] = knob(
        "LOCAL_CONFIG_DIR", meaning="directories whose files are read after the first file"
    )
    local_config_file: str | None = knob(
        "LOCAL_CONFIG_FILE", meaning="files read after those of LOCAL_CONFIG_DIR, or a command with | behind it"
    )
    require_local_config_file: bool = knob(
        "REQUIRE_LOCAL_CONFIG_FILE", "true", meaning="a missing LOCAL_CONFIG_FILE is an error"
    )
    local_config_dir_exclude_regexp: str = knob(
        "LOCAL_CONFIG_DIR_EXCLUDE_REGEXP",
        r"^((\..*)|(.*~)|(#.*)|(.*\.(pl|py|sh|rpmsave|rpmnew|cfsaved))|(.*\.dpkg-.*))$",
        meaning="files of LOCAL_CONFIG_DIR with such names are left out",
    )
    enable_runtime_config: bool = knob(
        "ENABLE_RUNTIME_CONFIG", "false", meaning="`config-val -rset` may set macros until the daemon restarts"
    )
    enable_persistent_config: bool = knob(
        "ENABLE_PERSISTENT_CONFIG", "false", meaning="`config-val -set` may set macros for good"
    )
    persistent_config_dir: str | None = knob(
        "PERSISTENT_CONFIG_DIR", meaning="directory of what was set for good; nobody else may write there"
    )
    settable_attrs_by_level: Mapping[str, tuple[str, ...]] = family(
        "SETTABLE_ATTRS_<level>",
        meaning="macros that holders of tokens of that level may set (* for any letters); nobody sets another one",
    )
    roost_amqp_url: str | None = knob(
        "ROOST_AMQP_URL",
        meaning="RabbitMQ server, as amqp://user:password@host/vhost (amqps: with TLS); none: the in-process bus of a "
        "personal pool",
    )
    roost_gateway_keys: str | None = knob(
        "ROOST_GATEWAY_KEYS",
        meaning="public keys of gateways that are believed: a file of PEM, or a directory of files *.pub and *.pem; "
        "what a gateway says of a person is obeyed only as one of these has signed it (unset: no gateway is; a "
        "personal pool makes its own); `roost gateway-key` makes a key",
    )
    roost_redis_url: str | None = knob(
        "ROOST_REDIS_URL",
        meaning="Redis server, as redis://host:port/0 (rediss: with TLS); none: the store of a personal pool",
    )
    roost_pool_dir: str | None = knob(
        "ROOST_POOL_DIR", meaning="directory of a personal pool: its state, logs, spool and sandboxes"
    )
    roost_token_file: str = knob(
        "ROOST_TOKEN_FILE",
        "$(ROOST_POOL_DIR)/token",
        meaning="file with an administrator's token; the gateway makes it where there is none",
    )
    classad_user_map_names: tuple[str, ...] = knob(
        "CLASSAD_USER_MAP_NAMES",
        meaning="maps of userMap() for every daemon; <SUBSYS>_CLASSAD_USER_MAP_NAMES adds its own",
    )
    classad_user_mapfile_by_name: Mapping[str, str] = family(
        "CLASSAD_USER_MAPFILE_<name>", meaning="file of a user map: lines `* user groups` or `* /pattern/ groups`"
    )
    classad_user_mapdata_by_name: Mapping[str, str] = family(
        "CLASSAD_USER_MAPDATA_<name>", meaning="the lines of a user map that has no file"
    )
    classad_user_map_prefix_by_name: Mapping[str, bool] = family(
        "CLASSAD_USER_MAP_PREFIX_<name>",
        meaning="true: whoever begins as a user of the map does, is meant (the longest counts)",
    )
    classad_lifetime: int = knob("CLASSAD_LIFETIME", "900", unit="s", least=0, meaning="an unrefreshed ad is kept")
    roost_health_port: int = knob(
        "ROOST_HEALTH_PORT", "0", least=0, most=65535, meaning="port of /healthz, /readyz and /metrics; 0: none"
    )
    roost_health_bind: str = knob(
        "ROOST_HEALTH_BIND", "127.0.0.1", meaning="address that ROOST_HEALTH_PORT is opened on"
    )
    roost_otlp_endpoint: str | None = knob(
        "ROOST_OTLP_ENDPOINT",
        meaning="collector that gets traces of jobs, by OTLP over HTTP, e.g. http://host:4318; read at start",
    )
