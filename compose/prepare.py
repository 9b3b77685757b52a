"""Makes what the daemons and servers of a compose pool need before they start; safe to run again.

Every daemon gets a user of its own, "<role>.<name>", at the broker, and at Redis if its role needs it. Its password is
in its own volume, of which nobody but it sees anything; the broker and Redis see hashes. So does the broker's
administrator, whose password the registrar has too. Execution points that are not named here come in by a join token.
What exists is kept.

The volume of a daemon holds: amqp_url, redis_url (if it needs Redis), config (what /etc/condor/condor_config includes),
ca.pem (the pool's own authority), gateways/ (public keys of gateways, whose word about people it obeys); of gateways
and schedds server.pem (certificate and key, for TLS), of gateways statements.key, of the registrar broker_api and
join_tokens.

Environment: ROOST_SCHEME, "https", or "http" for gateways and schedds without TLS. ROOST_GATEWAY_HOSTS and
ROOST_GATEWAY_ADDRESS: names and addresses of gateways, for their certificates. ROOST_OUTSIDE_HOST and
ROOST_OUTSIDE_BROKER_PORT: where machines outside of the pool's network reach it, if they do (compose.outside.yaml): the
broker has a certificate then, too, and who enrolls is told of that port. ROOST_CONSUMERS, names of consumers of
events (docs/consumers.md) that get a user of the broker; DOCKER_GID, the group that the startds get, to tell when it is
the wrong one. ROOST_HA: "true" for the highly available pool (compose.ha.yaml), whose brokers are a cluster and whose
Redis is behind sentinels; then there are also the brokers' common cookie, users for Redis's replication and for
sentinels, and the sentinels' configuration. ROOST_NET: the first three numbers of that pool's addresses.

Where others than compose start the pool (charts/roost): ROOST_DAEMONS, how many there are of each role ("collector=3
schedd=2"; of the others as many as in the pool of compose.yaml; 0 of startds: they come in by the join token);
ROOST_HOST_PREFIX, what names of hosts begin with; ROOST_AMQP_URLS, ROOST_REDIS_URLS and ROOST_BROKER_API, where the
broker, Redis and the broker's administration are, with {user} and {password} in place of a daemon's own;
ROOST_REDIS_PRIMARY, the name of the server that is Redis's primary at first, if it is behind sentinels of the pool's
own: then {asking} in ROOST_REDIS_URLS is the password by which these are asked. All files are this account's there if
it is not root's.
"""

import ipaddress
import json
import os
import re
import secrets
import stat
import sys
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from shared.bus.definitions import ADMINISTRATOR, consumer_user, definitions, user_of
from shared.bus.statements import make_key_pair, public_file
from shared.own_authority import OwnAuthority
from shared.state import acl
from shared.state.acl import digest

KEYS = Path("/run/roost/keys")
#: Where a daemon finds its volume.
KEY = Path("/run/roost/key")
EXECUTE = Path("/run/roost/execute")
DOCKER_SOCKET = Path("/var/run/docker.sock")
VHOST = "/"
HA = os.environ.get("ROOST_HA", "").lower() == "true"
#: What the names of the pool's hosts begin with.
PREFIX = os.environ.get("ROOST_HOST_PREFIX", "")
BROKERS = ("rabbitmq", "rabbitmq2", "rabbitmq3") if HA else ("rabbitmq",)
SENTINELS = ("sentinel1", "sentinel2", "sentinel3")
#: Where Redis's first primary is: its address, since a sentinel stops while it looks up a name that is gone; or a name,
#: in place of which whoever starts a sentinel puts the address.
PRIMARY = os.environ.get("ROOST_REDIS_PRIMARY") or f"{os.environ.get('ROOST_NET', '172.30.77')}.11"
#: Whether Redis has replicas and sentinels.
REPLICATED = HA or "ROOST_REDIS_PRIMARY" in os.environ
SERVICE = "roost"  # what the sentinels call the primary
#: Users that are no daemon of the pool: Redis's servers among themselves, sentinels at Redis, daemons at sentinels, and
#: sentinels among themselves.
REPLICATION, WATCHING, ASKING, TALKING = "replication", "sentinel", "pool", "sentinels"
ROOST_UID = ROOST_GID = 10001
#: Roles of which there may be several, and how many there are.
SEVERAL = ("collector", "negotiator", "schedd", "gateway", "startd")
NUMBERS = dict(zip(SEVERAL, (3, 3, 2, 2, 3) if HA else (1, 1, 1, 1, 2), strict=True))
#: The volume of the service `startd`, whose containers have no user before they come with the join token in it.
JOIN = "join"
#: Whom that token lets in, and how many of them.
JOIN_NAMES, JOIN_USES = f"{PREFIX}startd-*", 100_000
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
#: Days that a server's certificate is good for: it is made anew when prepare runs in the last third of them.
CERTIFICATE_DAYS = 825


@dataclass(frozen=True)
class Instance:
    """A daemon: its service and volume, its role, and its name in the pool."""

    service: str
    role: str
    name: str

    @property
    def user(self) -> str:
        return user_of(self.role, self.name)

    @property
    def directory(self) -> Path:
        return KEYS / self.service


def numbers() -> dict[str, int]:
    """How many daemons there are of each role of which there may be several."""
    found = dict(NUMBERS)
    for word in os.environ.get("ROOST_DAEMONS", "").split():
        role, _, number = word.partition("=")
        if role not in found or not number.isdecimal() or int(number) > 99 or (number == "0" and role != "startd"):
            sys.exit(f"prepare: ROOST_DAEMONS: {word[:40]!r}: want ROLE=NUMBER, of {', '.join(SEVERAL)}")
        found[role] = int(number)
    return found


def instances() -> list[Instance]:
    """All that have a volume here. Daemons are named after their hosts, and the hosts after the services; a HAD has the
    name of the negotiator that it leads."""
    every = {role: ["", *map(str, range(2, number + 1))] for role, number in numbers().items()}
    found = [Instance(f"{role}{n}", role, f"{role}{n}") for role in ("collector", "negotiator") for n in every[role]]
    found += [Instance(f"had{n}", "had", f"negotiator{n}") for n in every["negotiator"]]
    found += [Instance(f"{role}{n}", role, f"{role}{n}") for role in ("schedd", "gateway") for n in every[role]]
    found += [Instance(name, "startd", name) for name in startds()]
    alone = ("journal", "registrar", "defrag", "rooster", "gangliad", "adstash")
    return [*found, *(Instance(role, role, role) for role in alone)]


def startds() -> list[str]:
    """Execution points with a user from the start."""
    return [f"startd{n}" for n in range(1, numbers()["startd"] + 1)]


def password_of(user: str, directory: Path, asking: str = "") -> str:
    """The user's password: the one it has, else a new one, written where its daemon reads it. A password that another
    user had, such as that of a whole role in an older release, is not kept. asking: the password by which daemons ask
    the sentinels, where there are any."""
    written = directory / "amqp_url"
    before = urlsplit(written.read_text().partition(",")[0]) if written.exists() else None
    password = before.password if before is not None and before.username == user else None
    password = password or secrets.token_urlsafe(32)
    if uses_redis(user):
        keep(directory / "redis_url", redis_url(user, password, asking))
    else:
        (directory / "redis_url").unlink(missing_ok=True)  # of an older release
    # What tells that all is there comes last.
    keep(written, amqp_urls(user, password))
    return password


def amqp_urls(user: str, password: str) -> str:
    """Where this user finds the broker: one URL for each node."""
    where = os.environ.get("ROOST_AMQP_URLS") or ",".join(f"amqp://{{user}}:{{password}}@{n}:5672/" for n in BROKERS)
    return filled("ROOST_AMQP_URLS", where, user, password)


def filled(name: str, where: str, user: str, password: str) -> str:
    """A URL with this user's name and password in it. name: of the variable that may have given it."""
    if where.count("{user}:{password}@") != where.count("://") or not where.count("://"):
        sys.exit(f"prepare: {name}: want {{user}}:{{password}}@ in each URL, before its host")
    return where.replace("{user}", user).replace("{password}", password)


def redis_url(user: str, password: str, asking: str) -> str:
    """Where this user finds Redis."""
    if where := os.environ.get("ROOST_REDIS_URLS"):
        return filled("ROOST_REDIS_URLS", where, user, password).replace("{asking}", asking)
    if not HA:
        return f"redis://{user}:{password}@redis:6379/0"
    hosts = ",".join(f"{name}:26379" for name in SENTINELS)
    return f"redis+sentinel://{user}:{password}@{hosts}/{SERVICE}/0?sentinel_user={ASKING}&sentinel_password={asking}"


def keep(path: Path, text: str) -> None:
    """Have this there, for daemons. A file that says so already stays as it is."""
    if not path.exists() or path.read_text() != text:
        write(path, text, 0o400, ROOST_UID)


def own_directory(path: Path) -> None:
    """Have a directory be there, the daemons' account's, and nobody else's."""
    path.mkdir(exist_ok=True)
    give(path, ROOST_UID)
    path.chmod(0o700)


def give(path: Path | int, owner: int) -> None:
    """Have a file be of this account. Who is not root can not, and is the only account there."""
    if os.geteuid() == 0:
        os.chown(path, owner, owner)


def consumer_passwords() -> dict[str, str]:
    """Of each consumer of events that ROOST_CONSUMERS names; its URL of the broker is a file of that name."""
    found = {}
    for name in os.environ.get("ROOST_CONSUMERS", "").replace(",", " ").split():
        try:
            user = consumer_user(name)
        except ValueError as error:
            sys.exit(f"prepare: ROOST_CONSUMERS: {error}")
        written = KEYS / "consumers" / name
        password = urlsplit(written.read_text().partition(",")[0]).password if written.exists() else None
        found[name] = password or secrets.token_urlsafe(32)
        keep(written, amqp_urls(user, found[name]))
    return found


def secret(path: Path) -> str:
    """What is in this file; made once."""
    if not path.exists():
        write(path, secrets.token_urlsafe(32), 0o400)
    return path.read_text()


def write(path: Path, text: str, mode: int, owner: int = 0) -> None:
    """Replace a file as a whole: its readers never see half of it."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        give(file.fileno(), owner)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def redis_users(passwords: dict[str, str]) -> str:
    """Redis's access list: of these users those that need Redis (shared/state/acl.py)."""
    return acl.access_list((user, password) for user, password in passwords.items() if uses_redis(user))


def uses_redis(user: str) -> bool:
    return user.partition(".")[0] in acl.RIGHTS or user == acl.LOADER


def loader_password(asking: str = "") -> str:
    """Of the user that loads the functions; it has no user of the broker."""
    written = KEYS / acl.LOADER / "redis_url"
    password = urlsplit(written.read_text()).password if written.exists() else None
    password = password or secrets.token_urlsafe(32)
    keep(written, redis_url(acl.LOADER, password, asking))
    return password


def server_users(replication: str, watching: str) -> str:
    """Redis's users beside the roles: replicas, and sentinels."""
    return f"{acl.replication_line(REPLICATION, replication)}\n{acl.sentinel_line(WATCHING, watching)}\n"


def sentinel_configuration(watching: str, asking: str, talking: str) -> str:
    """A sentinel's, to begin with: it adds what it learns to a copy of its own. Two of three must agree that the
    primary is down, after a second of silence: less would take a busy machine for a dead one."""
    return (
        "port 26379\nprotected-mode no\n"
        f"sentinel monitor {SERVICE} {PRIMARY} 6379 2\nsentinel down-after-milliseconds {SERVICE} 1000\n"
        f"sentinel failover-timeout {SERVICE} 10000\nsentinel parallel-syncs {SERVICE} 1\n"
        f"sentinel auth-user {SERVICE} {WATCHING}\nsentinel auth-pass {SERVICE} {watching}\n"
        f"sentinel sentinel-user {TALKING}\nsentinel sentinel-pass {talking}\n"
        "user default off\nuser health on nopass resetchannels -@all +ping\n"
        f"user {TALKING} on #{digest(talking)} allchannels +@all\n"
        f"user {ASKING} on #{digest(asking)} resetchannels -@all +ping +hello +auth +client|setinfo "
        "+sentinel|masters +sentinel|master +sentinel|replicas +sentinel|slaves +sentinel|get-master-addr-by-name\n"
    )


def prepare_servers() -> tuple[str, str]:
    """Writes what the servers of the highly available pool need. Returns lines for Redis's access list, and the
    password for asking sentinels."""
    watching, asking, talking = (secret(KEYS / "sentinel" / name) for name in (WATCHING, ASKING, TALKING))
    replication = secret(KEYS / "redis" / REPLICATION)
    write(KEYS / "sentinel" / "sentinel.conf", sentinel_configuration(watching, asking, talking), 0o444)
    write(KEYS / "redis" / "replication.conf", f"masteruser {REPLICATION}\nmasterauth {replication}\n", 0o444)
    return server_users(replication, watching), asking


def share_execute_directory() -> None:
    """The startds, which are not root, make the jobs' scratch directories in here."""
    EXECUTE.chmod(0o755)
    for name in (*startds(), "more"):  # those of the service `startd`, of which there may be many, lie in `more`
        directory = EXECUTE / name
        directory.mkdir(exist_ok=True)
        give(directory, ROOST_UID)
        directory.chmod(0o755)


def check_docker_group() -> None:
    """Say it now, rather than let the startds find no engine."""
    if not DOCKER_SOCKET.is_socket():
        sys.exit("prepare: DOCKER_SOCKET names no socket of a Docker engine; startds need one for container jobs")
    state = DOCKER_SOCKET.stat()
    given = os.environ.get("DOCKER_GID", "0")
    if not state.st_mode & stat.S_IWOTH and str(state.st_gid) != given:
        sys.exit(f"prepare: the Docker socket belongs to group {state.st_gid}; set DOCKER_GID={state.st_gid} in .env")


def scheme() -> str:
    """What gateways and schedds speak."""
    said = os.environ.get("ROOST_SCHEME") or "https"
    if said not in ("https", "http"):
        sys.exit(f"prepare: ROOST_SCHEME is {said[:40]!r}: want https, or http for a pool without TLS")
    return said


def gateway_hosts() -> list[str]:
    """Names and addresses by which people come to the gateways, besides localhost."""
    found = []
    address = os.environ.get("ROOST_GATEWAY_ADDRESS", "")
    for host in [*os.environ.get("ROOST_GATEWAY_HOSTS", "").replace(",", " ").split(), address]:
        if host in ("", "*", "0.0.0.0", "::"):  # all of them: nothing that a certificate could name
            continue
        if not _is_address(host) and not HOST_NAME.fullmatch(host.removeprefix("*.")):
            sys.exit(f"prepare: ROOST_GATEWAY_HOSTS: {host[:80]!r} is no name or address of a host")
        found.append(host)
    return found


def outside_host() -> str:
    """The name or address by which machines outside of the pool's network reach this one; empty: they do not."""
    host = os.environ.get("ROOST_OUTSIDE_HOST", "")
    if not host:
        return ""
    if HA or scheme() != "https":
        sys.exit(
            "prepare: ROOST_OUTSIDE_HOST goes with compose.yaml and TLS: not with ROOST_SCHEME=http or two of each"
        )
    if not _is_address(host) and not HOST_NAME.fullmatch(host):
        sys.exit(f"prepare: ROOST_OUTSIDE_HOST: {host[:80]!r} is no name or address of a host")
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def certify(served: list[Instance]) -> str:
    """Have the pool's authority, whose key nobody else sees, make certificates for these servers. Returns its own."""
    authority = OwnAuthority(KEYS / "authority" / "ca.pem", KEYS / "authority" / "ca.key")
    outside = [host for host in (outside_host(),) if host]

    def certificate(service: str, more: list[str]) -> str:
        hosts = [PREFIX + service, "localhost", "127.0.0.1", "::1", *more, *outside]
        try:
            authority.ensure_server(service, hosts, time.time(), CERTIFICATE_DAYS)
        except (OSError, ValueError) as error:
            sys.exit(f"prepare: the certificate of {service}: {error}")
        return authority.server_file(service).read_text()

    for one in served:
        keep(one.directory / "server.pem", certificate(one.service, gateway_hosts() if one.role == "gateway" else []))
    if outside:  # readable to whoever runs the broker, as its cookie
        write(KEYS / "rabbitmq" / "server.pem", certificate("rabbitmq", []), 0o444)
    return authority.ca_file.read_text()


def public_keys(gateways: list[Instance]) -> dict[str, str]:
    """The keys by which daemons know what gateways say of people, in PEM by file name. The private halves are the
    gateways' own."""
    found = {}
    for gateway in gateways:
        private = gateway.directory / "statements.key"
        try:
            make_key_pair(private, public_file(private))
        except (OSError, ValueError) as error:
            sys.exit(f"prepare: the key of {gateway.service}: {error}")
        for path in (private, public_file(private)):
            give(path, ROOST_UID)
        found[f"{gateway.service}.pub"] = public_file(private).read_text()
    return found


def trust(directory: Path, ca: str, keys: dict[str, str]) -> None:
    """Write down whom the daemon of this volume believes."""
    keep(directory / "ca.pem", ca)
    (directory / "gateways").mkdir(exist_ok=True)
    own_directory(directory / "gateways")
    for old in (directory / "gateways").iterdir():
        if old.name not in keys:
            old.unlink()
    for name, key in keys.items():
        keep(directory / "gateways" / name, key)


def configuration(role: str, *, with_tls: bool) -> str:
    """What a daemon reads besides /etc/condor/condor_config."""
    knobs: dict[str, object] = {"ROOST_GATEWAY_KEYS": KEY / "gateways", "AUTH_SSL_CLIENT_CAFILE": KEY / "ca.pem"}
    if role == "gateway":
        knobs["ROOST_GATEWAY_KEY"] = KEY / "statements.key"
    if role == "registrar":
        knobs |= {"REGISTRAR_BROKER_API_FILE": KEY / "broker_api", "REGISTRAR_JOIN_TOKENS_FILE": KEY / "join_tokens"}
        if host := outside_host():
            place = f"[{host}]" if ":" in host else host
            knobs["REGISTRAR_DAEMONS_AMQP"] = f"amqps://{place}:{os.environ.get('ROOST_OUTSIDE_BROKER_PORT') or 5671}/"
    if not with_tls:
        # Files travel within the pool's network, which nobody else is on.
        return _lines(knobs | {"ROOST_TRANSFER_WITHOUT_TLS": "true"})
    return _lines(knobs | ({"AUTH_SSL_SERVER_CERTFILE": KEY / "server.pem"} if role in ("gateway", "schedd") else {}))


def _lines(knobs: dict[str, object]) -> str:
    return "# Made by the service prepare.\n" + "".join(f"{name} = {value}\n" for name, value in knobs.items())


def prepare_registrar(registrar: Instance, administrator: str) -> None:
    """What it reaches the broker's administration with, and whom it lets in from the start: it sees digests of join
    tokens only."""
    where = os.environ.get("ROOST_BROKER_API") or ",".join(f"http://{{user}}:{{password}}@{n}:15672" for n in BROKERS)
    keep(registrar.directory / "broker_api", filled("ROOST_BROKER_API", where, ADMINISTRATOR, administrator))
    token = KEYS / JOIN / "join_token"
    if not token.exists():
        write(token, secrets.token_urlsafe(32), 0o400, ROOST_UID)
    row = {
        "digest": sha256(token.read_bytes()).hexdigest(),
        "roles": ["startd"],
        "names": JOIN_NAMES,
        "left": JOIN_USES,
        "by": "prepare",
    }
    keep(registrar.directory / "join_tokens", json.dumps(row) + "\n")


def prepare_daemons(asking: str = "") -> dict[str, str]:
    """Writes what all daemons need. Returns their passwords by user, and the broker's administrator's. asking: as
    `password_of` takes it."""
    if os.environ.get("ROOST_GATEWAY_TLS"):
        sys.stderr.write("prepare: ROOST_GATEWAY_TLS has no effect: there is TLS unless ROOST_SCHEME is http\n")
    with_tls = scheme() == "https"
    daemons = instances()
    for directory in (*(one.directory for one in daemons), KEYS / ADMINISTRATOR, KEYS / JOIN):
        own_directory(directory)
    ca = certify([one for one in daemons if one.role in ("gateway", "schedd")])
    keys = public_keys([one for one in daemons if one.role == "gateway"])
    passwords = {ADMINISTRATOR: password_of(ADMINISTRATOR, KEYS / ADMINISTRATOR)}
    for one in daemons:
        trust(one.directory, ca, keys)
        keep(one.directory / "config", configuration(one.role, with_tls=with_tls))
        if one.role == "registrar":
            prepare_registrar(one, passwords[ADMINISTRATOR])
        passwords[one.user] = password_of(one.user, one.directory, asking)
    trust(KEYS / JOIN, ca, keys)
    keep(KEYS / JOIN / "config", configuration("startd", with_tls=with_tls))
    return passwords


def main() -> None:
    if startds():
        check_docker_group()
        share_execute_directory()
    more, asking = prepare_servers() if REPLICATED else ("", "")
    passwords = prepare_daemons(asking)
    users = redis_users(passwords | {acl.LOADER: loader_password(asking)})
    write(KEYS / "redis" / "users.acl", users + more, 0o444)
    if several := amqp_urls("a", "b").count("://") > 1:
        # Readable to whoever runs the brokers; only they have this volume.
        write(KEYS / "rabbitmq" / "cookie", secret(KEYS / "rabbitmq" / "cookie.made"), 0o444)
    enrolling = () if startds() else ("startd",)
    consumers = consumer_passwords()
    declared = definitions(VHOST, passwords, clustered=several, consumers=consumers, enrolling=enrolling)
    write(KEYS / "rabbitmq" / "definitions.json", json.dumps(declared, indent=1), 0o444)


if __name__ == "__main__":
    main()
