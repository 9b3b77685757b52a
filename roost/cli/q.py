"""`roost q`: jobs in the queue, in HTCondor's layouts.

Longer than most modules: the options of one command and what each of them changes in the others.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from engine.queue.outcome import FAILED
from roost.cli import ad_formats, batches, custom_columns, hold_codes, output
from roost.cli.job_selection import is_id, owned_by
from roost.cli.options import COMMON, Option, Parsed, ask, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.print_mask import Cells, Mask, integer, string
from roost.cli.printas import memory_usage
from roost.cli.q_layouts import Layout, Look, layout, widen, words
from roost.cli.q_totals import KEY, summary_ad, totals, totals_line
from roost.client import Client
from roost.errors import UsageError
from shared.classad import ClassAd
from shared.classad.column_page import Sheet

#: In the order in which HTCondor's tool looks at them, which decides what a short option means.
OPTIONS: tuple[Option, ...] = (
    ask("w|ide:", "do not cut long values; a number: lines of so many characters"),
    ask("l|ong:", "whole ads, one attribute a line; forms: long, json, xml, new; nosort: as they are"),
    ask("xml", "whole ads as XML"),
    ask("js|on", "whole ads as JSON"),
    ask("lim|it", "at most so many jobs of a pool", "N"),
    ask("p|ool", "address of the pool's gateway, host[:port] or URL", "ADDRESS"),
    ask("n|ame", "only the queue of this schedd", "SCHEDD"),
    ask("s|ubmitter", "only the jobs of this user", "USER"),
    ask("c|onstraint", "only jobs for which this expression is true", "EXPR"),
    ask("slotc|onstraint", "with -analyze: only slots for which this expression is true", "EXPR"),
    ask("mc|onstraint", "the same", "EXPR"),
    ask("ma|chine", "with -analyze: only this slot or machine", "NAME"),
    ask("au|tocluster", "jobs by what matters for matching"),
    ask("gr|oup-by:", "not for files, nor for this pool"),
    ask("fact|ory:", "clusters whose jobs come into the queue some at a time (max_materialize, max_idle)"),
    ask("jobse|t", "job sets"),
    ask("at|tributes", "only these attributes in -long, -json and -xml", "ATTR,..."),
    *custom_columns.FORMAT,
    ask("g|lobal", "everybody's jobs in all queues"),
    ask("al|lusers al|l-users", "everybody's jobs (the default shows them too)"),
    ask("sched|d-constraint", "taken for HTCondor's sake", "EXPR"),
    ask("h|elp", "show this help; universe, state: the codes of these", "[WORD...]"),
    ask("be|tter-analyze be|tter-analyse:", "why these jobs do not run, in HTCondor's words; also :summary,reverse"),
    ask("an|alyze an|alyse:", "the same without the conditions"),
    ask("rev|erse-analyze:", "which jobs suit slots, and the conditions of one slot"),
    ask("verb|ose", "with -analyze: names of slots"),
    ask("r|un", "running jobs and where"),
    ask("ho|ld he|ld", "held jobs and why"),
    flag("hold-codes", help="held jobs by why they are held, most jobs first"),
    ask("idl|e", "idle jobs only"),
    value("layout", help="condor: exit code 0 where there is no such job, too, as of condor_q", metavar="condor"),
    flag(
        "failed",
        help="jobs that are done and failed, as long as they are in the queue; `roost history -failed`: others",
    ),
    ask("go|odput", "how much of their time jobs made good use of"),
    ask("cp|utime", "processor time instead of run time"),
    ask("cur|rentrun", "run time of the current run (the default)"),
    ask("cum|ulative-time", "run time of all runs"),
    ask("gr|id:", "grid jobs"),
    ask("io", "jobs that transfer files"),
    ask("da|g", "nodes below their DAG"),
    ask("ba|tch pro|gress:", "one line a batch (the default)"),
    ask("nob|atch", "one line a job"),
    ask("tot|als", "totals only"),
    ask("e|xpert", "taken for HTCondor's sake"),
    ask("j|obads:", "jobs of this file instead of a pool's; forms: auto, long, json, xml, new", "FILE"),
    ask("s|lotads:", "with -analyze: slots of this file instead of a pool's", "FILE"),
    ask("v|ersion", "print the version"),
    ask("st|ream-results", "taken for HTCondor's sake"),
    value("machineads", help="the same as -slotads", metavar="FILE"),
    ask("userprios", "not for this pool: see `roost negotiate`", "FILE"),
    ask("nouserprios", "with -analyze: regardless of user priorities, as always"),
    flag("all", help="the same as -allusers"),
    COMMON[-1],
)

#: Lines of a file of jobs that part ads.
_PARTS: Final = ("...", "***", "-- ", "---")
_ANALYSES: Final = ("better-analyze", "analyze", "reverse-analyze")
#: -batch:LETTER -> what stands for 0.
_ZEROS: Final = {"b": "", "?": "?", "*": "*", ".": ".", "-": "-", "_": "_", "#": "#", "z": "0"}
#: What narrower terminals do without, so that the counts stay: a column, and the width from which on it is there.
_NARROW: Final = (("SUBMITTED", 78), ("BATCH_NAME", 66))
_ALWAYS: Final = ("ClusterId", "ProcId", "JobStatus", "JobUniverse", "ServerTime")
#: What putting batches together reads.
_BATCHES: Final = (
    "JobBatchName", "DAGManJobId", "DAGNodeName", "DAG_NodesTotal", "DAG_NodesDone", "TotalSubmitProcs",
    "JobMaterializeNextProcId", "Owner",
)  # fmt: skip


@dataclass(slots=True)
class _Asked:
    """What the command line comes to."""

    mode: str = ""  # of the table; "" is decided by the filters
    form: str = ""  # of whole ads
    batch: bool | None = None
    filters: list[str] = field(default_factory=list)  # hold, run, idle
    wide: bool = False
    width: int = 0
    look: Look = field(default_factory=Look)

    def table(self) -> tuple[str, bool]:
        """Which table, and whether jobs are put together."""
        if self.mode:
            return self.mode, self.mode == "batch"
        if "hold" in self.filters:
            return "hold", bool(self.batch)
        if self.batch or (self.batch is None and not self.filters):
            return "batch", True
        if self.look.dag:
            return "dag", False
        return (self.filters[0] if self.filters else "normal"), False


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[JOB | OWNER]...", "Jobs in the queue.", OPTIONS))
        for line in _codes(parsed.all("help")):
            say(line)
        return 0
    if parsed.has("version"):
        return output.version()
    if any(parsed.has(name) for name in _ANALYSES):
        return _analyze(parsed)
    if parsed.has("hold-codes"):
        return hold_codes.show(parsed)
    asked = _read(parsed)
    custom = custom_columns.columns(parsed, words(asked.look), autoclusters=True)
    if custom is not None and custom.autoclusters and "autocluster" not in asked.filters:
        asked.batch = False if asked.batch is None else asked.batch
        asked.filters.append("autocluster")
    if custom is not None and asked.form:
        raise UsageError(f"-{asked.form} shows whole ads: it and columns of your own exclude each other")
    return _Queue(parsed, asked, custom).show()


def _read(parsed: Parsed) -> _Asked:
    """Take the options in their order. Raises UsageError where two contradict each other."""
    asked = _Asked()
    cpu = cumulative = dag = False
    zero = "_"
    for name, letters, _ in parsed.order:
        if name in ("run", "hold", "idle"):
            asked.filters.append(name)
        elif name in ("goodput", "io"):
            asked.mode = name
        elif name in ("factory", "jobset", "autocluster"):
            asked.batch = False if asked.batch is None else asked.batch
            asked.filters.append(name)
        elif name == "grid":
            asked.mode = "ec2" if letters == "ec2" else "grid"
        elif name == "batch":
            asked.mode, asked.batch = "batch", True
            zero = next((_ZEROS[char] for char in letters if char in _ZEROS), zero)
        elif name == "nobatch":
            asked.mode, asked.batch = "" if asked.mode == "batch" else asked.mode, False
        elif name == "totals":
            asked.mode = "totals"
        elif name == "wide":
            asked.width = output.leading_number(letters)
            asked.wide = not letters
        elif name == "long":
            chosen = [word for word in letters.split(",") if word and word != "nosort"]
            asked.form = ad_formats.form_of(chosen[-1] if chosen else "", asked.form or "long")
        elif name in ("xml", "json"):
            if asked.form in ("xml", "json") and asked.form != name:
                raise UsageError("-xml and -json exclude each other")
            asked.form = name
        cpu, cumulative = cpu or name == "cputime", cumulative or name == "cumulative-time"
        dag = dag or name == "dag"
    if parsed.has("group-by"):
        raise UsageError("-group-by: say which jobs you mean with -constraint, and what of them with -af")
    if parsed.has("limit") and parsed.integer("limit", 0) < 1:
        raise UsageError(f"-limit wants a number from 1 up, not {parsed.one('limit')}")
    if parsed.has("currentrun") and cumulative:
        raise UsageError("-currentrun and -cumulative-time exclude each other")
    if len({name for name in asked.filters if name in ("run", "hold", "idle")}) > 1:
        raise UsageError("-run, -hold and -idle exclude each other")
    if not asked.wide and not asked.width:
        asked.width = output.terminal_width()
        asked.wide = not asked.width
    asked.form = "long" if asked.form == "auto" else asked.form
    asked.look = Look(cpu, cumulative, dag, cut=not asked.wide, codes=not parsed.has("jobads"), zero=zero)
    return asked


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Jobs in the order of their numbers, and these."""

    ids: list[batches.Id]
    ads: Sequence[ClassAd]


class _Queue:
    """The jobs that were asked for, and how they are shown."""

    def __init__(self, parsed: Parsed, asked: _Asked, custom: custom_columns.Custom | None) -> None:
        self._parsed, self._asked, self._custom = parsed, asked, custom
        self._ids = [word for word in parsed.arguments if is_id(word)]
        self._only = output.attribute_names(parsed)
        self._totals_only = parsed.has("totals")
        shown = [name for name, _, _ in parsed.order if name in ("totals", "format", "autoformat", "print-format")]
        if custom is not None and shown[-1] == "totals":
            self._custom = custom = None
        self._layout: Layout | None = None
        self._mode, self._batched = asked.table()
        if asked.form or self._totals_only or custom is not None:
            self._batched = False
        else:
            self._layout = layout(self._mode, asked.look)
            if self._batched and not parsed.has("wide") and parsed.one("layout") != "condor":
                names = {name for name, least in _NARROW if 0 < asked.width < least}
                for one in self._layout.columns:
                    one.hidden = one.heading.strip() in names
        columns = custom.mask.columns if custom else self._layout.columns if self._layout else []
        self._mask = custom.mask if custom else Mask(columns, prefix=" ", row_suffix="\n", headings=True)
        order = [name for name, _, _ in parsed.order]
        before = "wide" in order and "print-format" in order and order.index("wide") < order.index("print-format")
        if custom is not None:  # a -wide that comes behind says nothing of the columns of a file
            width = (asked.width if before else output.terminal_width()) if custom.from_file else 0
        else:  # why jobs are held is never cut
            width = asked.width if self._layout is not None and self._mode != "hold" else 0
        self._mask.overall = width - 1 if width else 0
        self._trimmed = asked.wide and (self._layout is not None or "wide" in order)

    def found(self) -> tuple[str, list[ClassAd]]:
        """Where the jobs are from, and all that were asked for, whole and in order."""
        parsed = self._parsed
        if parsed.has("jobads"):
            file, form = parsed.one("jobads"), ad_formats.form_of(parsed.letters.get("jobads", ""), "auto")
            source, jobs = f"Jobads: {file}", ad_formats.read_ads(file, form, self._condition(), parts=_PARTS)
        else:
            with Client(parsed.one("pool") or None) as client:
                jobs = list(client.jobs(constraint=self._condition(), schedd=parsed.one("name")))
                source = (
                    f"Schedd: {', '.join([parsed.one('name')] if parsed.has('name') else client.pool()['schedds'])}"
                )
        return source, list(self._in_order(jobs).ads)

    def show(self) -> int:
        if self._parsed.has("jobads"):
            file = self._parsed.one("jobads")
            form = ad_formats.form_of(self._parsed.letters.get("jobads", ""), "auto")
            self._print(ad_formats.read_ads(file, form, self._condition(), parts=_PARTS), f"Jobads: {file}")
            return 0
        with Client(self._parsed.one("pool") or None) as client:
            limit = self._parsed.integer("limit", 0)
            if self._counts_do():
                self._counted(client)
                return 0
            # The schedd finds jobs by number at once; conditions are for what else there is.
            simple = (
                not self._batched
                and len(self._ids) == len(self._parsed.arguments)
                and not self._parsed.has("submitter")
            )
            ids = self._ids if simple else []
            condition = self._condition(by_id=not simple)
            schedd, projection = self._parsed.one("name"), self._projection()
            found: Sequence[ClassAd]
            if self._parsed.has("factory"):
                clusters = list(dict.fromkeys(one.partition(".")[0] for one in ids))
                found = list(
                    client.factories(*clusters, constraint=condition, projection=projection, schedd=schedd, limit=limit)
                )
            elif self._asked.form:
                ads = client.jobs(*ids, constraint=condition, projection=projection, schedd=schedd, limit=limit)
                found = list(ads)
            else:
                found = client.job_sheet(*ids, constraint=condition, projection=projection, schedd=schedd, limit=limit)
            if self._asked.form or self._custom is not None:
                self._print(found, "")
                return self._told_missing(found)
            schedds = [self._parsed.one("name")] if self._parsed.has("name") else client.pool()["schedds"]
            everybody = None
            if not (self._ids or condition or limit):
                everybody = totals("all users", found)
            elif self._summary() and self._mode != "hold":
                counts = client.job_totals(self._parsed.one("name"))
                summed: Counter[str] = Counter()
                for name, number in counts.items():
                    summed[KEY[name]] += number  # suspended jobs, say, are running ones here
                everybody = totals_line("all users", summed)
            if self._batched and not (limit or self._asked.filters):
                found = _with_factories(
                    found, client.factories(constraint=condition, projection=projection, schedd=schedd)
                )
        self._print(found, f"Schedd: {', '.join(schedds)}", everybody)
        return self._told_missing(found)

    def _counts_do(self) -> bool:
        """Whether nothing but the totals of whole queues is wanted, which schedds keep."""
        asked, parsed = self._asked, self._parsed
        return bool(
            self._totals_only
            and not (asked.form or self._custom or parsed.arguments or parsed.has("limit") or parsed.has("factory"))
            and not self._condition()
        )

    def _counted(self, client: Client) -> None:
        name = self._parsed.one("name")
        summed: Counter[str] = Counter()
        for status, number in client.job_totals(name, managers=False).items():
            summed[KEY[status]] += number
        schedds = [name] if name else client.pool()["schedds"]
        say(f"\n\n-- Schedd: {', '.join(schedds)} @ {_clock(None)}")
        say(totals_line("query", summed))
        say(totals_line("all users", summed))
        say()

    def _told_missing(self, found: Sequence[ClassAd]) -> int:
        """Exit code 1, and a line on standard error, for jobs that are not there and were asked for by number alone."""
        parsed = self._parsed
        others = (
            *self._asked.filters,
            *(name for name in ("constraint", "submitter", "limit", "failed", "grid") if parsed.has(name)),
        )
        if not self._ids or others or parsed.one("layout") == "condor" or len(self._ids) < len(parsed.arguments):
            return 0
        there: set[str] = set()
        for ad in found:
            cluster, proc = integer(ad, "ClusterId"), integer(ad, "ProcId")
            there |= {str(cluster), f"{cluster}.{proc}"}
        missing = [one for one in self._ids if one not in there]
        if self._batched:  # nodes stand below their DAG
            missing = [] if found else missing
        if not missing:
            return 0
        ids = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        sys.stderr.write(
            f"roost: there is no job {ids} in the queue; `roost history {missing[0]}` tells of jobs that left it\n"
        )
        return 1

    # --- which jobs

    def _condition(self, *, by_id: bool = True) -> str:
        """What must be true of a job. by_id: also that it is one of those that are named by number."""
        parsed, asked = self._parsed, self._asked
        named = [owned_by([word]) for word in parsed.arguments if not is_id(word)]
        for user in parsed.all("submitter"):
            whose = "User" if "@" in user and not parsed.has("jobads") else "(AccountingGroup ?: Owner)"
            named.append(f'{whose} == "{_escaped(user)}"')
        named += self._by_id() if by_id else []
        terms = [f"({' || '.join(f'({one})' for one in named)})"] if named else []
        terms += output.constraints(parsed)
        if parsed.has("failed"):
            terms.append(f"({FAILED})")
        conditions = {
            "hold": "JobStatus == 5",
            "run": "(JobStatus == 2 || JobStatus == 6 || JobStatus == 7)",
            "idle": "JobStatus == 1",
        }
        terms += [conditions[name] for name in asked.filters if name in conditions]
        if parsed.has("grid"):
            terms.append("JobUniverse == 9")
        where = self._custom.where if self._custom else self._layout.where if self._layout else ""
        if not where and parsed.has("factory") and self._layout is None:
            where = "ProcId is undefined && JobMaterializeDigestFile isnt undefined"
        return " && ".join([*terms, *([f"({where})"] if where else [])])

    def _by_id(self) -> list[str]:
        terms = []
        for word in self._ids:
            cluster, _, proc = word.partition(".")
            terms.append(f"ClusterId == {cluster}" + (f" && ProcId == {proc}" if proc else ""))
            if (self._batched or self._asked.look.dag) and (not proc or proc == "0"):
                terms.append(f"DAGManJobId == {cluster}")
                terms.append(f'int(split(JobBatchId, ".")[0]) == {cluster}')
        return terms

    def _projection(self) -> list[str]:
        if self._asked.form:
            return self._only
        names = {*_ALWAYS, *self._mask.attributes(), *(_BATCHES if self._batched or self._asked.look.dag else ())}
        return sorted(names)

    # --- how they are shown

    def _print(self, found: Sequence[ClassAd], source: str, everybody: str | None = None) -> None:
        jobs = self._in_order(found)
        if self._asked.form:
            self._whole(jobs.ads)
            return
        if not jobs.ads and self._parsed.has("global") and self._parsed.has("jobads"):
            return  # -global leaves out queues that have nothing to show
        if self._totals_only and self._custom is not None and not self._custom.from_file:
            self._columns_of_totals(jobs.ads)
            return
        at = self._server_time(jobs.ads)
        cells = self._cells(jobs)
        if self._custom is None or self._custom.title:
            say(f"\n\n-- {source} @ {_clock(at)}")
        header = self._layout is not None or (self._custom is not None and self._custom.header)
        if header and self._mask.headings and not self._totals_only:
            output.write(self._mask.heading())
        if not self._totals_only:
            lines = list(self._mask.lines(cells))
            if self._trimmed:  # -format need not end the line
                lines = [f"{line.rstrip()}\n" if line.endswith("\n") else line for line in lines]
            output.write("".join(lines))
        if self._summary():
            if not self._totals_only:
                say()
            # The blanks are HTCondor's; on a terminal they would break the line.
            say(totals("query", jobs.ads) + (" " * 51 if self._parsed.has("jobads") else ""))
            if everybody is not None:
                say(everybody)
            say()

    def _server_time(self, ads: Sequence[ClassAd]) -> int | None:
        """The queue's clock, which jobs that have none get from ours if they are of a queue."""
        if isinstance(ads, Sheet):
            clocks = ads.cells("servertime")
            if set(map(type, clocks)) == {int}:
                return next((clock for clock in clocks if isinstance(clock, int) and clock), None)
        at = next((at for ad in ads if (at := integer(ad, "ServerTime"))), None)
        if not any("ServerTime" in ad for ad in ads):
            now = int(time.time())
            for ad in ads if self._parsed.has("pool") or not self._parsed.has("jobads") else ():
                ad["ServerTime"] = now
        return at

    def _columns_of_totals(self, ads: Sequence[ClassAd]) -> None:
        """-totals and then columns of one's own: of what all jobs come to, as -totals -long has it."""
        cells = self._mask.read([summary_ad(ads)])
        if self._mask.headings:
            output.write(self._mask.heading())
        output.write("".join(self._mask.lines(cells)))
        say()

    def _summary(self) -> bool:
        if self._totals_only:
            return True
        if self._custom is not None:
            return self._custom.summary == "standard"
        return self._layout is not None and self._layout.summary

    def _in_order(self, found: Sequence[ClassAd]) -> _Jobs:
        """Jobs by cluster and proc; of two with the same number the first."""
        if isinstance(found, Sheet) and (ordered_ := self._by_number(found)) is not None:
            return ordered_
        jobs: dict[batches.Id, ClassAd] = {}
        by = "AutoClusterId" if "autocluster" in self._asked.filters else "ClusterId"
        shown_whole = bool(self._asked.form) and "factory" not in self._asked.filters
        for number, ad in enumerate(found):
            cluster, proc = integer(ad, by), integer(ad, "ProcId")
            if cluster is None and "JobSetId" in ad and not self._asked.form and by == "ClusterId":
                ad["ClusterId"], ad["ProcId"] = 0, integer(ad, "JobSetId") or 0
            if by == "AutoClusterId":
                id = (1 << 31, 0) if cluster is None else (0, cluster)
            elif cluster is None:
                job_set = integer(ad, "JobSetId")
                id = ((1 << 31) - 1, number) if job_set is None else (0, job_set)
            else:
                id = (cluster, (number if shown_whole else -1) if proc is None else proc)
            if id in jobs:
                sys.stderr.write(f"roost: two jobs are {id[0]}.{id[1]}; the first is shown\n")
                continue
            jobs[id] = ad
        # No number at all comes last in its cluster.
        ordered = sorted(jobs.items(), key=lambda pair: (pair[0][0], pair[0][1] & 0xFFFFFFFF))
        if self._custom is not None and self._custom.group_by:
            keys = self._custom.group_by
            ordered.sort(
                key=lambda pair: "".join(f"{text}\n" for key in keys if (text := string(pair[1], key)) is not None)
            )
        return _Jobs([id for id, _ in ordered], [ad for _, ad in ordered])

    def _by_number(self, found: Sheet) -> _Jobs | None:
        """The same of jobs that all have numbers of their own; None where one has not."""
        clusters, procs = found.cells("clusterid"), found.cells("procid")
        if set(map(type, clusters)) | set(map(type, procs)) != {int} or "autocluster" in self._asked.filters:
            return None
        ids = cast("list[batches.Id]", list(zip(clusters, procs, strict=True)))
        if len(set(ids)) < len(ids) or min(ids)[0] < 0 or not all(0 <= proc < 1 << 31 for _, proc in ids):
            return None
        if self._custom is not None and self._custom.group_by:
            return None
        order = sorted(range(len(ids)), key=ids.__getitem__)
        if order == list(range(len(ids))):
            return _Jobs(ids, found)
        return _Jobs([ids[place] for place in order], found.taken(order))

    def _whole(self, ads: Sequence[ClassAd]) -> None:
        form = self._asked.form
        if self._totals_only:
            ads = [summary_ad(ads)]
        before, between, behind = ad_formats.frame(form)
        if not ads and form != "xml":
            return
        plain = "nosort" in self._parsed.letters.get("long", "").split(",")
        output.write(before)
        for place, ad in enumerate(ads):
            text = ad_formats.text_of(ad, form, self._only, in_order=not plain)
            output.write((between if place else "") + text + ("\n" if form == "long" and text else ""))
        output.write(behind)

    def _cells(self, jobs: _Jobs) -> Cells:
        ads = jobs.ads
        if self._layout is None:
            return self._mask.read(ads)
        linked = []
        if self._batched or self._asked.look.dag:
            procs = ads.cells("procid") if isinstance(ads, Sheet) else [ad.table().get("procid") for ad in ads]
            ids = [id if proc is not None else (id[0], -1) for id, proc in zip(jobs.ids, procs, strict=True)]
            linked = batches.jobs_of(ids, ads, batches=self._batched)
        batches.link(linked)
        columns = self._mask.columns
        screen = 0 if self._asked.wide else self._asked.width
        if self._batched:
            if not ads:
                return self._mask.read([])
            lines = batches.fold(linked, whole=self._whole_clusters(), materialized=_materialized(jobs))
            if self._asked.look.dag:  # the names of nodes make their column wide
                cells = self._mask.read(ads)
                cells = [[texts[job.place] for job, _ in lines] for texts in cells]
            else:  # of all other jobs only numbers are shown
                cells = self._mask.read([job.ad for job, _ in lines])
            folded = batches.cells_of(
                lines,
                cells,
                columns,
                always_held=self._parsed.has("global"),
                clusters=not self._parsed.has("jobads"),
            )
            batches.set_widths(folded, columns, screen)
            return folded
        cells = self._mask.read(ads)
        if self._layout.ids and ads and not self._asked.look.cpu:
            self._widen(jobs, cells, screen, linked)
        if self._asked.look.dag:
            return self._as_tree(linked, cells)
        return cells

    def _whole_clusters(self) -> bool:
        filtered = self._asked.filters or self._parsed.has("constraint") or (self._layout and self._layout.where)
        return not filtered and not any("." in word for word in self._ids)

    def _widen(self, jobs: _Jobs, cells: Cells, screen: int, linked: Sequence[batches.Job]) -> None:
        dag, ads = self._asked.look.dag, jobs.ads
        names = [
            len(text.encode()) + (3 if dag and "DAGManJobId" in ads[place] else 0)
            for place, text in enumerate(cells[2])
            if text
        ]
        names += [
            len((cells[2][job.place] or "").encode()) + 2 + job.generation for job in linked if job.generation > 1
        ]
        longest = max(names, default=0)
        different = set(ads.alike(("memoryusage", "imagesize"))) if isinstance(ads, Sheet) else range(len(ads))
        memory = max((memory_usage(0.0, ads[place]) or 0.0 for place in different), default=0.0)
        most = 14 + screen - 80 + (3 if dag else 0) if screen else 0
        widen(self._mask.columns, max(id[0] for id in jobs.ids), max(id[1] for id in jobs.ids), longest, memory, most)
        for number in (0, 1):
            form = self._mask.columns[number].form
            numbers = _integers(ads, self._mask.columns[number].source)
            cells[number] = [
                None if text is None or form is None else form.number(value)
                for value, text in zip(numbers, cells[number], strict=True)
            ]

    def _as_tree(self, linked: Sequence[batches.Job], cells: Cells) -> Cells:
        """Nodes below their DAG, their names moved to the right."""
        width = self._mask.columns[2].width
        for job in linked:
            if job.dag:
                lead = " " * job.generation + "|-"
                cells[2][job.place] = lead + (cells[2][job.place] or "")[: max(0, width - len(lead))]
        order: list[int] = []
        seen: set[int] = set()

        def put(job: batches.Job) -> None:
            order.append(job.place)
            seen.add(job.place)
            for node in batches.in_line(job.children) if job.children is not None else ():
                put(node)

        for job in linked:
            if job.place not in seen:
                put(job)
        return [[texts[place] for place in order] for texts in cells]


def _with_factories(found: Sequence[ClassAd], factories: Iterable[ClassAd]) -> Sequence[ClassAd]:
    """Jobs, and of clusters of late materialization that have none in the queue just now the cluster itself."""
    asked = list(factories)
    if not asked:
        return found
    cells = found.cells("clusterid") if isinstance(found, Sheet) else [ad.eval("ClusterId") for ad in found]
    present = set(cells)
    alone = [ad for ad in asked if ad.eval("ClusterId") not in present]
    return [*found, *alone] if alone else found


def _materialized(jobs: _Jobs) -> dict[int, int]:
    """The next number that the factory of a cluster gives."""
    key = "JobMaterializeNextProcId"
    if isinstance(jobs.ads, Sheet) and not any(jobs.ads.cells(key.lower())):
        return {}
    pairs = zip(jobs.ids, _integers(jobs.ads, key, -1), strict=True)
    found = {id[0]: number for id, number in pairs if number > 0}
    if not isinstance(jobs.ads, Sheet):  # a cluster that has given no job yet
        none = [ad for ad in jobs.ads if "ProcId" not in ad and key in ad and not integer(ad, key)]
        found.update((integer(ad, "ClusterId") or 0, 0) for ad in none)
    return found


def _integers(ads: Sequence[ClassAd], name: str, missing: int = 0) -> list[int]:
    """An attribute of all, and the same for 0 as for none."""
    if isinstance(ads, Sheet):
        cells = ads.cells(name.lower())
        if set(map(type, cells)) == {int}:
            return cast("list[int]", cells)
    return [integer(ad, name) or missing for ad in ads]


def _clock(at: int | None) -> str:
    """A queue's clock (s since 1970) as the heading shows it; of none, or one that no calendar has, ours."""
    try:
        moment = time.localtime(at)
    except (OSError, OverflowError, ValueError):
        moment = time.localtime()
    return time.strftime("%m/%d/%y %H:%M:%S", moment)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _analyze(parsed: Parsed) -> int:
    """Why jobs do not run, in HTCondor's words (`roost analyze` has its own). Raises UsageError."""
    from roost.cli import better_analyze

    asked = _read(parsed)
    asked.batch, asked.filters = False, [name for name in asked.filters if name != "autocluster"]
    words = [word for name, letters, _ in parsed.order if name in _ANALYSES[:2] for word in letters.lower().split(",")]
    if parsed.has("userprios") or (any("priority".startswith(word) for word in words if word)):
        raise UsageError("user priorities are not weighed here; `roost negotiate` shows who would get what")
    machine, constraint = "", ""
    for name, _, values in parsed.order:  # the last one counts; a bare word is a name in any case
        if name in ("machine", "slotconstraint", "mconstraint"):
            named = name == "machine" or re.fullmatch(r"[\w.@-]+", values[0])
            machine, constraint = (values[0], "") if named else ("", values[0])
    how = better_analyze.Asked(
        better=parsed.has("better-analyze"),
        summary=any("summary".startswith(word) for word in words if word),
        reverse=parsed.has("reverse-analyze") or any("reverse".startswith(word) for word in words if word),
        verbose=parsed.has("verbose"),
        width=asked.width or better_analyze.WIDTH,
        machine=machine,
    )
    source, jobs = _Queue(parsed, asked, None).found()
    slots = better_analyze.select_slots(_slots(parsed), machine, constraint)
    say(f"\n\n-- {source}")
    for piece in better_analyze.analysis(jobs, slots, how):
        output.write(piece)
    return 0


def _slots(parsed: Parsed) -> list[ClassAd]:
    """The slots that jobs are compared with."""
    file = parsed.one("slotads") or parsed.one("machineads")
    if file:
        return ad_formats.read_ads(file, ad_formats.form_of(parsed.letters.get("slotads", ""), "auto"))
    with Client(parsed.one("pool") or None) as client:
        return list(client.ads("Machine"))


_UNIVERSE_CODES: Final = (
    (5, "Vanilla"), (7, "Scheduler"), (9, "Grid"), (10, "Java"), (11, "Parallel"), (12, "Local"), (13, "VM"),
)  # fmt: skip
_STATE_CODES: Final = (
    (1, "I", "IDLE"), (2, "R", "RUNNING"), (3, "X", "REMOVED"), (4, "C", "COMPLETED"), (5, "H", "HELD"),
    (6, ">", "TRANSFERRING_OUTPUT"), (7, "S", "SUSPENDED"),
)  # fmt: skip


def _codes(words: Sequence[str]) -> Iterable[str]:
    """What -help universe and -help state add."""
    asked = {match[0].lower() for word in words if (match := re.match("[a-zA-Z]+", word))}
    if asked & {"universe", "all"}:
        yield "\n    JobUniverse codes:"
        yield from (f"\t{number:2} {name}" for number, name in _UNIVERSE_CODES)
    if asked & {"state", "status", "all"}:
        yield "\n    JobStatus codes:"
        yield from (f"\t{number:2} {letter} {name}" for number, letter, name in _STATE_CODES)
