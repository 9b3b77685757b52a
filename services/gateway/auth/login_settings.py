"""What the configuration says of who may log in: made into Logins, with what a person should hear of it at start."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from services.gateway.auth.client_hosts import ClientHosts
from services.gateway.auth.idtokens import IdTokens
from services.gateway.auth.logins import Logins
from services.gateway.auth.scitokens import SciTokens
from services.gateway.auth.tokens import TokenStore
from services.gateway.core import access_lists, login_methods, scitokens
from shared import map_file
from shared.config import Config
from shared.config.knobs import GatewaySettings
from shared.daemon.context import Context
from shared.errors import PermanentError
from shared.map_file import MapFile
from shared.tls import ClientTls


@dataclass(frozen=True, slots=True)
class LoginRules:
    """What the configuration says of who may log in. told: what a person should hear of it."""

    lists: access_lists.Lists
    methods: login_methods.Methods
    rules: MapFile
    issuers: dict[str, scitokens.Issuer]
    told: tuple[str, ...]


def read_login_rules(settings: GatewaySettings, config: Config, owner: str, *, with_tls: bool = False) -> LoginRules:
    """owner: the user who owns the pool, name@domain; with_tls: the gateway speaks TLS. Raises PermanentError."""
    lists, told = access_lists.read(
        {**_empty(config, "allow_"), **settings.allow},
        {**_empty(config, "deny_"), **settings.deny},
        [owner],
        [f"root@{settings.uid_domain}"],
    )
    methods, more = login_methods.read(settings.sec, encrypted=with_tls or _only_here(settings.roost_gateway_bind))
    told += more
    rules = _rules(settings)
    issuers, more = _issuers(settings, rules)
    return LoginRules(lists, methods, rules, issuers, (*told, *more))


def make_logins(
    settings: GatewaySettings, context: Context, tokens: TokenStore, owner: str, *, with_tls: bool = False
) -> tuple[Logins, list[str]]:
    """The logins, and what a person should hear. The arguments are those of read_login_rules. Raises PermanentError."""
    config, clock = context.config, context.clock
    read = read_login_rules(settings, config, owner, with_tls=with_tls)
    own = (config.get("FULL_HOSTNAME") or "", config.get("HOSTNAME") or "", config.get("IP_ADDRESS") or "")
    hosts = ClientHosts(own, read.lists.by_name, clock.monotonic)
    idtokens = IdTokens.of(settings, read.rules)
    issuers = SciTokens(
        read.issuers,
        read.rules,
        settings.uid_domain,
        ClientTls.of(settings),
        clock.now,
        clock.monotonic,
        context.log,
        refresh_s=settings.roost_scitokens_refresh,
        keep_s=settings.roost_scitokens_keep,
    )
    made = Logins(
        tokens, read.lists, read.methods, hosts, settings.uid_domain, idtokens, issuers, read.rules, clock.now
    )
    return made, list(read.told)


def _issuers(settings: GatewaySettings, rules: MapFile) -> tuple[dict[str, scitokens.Issuer], list[str]]:
    """Raises PermanentError: an issuer that is not known for sure is everybody."""
    try:
        found, told = scitokens.issuers(
            settings.roost_scitokens_issuer,
            settings.scitokens_server_audience,
            settings.sec_scitokens_allow_foreign_token_types,
            settings.sec_scitokens_foreign_token_issuers,
            settings.trust_domain,
        )
    except ValueError as error:
        raise PermanentError(str(error)) from error
    if found and not any(rule.method == login_methods.SCITOKENS for rule in rules.rules):
        told.append(
            "ROOST_SCITOKENS_ISSUER_<name>: nobody logs in by it: CERTIFICATE_MAPFILE has no rule for SCITOKENS"
        )
    return found, told


def _rules(settings: GatewaySettings) -> MapFile:
    """Raises PermanentError: with half a map somebody might be somebody else."""
    if not settings.certificate_mapfile:
        return MapFile()
    try:
        return map_file.read(
            Path(settings.certificate_mapfile),
            hash_keys=settings.certificate_mapfile_assume_hash_keys,
            excluded=settings.local_config_dir_exclude_regexp,
        )
    except (OSError, ValueError) as error:
        raise PermanentError(f"CERTIFICATE_MAPFILE: {error}") from error


def _empty(config: Config, beginning: str) -> dict[str, tuple[str, ...]]:
    """Lists that are set to nothing: they list nobody."""
    return {
        name.removeprefix(beginning): ()
        for name in config.names()
        if name.startswith(beginning)
        and name.removeprefix(beginning).split("_")[0].upper() in access_lists.IMPLIES
        and not (config.get(name) or "").strip()
    }


def _only_here(bind: str) -> bool:
    """Whether the gateway listens to its own machine alone."""
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
