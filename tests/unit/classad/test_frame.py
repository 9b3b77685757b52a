"""A table with columns of one's own: the answers are those for ads that hold these values."""

from __future__ import annotations

import random

import numpy as np

from shared.classad import ClassAd, evaluate, parse_ad, parse_expr, symmetric_match
from shared.classad.columnar import OTHER_SIDE, ROW_SIDE, Frame, Matching, Table

STARTS = (
    "true",
    "MY.Cpus >= 2",
    'TARGET.Owner != "eve" && Cpus > 0',
    "Memory / 1024 > TARGET.RequestCpus",
    'regexp("a", TARGET.Owner)',
)
RANKS = ("0.0", "MY.Cpus * 2.0", 'ifThenElse(TARGET.Owner == "ada", 10, 0)', "TARGET.Nothing", "MY.Rank + 1")
KEYS = ("10 * MY.Rank - MY.Cpus", "MY.Memory % 100", "Cpus > 2", "undefined", "SlotWeight")


def made(rng: random.Random, number: int) -> ClassAd:
    ad = parse_ad(
        f'[ Cpus = {rng.randrange(9)}; Memory = {rng.choice((512, 2048, 4096))}; Machine = "m{number % 3}"; '
        f"Start = {rng.choice(STARTS)}; Rank = {rng.choice(RANKS)}; "
        "Requirements = Start && TARGET.RequestCpus <= Cpus ]"
    )
    if rng.random() < 0.7:
        ad["SlotWeight"] = parse_expr("Cpus")
    if rng.random() < 0.2:
        ad["Cpus"] = parse_expr("2 + 1")
    return ad


def job(rng: random.Random) -> ClassAd:
    text = rng.choice(("true", "TARGET.Cpus > RequestCpus && TARGET.Memory > 600", "TARGET.Rank =!= undefined"))
    owner = rng.choice(("ada", "eve"))
    rank = rng.choice(("TARGET.Cpus", "TARGET.Memory - TARGET.Cpus", "0"))
    return parse_ad(f'[ Owner = "{owner}"; RequestCpus = {rng.randrange(4)}; Requirements = {text}; Rank = {rank} ]')


def number(value: object) -> float:
    return float(value) if isinstance(value, bool | int | float) else 0.0


def frame_of(ads: dict[str, ClassAd]) -> tuple[Frame, Matching]:
    table = Table(leading="PartitionableSlot")
    for name, ad in ads.items():
        table.put(name, ad)
    table.flush()
    frame = Frame(table)
    return frame, Matching(frame, 5.0)


def own_cpus(frame: Frame, ads: dict[str, ClassAd]):
    frame.want(("cpus",))
    column = frame.columns["cpus"].taken(np.arange(len(frame)))
    column.number, column.code, column.folded = np.array(column.number), np.array(column.code), np.array(column.folded)
    for row, key in enumerate(frame.keys):
        column.tag[row], column.number[row], column.code[row] = 3, number(ads[key].eval("Cpus")), -1
    column.count()
    return column


def ask(matching: Matching, one: ClassAd) -> tuple[list[list[float]], list[bool]]:
    """All questions; the first time they may put the table in another order."""
    return matching.together(
        lambda: ([matching.values(parse_expr(text), one).tolist() for text in KEYS], matching.match(one).tolist())
    )


def compare(frame: Frame, matching: Matching, now: dict[str, ClassAd], one: ClassAd) -> None:
    values, mask = ask(matching, one)
    for row, key in enumerate(frame.keys):
        assert mask[row] is symmetric_match(one, now[key], now=5.0), str(now[key])
        for text, found in zip(KEYS, values, strict=True):
            assert found[row] == number(evaluate(parse_expr(text), now[key], one, 5.0)), (text, str(now[key]))
        assert number(matching.job_rank(one)[row]) == number(one.eval("Rank", now[key], 5.0))


def test_answers_follow_live_columns() -> None:
    for seed in range(15):
        rng = random.Random(seed)
        ads = {f"s{number}": made(rng, number) for number in range(rng.choice((3, 12)))}
        frame, matching = frame_of(ads)
        one = job(rng)
        ask(matching, one)
        column = own_cpus(frame, ads)
        frame.replace({"cpus": column}, live=("cpus",), live_from=0)
        matching.clear()
        now = {key: ad.copy() for key, ad in ads.items()}
        for _ in range(3):
            for key in now:
                now[key]["Cpus"] = int(column.number[frame.row(key)])
            compare(frame, matching, now, one)
            row = rng.randrange(len(frame))
            column.number[row] = max(0, column.number[row] - 1)
            frame.changed()


def test_a_probe_says_what_rows_would_be() -> None:
    for seed in range(15):
        rng = random.Random(1000 + seed)
        ads = {f"s{number}": made(rng, number) for number in range(rng.choice((3, 12)))}
        frame, matching = frame_of(ads)
        one = job(rng)
        ask(matching, one)
        column = own_cpus(frame, ads)
        frame.replace({"cpus": column}, live=("cpus",), live_from=0)
        matching.clear()
        matching.match(one)
        rows = np.sort(np.array([rng.randrange(len(frame)) for _ in range(10)]))
        states = column.taken(rows)
        states.number = np.array([float(rng.randrange(6)) for _ in rows])
        probe = matching.probe(rows, {"cpus": states})
        everything = probe.match(one, everything=True)
        keys = [probe.numbers(parse_expr(text), one, ROW_SIDE) for text in KEYS]
        ranks, _ = probe.numbers(one.lookup("Rank"), one, OTHER_SIDE)
        for line, row in enumerate(rows.tolist()):
            ad = ads[frame.keys[row]].copy()
            ad["Cpus"] = int(states.number[line])
            assert bool(everything[line]) is symmetric_match(one, ad, now=5.0)
            assert ranks[line] == number(one.eval("Rank", ad, 5.0))
            for text, (values, valid) in zip(KEYS, keys, strict=True):
                value = evaluate(parse_expr(text), ad, one, 5.0)
                assert values[line] == number(value), (text, str(ad))
                assert bool(valid[line]) is isinstance(value, bool | int | float)
            assert frame.ad(row)["Cpus"] == int(column.number[row])


def test_jobs_that_look_alike_share_an_answer_until_live_columns_change() -> None:
    for seed in range(5):
        rng = random.Random(2000 + seed)
        ads = {f"s{number}": made(rng, number) for number in range(12)}
        frame, matching = frame_of(ads)
        jobs = [job(rng) for _ in range(12)]
        matching.prepare(jobs)
        column = own_cpus(frame, ads)
        frame.replace({"cpus": column}, live=("cpus",), live_from=0)
        matching.clear()
        matching.prepare(jobs)
        for _ in range(3):
            now = {key: ad.copy() for key, ad in ads.items()}
            for key, ad in now.items():
                ad["Cpus"] = int(column.number[frame.row(key)])
            for one in jobs:
                twin = one.copy()
                twin["Cluster"] = rng.randrange(1000)  # nobody reads that
                mask = matching.match(one)
                assert matching.match(twin) is mask
                assert not mask.flags.writeable
                assert mask.tolist() == [symmetric_match(one, now[key], now=5.0) for key in frame.keys]
            column.number[:] = np.maximum(0, column.number - 1)
            frame.changed()
