"""Sends mail about jobs, one after the other, beside everything else: by SMTP_SERVER, else by the program MAIL."""

from __future__ import annotations

import asyncio
import os
import shutil
import smtplib
from collections import deque
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Final

from services.schedd.core.notification import Mail
from shared.backoff import Backoff
from shared.daemon.context import Context
from shared.subprocess_runner import ProgramFailed, run

#: What waits while a server is slow or away; of more the oldest are dropped, and the log tells of it.
MAX_WAITING: Final = 1000
TIMEOUT_S: Final = 30.0
#: A server that is away is tried so often, after these times (s): the first and the longest.
ATTEMPTS: Final = 5
AGAIN_S: Final = (1.0, 60.0)


@dataclass(frozen=True, slots=True)
class MailRoute:
    """How mail leaves. server: SMTP_SERVER, host or host:port; program: MAIL; sender: MAIL_FROM."""

    server: str = ""
    program: str = ""
    sender: str = ""
    domain: str = ""  # EMAIL_DOMAIN, else UID_DOMAIN: of names without one

    def problem(self) -> str:
        """Why no mail can be sent; empty: it can."""
        if self.server or self.program or shutil.which("mail"):
            return ""
        return "neither SMTP_SERVER nor MAIL is set, and there is no program mail"


class NotSent(Exception):
    """Why, and whether it would be the same again."""

    def __init__(self, reason: str, *, for_good: bool) -> None:
        super().__init__(reason)
        self.for_good = for_good


class Mailer:
    def __init__(self, context: Context, route: MailRoute) -> None:
        self.route = route  # as it is configured now
        self._context = context
        self._waiting: deque[Mail] = deque()
        self._news = asyncio.Event()

    def put(self, mail: Mail) -> None:
        """Send it soon."""
        problem = self.route.problem()
        if problem:
            self._context.log.warning("mail_not_sent", to=mail.to, subject=mail.subject, reason=problem)
            return
        if len(self._waiting) >= MAX_WAITING:
            dropped = self._waiting.popleft()
            self._context.log.warning("mail_not_sent", to=dropped.to, subject=dropped.subject, reason="too many wait")
        self._waiting.append(mail)
        self._news.set()

    async def run(self) -> None:
        """Send what comes, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _send(self, mail: Mail) -> None:
        backoff = Backoff(*AGAIN_S)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self.route.server:
                    await asyncio.to_thread(_by_smtp, self.route, mail)
                else:
                    await _by_program(self.route, mail)
            except NotSent as error:
                if error.for_good or attempt == ATTEMPTS:
                    self._context.log.warning(
                        "mail_not_sent", to=mail.to, subject=mail.subject, reason=str(error), attempts=attempt
                    )
                    return
                await self._context.clock.sleep(backoff.next_s())
            else:
                self._context.log.info("mail_sent", to=mail.to, subject=mail.subject)
                return


def _by_smtp(route: MailRoute, mail: Mail) -> None:
    """Raises NotSent."""
    message = EmailMessage()
    message["From"] = route.sender or f"roost@{route.domain}"
    message["To"], message["Subject"] = mail.to, mail.subject
    message.set_content(mail.body.encode(errors="replace").decode())
    host, _, port = route.server.partition(":")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=TIMEOUT_S) as server:
            server.send_message(message)
    except smtplib.SMTPResponseException as error:
        raise NotSent(f"{route.server}: {error}", for_good=error.smtp_code >= 500) from error
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise NotSent(f"{route.server}: {error}", for_good=min(codes, default=0) >= 500) from error
    except (OSError, smtplib.SMTPException) as error:
        raise NotSent(f"{route.server}: {error}", for_good=False) from error


async def _by_program(route: MailRoute, mail: Mail) -> None:
    """`MAIL -s subject address`, the text on its standard input, as HTCondor calls it. Raises NotSent."""
    program = route.program or shutil.which("mail") or "mail"
    body = mail.body.encode(errors="replace")
    try:
        done = await run([program, "-s", mail.subject, mail.to], env=dict(os.environ), stdin=body, timeout_s=TIMEOUT_S)
    except ProgramFailed as error:
        raise NotSent(str(error), for_good=True) from error
    if done.timed_out or done.exit_code != 0:
        said = done.stderr.decode(errors="replace")[:200].strip()
        raise NotSent(f"{program} failed ({done.exit_code}): {said}", for_good=False)
