"""`roost dashboard`: the address of the gateway's pages, with your token in it.

The token is in the fragment of the address, which browsers never send; the page takes it out of there at once.
"""

from __future__ import annotations

import html
import os
from urllib.parse import quote

from roost.cli.options import Option, flag, parse, usage
from roost.cli.output import say
from roost.errors import ClientError
from roost.locate import locate
from roost.pool_directory import pool_dir

OPTIONS: tuple[Option, ...] = (
    flag("open", help="open it in the browser instead of printing it"),
    flag("no-token", help="without the token: the page asks for one"),
    flag("help", "h", help="show this help"),
)
PAGE = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}"><title>Roost</title>
<p><a href="{url}">To the dashboard</a></p>
"""


def run(_command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage("dashboard", "", "Print a link to the pool's pages that logs you in.", OPTIONS))
        return 0
    where = locate()
    link = where.url + "/" if parsed.has("no-token") else link_to(where.url, where.token)
    if parsed.has("open"):
        _open(link)
    else:
        say(link)
    return 0


def link_to(url: str, token: str) -> str:
    """The address of the dashboard at this gateway, with a token."""
    return f"{url}/#token={quote(token, safe='')}"


def _open(link: str) -> None:
    """Through a file that only the user reads: what a program is started with, everybody on the machine can see."""
    import webbrowser

    path = pool_dir() / "dashboard.html"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(PAGE.format(url=html.escape(link, quote=True)))
    except OSError as error:
        raise ClientError(f"{path} can not be written: {error.strerror}; print the link without -open") from error
    if not webbrowser.open(path.as_uri()):
        raise ClientError(f"no browser was found: open {path}, or print the link without -open")
