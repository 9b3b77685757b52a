"""What `roost pools` shows."""

from roost.cli.pools import lines

NOW = 1_000_000.0
POOL = {
    "name": "",
    "url": "",
    "at": NOW,
    "error": "",
    "slots": 8,
    "cpus": 64.0,
    "used_cpus": 48.0,
    "gpus": 0,
    "utilisation": 0.75,
    "running": 48,
    "idle": 1234567,
    "held": 0,
    "users": 3,
    "version": "1.2",
    "error_count": 0,
    "warning_count": 0,
    "note_count": 4,
    "first": "an old release",
}
UNKNOWN = dict.fromkeys(("slots", "cpus", "used_cpus", "gpus", "utilisation", "running", "idle", "held", "users"))


def test_a_line_a_pool():
    others = [
        {**POOL, "name": "b.example.org", "warning_count": 2, "error_count": 1, "first": "no schedd"},
        {**POOL, "name": "c.example.org", "warning_count": 1, "first": "3 jobs are held", "utilisation": 1.0},
    ]
    assert list(lines([POOL, *others], NOW)) == [
        "Pool          Cpus InUse GPUs Running    Idle Held Users Release State",
        "(this pool)     64   75%    0      48 1234567    0     3 1.2     well",
        "b.example.org   64   75%    0      48 1234567    0     3 1.2     1 error: no schedd",
        "c.example.org   64  100%    0      48 1234567    0     3 1.2     1 warning: 3 jobs are held",
    ]


def test_pools_that_can_not_be_asked_have_the_numbers_of_before_and_the_reason():
    others = [
        {**POOL, "name": "b", "error": "no answer within 5 s", "at": NOW - 400},
        {**POOL, **UNKNOWN, "name": "c", "error": "status 401, and not the document", "at": None, "version": ""},
    ]
    shown = list(lines([POOL, *others], NOW))
    assert shown[2].startswith("b ")
    assert shown[2].endswith("3 1.2     not reached for 0+00:06:40")
    assert shown[3].split() == ["c", "not", "reached"]
    assert shown[4:] == [
        "b can not be asked: no answer within 5 s",
        "c can not be asked: status 401, and not the document",
    ]


def test_who_has_no_others_is_told_how_to_name_some():
    assert list(lines([POOL], NOW))[-1] == "No other pools: ROOST_GATEWAY_POOLS names those that this gateway asks."
