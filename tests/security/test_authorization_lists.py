"""ALLOW_<LEVEL>, DENY_<LEVEL> and SEC_<LEVEL>_AUTHENTICATION_METHODS mean at the gateway what they mean in HTCondor,
and what has no meaning there is told."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.auth.login_settings import make_logins
from services.gateway.core import access_lists, login_methods
from services.gateway.core.access_lists import IMPLIES, LEVELS, parse
from services.gateway.core.authorization import Identity, refusal
from shared.config import load_config
from shared.config.catalogue import SECURITY
from shared.config.knobs import GatewaySettings
from shared.operations import NEEDS, Level
from tests.integration.inside import InsidePool


def fits(text, user, address, *names):
    return parse(text).fits(user, address, names)


@pytest.mark.parametrize(
    ("text", "user", "address", "names", "expected"),
    [
        # The examples of HTCondor's manual.
        ("zmiller@cs.wisc.edu/bird.cs.wisc.edu", "zmiller@cs.wisc.edu", "1.2.3.4", ["bird.cs.wisc.edu"], True),
        ("zmiller@cs.wisc.edu/bird.cs.wisc.edu", "zmiller@cs.wisc.edu", "1.2.3.4", ["fish.cs.wisc.edu"], False),
        ("zmiller@cs.wisc.edu/bird.cs.wisc.edu", "other@cs.wisc.edu", "1.2.3.4", ["bird.cs.wisc.edu"], False),
        ("*@cs.wisc.edu/bird.cs.wisc.edu", "anybody@cs.wisc.edu", "1.2.3.4", ["bird.cs.wisc.edu"], True),
        ("zmiller@cs.wisc.edu/*.cs.wisc.edu", "zmiller@cs.wisc.edu", "1.2.3.4", ["fish.cs.wisc.edu"], True),
        ("zmiller@cs.wisc.edu/*.cs.wisc.edu", "zmiller@cs.wisc.edu", "1.2.3.4", ["cs.wisc.edu.evil.example"], False),
        ("*@cs.wisc.edu/*", "anybody@cs.wisc.edu", "1.2.3.4", [], True),
        ("*@cs.wisc.edu/*", "anybody@cs.wisc.edu.evil.example", "1.2.3.4", [], False),
        ("*@cs.wisc.edu/128.105.*", "anybody@cs.wisc.edu", "128.105.7.8", [], True),
        ("*@cs.wisc.edu/128.105.*", "anybody@cs.wisc.edu", "128.106.7.8", [], False),
        ("joesmith@cs.wisc.edu/128.105.128.0/17", "joesmith@cs.wisc.edu", "128.105.200.1", [], True),
        ("joesmith@cs.wisc.edu/128.105.128.0/17", "joesmith@cs.wisc.edu", "128.105.127.1", [], False),
        ("joesmith@cs.wisc.edu/128.105.128.0/255.255.128.0", "joesmith@cs.wisc.edu", "128.105.200.1", [], True),
        # A user alone, and a host alone.
        ("condor@*", "condor@anywhere", "1.2.3.4", [], True),
        ("condor@*", "condors@anywhere", "1.2.3.4", [], False),
        ("*.cs.wisc.edu", "anybody@x", "1.2.3.4", ["bird.cs.wisc.edu"], True),
        ("10.0.0.0/8", "anybody@x", "10.1.2.3", [], True),
        ("10.0.0.0/8", "anybody@x", "11.1.2.3", [], False),
        ("*/10.0.0.0/8", "anybody@x", "10.1.2.3", [], True),
        ("192.0.2.7", "anybody@x", "192.0.2.7", [], True),
        ("192.0.2.7", "anybody@x", "192.0.2.70", [], False),
        ("*", "anybody@x", "", [], True),
        ("*/*", "anybody@x", "", [], True),
        ("2001:db8::/32", "anybody@x", "2001:db8::1", [], True),
        ("*@x/[2001:db8::1]", "anybody@x", "2001:db8:0::1", [], True),
        # Names are as they are written, domains in any case.
        ("alice@Pool.Example", "alice@pool.example", "", [], True),
        ("Alice@pool", "alice@pool", "", [], False),
        ("*@x", "a@y@x", "", [], True),
        # Nothing of a pattern is a regular expression.
        ("a.c@x", "abc@x", "", [], False),
        # A list of addresses and names lets nobody in who has none.
        ("10.0.0.0/8", "anybody@x", "local uid 0", [], False),
        ("*.example", "anybody@x", "1.2.3.4", [], False),
    ],
)
def test_entries(text, user, address, names, expected):
    assert fits(text, user, address, *names) is expected


@pytest.mark.parametrize("text", ["+netgroup", "alice/host", "/host", "alice@x/", "a[bc]@x", "a?@x", "(a|b)@x"])
def test_entries_that_are_none(text):
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def lists(owners=("owner@pool",), admins=("root@pool",), **given):
    allow = {name.removeprefix("ALLOW_"): words.split() for name, words in given.items() if name.startswith("ALLOW_")}
    deny = {name.removeprefix("DENY_"): words.split() for name, words in given.items() if name.startswith("DENY_")}
    made, told = access_lists.read(allow, deny, owners, admins)
    return made, told


def level(user="alice@pool", address="192.0.2.7", most=Level.ADMINISTRATOR, granted=False, **given):
    return lists(**given)[0].level(user, address, (), most, granted=granted).name


@pytest.mark.parametrize(
    ("given", "user", "expected"),
    [
        # Without lists: all who are known read and write, and root and the pool's account administer.
        ({}, "alice@pool", "WRITE"),
        ({}, "root@pool", "ADMINISTRATOR"),
        ({}, "owner@pool", "ADMINISTRATOR"),
        ({}, "root@evil.example", "WRITE"),
        # DENY wins, and shuts out of all that the level is needed for.
        ({"ALLOW_WRITE": "*", "DENY_WRITE": "alice@pool"}, "alice@pool", "READ"),
        ({"ALLOW_ADMINISTRATOR": "alice@pool", "DENY_READ": "alice@*"}, "alice@pool", "NONE"),
        ({"ALLOW_ADMINISTRATOR": "alice@pool", "DENY_WRITE": "alice@*"}, "alice@pool", "READ"),
        ({"DENY_ADMINISTRATOR": "owner@pool"}, "owner@pool", "WRITE"),
        ({"DENY_WRITE": "192.0.2.0/24"}, "alice@pool", "READ"),
        # A level implies those below.
        ({"ALLOW_READ": "bob@pool", "ALLOW_WRITE": "alice@pool"}, "alice@pool", "WRITE"),
        ({"ALLOW_READ": "bob@pool", "ALLOW_WRITE": "alice@pool"}, "bob@pool", "READ"),
        ({"ALLOW_READ": "bob@pool", "ALLOW_WRITE": "alice@pool"}, "carol@pool", "NONE"),
        ({"ALLOW_READ": "bob@pool", "ALLOW_WRITE": "bob@pool", "ALLOW_ADMINISTRATOR": "a@b"}, "a@b", "ADMINISTRATOR"),
        ({"ALLOW_READ": "bob@pool", "ALLOW_WRITE": "bob@pool", "ALLOW_DAEMON": "a@b"}, "a@b", "WRITE"),
        ({"ALLOW_READ": "bob@pool", "ALLOW_WRITE": "bob@pool", "ALLOW_NEGOTIATOR": "a@b"}, "a@b", "READ"),
        # A list that is there is all that counts: root is not in it.
        ({"ALLOW_ADMINISTRATOR": "alice@pool"}, "root@pool", "WRITE"),
        # But for who owns the pool: else one slip locks everybody out.
        ({"ALLOW_ADMINISTRATOR": "alice@pool", "ALLOW_READ": "alice@pool"}, "owner@pool", "ADMINISTRATOR"),
        # Who may not read may not write either, whatever the lists say of writing.
        ({"ALLOW_READ": "bob@pool"}, "alice@pool", "NONE"),
        ({"ALLOW_WRITE": ""}, "alice@pool", "READ"),
    ],
)
def test_levels(given, user, expected):
    assert level(user, **given) == expected


def test_a_tokens_own_level_counts_where_there_is_no_list():
    assert level(granted=True) == "ADMINISTRATOR"
    assert level(granted=True, most=Level.READ) == "READ"
    # A list, where somebody wrote one, holds for all.
    assert level(granted=True, ALLOW_ADMINISTRATOR="bob@pool") == "WRITE"
    assert level(granted=True, DENY_ADMINISTRATOR="alice@pool") == "WRITE"
    assert level(granted=True, ALLOW_WRITE="bob@pool") == "READ"


def test_lists_of_one_daemon_hold_for_its_work():
    made, told = lists(ALLOW_WRITE_SCHEDD="bob@pool", DENY_READ_COLLECTOR="alice@pool", ALLOW_WRITE="*")
    assert told == []
    levels = made.levels("alice@pool", "", (), Level.ADMINISTRATOR, granted=False)
    alice = Identity("alice@pool", Level.WRITE, levels=levels, method="FS")
    assert not refusal(alice, "events")
    assert "needs WRITE, you have, by FS, READ" in refusal(alice, "jobs.submit")
    assert not refusal(alice, "jobs.query")
    assert "needs READ" in refusal(alice, "ads")
    assert not alice.admin


def test_who_administers_the_queue_alone_acts_for_others_there_only():
    made, _ = lists(ALLOW_ADMINISTRATOR_SCHEDD="alice@pool")
    levels = made.levels("alice@pool", "", (), Level.ADMINISTRATOR, granted=False)
    alice = Identity("alice@pool", made.level("alice@pool", "", (), Level.ADMINISTRATOR, granted=False), levels=levels)
    assert alice.admin
    assert refusal(alice, "tokens")
    assert refusal(alice, "drain")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ALLOW_ADVERTISE_STARTD": "*"}, "ALLOW_ADVERTISE_STARTD has no effect: which daemon may advertise"),
        ({"ALLOW_CLIENT": "*"}, "ALLOW_CLIENT has no effect"),
        ({"DENY_NEGOTIATOR": "*"}, "DENY_NEGOTIATOR: the negotiator is known by its user of the broker"),
        ({"ALLOW_DAEMON": "condor@x"}, "ALLOW_DAEMON: daemons are known by their users of the broker"),
        ({"ALLOW_WRIET": "*"}, "there is no level WRIET"),
        ({"ALLOW_WRITE_SHADOW": "*"}, "ALLOW_WRITE_SHADOW has no effect"),
        ({"ALLOW_READ": "+group"}, "netgroups are not asked for"),
        ({"DENY_READ": "alice/host"}, "until then it shuts everybody out"),
        ({"ALLOW_ADMINISTRATOR": "cm.example"}, "whoever logs in from cm.example is an administrator"),
    ],
)
def test_what_has_no_effect_is_told(given, says):
    _, told = lists(**given)
    assert any(says in one for one in told), told


def test_a_list_of_the_shut_out_that_can_not_be_read_shuts_everybody_out():
    assert level(DENY_WRITE="alice[@pool") == "READ"


_USERS = st.sampled_from(["alice@pool", "bob@pool", "root@pool", "owner@pool", "alice@evil.example"])
_WORDS = st.lists(
    st.sampled_from(
        ["alice@pool", "*@pool", "root@*", "*", "192.0.2.*", "10.0.0.0/8", "*.example", "bob@pool/192.0.2.7"]
    ),
    max_size=3,
)
_LISTS = st.dictionaries(st.sampled_from([*IMPLIES, "WRITE_SCHEDD", "READ_COLLECTOR"]), _WORDS, max_size=5)
_ADDRESS = st.sampled_from(["192.0.2.7", "10.1.2.3", "203.0.113.9", "local uid 0"])


@given(_LISTS, _LISTS, _USERS, _ADDRESS, st.sampled_from(Level), st.booleans())
def test_no_more_denial_and_no_less_allowance_opens_more(allow, deny, user, address, most, granted):
    """Closed by default: taking an entry away from an ALLOW list, or adding one to a DENY list, never widens a right;
    and nobody gets more than they came with."""

    def of(allow, deny):
        made, _ = access_lists.read(allow, deny, ["owner@pool"], ["root@pool"])
        levels = dict(made.levels(user, address, (), most, granted=granted))
        return made.level(user, address, (), most, granted=granted), levels

    before, levels = of(allow, deny)
    assert before <= most
    assert all(one <= most for one in levels.values())
    for name in deny:
        worse, worse_levels = of(allow, {**deny, name: [*deny[name], "*"]})
        assert worse <= before
        assert all(worse_levels[one] <= levels[one] for one in levels)
    for name, words in allow.items():
        if words:
            worse, worse_levels = of({**allow, name: words[1:]}, deny)
            assert worse <= before
            assert all(worse_levels[one] <= levels[one] for one in levels)


@given(st.ip_addresses(v=4), st.integers(0, 32), st.ip_addresses(v=4))
def test_nets_are_those_of_the_library(network, bits, address):
    text = f"{network}/{bits}"
    expected = address in ipaddress.ip_network(text, strict=False)
    assert fits(text, "a@x", str(address)) is expected
    assert fits(f"a@x/{text}", "a@x", str(address)) is expected


# --- methods


def methods(encrypted=True, **given):
    sec = {name.removeprefix("SEC_"): text for name, text in given.items()}
    return login_methods.read(sec, encrypted=encrypted)


def test_all_methods_are_taken_where_nothing_is_said():
    made, told = methods()
    assert told == []
    assert all(made.most(one) == Level.ADMINISTRATOR for one in login_methods.TAKEN)


def test_a_level_may_want_another_method():
    made, told = methods(
        SEC_DEFAULT_AUTHENTICATION_METHODS="TOKEN, FS",
        SEC_READ_AUTHENTICATION_METHODS="TOKENS,FS,SSL",
        SEC_ADMINISTRATOR_AUTHENTICATION_METHODS="FS",
    )
    assert told == []
    assert [made.most(one).name for one in ("FS", "IDTOKENS", "SSL", "SCITOKENS")] == [
        "ADMINISTRATOR",
        "WRITE",
        "READ",
        "NONE",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"SEC_DEFAULT_AUTHENTICATION_METHODS": "FS, KERBEROS"}, "KERBEROS is not taken: take SCITOKENS"),
        ({"SEC_READ_AUTHENTICATION_METHODS": "ANONYMOUS"}, "ANONYMOUS is not taken: everybody says who they are"),
        ({"SEC_DEFAULT_AUTHENTICATION_METHODS": "CLAIMTOBE"}, "nothing of that is taken, so nobody logs in"),
        ({"SEC_DEFAULT_AUTHENTICATION_METHODS": "FSS"}, "there is no such method"),
        ({"SEC_CLIENT_AUTHENTICATION_METHODS": "FS"}, "it is not about people at the gateway"),
        ({"SEC_DEFAULT_AUTHENTICATION": "OPTIONAL"}, "has no effect: everybody says who they are"),
        ({"SEC_DEFAULT_AUTHENTICATION": "SOMETIMES"}, "want one of REQUIRED"),
        ({"SEC_DEFAULT_ENCRYPTION": "REQUIRED"}, "speaks plain HTTP to other machines"),
    ],
)
def test_what_the_gateway_does_not_do_of_a_policy_is_told(given, says):
    _, told = methods(encrypted=False, **given)
    assert any(says in one for one in told), told


# --- whole configurations


def settled(tmp_path, text):
    """The logins of a gateway with this configuration, and what is told at its start."""

    class Context:
        config = log = None
        clock = type("Clock", (), {"monotonic": staticmethod(lambda: 0.0), "now": staticmethod(lambda: 0.0)})

    file = tmp_path / "config"
    file.write_text(f"UID_DOMAIN = pool\nCONDOR_HOST = cm.pool\nROOST_GATEWAY_BIND = 0.0.0.0\n{text}\n")
    Context.config = load_config([file], subsystem="GATEWAY", env={})
    return make_logins(GatewaySettings.from_config(Context.config), Context, None, "owner@pool")


@pytest.mark.parametrize("name", SECURITY)
def test_each_policy_of_htcondor_is_read_and_what_it_does_not_do_is_told(tmp_path, name):
    """`use SECURITY : NAME`, each of them: nothing that it sets passes in silence."""
    logins, told = settled(tmp_path, f"use SECURITY : {name}")
    idle = load_config([tmp_path / "config"], subsystem="GATEWAY", env={}).warnings
    said = "\n".join((*told, *map(str, idle)))
    for line in SECURITY[name].splitlines():
        knob, equals, text = (word.strip() for word in line.partition("="))
        if not equals or knob in ("authuser", "TRUST_DOMAIN", "SECURITY_MODEL"):
            continue
        works = knob.startswith(("ALLOW_", "DENY_")) or knob.endswith("_AUTHENTICATION_METHODS")
        works |= text.upper() == "REQUIRED" and knob.endswith("_AUTHENTICATION")
        works |= text.upper() == "OPTIONAL" and knob.endswith(("_ENCRYPTION", "_INTEGRITY"))
        assert works or knob in said, (knob, told)
    assert (
        not logins._lists.level("bob@evil.example", "203.0.113.9", (), Level.ADMINISTRATOR, granted=False) > Level.WRITE
    )


def test_the_recommended_policy_names_the_administrators(tmp_path):
    logins, told = settled(tmp_path, "use SECURITY : recommended_v9_0")
    levels = {
        user: logins._lists.level(user, "203.0.113.9", (), Level.ADMINISTRATOR, granted=True).name
        for user in ("condor@elsewhere", "root@pool", "alice@pool", "owner@pool")
    }
    assert levels == {
        "condor@elsewhere": "ADMINISTRATOR",
        "root@pool": "ADMINISTRATOR",
        "alice@pool": "WRITE",
        "owner@pool": "ADMINISTRATOR",
    }
    assert any(one.startswith("SEC_DEFAULT_ENCRYPTION = required: the gateway speaks plain HTTP") for one in told)


def test_a_list_that_is_set_to_nothing_lists_nobody(tmp_path):
    logins, _ = settled(tmp_path, "ALLOW_WRITE =\n")
    assert logins._lists.level("alice@pool", "", (), Level.ADMINISTRATOR, granted=False) == Level.READ


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(
        tmp_path_factory.mktemp("pool"),
        UID_DOMAIN="pool.example",
        ALLOW_WRITE="alice@pool.example, *@lab.example/127.0.0.1, carol@pool.example/203.0.113.0/24",
        ALLOW_ADMINISTRATOR="ops@pool.example",
        DENY_WRITE="mallory@lab.example",
        DENY_READ="*@evil.example",
        ALLOW_CONFIG="ops@pool.example",
    )
    yield inside
    inside.close()


@pytest.mark.parametrize(
    ("user", "given", "expected"),
    [
        ("alice@pool.example", "ADMINISTRATOR", "WRITE"),
        ("bob@lab.example", "WRITE", "WRITE"),
        ("mallory@lab.example", "WRITE", "READ"),
        ("carol@pool.example", "WRITE", "READ"),
        ("ops@pool.example", "ADMINISTRATOR", "ADMINISTRATOR"),
        ("ops@pool.example", "READ", "READ"),
    ],
)
def test_a_gateway_goes_by_its_lists(pool, user, given, expected):
    with pool.client() as client:
        token = client.create_token(user, given)
    assert pool.ask("GET", "/v1/whoami", token=token)[2]["level"] == expected


def test_who_is_shut_out_is_told_so(pool):
    with pool.client() as client:
        token = client.create_token("root@evil.example", "ADMINISTRATOR")
    status, _, answer = pool.ask("GET", "/v1/pool", token=token)
    assert status == 403
    assert "pool needs READ, your token gives NONE" in answer["error"]["message"]


def test_allow_config_says_who_sets_macros(pool):
    with pool.client() as client:
        tokens = {
            user: client.create_token(user, "ADMINISTRATOR") for user in ("alice@pool.example", "ops@pool.example")
        }
    body = {"set": {"START": "true"}, "subsystems": ["SCHEDD"]}
    refused = pool.ask("POST", "/v1/config", body=body, token=tokens["alice@pool.example"])
    assert "ALLOW_CONFIG does not list you" in str(refused[2])
    assert pool.ask("POST", "/v1/config", body=body, token=tokens["ops@pool.example"])[0] != 403


def test_every_operation_has_a_daemon_whose_lists_hold(pool):
    made, _ = lists(**{f"DENY_READ_{one}": "*" for one in access_lists.SUBSYSTEMS})
    nobody = Identity("a@x", Level.ADMINISTRATOR, levels=made.levels("a@x", "", (), Level.ADMINISTRATOR, granted=True))
    assert all(refusal(nobody, operation) for operation, level in NEEDS.items() if level)
    assert tuple(level.name for level in Level if level) == LEVELS
