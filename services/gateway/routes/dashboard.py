"""Routes of the dashboard: the pool counted, sorted and cut into pages by services.gateway.dashboard."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, FastAPI, Path, Query
from starlette.responses import Response

from services.gateway.core import dashboard_rows
from services.gateway.core.authorization import Identity, refusal
from services.gateway.core.job_order import ORDERS
from services.gateway.dashboard import MACHINE_ORDERS
from services.gateway.routes.context import RouteContext, example
from shared.messages.journal import AskCycle, AskCycles, AskJob, AskLeaders, AskSeries

#: Lines of one page.
MOST_LINES = 500
#: Slots of one machine that are shown.
MOST_SLOTS = 2000
LONGEST = 1000
#: What a moment may be.
AT: Final[dict[str, Any]] = {"ge": 0, "le": 1e11, "allow_inf_nan": False}

Search = Annotated[
    str, Query(max_length=dashboard_rows.LONGEST_SEARCH, description="what a name must have in it, in any case")
]
OfSchedd = Annotated[str, Query(max_length=LONGEST, description="name; none: all of them")]
OfStatus = Annotated[str, Query(max_length=LONGEST, description="Idle, Running, Held, ...; none: any")]
OfUser = Annotated[str, Query(max_length=LONGEST, description="submitter or owner")]
JobSearch = Annotated[
    str,
    Query(max_length=dashboard_rows.LONGEST_SEARCH, description="job number, or a part of command or arguments"),
]
OfMachine = Annotated[
    str, Query(max_length=LONGEST, description="only jobs that run on this machine, or ran there last; none: any")
]
After = Annotated[str, Query(max_length=5000, description="`next` of the page before; none: the first page")]
Lines = Annotated[int, Query(ge=1, le=MOST_LINES, description="lines of the page")]


_CYCLE = {"at": 1795351952.0, "duration_s": 0.7, "slots": 20000, "matches": 1200, "rejections": 31}
_SLOT = {"Name": "slot1@node1", "Machine": "node1", "State": "Claimed", "Activity": "Busy", "Cpus": 2}
_MAP = {
    "at": 1795351952.0,
    "left_out": 0,
    "states": ["Asleep", "Draining", "Claimed", "Owner", "Unclaimed"],
    "machine": ["node1", "node2"],
    "state": [2, 4],
    "cpus": [16, 16],
    "used": [12, 0],
    "load": [11.2, 0.1],
    "heard": [1795351950, 1795351949],
    "began": [1795300000, 1795300000],
}
_JOB = {"Id": "12.3", "Status": "Idle", "Schedd": "ap1", "Cmd": "/bin/sleep"}
_BATCH = {"Schedd": "ap1", "ClusterId": 12, "Cmd": "/bin/sleep", "states": {"Idle": 96, "Running": 4}, "jobs": 100}
_USE = {"at": 1795351952.0, "parts": {"memory": {"used": 310, "asked": 512}}}
_LOAN = {"lender": "biology", "borrower": "physics", "amount": 4.0}
_STARTED = {"type": "daemon.started", "daemon": "startd@node1", "subsystem": "STARTD", "at": 1795351952.0}
_INCIDENT = {"at": 1795351952.0, "end": 1795351960.0, "count": 4, "event": _STARTED}
_GLANCE = {
    "at": 1795351952.0,
    "slots": {"slots": 64, "cpus": 64.0, "used_cpus": 48.0, "utilisation": 0.75},
    "queue": {"running": 48, "idle": 12, "held": 0, "total": 60},
    "users": {"count": 1, "lines": [{"name": "ann@pool", "running": 48, "idle": 12, "held": 0}]},
    "waits": {"count": 48, "p50": 1.2, "p90": 8.0, "p99": 9.5},
    "negotiators": [],
    "hads": [],
}


_FINDING = {
    "code": "held",
    "level": "warning",
    "text": "3 jobs are held, the first 7.0: no such file (code 12)",
    "count": 3,
    "about": {"page": "job", "name": "7.0", "schedd": "ap1"},
    "help": "how-to.md#see-why-jobs-are-held-and-let-them-go-on",
    "command": "roost q -hold-codes",
}


def _orders(names: tuple[str, ...]) -> str:
    return "^-?(" + "|".join(names) + ")$"


def add_routes(app: FastAPI, context: RouteContext) -> None:
    """Routes under /v1/overview, and /v1/attention. Answers are good for a while and shared by all who ask."""
    _machine_routes(app, context)
    _job_routes(app, context)
    _share_routes(app, context)
    _history_routes(app, context)

    @app.get(
        "/v1/overview",
        dependencies=[Depends(context.guards.may("ads"))],
        summary="The pool at a glance",
        responses=example(_GLANCE),
    )
    async def overview() -> dict[str, Any]:
        """Slots by state with cpus, utilisation, the queue, who has most jobs, how long jobs waited, negotiators and
        HADs. A part that can not be had is `{"error": why}`."""
        return await context.dashboard.overview()

    @app.get(
        "/v1/attention",
        summary="What needs attention",
        responses=example({"at": 1795351952.0, "findings": [_FINDING], "hidden": ["the dead letters"]}),
    )
    async def attention(identity: Annotated[Identity, Depends(context.guards.may("ads"))]) -> dict[str, Any]:
        """What is wrong with the pool, gravest first: daemons and machines that are missing, silent or of other
        versions, jobs that are held or can never run, batches that fail, machines that fail jobs, disks, queues, dead
        letters. Each with its `level` (error, warning, note), what it is `about`, a page that helps (of docs/) and a
        `command`. A part that can not be had is a finding; `hidden`: the parts that your level does not show."""
        return await context.attention.told(lambda operation: not refusal(identity, operation))

    @app.get(
        "/v1/overview/cycles",
        dependencies=[Depends(context.guards.may("ads"))],
        summary="Last negotiation cycles",
        responses=example({"negotiators": [{"Name": "cm1", "Epoch": 3, "cycles": [_CYCLE]}]}),
    )
    async def cycles() -> dict[str, Any]:
        """What each negotiator's ad tells of its last cycles, newest first. A journal knows more of them."""
        return {"negotiators": await context.dashboard.negotiators()}


def _machine_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/overview/slots",
        dependencies=[Depends(context.guards.may("ads"))],
        summary="A page of slots",
        responses=example({"rows": [_SLOT], "next": "", "fits": 1}),
    )
    async def slots(
        state: Annotated[str, Query(max_length=LONGEST, description="only slots in this State")] = "",
        activity: Annotated[str, Query(max_length=LONGEST, description="only slots with this Activity")] = "",
        search: Search = "",
        order: Annotated[
            str,
            Query(pattern=_orders(dashboard_rows.SLOT_ORDERS), description="attribute; with - before it descending"),
        ] = "Name",
        after: After = "",
        limit: Lines = 50,
    ) -> dict[str, Any]:
        """`rows`, `next` (empty on the last page), and in `fits` how many slots all pages have."""
        return await context.dashboard.slot_page(
            state=state, activity=activity, search=search, order=order, after=after, limit=limit
        )

    @app.get(
        "/v1/overview/machines",
        dependencies=[Depends(context.guards.may("ads"))],
        summary="A page of machines",
        responses=example(
            {
                "rows": [{**_SLOT, "states": {"Claimed": {"slots": 8, "cpus": 16}}}],
                "next": "",
                "fits": 1,
                "keepers": {"Defrag": [{"Name": "cm1", "MachinesDraining": 1}], "Rooster": []},
            }
        ),
    )
    async def machines(
        search: Search = "",
        condition: Annotated[
            Literal["", "asleep", "draining"], Query(description="only machines that are so; none: all")
        ] = "",
        order: Annotated[
            str, Query(pattern=_orders(MACHINE_ORDERS), description="attribute; with - before it descending")
        ] = "Machine",
        after: After = "",
        limit: Lines = 50,
    ) -> dict[str, Any]:
        """A line for each machine, with its slots and cpus by state; `next` and `fits` as with slots. `keepers`: the
        daemons that drain and that wake machines, and what they say."""
        return await context.dashboard.machine_page(
            search=search, condition=condition, order=order, after=after, limit=limit
        )

    @app.get(
        "/v1/overview/machine-map",
        dependencies=[Depends(context.guards.may("ads", heavy=True))],
        summary="All machines in a few columns",
        response_class=Response,
        responses=example(_MAP),
    )
    async def machine_map() -> Response:
        """A place in each list for each machine, by name: `state` (its number in `states`), `cpus` and how many of them
        are `used`, `load`, when the collector `heard` of it last and when its startd `began`. `left_out`: machines
        beyond the first 20,000. Good for 5 seconds, and shared by all who ask."""
        return Response(await context.dashboard.machine_map(), media_type="application/json")

    @app.get(
        "/v1/overview/machine",
        dependencies=[Depends(context.guards.may("ads"))],
        summary="One machine and its slots",
        responses=example({"machine": "node1", "slots": [_SLOT], "fits": 1, "about": {"OpSysAndVer": "Debian12"}}),
    )
    async def machine(
        name: Annotated[str, Query(max_length=LONGEST, description="Machine, as its ads have it")],
        limit: Annotated[int, Query(ge=1, le=MOST_SLOTS, description="at most so many slots")] = 500,
    ) -> dict[str, Any]:
        """Its slots in their order, and what its first slot tells of the machine."""
        return await context.dashboard.machine(name, limit)

    @app.get(
        "/v1/overview/machine/history",
        dependencies=[Depends(context.guards.may("ads"))],
        summary="How busy a machine was",
        responses=example({"found": {"times": [1795351952.0], "series": {"Load per cpu": [0.5]}}}),
    )
    async def machine_history(
        name: Annotated[str, Query(min_length=1, max_length=LONGEST, description="Machine, as its ads have it")],
        start: Annotated[float, Query(alias="from", description="seconds since 1970", **AT)],
        end: Annotated[float, Query(alias="to", description="seconds since 1970", **AT)],
    ) -> dict[str, Any]:
        """`found`: its load by its cpus, and the parts of its cpus and memory that were claimed, as `times` and
        `series`, from a collector with KEEP_POOL_HISTORY; or `missing`: why there is nothing."""
        return await context.dashboard.machine_past.told(name, start, end)


def _job_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/overview/jobs",
        dependencies=[Depends(context.guards.may("jobs.query"))],
        summary="A page of jobs",
        responses=example({"rows": [_JOB], "next": "", "totals": {"Idle": 4}, "schedds": ["ap1"], "late": []}),
    )
    async def jobs(
        schedd: OfSchedd = "",
        status: OfStatus = "",
        user: OfUser = "",
        search: JobSearch = "",
        machine: OfMachine = "",
        history: Annotated[bool, Query(description="jobs that left the queue")] = False,
        order: Annotated[
            str,
            Query(
                pattern=f"^$|{_orders(tuple(ORDERS))}",
                description="column, with - before it descending, of jobs in queues; none: newest first",
            ),
        ] = "",
        after: After = "",
        limit: Lines = 50,
    ) -> dict[str, Any]:
        """Newest first, schedd by schedd: `rows`, `next`, `totals` of the whole queues by status, `schedds`;
        `late`: clusters of which jobs are still to come into the queue. With an `order` all queues are one, and `fits`
        is how many jobs fit."""
        return await context.dashboard.job_page(
            schedd=schedd,
            status=status,
            user=user,
            search=search,
            machine=machine,
            history=history,
            order=order,
            after=after,
            limit=limit,
        )

    @app.get(
        "/v1/overview/batches",
        dependencies=[Depends(context.guards.may("jobs.query", heavy=True))],
        summary="A page of jobs by cluster",
        responses=example(
            {"rows": [_BATCH], "next": None, "fits": 1, "jobs": 100, "constraint": '(User == "ann@pool")'}
        ),
    )
    async def batches(
        schedd: OfSchedd = "",
        status: OfStatus = "",
        user: OfUser = "",
        search: JobSearch = "",
        machine: OfMachine = "",
        after: Annotated[int, Query(ge=0, le=10**7, description="lines to leave out")] = 0,
        limit: Lines = 50,
    ) -> dict[str, Any]:
        """Jobs in the queues by cluster, newest first, with how many are in which state; `fits`: clusters of all pages,
        `jobs`: their jobs that fit, and `constraint`: by which ClassAd expression, as orders on many jobs take it."""
        return await context.dashboard.batch_page(
            schedd=schedd, status=status, user=user, search=search, machine=machine, after=after, limit=limit
        )

    @app.get(
        "/v1/overview/jobs/{job_id}",
        summary="One job",
        responses=example({"job": _JOB, "history": False, "use": _USE, "ad": {"Cmd": '"/bin/sleep"'}}),
    )
    async def job(
        job_id: Annotated[str, Path(max_length=100, description="CLUSTER.PROC")],
        identity: Annotated[Identity, Depends(context.guards.may("jobs.query"))],
        schedd: Annotated[str, Query(max_length=LONGEST, description="name; none: all of them")] = "",
    ) -> dict[str, Any]:
        """Its line, what it uses of what it asked for or, where it did not, was given (`use`; memory and disk in MiB),
        and its whole ad as text, from a queue or (`history`: true) a history. Private attributes are there for its
        owner and administrators."""
        return await context.dashboard.job(job_id, schedd, user=identity.user, admin=identity.admin)


def _history_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/overview/series",
        dependencies=[Depends(context.guards.may("events"))],
        summary="Numbers of the pool over time",
        responses=example({"found": {"times": [1795351952.0], "series": {"Claimed": [12]}}}),
    )
    async def series(
        name: Annotated[Literal["slots", "cpus", "jobs", "waits", "shares", "utilisation"], Query(description="which")],
        start: Annotated[float, Query(alias="from", description="seconds since 1970", **AT)] = 0.0,
        end: Annotated[float, Query(alias="to", description="seconds since 1970; 0: now", **AT)] = 0.0,
        points: Annotated[int, Query(ge=2, le=1000, description="at most so many points")] = 240,
    ) -> dict[str, Any]:
        """`found`: the journal's answer, `times` and `series`; or `missing`: why there is none. `instead`: what it is
        of where the journal does not know what was asked for, and why."""
        return await context.dashboard.journal.series(AskSeries(name=name, start=start, end=end, points=points))

    @app.get(
        "/v1/overview/incidents",
        dependencies=[Depends(context.guards.may("events"))],
        summary="What happened to daemons",
        responses=example({"found": {"incidents": [_INCIDENT], "cut": False}}),
    )
    async def incidents(
        start: Annotated[float, Query(alias="from", description="seconds since 1970", **AT)],
        end: Annotated[float, Query(alias="to", description="seconds since 1970", **AT)],
    ) -> dict[str, Any]:
        """`found`: from the journal what happened to daemons, oldest first: starts, stops, machines that went away,
        changes of leadership; what tells the same of several daemons shortly after each other is one, with `count` and
        the first `event`. `cut`: there was more. Or `missing`: why there is nothing."""
        return await context.dashboard.journal.incidents(start, end)

    @app.get(
        "/v1/overview/jobs/{job_id}/story",
        dependencies=[Depends(context.guards.may("events"))],
        summary="What became of a job",
        responses=example({"missing": "no journal daemon"}),
    )
    async def story(
        job_id: Annotated[str, Path(max_length=100, description="CLUSTER.PROC")],
        schedd: Annotated[str, Query(max_length=LONGEST, description="name; none: whichever has such a job")] = "",
    ) -> dict[str, Any]:
        """`found`: the journal's answer, with events, spans, causes and hours; or `missing`: why there is none."""
        return await context.dashboard.journal.recorded(AskJob(job_id=job_id, schedd=schedd))

    @app.get(
        "/v1/overview/cycles/all",
        dependencies=[Depends(context.guards.may("events"))],
        summary="A page of recorded cycles",
        responses=example({"found": {"cycles": [_CYCLE], "next": None}}),
    )
    async def all_cycles(
        before: Annotated[float, Query(description="`next` of the page before; 0: the newest", **AT)] = 0.0,
        limit: Lines = 50,
    ) -> dict[str, Any]:
        """`found`: the journal's answer, cycles newest first; or `missing`: why there is none."""
        return await context.dashboard.journal.recorded(AskCycles(before=before, limit=limit))

    @app.get(
        "/v1/overview/cycles/{negotiator}/{epoch}/{cycle}",
        dependencies=[Depends(context.guards.may("events"))],
        summary="One recorded cycle",
        responses=example({"found": _CYCLE}),
    )
    async def one_cycle(
        negotiator: Annotated[str, Path(max_length=LONGEST, description="its name")],
        epoch: Annotated[int, Path(ge=0, le=2**53, description="of its lead")],
        cycle: Annotated[int, Path(ge=0, le=2**53, description="its number in the epoch")],
    ) -> dict[str, Any]:
        """`found`: the journal's answer, with matches and reasons; or `missing`: why there is none."""
        return await context.dashboard.journal.recorded(AskCycle(negotiator=negotiator, epoch=epoch, cycle=cycle))

    @app.get(
        "/v1/overview/leaders",
        dependencies=[Depends(context.guards.may("events"))],
        summary="Changes of leadership",
        responses=example({"found": {"changes": [{"at": 1795351952.0, "had": "cm1", "state": "leader"}]}}),
    )
    async def leaders(limit: Lines = 100) -> dict[str, Any]:
        """`found`: the journal's answer, changes newest first; or `missing`: why there is none."""
        return await context.dashboard.journal.recorded(AskLeaders(limit=limit))


def _share_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/overview/users",
        dependencies=[Depends(context.guards.may("priorities"))],
        summary="A page of submitters",
        responses=example(
            {
                "rows": [{"Name": "ann@pool", "Priority": 500.0}],
                "next": None,
                "fits": 1,
                "in_use": 8.0,
                "half_life_s": 86400.0,
            }
        ),
    )
    async def users(
        search: Search = "",
        order: Annotated[
            str,
            Query(
                pattern=_orders(tuple(dashboard_rows.USER_ORDERS)), description="column; with - before it descending"
            ),
        ] = "-in_use",
        after: Annotated[int, Query(ge=0, le=10**7, description="lines to leave out")] = 0,
        limit: Lines = 100,
    ) -> dict[str, Any]:
        """Priorities (real and effective), factors, use, share, and jobs in the queue; `half_life_s`:
        PRIORITY_HALFLIFE."""
        return await context.dashboard.users(search=search, order=order, after=after, limit=limit)

    @app.get(
        "/v1/overview/groups",
        dependencies=[Depends(context.guards.may("priorities"))],
        summary="Accounting groups and loans",
        responses=example({"groups": [{"Name": "physics"}], "loans": [_LOAN], "planned": True, "cpus": 64.0}),
    )
    async def groups() -> dict[str, Any]:
        """Groups with quotas and use, and `loans`: who uses how much of whose quota (an attribution in proportion;
        lender "" is the part of the pool that no quota names)."""
        return await context.dashboard.groups()

    @app.get(
        "/v1/overview/parity",
        dependencies=[Depends(context.guards.may("priorities"))],
        summary="When two submitters are equal",
        responses=example({"in_s": 7200.0, "ahead": "ann@pool", "points": [[0.0, 500.0, 900.0]]}),
    )
    async def parity(
        first: Annotated[str, Query(max_length=LONGEST, description="submitter, as its accounting ad has it")],
        second: Annotated[str, Query(max_length=LONGEST, description="another one")],
    ) -> dict[str, Any]:
        """In how many seconds (`in_s`; null: never) their effective priorities meet if both go on using what they use
        now, and in `points` [seconds from now, first, second] how they go there."""
        return await context.dashboard.parity(first, second)
