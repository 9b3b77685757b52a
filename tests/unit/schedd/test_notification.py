"""Who gets mail about a job, and what it says."""

import pytest

from services.schedd.core.notification import address_of, mail_of, wants_mail
from shared.classad import parse_ad
from tests.spec import spec

NEVER, ALWAYS, COMPLETE, ERROR = range(4)


def ad_of(text):
    return parse_ad(f"[{text}]")


@spec("SUB-04")
@pytest.mark.parametrize(
    ("ad", "hold_code", "wishes"),
    [
        ("ExitBySignal = false; ExitCode = 0", None, (ALWAYS, COMPLETE)),
        ("ExitBySignal = false; ExitCode = 1", None, (ALWAYS, COMPLETE)),
        ("ExitBySignal = false; ExitCode = 1; JobSuccessExitCode = 1", None, (ALWAYS, COMPLETE)),
        ("ExitBySignal = false; ExitCode = 0; JobSuccessExitCode = 1", None, (ALWAYS, COMPLETE, ERROR)),
        ("ExitBySignal = true; ExitSignal = 9", None, (ALWAYS, COMPLETE, ERROR)),
        ("", 13, (ALWAYS, ERROR)),
        ("", 26, (ALWAYS, ERROR)),
        ("", 1, ()),
        ("", 3, ()),
        ("", 15, ()),
        ("", 16, ()),
    ],
)
def test_who_wants_to_hear_of_what(ad, hold_code, wishes):
    for wish in (NEVER, ALWAYS, COMPLETE, ERROR):
        assert wants_mail(ad_of(f"JobNotification = {wish}; {ad}"), hold_code) == (wish in wishes)
    for nothing in ('JobNotification = "always"', "JobNotification = 9", "JobNotification = true", "Other = 1"):
        assert not wants_mail(ad_of(f"{nothing}; {ad}"), hold_code)


def test_where_it_goes():
    assert address_of(ad_of('Owner = "alice"'), "example.org") == "alice@example.org"
    assert address_of(ad_of('Owner = "alice"; NotifyUser = "bob"'), "example.org") == "bob@example.org"
    assert address_of(ad_of('Owner = "alice"; NotifyUser = "b.c+d@x.y"'), "example.org") == "b.c+d@x.y"


@pytest.mark.parametrize(
    "name", ["-oQ/tmp", "a b@c", "a@b,c@d", "a@b\\nBcc: c@d", "<a@b>", "a@-b", "a@b@c", "@b", "a@"]
)
def test_what_is_no_address_is_not_used(name):
    with pytest.raises(ValueError, match="is no mail address"):
        address_of(ad_of(f'Owner = "alice"; NotifyUser = "{name}"'), "example.org")


def test_what_it_says():
    ad = ad_of(
        'ClusterId = 7; ProcId = 2; Cmd = "/bin/sh"; Args = "-c\\nx"; Owner = "alice"; QDate = 86400;'
        "ExitBySignal = false; ExitCode = 3; RemoteWallClockTime = 61.4;"
        'A = 1 + 1; B = "two"; Secret = 1; ClaimId = "no";'
        'EmailAttributes = "A, B,Secret,ClaimId,Nowhere"'
    )
    mail = mail_of(ad, None, 90000.0, host="ap", domain="x.y", hidden=frozenset({"secret"}))
    assert (mail.to, mail.subject) == ("alice@x.y", "[Roost] Job 7.2 has ended")
    assert mail.body.splitlines()[2:] == [
        *("Your job 7.2", "\t/bin/sh -c x", "has exited normally with status 3", ""),
        "Submitted at:        1970-01-02 00:00:00 UTC",
        "Completed at:        1970-01-02 01:00:00 UTC",
        "Real Time:           61 s",
        *("", "", "A = 2", 'B = "two"', "Nowhere = undefined"),
    ]
    ad["HoldReason"] = "no\nfile"
    held = mail_of(ad, 13, 90000.0, host="ap", domain="x.y")
    assert held.subject == "[Roost] Job 7.2 was put on hold"
    assert "was put on hold (code 13): no file" in held.body
    assert "Completed" not in held.body
