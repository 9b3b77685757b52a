"""The gateway's application without anything behind it: for what it says of itself."""

from functools import cache

from services.gateway.api.app import build
from services.gateway.api.doors import Doors
from services.gateway.api.guard import Guards
from services.gateway.rates import Limiter, Line, Room
from services.gateway.stream import EventStream
from services.gateway.turnstile import Turnstile
from shared.config import load_config
from shared.config.knobs import GatewaySettings
from shared.daemon.clock import SystemClock


@cache
def application():
    settings = GatewaySettings.from_config(load_config([], subsystem="GATEWAY", env={}))
    clock = SystemClock()
    guards = Guards(Room(0), Room(0), Turnstile(Line(0, 0)), Limiter(0, 1), clock)
    nothing = None
    return build(
        Doors(nothing, nothing, nothing, EventStream(), nothing, nothing, guards, settings, clock, "gateway.test")
    )
