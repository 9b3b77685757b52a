"""`roost status`: slots and daemons of the pool, in HTCondor's layouts.

Longer than most modules: the options of one command and what each of them changes in the others.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from roost.cli import ad_formats, compact, custom_columns, output
from roost.cli.options import COMMON, Option, Parsed, ask, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.print_mask import Mask, number_of, string
from roost.cli.slot_order import ordered
from roost.cli.status_layouts import CONDITIONS, Layout, Screen, fit, layout, mask_of
from roost.cli.status_totals import KINDS, Look, Totals
from roost.client import Client
from roost.errors import UsageError
from shared.classad import ClassAd, parse_expr, references
from shared.classad.column_page import Sheet
from shared.classad.expr import Expr

#: In the order in which HTCondor's tool looks at them, which decides what a short option means.
#: Names among which one like what was asked for is looked for.
_MOST_NAMES: Final = 10_000

OPTIONS: tuple[Option, ...] = (
    ask("av|ail", "slots that are free"),
    ask("p|ool", "address of the pool's gateway, host[:port] or URL", "ADDRESS"),
    ask("ad|s:", "ads of this file instead of a pool's; forms: long, json, xml, new, auto", "FILE"),
    *custom_columns.FORMAT,
    ask("wid|e:", "do not cut long values; a number: lines of so many characters"),
    ask("nat|ural:", "numbers in names sort as numbers (they always do)"),
    ask("targ|et", "an ad that -format and -af see as TARGET", "FILE"),
    ask("con|straint", "only ads for which this expression is true", "EXPR"),
    ask("dir|ect", "only the ads of this daemon", "NAME"),
    ask("def|rag", "defragmentation daemons"),
    ask("h|elp", "show this help"),
    value("layout", help="condor: exit code 0 where nothing has that name, too, as of condor_status", metavar="condor"),
    ask("li|mit", "at most so many ads", "N"),
    ask("l|ong:", "whole ads, one attribute a line; forms: long, json, xml, new; nosort: as they are"),
    ask("x|ml", "whole ads as XML"),
    ask("js|on", "whole ads as JSON"),
    ask("at|tributes", "only these attributes in -long, -json and -xml", "ATTR,..."),
    ask("cl|aimed", "claimed slots and who uses them"),
    ask("da|ta", "what access points transfer"),
    ask("r|un", "access points with their running jobs (with -slot: claimed slots)"),
    ask("cod", "claims of Computing On Demand"),
    ask("gpu|s", "slots with GPUs, and which"),
    ask("j|ava", "slots with Java"),
    ask("ab|sent", "machines that went away"),
    ask("of|fline", "slots with universes that are switched off"),
    ask("vm", "slots for virtual machines"),
    ask("sl|ots", "slots (the default)"),
    ask("com|pact", "one line a machine"),
    ask("nocom|pact", "one line a slot"),
    ask("se|rver", "what machines have: memory, disk, speed"),
    ask("stat|e", "states of slots, and since when"),
    ask("stati|stics", "taken for HTCondor's sake", "SET:LEVEL"),
    ask("star|td", "execution points"),
    ask("sc|hedd", "access points"),
    ask("g|rid", "grid resources"),
    ask("subs|ystem", "ads of this kind of daemon", "NAME"),
    ask("lic|ense", "licenses"),
    ask("sto|rage", "storage"),
    ask("n|egotiator", "negotiators"),
    ask("ge|neric", "generic ads"),
    ask("an|y", "everything there is"),
    ask("so|rt", "order by this expression; no: as they come", "EXPR"),
    ask("subm|itters", "users with jobs"),
    ask("m|aster", "masters"),
    ask("col|lector", "collectors"),
    ask("w|orld", "collectors"),
    ask("ck|ptsrvr", "checkpoint servers"),
    ask("t|otal", "totals only"),
    ask("e|xpert", "taken for HTCondor's sake"),
    ask("ver|sion", "print the version"),
    flag("had", help="the daemons that choose the active negotiator"),
    flag("totals", help="totals only"),
    COMMON[-1],
)

#: Mode -> (style of its table, type of its ads).
_MODES: Final[dict[str, tuple[str, str]]] = {
    "slots": ("normal", "Machine"),
    "avail": ("normal", "Machine"),
    "claimed": ("run", "Machine"),
    "cod": ("cod", "Machine"),
    "gpus": ("gpus", "Machine"),
    "startd": ("startd", "StartDaemon"),
    "startd_gpus": ("gpus", "StartDaemon"),
    "schedd": ("schedd", "Scheduler"),
    "schedd_data": ("schedd_data", "Scheduler"),
    "schedd_run": ("schedd_run", "Scheduler"),
    "submitters": ("submitters", "Submitter"),
    "negotiator": ("negotiator", "Negotiator"),
    "collector": ("collector", "Collector"),
    "master": ("master", "DaemonMaster"),
    "ckptsrvr": ("ckptsrvr", "CkptServer"),
    "storage": ("storage", "Storage"),
    "license": ("long", "License"),
    "defrag": ("defrag", "Defrag"),
    "accounting": ("accounting", "Accounting"),
    "grid": ("grid", "Grid"),
    "generic": ("any", "Generic"),
    "had_ads": ("any", "HAD"),
    "had": ("had", "HAD"),
    "any": ("any", ""),
}
#: -subsystem NAME -> mode.
_SUBSYSTEMS: Final = {
    "schedd": "schedd", "submitters": "submitters", "slots": "slots", "machine": "slots", "startd": "startd",
    "defrag": "defrag", "grid": "grid", "accounting": "accounting", "negotiator": "negotiator", "master": "master",
    "collector": "collector", "generic": "generic", "had": "had_ads",
}  # fmt: skip
#: Tables of slots that an option other than the mode chooses.
_OF_SLOTS: Final = ("server", "state")
_WHOLE: Final = ("long", "json", "xml", "new")
_MACHINE_AND_TYPE: Final = 'join(":", Machine, SlotTypeId < 0 ? -SlotTypeId : SlotTypeId)'
_DEVICES: Final = frozenset(("AvailableGPUs", "DetectedGPUs"))
_NO_SORT: Final = ("false", "0", "no", "none")


@dataclass(slots=True)
class _Asked:
    """What the command line comes to."""

    mode: str = ""
    mode_by: str = ""
    style: str = ""  # "" is the mode's own
    style_by: str = ""
    subsystem: str = ""  # a type of ads by name
    kind: str = ""  # java, vm, absent or offline
    compact: bool = False
    totals_only: bool = False
    screen: Screen = field(default_factory=Screen)
    unsorted: bool = False
    keys: list[Expr] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)  # all must be true
    alternatives: list[str] = field(default_factory=list)  # and one of these

    @property
    def slots(self) -> bool:
        return _MODES[self.mode or "slots"][1] == "Machine" and not self.subsystem

    def shown(self) -> str:
        return self.style or _MODES[self.mode or "slots"][0]


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[MACHINE]...", "Slots and daemons of the pool.", OPTIONS))
        return 0
    if parsed.has("version"):
        return output.version()
    asked = _read(parsed)
    custom = custom_columns.columns(parsed, status=True)
    if asked.shown() in _WHOLE:
        custom = None  # -json and the like win, as in HTCondor's tool
    return _Table(parsed, asked, custom).show()


def _read(parsed: Parsed) -> _Asked:
    """Take the options in their order. Raises UsageError where two contradict each other."""
    asked = _Asked()
    for name, letters, values in parsed.order:
        _take(asked, name, letters, values)
    if asked.screen.width == 0 and not asked.screen.wide:
        asked.screen = Screen(output.terminal_width())
    mode = asked.mode or "slots"
    if asked.style in _OF_SLOTS and _MODES[mode][0] != "normal":
        sys.stderr.write(f"roost: -{asked.style_by} contradicts -{asked.mode_by}, which counts\n")
        asked.style = ""
    asked.compact = asked.compact and asked.slots  # there is nothing to roll up in other ads
    usual, rolled_up = CONDITIONS.get(mode, ("", ""))
    if asked.compact and asked.kind not in ("java", "vm"):
        asked.conditions.insert(0, rolled_up)
    elif usual and mode != "gpus":
        asked.alternatives.insert(0, usual)
    kinds = {"java": "HasJava", "offline": "size( OfflineUniverses ) != 0", "absent": "Absent", "vm": "HasVM"}
    if asked.kind:
        asked.conditions.insert(0, kinds[asked.kind])
    asked.conditions += output.constraints(parsed)
    for word in [*parsed.arguments, *parsed.all("direct")]:
        quoted = json.dumps(word, ensure_ascii=False)
        attribute = f"RemoteUser == {quoted}" if mode == "claimed" else f"Name == {quoted} || Machine == {quoted}"
        asked.alternatives.append(attribute)
    return asked


def _take(asked: _Asked, name: str, letters: str, values: Sequence[str]) -> None:
    mode = asked.mode
    if name == "run":
        if mode in ("slots", "claimed"):
            asked.mode = "claimed"
        elif mode == "schedd":
            asked.mode = "schedd_run"
        else:
            _set_mode(asked, "schedd_run", name)
        asked.mode_by = asked.mode_by or name
    elif name == "data":
        asked.mode = "" if mode in ("schedd", "schedd_data") else mode
        _set_mode(asked, "schedd_data", name)
    elif name == "gpus":
        if mode == "startd":
            asked.mode = "startd_gpus"
        else:
            _set_mode(asked, "gpus", name)
    elif name == "startd":
        if mode == "gpus":
            asked.mode = "startd_gpus"
        else:
            _set_mode(asked, "startd", name)
    elif name == "schedd":
        if mode == "claimed":
            asked.mode = "schedd_run"
        elif mode not in ("schedd", "schedd_data", "schedd_run"):
            _set_mode(asked, "schedd", name)
    elif name == "subsystem":
        if values[0] in _SUBSYSTEMS:
            _set_mode(asked, _SUBSYSTEMS[values[0]], name)
        else:
            _set_mode(asked, "any", name)
            asked.subsystem = values[0]
    elif name == "slots":
        _set_mode(asked, "slots", name)
        asked.compact = False
    elif name == "world":
        _set_mode(asked, "collector", name)
    elif name in _MODES:
        _set_mode(asked, name, name)
        if name == "license":
            _set_style(asked, "long", name)
    elif name in ("compact", "nocompact"):
        asked.compact = name == "compact"
    elif name in ("java", "vm", "absent", "offline"):
        asked.kind = name
    elif name in ("server", "state", "json", "xml"):
        _set_style(asked, name, name)
    elif name == "long":
        words = [word for word in letters.split(",") if word and word != "nosort"]
        form = ad_formats.form_of(words[-1] if words else "", "long")
        _set_style(asked, "long" if form == "auto" else form, name)
    elif name in ("format", "af", "print-format") and values != ["!"]:
        _set_style(asked, "custom", name)
    elif name in ("total", "totals"):
        asked.totals_only = True
    elif name == "wide":
        width = output.leading_number(letters)
        asked.screen = Screen(width, not letters or width > 100)
    elif name == "sort":
        if values[0].lower() in _NO_SORT:
            asked.unsorted = True
        else:
            asked.keys.append(output.expression(values[0], "sort"))
            asked.conditions.append(f"({values[0]}) =!= UNDEFINED")


def _set_mode(asked: _Asked, mode: str, by: str) -> None:
    if asked.mode and asked.mode != mode:
        raise UsageError(f"-{by} contradicts -{asked.mode_by}")
    asked.mode, asked.mode_by = mode, by


def _set_style(asked: _Asked, style: str, by: str) -> None:
    if (asked.style in _WHOLE and style not in _WHOLE) or (asked.style, style) == ("state", "server"):
        sys.stderr.write(f"roost: -{by} contradicts -{asked.style_by}, which counts\n")
        return
    asked.style, asked.style_by = style, by


class _Table:
    """What is to be shown, and how."""

    def __init__(self, parsed: Parsed, asked: _Asked, custom: custom_columns.Custom | None) -> None:
        self._parsed, self._asked, self._custom = parsed, asked, custom
        self._only = output.attribute_names(parsed)
        self._layout: Layout | None = None
        self._mask: Mask | None = None
        style = asked.shown()
        if custom is not None:
            self._mask = custom.mask
            self._mask.overall = asked.screen.room if custom.from_file and asked.screen.width else 0
            if custom.where:
                asked.conditions.append(custom.where)
        elif style not in (*_WHOLE, "cod") and not asked.totals_only:
            kind = asked.kind
            self._layout = layout(style, asked.mode or "slots", asked.screen, compact=asked.compact, kind=kind)
            self._mask = mask_of(self._layout, asked.screen)
            if self._layout.where:
                asked.conditions.append(self._layout.where)
        self._kind = self._totals_kind(style)
        if asked.totals_only and asked.mode == "startd_gpus":
            asked.conditions.append("TotalGPUs > 0 || size(DetectedGPUs) > 0")

    def _totals_kind(self, style: str) -> str:
        """Which totals stand below; "" for none."""
        asked, custom = self._asked, self._custom
        if custom is not None:
            return ""
        if style == "gpus":
            return "startd" if asked.mode == "startd_gpus" else "state"
        return style if style in KINDS else ""

    def show(self) -> int:
        parsed, asked = self._parsed, self._asked
        ads = self._from_file() if parsed.has("ads") else self._from_pool()
        code = 0
        if not ads and self._named_alone():
            near = self._near()
            mend = f"did you mean {near}?" if near else "`roost status` lists what there is"
            sys.stderr.write(f"roost: nothing in the pool is named {', '.join(parsed.arguments)[:200]}; {mend}\n")
            code = 1
        if asked.compact and asked.totals_only:
            sys.stderr.write("roost: -total shows no table, so -compact has nothing to roll up\n")
        style = asked.shown()
        # A cut is what the pool gave first; what is shown stands in the usual order.
        keys = asked.keys
        if asked.compact:  # what is rolled up must stand together
            rest = keys[1:] if keys and str(keys[0]).lower() == "machine" else keys or [parse_expr("Name")]
            keys = [parse_expr(_MACHINE_AND_TYPE), *rest]
        alone = asked.totals_only and self._custom is None and style not in _WHOLE
        order = range(len(ads)) if alone or (asked.unsorted and not keys) else ordered(ads, keys)
        heads = None  # a line of one's own is of the first slot of each machine
        if asked.compact and not asked.totals_only and (style in _WHOLE or self._custom is not None):
            heads = compact.heads(_taken(ads, order))
        if style in _WHOLE:
            self._whole(_taken(ads, order if heads is None else [order[head] for head in heads]), style)
            return code
        totals = Totals(KINDS[self._kind]) if self._kind else None
        width = 14
        if asked.compact and self._layout is not None and self._layout.places is not None:
            width = max(width, self._rolled_up(ads, order, self._layout, totals))
        else:
            if totals is not None:
                totals.add_all(ads)
            if not asked.totals_only or self._custom is not None:
                self._rows(_taken(ads, order), heads)
        if totals is not None and ads:
            say()
            auto = asked.screen.wide or self._kind == "submitters"
            output.write("".join(totals.lines(-1 if auto else width)))
        if ads and asked.mode in ("gpus", "startd_gpus") and style == "gpus" and _has_devices(ads):
            say()
        return code

    def _named_alone(self) -> bool:
        """Whether ads were asked for by name and nothing else, of a pool and by our own name for the command."""
        parsed, asked = self._parsed, self._asked
        others = any(parsed.has(name) for name in ("ads", "constraint", "state", "limit", "claimed", "avail"))
        usual = not (others or asked.kind or asked.subsystem or asked.keys)
        return usual and bool(parsed.arguments) and parsed.one("layout") != "condor" and asked.mode != "claimed"

    def _near(self) -> str:
        """A machine or daemon that is named much like what was asked for."""
        kind = _MODES[self._asked.mode or "slots"][1]
        with Client(self._parsed.one("pool") or None) as client:
            ads = client.ads(*([kind] if kind else []), projection=["Name", "Machine"], limit=_MOST_NAMES)
            known = {text for ad in ads for key in ("Name", "Machine") if isinstance(text := ad.eval(key), str)}
        found = difflib.get_close_matches(self._parsed.arguments[0], sorted(known), 1, 0.7)
        return found[0] if found else ""

    # --- where ads come from

    def _condition(self) -> str:
        terms = [f"({term})" for term in self._asked.conditions]
        if self._asked.alternatives:
            terms.append("(" + " || ".join(f"({term})" for term in self._asked.alternatives) + ")")
        return " && ".join(terms)

    def _limit(self) -> int:
        return max(0, self._parsed.integer("limit", 0))

    def _from_file(self) -> Sequence[ClassAd]:
        form = ad_formats.form_of(self._parsed.letters.get("ads", ""), "long")
        found = ad_formats.read_ads(self._parsed.one("ads"), form, self._condition())
        limit = self._limit()
        return found[:limit] if limit else found

    def _from_pool(self) -> Sequence[ClassAd]:
        asked = self._asked
        kind = asked.subsystem or _MODES[asked.mode or "slots"][1]
        types, projection = [kind] if kind else [], self._projection()
        condition, limit, absent = self._condition(), self._limit(), asked.kind == "absent"
        with Client(self._parsed.one("pool") or None) as client:
            # Each device is an attribute of its own name: of those no columns are made.
            if projection and asked.shown() not in _WHOLE and _DEVICES.isdisjoint(projection):
                sheet = client.sheet(*types, constraint=condition, projection=projection, limit=limit, absent=absent)
                if self._layout is not None:
                    _with_loads(sheet)
                return sheet
            found = list(client.ads(*types, constraint=condition, projection=projection, limit=limit, absent=absent))
        if self._layout is not None:
            for ad in found:  # our startds tell the machine's load only
                if "CondorLoadAvg" not in ad and "LoadAvg" in ad:
                    ad["CondorLoadAvg"] = number_of(ad, "LoadAvg")
        return found

    def _projection(self) -> list[str]:
        """The attributes to ask for; none for all of them."""
        asked = self._asked
        entire = asked.shown() in _WHOLE
        if asked.shown() == "cod" or (entire and not self._only):  # claims are attributes of their own names
            return []
        names = set(self._only if entire else self._mask.attributes() if self._mask is not None else ())
        if asked.compact:
            names.update(compact.READS)
        if asked.mode in ("gpus", "startd_gpus"):
            names.update(compact.DEVICES)
        names.update(KINDS[self._kind].reads if self._kind else ())
        names.update(("Machine", "Name"))
        if "CondorLoadAvg" in names:
            names.add("LoadAvg")
        for key in asked.keys:
            found = references(key)
            names.update(found.missing | found.unscoped)
        return sorted(names)

    # --- forms

    def _whole(self, ads: Sequence[ClassAd], form: str) -> None:
        before, between, behind = ad_formats.frame(form)
        if form != "xml" and not ads:
            return
        if self._asked.totals_only:  # no ads, and of what stands around them what HTCondor's tool leaves
            output.write((before if form == "xml" else "") + behind)
            return
        output.write(before)
        plain = "nosort" in self._parsed.letters.get("long", "").split(",")
        for place, ad in enumerate(ads):
            text = ad_formats.text_of(ad, form, self._only, in_order=not plain)
            output.write((between if place else "") + text + ("\n" if form in ("long", "xml") else ""))
        output.write(behind)

    def _rows(self, ads: Sequence[ClassAd], heads: Sequence[int] | None) -> None:
        if self._mask is None:
            if self._asked.shown() == "cod":
                for line in _on_demand(ads):
                    say(line)
            return
        target = None
        if self._parsed.has("target"):
            targets = ad_formats.read_ads(self._parsed.one("target"))
            target = targets[0] if targets else ClassAd()
        cells = self._mask.read(ads, target)
        if heads is not None:
            cells = [[texts[head] for head in heads] for texts in cells]
        if self._layout is not None:
            fit(self._layout, self._asked.screen)
        self._print(cells, bool(ads))

    def _print(self, cells: list[list[str | None]], any_ads: bool) -> None:
        mask, custom = self._mask, self._custom
        assert mask is not None
        if custom is None and any_ads:
            output.write(mask.heading() + "\n")
        elif custom is not None and custom.mask.headings and custom.header and not self._asked.totals_only:
            output.write(mask.heading())
        output.write("".join(mask.lines(cells)))

    def _rolled_up(self, ads: Sequence[ClassAd], order: Sequence[int], found: Layout, totals: Totals | None) -> int:
        """The lines of machines, and their totals. Returns the width that the totals' keys need."""
        assert self._mask is not None
        assert found.places is not None
        devices = compact.Devices() if "devices" in found.places else None
        new: list[list[str]] = []  # keys of devices by ad
        gpus: list[list[str | None]] = []
        if devices is not None:
            for ad in ads:  # in the order they came
                new.append(devices.take(ad))
                gpus.append(devices.cells(string(ad, "AssignedGPUs")))
        shown = _taken(ads, order)
        cells = self._mask.read(shown)
        if devices is not None:
            self._device_cells(cells, [gpus[place] for place in order], found.places["devices"])
        code = cells[found.places["code"]] if "code" in found.places else [None] * len(shown)
        rows = compact.rows_of(shown, cells[1], code)
        width = 0
        if totals is not None and devices is not None:
            for row, place in zip(rows, order, strict=True):
                for key in new[place]:
                    width = max(width, len(key))
                    totals.add(ads[place], key, backfill=row.backfill)
        elif totals is not None:
            by_state = self._kind == "state"
            looks = [
                Look("" if by_state else row.platform or "", row.backfill, row.partitionable and not row.exhausted)
                for row in rows
            ]
            width = max((len(key.encode()) for key in {look.key for look in looks}), default=0)
            came = sorted(range(len(order)), key=order.__getitem__)
            totals.add_rolled_up(ads, [looks[place] for place in came])
        kept = compact.fold(rows, "memory" in found.places)
        folded = compact.cells_of(kept, cells, found.columns, found.places)
        if devices is not None:
            at = found.places["devices"]
            for place, row in enumerate(kept):
                if row.partitionable and (row.cooked or len(rows) > 1):
                    for column, text in enumerate(devices.cells(row.assigned)):
                        if folded[at + column][place] is None:
                            folded[at + column][place] = text
        self._print(folded, bool(ads))
        return width

    def _device_cells(self, cells: list[list[str | None]], found: Sequence[list[str | None]], at: int) -> None:
        assert self._mask is not None
        for offset in range(3):
            column = self._mask.columns[at + offset]
            cells[at + offset] = [texts[offset] for texts in found]
            column.width = max([len(column.heading), *(len(text) for text in cells[at + offset] if text is not None)])


def _taken(ads: Sequence[ClassAd], order: Sequence[int]) -> Sequence[ClassAd]:
    """The ads in this order."""
    return ads.taken(order) if isinstance(ads, Sheet) else [ads[place] for place in order]


def _with_loads(ads: Sheet) -> None:
    """The machine's load for that of the jobs, where there is no other."""
    loads, others = ads.cells("condorloadavg"), ads.cells("loadavg")
    if None in loads:
        ads.put(
            "CondorLoadAvg",
            [
                other if load is None and type(other) is float
                else number_of(ads[place], "LoadAvg") if load is None and other is not None
                else load
                for place, (load, other) in enumerate(zip(loads, others, strict=True))
            ],
        )  # fmt: skip


def _has_devices(ads: Sequence[ClassAd]) -> bool:
    return any(isinstance(ad.eval("AvailableGPUs"), list) for ad in ads)


def _on_demand(ads: Sequence[ClassAd]) -> Iterator[str]:
    from roost.cli.cod import lines

    return lines(ads)
