"""`roost store-cred add-oauth | delete-oauth | query-oauth`: the tokens that one's jobs get (`use_oauth_services`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import moment, say
from roost.client import Client
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (
    value("s", "service", help="whose token it is", metavar="SERVICE"),
    value("i", "infile", help="add: the file that holds it; -: standard input (the default)", metavar="FILE"),
    value("n", "name", help="the access point that keeps it", metavar="SCHEDD"),
    flag("json", help="query: as JSON"),
    *COMMON,
)
_ABOUT = "A credential is kept at the access point, and goes to the memory of machines that run your jobs with it."


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help") or not parsed.arguments:
        say(usage(command, "add-oauth | delete-oauth | query-oauth", _ABOUT, OPTIONS))
        return 0 if parsed.has("help") else 1
    deed, *rest = parsed.arguments
    service, schedd = parsed.one("s"), parsed.one("n")
    if deed in ("add", "delete", "query") or deed.endswith(("-pwd", "-krb")):
        raise UsageError(f"{deed}: passwords and Kerberos tickets are not kept; say {deed.partition('-')[0]}-oauth")
    if deed not in ("add-oauth", "delete-oauth", "query-oauth") or rest:
        raise UsageError("store-cred add-oauth, delete-oauth or query-oauth, with -s SERVICE")
    if not service and deed != "query-oauth":
        raise UsageError(f"{deed} of what? -s SERVICE, as in use_oauth_services = SERVICE")
    with Client(parsed.one("pool") or None) as client:
        if deed == "add-oauth":
            client.store_credential(service, _read(parsed.one("i")), schedd)
            say(f"The credential for {service} is kept.")
        elif deed == "delete-oauth":
            client.delete_credential(service, schedd)
            say(f"The credential for {service} is deleted.")
        else:
            found = [one for one in client.credentials(schedd) if not service or one["service"] == service]
            if parsed.has("json"):
                say(json.dumps(found, indent=2))
            for one in [] if parsed.has("json") else found:
                say(f"A credential for {one['service']} is kept, of {moment(one['updated'])}.")
            if not found:
                say(f"No credential{f' for {service}' if service else ''} is kept.")
                return 1
    return 0


def _read(file: str) -> bytes:
    """Raises UsageError."""
    if file in ("", "-"):
        data = sys.stdin.buffer.read()
    else:
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from error
    data = data.strip()
    if not data:
        raise UsageError("the credential is empty")
    return data
