"""Knobs of the gateway. One line adds another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shared.config.knobs.base import declared, family, knob
from shared.config.knobs.idtokens import IdTokenSettings


@declared
class GatewaySettings(IdTokenSettings):
    """What the gateway reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "GATEWAY"

    roost_gateway_port: int = knob(
        "ROOST_GATEWAY_PORT", "9680", least=0, most=65535, meaning="port of the HTTP API; 0: a free one"
    )
    roost_gateway_bind: str = knob("ROOST_GATEWAY_BIND", "127.0.0.1", meaning="address on which the gateway listens")
    roost_gateway_hosts: tuple[str, ...] = knob(
        "ROOST_GATEWAY_HOSTS",
        meaning="names by which browsers and clients may ask for the gateway, besides addresses, localhost, the host "
        "name, ROOST_GATEWAY_BIND, ROOST_TLS_NAMES and what its certificate names; *.example.org: all directly below "
        "it; *: any, which lets pages of the web reach it by DNS rebinding",
    )
    roost_gateway_pools: tuple[str, ...] = knob(
        "ROOST_GATEWAY_POOLS",
        meaning="other pools that the dashboard and `roost pools` show beside this one, to all who may read here",
    )
    roost_gateway_pools_directory: str = knob(
        "ROOST_GATEWAY_POOLS_DIRECTORY",
        "/etc/condor/pools",
        meaning="directory with one for each pool of ROOST_GATEWAY_POOLS: `url` of its gateway, `token` of READ there, "
        "and `ca.pem` where its authority is believed by nobody here",
    )
    roost_gateway_schedd: str | None = knob(
        "ROOST_GATEWAY_SCHEDD", meaning="schedd that takes the jobs of those who name none; unset: the first by name"
    )
    roost_token_user: str | None = knob(
        "ROOST_TOKEN_USER",
        meaning="user, as name@domain, whom the token in ROOST_TOKEN_FILE stands for; unset: whoever runs the gateway",
    )
    roost_gateway_key: str | None = knob(
        "ROOST_GATEWAY_KEY",
        meaning="file of the private key (Ed25519, as PEM) with which this gateway signs for whom it asks; made, with "
        "the public key beside it (.pub), where there is none; unset: it signs nothing, and nobody obeys whom it "
        "speaks for (a personal pool makes its own)",
    )
    roost_gateway_rate: float = knob(
        "ROOST_GATEWAY_RATE",
        "400",
        unit="1/s",
        least=0,
        meaning="requests a second that one token may make; 0: no limit",
    )
    roost_gateway_anonymous_rate: float = knob(
        "ROOST_GATEWAY_ANONYMOUS_RATE",
        "50",
        unit="1/s",
        least=0,
        meaning="requests a second without a valid token from one address; 0: no limit",
    )
    roost_gateway_failed_logins: int = knob(
        "ROOST_GATEWAY_FAILED_LOGINS",
        "30",
        least=1,
        meaning="failed logins that one address, or one token, may make at once; after them only tokens that were good "
        "lately are looked at",
    )
    roost_gateway_failed_login_rate: float = knob(
        "ROOST_GATEWAY_FAILED_LOGIN_RATE",
        "0.5",
        unit="1/s",
        least=0,
        meaning="failed logins a second that one address, or one token, may go on with; 0: no limit",
    )
    roost_gateway_hsts: int = knob(
        "ROOST_GATEWAY_HSTS",
        "31536000",
        unit="s",
        least=0,
        meaning="so long browsers ask this host by https only, on all of its ports, once it answered so by a name (but "
        "localhost); 0: nothing is said of it",
    )
    roost_gateway_submit_rate: float = knob(
        "ROOST_GATEWAY_SUBMIT_RATE",
        "100",
        unit="1/s",
        least=0,
        meaning="submits (or parts of them) a second that one token may make; 0: no limit",
    )
    roost_gateway_burst: float = knob(
        "ROOST_GATEWAY_BURST", "10", unit="s", least=0, meaning="so many seconds' worth of a rate may come at once"
    )
    roost_gateway_at_once: int = knob(
        "ROOST_GATEWAY_AT_ONCE", "64", least=0, meaning="requests of one token that may be under way; 0: no limit"
    )
    roost_gateway_streams: int = knob(
        "ROOST_GATEWAY_STREAMS", "64", least=0, meaning="event streams and visits of one user at a gateway; 0: no limit"
    )
    roost_gateway_all_streams: int = knob(
        "ROOST_GATEWAY_ALL_STREAMS", "2000", least=0, meaning="event streams and visits at a gateway; 0: no limit"
    )
    roost_gateway_connections: int = knob(
        "ROOST_GATEWAY_CONNECTIONS",
        "4000",
        least=0,
        meaning="connections that may be open at a gateway, no more than three quarters of the files that it may have "
        "open; 0: no other limit",
    )
    roost_gateway_address_connections: int = knob(
        "ROOST_GATEWAY_ADDRESS_CONNECTIONS",
        "1000",
        least=0,
        meaning="connections that may be open from one address, but of ROOST_GATEWAY_PROXIES; 0: no limit",
    )
    roost_gateway_heavy: int = knob(
        "ROOST_GATEWAY_HEAVY",
        "8",
        least=0,
        meaning="long answers (listings of ads, of jobs, of daemons) to one user at a time; more wait; 0: no limit",
    )
    roost_gateway_all_heavy: int = knob(
        "ROOST_GATEWAY_ALL_HEAVY",
        "32",
        least=0,
        meaning="long answers at a time to all; more wait, but for a user's first; 0: no limit",
    )
    roost_gateway_bodies_mib: int = knob(
        "ROOST_GATEWAY_BODIES_MIB",
        "512",
        unit="MiB",
        least=0,
        meaning="bodies of requests that are in memory at once, a quarter of it of one token; 0: no limit",
    )
    roost_gateway_upload_mib: int = knob(
        "ROOST_GATEWAY_UPLOAD_MIB",
        "1024",
        unit="MiB",
        least=1,
        meaning="files that one submit description may bring along; larger input goes as a bundle",
    )
    roost_gateway_proxies: tuple[str, ...] = knob(
        "ROOST_GATEWAY_PROXIES",
        meaning="addresses of proxies whose X-Forwarded-For is believed; unset: of nobody",
    )
    roost_gateway_socket: str | None = knob(
        "ROOST_GATEWAY_SOCKET",
        meaning="Unix socket of the gateway, for users of its machine: they need no token, the kernel says who they "
        "are; unset: none, but in a personal pool gateway.socket in its directory; the command looks for "
        "/run/roost/gateway.socket",
    )
    certificate_mapfile: str | None = knob(
        "CERTIFICATE_MAPFILE",
        meaning="file of lines METHOD NAME USER that say who somebody is whom SSL, SCITOKENS, FS or IDTOKENS know by "
        "that name (SCITOKENS: issuer,subject); who has shown a certificate, or a token of an issuer, is somebody only "
        "by it; read at start",
    )
    certificate_mapfile_assume_hash_keys: bool = knob(
        "CERTIFICATE_MAPFILE_ASSUME_HASH_KEYS",
        "false",
        meaning="in CERTIFICATE_MAPFILE only /.../ is a regular expression, and all else a whole name; false: all are",
    )
    roost_scitokens_issuer: Mapping[str, tuple[str, ...]] = family(
        "ROOST_SCITOKENS_ISSUER_<name>",
        meaning="issuer whose tokens are taken (SCITOKENS, as of OpenID Connect), by its URL, as iss has it, and the "
        "audiences of which a token must name one; none: SCITOKENS_SERVER_AUDIENCE; HTCondor asks every issuer that a "
        "token names for its keys, and this gateway none but these",
    )
    scitokens_server_audience: tuple[str, ...] = knob(
        "SCITOKENS_SERVER_AUDIENCE",
        meaning="audiences of which a token of an issuer must name one, where ROOST_SCITOKENS_ISSUER_<name> gives none",
    )
    sec_scitokens_allow_foreign_token_types: bool = knob(
        "SEC_SCITOKENS_ALLOW_FOREIGN_TOKEN_TYPES",
        "false",
        meaning="tokens without a condor:/ scope, as identity providers make them, are taken of the issuers in "
        "SEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS; such a token limits nothing",
    )
    sec_scitokens_foreign_token_issuers: tuple[str, ...] = knob(
        "SEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS", meaning="URLs of those issuers; unset: none"
    )
    roost_scitokens_refresh: float = knob(
        "ROOST_SCITOKENS_REFRESH",
        "600",
        unit="s",
        least=60,
        meaning="an issuer's keys are fetched again after so long, as by the scitokens library of HTCondor, and sooner "
        "where a token names another one; so long a key that was withdrawn may count",
    )
    roost_scitokens_keep: float = knob(
        "ROOST_SCITOKENS_KEEP",
        "345600",
        unit="s",
        least=60,
        meaning="keys of an issuer that is away count so long (four days, as in the scitokens library)",
    )
    allow: Mapping[str, tuple[str, ...]] = family(
        "ALLOW_<level>",
        meaning="users and machines that have a level, as user@domain/host, user@domain or host, with * for any: READ, "
        "WRITE, ADMINISTRATOR, CONFIG, or of the work of one daemon: WRITE_SCHEDD; unset: READ and WRITE for all who "
        "are known, ADMINISTRATOR for root and the pool's own account",
    )
    deny: Mapping[str, tuple[str, ...]] = family(
        "DENY_<level>", meaning="users and machines that do not have a level, whatever ALLOW_<level> says"
    )
    sec: Mapping[str, str] = family(
        "SEC_<what>",
        meaning="HTCondor's security policy; of effect are SEC_DEFAULT_AUTHENTICATION_METHODS and SEC_<LEVEL>_"
        "AUTHENTICATION_METHODS with FS, IDTOKENS, SSL, SCITOKENS; the gateway tells at its start of what has none",
    )
    gateway_audit_log: str | None = knob(
        "GATEWAY_AUDIT_LOG",
        "$(LOG)/gateway-audit.log",
        meaning="file in which the gateway writes down what was changed by whom; empty: none",
    )
    max_gateway_audit_log: int = knob(
        "MAX_GATEWAY_AUDIT_LOG",
        "10485760",
        unit="bytes",
        least=0,
        meaning="an audit log that is larger is set aside; 0: never",
    )
    max_num_gateway_audit_log: int = knob(
        "MAX_NUM_GATEWAY_AUDIT_LOG", "5", least=0, meaning="audit logs that were set aside and are kept"
    )
