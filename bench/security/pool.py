"""The pool that is attacked: daemons as processes, each with a user of the broker of its own, a gateway that signs; and
what is looked at in it."""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.security.bus import ATTACKERS
from bench.security.cases import CRASH, RIGHTS, Fault
from bench.security.http import Target
from roost.client import Client
from shared.bus.definitions import ADMINISTRATOR, definitions
from tests.integration.pools import ROOT, ProcessPool
from tests.servers import Leashed, Rabbit, Redis, free_port
from tests.waiting import wait_until

NAMES: Final = dict.fromkeys(("collector", "had", "negotiator", "journal"), "cm") | {
    "schedd": "ap",
    "startd": "ep",
    "gateway": "gw",
}
#: In the order of their start.
ORDER: Final = ("collector", "had", "negotiator", "schedd", "startd", "journal", "gateway")
#: What a daemon logs when a handler raised what it should not, and when it ends of it.
LOGGED: Final = ("bus.handler_failed", "daemon_died", "Traceback (most recent call last)")
#: Whom the state that is looked at belongs to.
VICTIM: Final = "victim@pool"
#: Seconds in which an ordinary job ends.
JOB_S: Final = 180.0


class HostilePool(ProcessPool):
    """Started with `open`, to be closed."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.rabbit, self.redis = Rabbit(), Redis()
        for server in (self.rabbit, self.redis):
            stack.callback(server.close)
            server.start()
        self.port, self.files_port = free_port(), free_port()
        self.passwords = {f"{role}.{name}": secrets.token_hex(8) for role, name in NAMES.items()}
        self.passwords |= {user: secrets.token_hex(8) for user in (*ATTACKERS, ADMINISTRATOR)}
        self.rabbit.api("POST", "/api/definitions", definitions("/", self.passwords))
        super().__init__(
            directory,
            self.rabbit.url,
            self.redis.url,
            self.port,
            ROOST_GATEWAY_RATE="0",
            ROOST_GATEWAY_ANONYMOUS_RATE="0",
            ROOST_GATEWAY_SUBMIT_RATE="0",
            ROOST_GATEWAY_FAILED_LOGINS="1000000",
            ROOST_SCHEDD_TRANSFER_PORT=str(self.files_port),
            ROOST_DOCKER="false",
            NUM_CPUS="2",
            MEMORY="4096",
            NEGOTIATOR_INTERVAL="5",
        )
        stack.callback(self.close)
        self._health: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self.tokens: dict[str, str] = {}
        self._victim = ""
        self.described: Any = None  # the gateway's description of itself: the first one is made when it is asked for

    def url_of(self, user: str) -> str:
        return self.rabbit.url_of("/", user, self.passwords[user])

    def start_daemon(self, name: str) -> None:
        port = self._health.setdefault(name, free_port())
        environment = self.environment() | {
            "ROOST_AMQP_URL": self.url_of(f"{name}.{NAMES[name]}"),
            "_CONDOR_ROOST_HEALTH_PORT": str(port),
        }
        command = [sys.executable, "-m", f"services.{name}", "-name", NAMES[name]]
        log = self.directory / f"{name}.log"
        self.daemons[name] = Leashed(command, log=log, env=environment, cwd=ROOT)

    def open(self) -> None:
        """Start it, with tokens, and with what belongs to somebody: a held job, a priority."""
        for name in ORDER:
            self.start_daemon(name)
        (self.directory / "pool.json").write_text(json.dumps({"url": f"http://127.0.0.1:{self.port}"}))
        wait_until(lambda: (self.directory / "token").exists(), 90, "the gateway's token file")
        self.wait_for_slots()
        with self.client() as client:
            for level in ("READ", "WRITE"):
                self.tokens[level] = client.create_token("mallory@pool", level)
            made = client.submit({"executable": "/bin/true", "hold": "true", "should_transfer_files": "no"})
            self._victim = f"{made.cluster}.0"
            client.set_priority(VICTIM, "factor", 7.5)
        self.works()
        self.described = self._document()
        self._held = {name: held for name in NAMES if (held := self._loop(name)) is not None}
        for name in NAMES:
            self._read[name] = self._log(name).stat().st_size

    @property
    def target(self) -> Target:
        return Target("127.0.0.1", self.port, self.tokens, self.files_port)

    def _document(self) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/openapi.json", timeout=60) as answer:
            return json.load(answer)

    def protected(self) -> dict[str, Any]:
        """What nobody of the attackers has a right to change."""
        with self.client() as client:
            (job,) = client.jobs(self._victim)
            factors = [ad.eval("PriorityFactor") for ad in client.priorities() if ad.eval("Name") == VICTIM]
            tokens = sorted((str(one["user"]), str(one["level"]), one.get("label")) for one in client.tokens())
            daemons = client.config(subsystems=[name.upper() for name in NAMES], pattern="*")
            configuration = sorted(repr((one.get("daemon"), one.get("macros"))) for one in daemons)
            lead = [(one.get("leader"), one.get("epoch")) for one in self._standings(client)]
        told = {name: repr(job.eval(name)) for name in job if name not in ("ServerTime", "LastRejMatchTime")}
        return {"job": told, "factor": factors, "tokens": tokens, "configuration": configuration, "lead": lead}

    @staticmethod
    def _standings(client: Client) -> list[dict[str, Any]]:
        found = client._json("GET", "/v1/had")
        return [found] if "leader" in found else list(next(iter(found.values()), []))

    def look(self, before: dict[str, Any]) -> list[Fault]:
        """What changed of what is protected (`before` becomes what it is now), who died, and what was logged since the
        last look."""
        faults = [
            Fault(CRASH, "pool", f"{name} ended with {daemon.returncode}: {daemon.tail()[-1000:]}")
            for name, daemon in self.daemons.items()
            if daemon.returncode is not None
        ]
        for name in NAMES:
            log = self._log(name)
            with log.open("rb") as file:
                file.seek(self._read[name])
                said = file.read()
            self._read[name] += len(said)
            for line in said.decode(errors="replace").splitlines():
                if any(word in line for word in LOGGED):
                    faults.append(Fault(CRASH, "pool", f"{name}: {line[:3000]}"))
        if not faults:
            now = self.protected()
            faults += [
                Fault(RIGHTS, "pool", f"{what}: {before[what]} became {now[what]}"[:3000])
                for what in before
                if before[what] != now[what]
            ]
            before.update(now)  # each change counts once
        return faults

    def silences(self) -> dict[str, int]:
        """How often each daemon's loop was held too long since this was asked last."""
        found = {}
        for name in NAMES:
            held = self._loop(name)
            if held is not None and held != self._held.get(name, held):
                found[name] = held - self._held[name]
            if held is not None:
                self._held[name] = held
        return found

    def works(self) -> None:
        """An ordinary job runs to its end, here."""
        with self.client() as client:
            made = client.submit(
                {"executable": "/bin/true", "should_transfer_files": "no", "requirements": 'regexp("ep$", TARGET.Name)'}
            )
        self.wait_for_rest(made.cluster, 1, JOB_S)

    def last_silence(self, name: str) -> str:
        """What a daemon says of the last time its loop was held."""
        answer = self._ask(name)
        return json.dumps(answer.get("loop", {}).get("last")) if answer else "no answer"

    def _loop(self, name: str) -> int | None:
        answer = self._ask(name)
        return int(answer["loop"]["held"]) if answer and "loop" in answer else None

    def _ask(self, name: str) -> dict[str, Any] | None:
        url = f"http://127.0.0.1:{self._health[name]}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.loads(error.read()))
        except OSError:
            return None

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"
