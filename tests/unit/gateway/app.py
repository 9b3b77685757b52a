"""The gateway's application without anything behind it: for what it says of itself."""

from functools import cache

from services.gateway.admission import AdmissionQueue
from services.gateway.app import build
from services.gateway.auth.guards import Guards
from services.gateway.core.limits import ConcurrencyLimit, FairQueue, RateLimiter
from services.gateway.events import EventStream
from services.gateway.pool_client import PoolClient
from services.gateway.routes.context import RouteContext
from shared.config import load_config
from shared.config.knobs import GatewaySettings
from shared.daemon.clock import SystemClock


def context(bus=None) -> RouteContext:
    settings = GatewaySettings.from_config(load_config([], subsystem="GATEWAY", env={}))
    clock = SystemClock()
    guards = Guards(ConcurrencyLimit(0), ConcurrencyLimit(0), AdmissionQueue(FairQueue(0, 0)), RateLimiter(0, 1), clock)
    nothing = None
    return RouteContext(
        bus,
        PoolClient(bus, clock),
        nothing,
        nothing,
        EventStream(),
        nothing,
        nothing,
        guards,
        settings,
        clock,
        "gateway.test",
        nothing,
        nothing,
        nothing,
    )


@cache
def application():
    return build(context())
