"""A mail server of a few lines: takes what clients send by SMTP, or refuses it as a test says."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class SmtpServer:
    """messages: what was delivered, (sender, recipients, text). greeting: said first; a 4xx or 5xx sends everybody
    away. recipient: the answer to each RCPT."""

    messages: list[tuple[str, list[str], str]] = field(default_factory=list)
    greeting: str = "220 here"
    recipient: str = "250 yes"
    connections: int = 0
    asked: int = 0  # recipients, and each had its answer
    _server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc):
        self._server.close()
        await self._server.wait_closed()

    async def _talk(self, reader, writer):
        self.connections += 1
        sender, recipients = "", []

        def say(line):
            writer.write(f"{line}\r\n".encode())

        say(self.greeting)
        try:
            while line := (await reader.readline()).decode().strip():
                verb = line.upper().split(":")[0].split(" ")[0]
                if verb == "MAIL":
                    sender, recipients = line.partition("<")[2].partition(">")[0], []
                    say("250 yes")
                elif verb == "RCPT":
                    recipients.append(line.partition("<")[2].partition(">")[0])
                    say(self.recipient)
                    self.asked += 1
                elif verb == "DATA":
                    say("354 go on")
                    text = (await reader.readuntil(b"\r\n.\r\n"))[:-5].decode()
                    self.messages.append((sender, recipients, text.replace("\r\n", "\n")))
                    say("250 taken")
                elif verb == "QUIT":
                    say("221 bye")
                    break
                else:
                    say("250 yes")
        finally:
            writer.close()
