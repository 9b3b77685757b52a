"""`roost setup central-manager`, and `roost setup certificate` for the access points of its pool."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from roost.cli import setup_common
from roost.cli.enroll import host
from roost.cli.options import Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import ClientError, UsageError
from roost.personal_config import tool_config
from roost.setup import central_manager as central
from roost.setup import debian, given_servers, layout, machine, secrets, servers
from roost.setup.central_manager import CentralManager, Secrets
from roost.setup.layout import File
from shared.bus.definitions import ADMINISTRATOR, beginning, user_of, vhost_of, with_login
from shared.config.knobs.tls import TlsSettings
from shared.own_authority import OwnAuthority
from shared.state import acl
from shared.tls import ClientTls

OPTIONS: tuple[Option, ...] = (
    value("name", help="the name by which other machines reach this one (this host's)", metavar="HOST"),
    value("alias", help="a further name or address of it; may be repeated", metavar="HOST"),
    value("uid-domain", help="UID_DOMAIN (the domain of the name)", metavar="DOMAIN"),
    value("amqp", help="a RabbitMQ elsewhere, as all daemons reach it: amqps://host/vhost", metavar="URL"),
    value(
        "broker-api-file",
        help="with -amqp: file with the URL of its management API, as an administrator: https://user:password@host:15671",
        metavar="FILE",
    ),
    value(
        "redis-file",
        help="file with the URL of a Redis elsewhere, as a user who may do everything: rediss://user:password@host/0",
        metavar="FILE",
    ),
    flag("no-start", help="start RabbitMQ and Redis, and no daemon, as before `roost restore`"),
    flag("dry-run", help="show what would be done and written, and do nothing"),
    flag("remove", help="stop its daemons, and take away what has them start; state and secrets stay"),
    flag("help", "h", help="show this help"),
)
CERTIFICATE: tuple[Option, ...] = (flag("help", "h", help="show this help"),)
_ABOUT: Final = (
    "Makes this machine the central manager of a new pool: RabbitMQ and Redis from Debian's packages, unless they are "
    "named; accounts, users, keys and certificates; configuration and units of collector, negotiator, HAD, journal, "
    "registrar and gateway. The same again brings it up to date. Takes root."
)
#: Whom every new RabbitMQ has, with all rights.
_GUEST: Final = "guest"
#: Stands for a secret that nobody is to see.
_SECRET: Final = "SECRET"


@dataclass(frozen=True, slots=True)
class _Given:
    """Servers that others run. broker: URL without user and password, and api, of its management; store: URL of a user
    who may do everything. Empty: this machine's own."""

    broker: str = ""
    api: str = ""
    store: str = ""


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "central-manager", _ABOUT, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0][:80]!r} does not belong here; see -help")
    if parsed.has("remove"):
        return _remove()
    given = _given(parsed)
    pool = _described(parsed, given)
    if parsed.has("dry-run"):
        _show(pool, given)
        return 0
    setup_common.check(parsed, starts=True)
    try:
        setup_common.check_configuration(Path("/"))
        _set_up(pool, given)
    except OSError as error:
        raise setup_common.told(error, "/") from error
    if not parsed.has("no-start"):
        setup_common.start([layout.unit_name(role) for role in central.ROLES])
        _tell_next(pool)
    return 0


def certificate(command: str, argv: list[str]) -> int:
    """A certificate of the pool's authority, with its key, for the server of an access point."""
    parsed = parse(argv, CERTIFICATE)
    if parsed.has("help"):
        about = (
            "Run on the central manager, as root; NAME is how other machines reach the access point. It is a secret."
        )
        say(usage(command, "certificate NAME [ALIAS...] > FILE", about, CERTIFICATE))
        return 0
    if not parsed.arguments:
        raise UsageError("setup certificate wants the name by which other machines reach the access point")
    _check_names(parsed.arguments)
    owner = _authority()
    if not owner.ca_key.exists():
        raise ClientError(f"{owner.ca_key} is not here: run it as root on the pool's central manager", "failed")
    say(secrets.certificate(owner, f"{parsed.arguments[0]}.access-point", parsed.arguments).rstrip("\n"))
    return 0


def _given(parsed: Parsed) -> _Given:
    """Raises UsageError and ClientError."""
    if bool(parsed.one("amqp")) != bool(parsed.one("broker-api-file")):
        raise UsageError(
            "-amqp URL and -broker-api-file FILE go together: where the broker is, and who tells it of users"
        )
    found = _Given(parsed.one("amqp"), _line(parsed.one("broker-api-file")), _line(parsed.one("redis-file")))
    if found.broker:
        at = urlsplit(found.broker)
        if at.scheme not in ("amqp", "amqps") or not at.hostname or at.username:
            raise UsageError(f"-amqp {found.broker[:80]}: want amqps://host[:port][/vhost], without user and password")
        api = urlsplit(found.api)
        if api.scheme not in ("http", "https") or not (api.hostname and api.password):
            raise UsageError(f"{parsed.one('broker-api-file')}: want http[s]://user:password@host:port")
    if found.store:
        given_servers.check_store(found.store)
    return found


def _line(path: str) -> str:
    if not path:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise ClientError(f"{path}: {getattr(error, 'strerror', '') or error}", "failed") from error
    if not text or "\n" in text:
        raise UsageError(f"{path}: want one line, a URL")
    return text


def _described(parsed: Parsed, given: _Given) -> CentralManager:
    """Raises UsageError."""
    name = parsed.one("name") or host()
    _check_names([name, *parsed.all("alias")])
    known = dict.fromkeys([*parsed.all("alias"), host(), socket.getfqdn()])  # how it may be called besides
    aliases = tuple(alias for alias in known if alias != name)
    return CentralManager(
        name,
        sys.executable,
        parsed.one("uid-domain") or layout.domain_of(name),
        given.broker or f"amqps://{name}:{servers.TLS_PORT}/",
        aliases,
        broker=not given.broker,
        store=not given.store,
    )


def _check_names(names: tuple[str, ...] | list[str]) -> None:
    for name in names:
        try:
            user_of("collector", name)
        except ValueError as error:
            raise UsageError(f"{name[:80]!r} is no name of a host") from error


def _show(pool: CentralManager, given: _Given) -> None:
    if lacking := debian.missing() if pool.broker or pool.store else []:
        say(f"apt-get install {' '.join(lacking)}")
    users = _users(pool, given)
    shown = _secrets(pool, given, dict.fromkeys(users, _SECRET), _SECRET, _SECRET, (_SECRET, _SECRET))
    setup_common.show(
        [*_of_servers(pool, dict.fromkeys(users, _SECRET), _SECRET), *central.files(pool, shown)],
        [servers.BROKER_DEFINITIONS],
    )


def _set_up(pool: CentralManager, given: _Given) -> None:
    """Raises OSError, ClientError."""
    own = [name for name, here in zip(servers.PACKAGES, (pool.broker, pool.store), strict=True) if here]
    if pool.broker:
        debian.check_broker()
    if lacking := [name for name in debian.missing() if name in own]:
        say(f"installing {', '.join(lacking)}")
        debian.install(lacking)
    for account, home in ((central.ACCOUNT, central.STATE), (central.GATEWAY_ACCOUNT, central.GATEWAY_STATE)):
        if machine.ensure_account(account, home):
            say(f"made the account {account}")
    machine.ensure_directory(Path(layout.ETC))  # else whoever makes the first secret there keeps it to itself
    passwords = secrets.passwords(_users(pool, given))
    owner = _authority()
    hosts = [pool.name, *pool.names, "localhost", "127.0.0.1", "::1"]
    for_broker = secrets.certificate(owner, "broker", hosts) if pool.broker else ""
    for_gateway = secrets.certificate(owner, "gateway", hosts)
    keys = secrets.key_pair(Path(central.KEY))
    authority = owner.ca_file.read_text(encoding="ascii")
    made = _secrets(pool, given, passwords, authority, for_gateway, keys)
    of_servers = _of_servers(pool, passwords, for_broker)
    changed = {file.path for file in of_servers if not machine.same(file)}
    setup_common.write([*central.files(pool, made), *of_servers], Path("/"))
    _prepare_servers(pool, given, passwords, made, changed)


def _prepare_servers(
    pool: CentralManager, given: _Given, passwords: dict[str, str], made: Secrets, changed: set[PurePosixPath]
) -> None:
    """Raises OSError, ClientError."""
    tls = ClientTls.of(TlsSettings.from_config(tool_config()))
    if pool.broker:
        say(debian.start_broker(changed=servers.BROKER_FILE in changed))
        if given_servers.remove_user(made.api, _GUEST, tls.context()):
            say(f"took RabbitMQ's user {_GUEST} away, whose password everybody knows")
    else:
        of_daemons = {user: password for user, password in passwords.items() if user not in acl.OTHERS}
        given_servers.declare(given.api, beginning(vhost_of(given.broker), of_daemons), tls.context())
        say(f"RabbitMQ at {urlsplit(given.broker).hostname} knows the pool")
    if pool.store:
        say(debian.start_store(changed=bool(changed & {servers.STORE_FILE, servers.STORE_USERS})))
        told = given_servers.prepare_store(made.stores[acl.LOADER], {}, ClientTls())
    else:
        told = given_servers.prepare_store(given.store, passwords, tls)
    for line in told:
        say(line)


def _users(pool: CentralManager, given: _Given) -> dict[str, Path]:
    """Who has a password, and the file that has it."""
    users = {pool.user(role): Path(layout.environment(role, pool.name)) for role in central.ROLES}
    users |= {user: Path(central.by_hand(user)) for user in acl.OTHERS}
    if not given.broker:
        users[ADMINISTRATOR] = Path(central.BROKER_API)
    return users


def _secrets(
    pool: CentralManager,
    given: _Given,
    passwords: dict[str, str],
    authority: str,
    certificate: str,
    keys: tuple[str, str],
) -> Secrets:
    def broker(user: str) -> str:
        password = passwords[user]
        return with_login(given.broker, user, password) if given.broker else servers.broker_url(user, password)

    def store(user: str) -> str:
        password = passwords[user]
        return with_login(given.store, user, password) if given.store else servers.store_url(user, password)

    of_role = {role: pool.user(role) for role in central.ROLES}
    stores = {role: store(user) for role, user in of_role.items() if servers.uses_store(user)}
    return Secrets(
        urls={role: broker(user) for role, user in of_role.items()},
        stores={**stores, **{user: store(user) for user in acl.OTHERS}},
        api=given.api or servers.api_url(ADMINISTRATOR, passwords.get(ADMINISTRATOR, "")),
        authority=authority,
        certificate=certificate,
        key=keys[0],
        public_key=keys[1],
    )


def _of_servers(pool: CentralManager, passwords: dict[str, str], certificate: str) -> list[File]:
    """What this machine's own servers read."""
    files = servers.files(passwords, certificate)
    return [file for file in files if (pool.broker if "rabbitmq" in file.path.parts else pool.store)]


def _authority() -> OwnAuthority:
    return secrets.authority(Path(central.CA_DIRECTORY))


def _tell_next(pool: CentralManager) -> None:
    url = f"https://{pool.name}:{central.PORT}"
    roost = Path(sys.executable).with_name("roost")
    say(
        f"{pool.name} is the central manager of a pool: {url}\n"
        f"Other machines want {layout.AUTHORITY}, and a join token that you make here:\n"
        f"  {roost} enroll -create -role startd -name '*' -uses 20 > join      for execution points\n"
        f"  {roost} enroll -create -role schedd -name NAME > join              for an access point, and\n"
        f"  {roost} setup certificate NAME > NAME.pem"
    )


def _remove() -> int:
    units = [layout.unit_name(role) for role in central.ROLES]
    kept = [central.STATE, central.GATEWAY_STATE, layout.ETC]
    more = (
        f"RabbitMQ and Redis run on, with what they hold of the pool: systemctl disable --now {servers.STORE_UNIT}, "
        f"and apt-get purge {' '.join(servers.PACKAGES)} where nothing else needs them"
    )
    if os.geteuid() == 0 and not Path(servers.BROKER_FILE).exists():
        more = ""
    return setup_common.remove(units, [layout.local_path(central.KIND)], kept, more)
