"""`roost power`: wake machines that sleep (TLS-11)."""

from __future__ import annotations

import json
import sys

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import ads_from, constraints, say
from roost.client import Client
from roost.errors import UsageError
from shared import wake_on_lan
from shared.classad import ClassAd

OPTIONS: tuple[Option, ...] = (
    value("m", "mac", help="the hardware address: no ad is looked for", metavar="ADDRESS"),
    value(
        "s", "subnet", help="where to send it: a network (10.1.2.0/24), a mask, a broadcast address", metavar="SUBNET"
    ),
    value("p", "port", help="UDP port; 9", metavar="PORT"),
    value("constraint", help="all machines whose ad fits, say Offline && Unhibernate", metavar="EXPR"),
    value("ads", help="take machines' ads from this file", metavar="FILE"),
    flag("i", "stdin", help="take machines' ads from standard input"),
    flag("d", "debug", help="tell what is sent where"),
    *COMMON,
)
_SUMMARY = """Wake machines that sleep, by a magic packet (wake-on-LAN) to their network interface. NAME is a machine of
the pool; its ad, which the collector keeps while it sleeps, has HardwareAddress and SubnetMask. Run it in the machine's
subnet, or where routers pass directed broadcasts on. No answer is awaited: look with roost status."""


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[NAME...]", _SUMMARY, OPTIONS))
        return 0
    port = parsed.integer("p", wake_on_lan.PORT)
    if not 0 < port < 65536:
        raise UsageError(f"-p {port}: ports are numbers from 1 to 65535")
    try:
        found = _meant(parsed)
        for _, hardware, _ in found:
            wake_on_lan.packet(hardware)  # a wrong one is told before anything is sent
        for name, hardware, where in found:
            wake_on_lan.send(hardware, where, port)
            said = f" ({hardware}, by {where} port {port})" if parsed.has("d") or not name else ""
            say(f"Packet sent to {name or 'the interface'}{said}.")
    except wake_on_lan.CanNotWake as error:
        raise UsageError(str(error)) from None
    return 0


def _meant(parsed: Parsed) -> list[tuple[str, str, str]]:
    """(name, hardware address, where to) of each machine. Raises UsageError."""
    subnet = parsed.one("s")
    if parsed.has("m"):
        if parsed.arguments or parsed.has("constraint") or parsed.has("i") or parsed.has("ads"):
            raise UsageError("-m names the machine's interface: leave names, -constraint and ads out")
        return [("", parsed.one("m"), wake_on_lan.target(subnet))]
    found: dict[str, tuple[str, str, str]] = {}
    for ad in _ads(parsed):
        name = ad.eval("Machine")
        name = name if isinstance(name, str) else "the machine"
        hardware, where = wake_on_lan.of_ad(ad)
        address = ad.eval("PublicNetworkIpAddr")
        if subnet:
            where = wake_on_lan.target(subnet, address if isinstance(address, str) else "")
        found.setdefault(hardware, (name, hardware, where))  # every slot has the same
    return list(found.values())


def _ads(parsed: Parsed) -> list[ClassAd]:
    if parsed.has("i") or parsed.has("ads"):
        file = "-" if parsed.has("i") else parsed.one("ads")
        ads = ads_from(file, parsed.one("constraint"))
        if not ads:
            raise UsageError(f"{'standard input' if file == '-' else file}: no ad of a machine")
        return ads
    if not parsed.arguments and not parsed.has("constraint"):
        raise UsageError("which machine? roost power NAME, -constraint EXPR, or -m ADDRESS")
    terms = constraints(parsed)
    if parsed.arguments:
        terms.append(
            "(" + " || ".join(f"Machine == {json.dumps(n)} || Name == {json.dumps(n)}" for n in parsed.arguments) + ")"
        )
    needs = ("Name", "Machine", "HardwareAddress", "SubnetMask", "PublicNetworkIpAddr")
    with Client(parsed.one("pool") or None) as client:
        ads = list(client.ads("Machine", constraint=" && ".join(terms), projection=needs))
    names = {str(ad.eval(one)).lower() for ad in ads for one in ("Machine", "Name")}
    missing = [word for word in parsed.arguments if word.lower() not in names]
    for word in missing:
        sys.stderr.write(f"roost: no machine {word} in the pool, also none that is offline\n")
    if missing or not ads:
        raise UsageError("nothing was sent" if missing else "no machine fits the constraint")
    return ads
