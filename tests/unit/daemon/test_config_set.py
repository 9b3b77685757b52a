"""`config-val -set`, `-unset`, `-rset` and `-runset` as orders to a daemon: who may set what, what is refused before
anything is written, and what becomes of it at reconfig and restart (CFG-16)."""

import os

import pytest

from shared.config import ConfigError, load_config
from shared.config.dynamic import Dynamic
from shared.config.knobs import NegotiatorSettings
from shared.daemon import orders
from shared.daemon.base import Daemon
from shared.daemon.lifecycle import run_daemon
from shared.daemon.off_daemon import OffDaemon
from shared.daemon.startup import make_daemon_or_reset, set_config_loader
from shared.errors import ConfigurationError
from shared.messages.base import Envelope, Failure
from shared.messages.orders import OrderTaken, Reconfigure, Reconfigured, SetConfig
from tests.daemons import make_context

FILES = """
A = 10
NEGOTIATOR_INTERVAL = $(A) * 2
ENABLE_RUNTIME_CONFIG = true
ENABLE_PERSISTENT_CONFIG = true
PERSISTENT_CONFIG_DIR = {directory}/set
SETTABLE_ATTRS_ADMINISTRATOR = A, NEGOTIATOR_*, GROUP_*, MY_*, PLUGIN, SETTABLE_ATTRS_*, SCHEDD.*, ENABLE_*
SETTABLE_ATTRS_WRITE = MY_LIST
NEGOTIATOR.NEGOTIATOR_TIMEOUT = 9
"""


class Example(Daemon):
    subsystem = "NEGOTIATOR"
    at_start = ("NEGOTIATOR_CYCLE_*",)

    def __init__(self, context):
        super().__init__(context)
        self.settings = NegotiatorSettings.from_config(context.config)
        if context.config.get("MY_BOMB") == "lit":
            raise ConfigError([])

    async def setup(self):
        pass

    def tasks(self):
        return {}

    async def reconfigure(self):
        self.settings = NegotiatorSettings.from_config(self.context.config)


class Place:
    """A directory with files, and daemons that live there one after the other."""

    def __init__(self, directory):
        self.directory = directory
        self.file = directory / "condor_config"
        self.set = directory / "set" / ".config.NEGOTIATOR"
        self.overrides = {}
        self.file.write_text(FILES.format(directory=directory))
        self.daemon = self.begin()

    def load(self, dynamic=None, local_name=None):
        return load_config(
            [self.file],
            subsystem="NEGOTIATOR",
            env={},
            overrides=self.overrides,
            dynamic=dynamic,
            local_name=local_name,
        )

    def begin(self):
        context = make_context("NEGOTIATOR", config=self.load(), directory=self.directory)
        set_config_loader(context, self.load)
        self.daemon = make_daemon_or_reset(Example, context)
        return self.daemon

    @property
    def config(self):
        return self.daemon.context.config

    async def order(self, *unset, level="ADMINISTRATOR", persistent=False, **texts):
        body = SetConfig(
            set={name.replace("__", "."): text for name, text in texts.items()},
            unset=list(unset),
            persistent=persistent,
            level=level,
            by="root@x",
        )
        return await orders.handle_order(self.daemon, Envelope(body, sender="gateway.g"))

    async def reconfig(self):
        answer = await orders.handle_order(self.daemon, Envelope(Reconfigure(), sender="gateway.g"))
        assert isinstance(answer, Reconfigured), answer
        return answer


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


async def test_what_is_set_until_the_restart_takes_effect_at_reconfig_and_is_gone_at_the_restart(place):
    answer = await place.order(A="$(MY_BASE) + 1", MY_BASE="4")
    assert answer == OrderTaken(said="A, MY_BASE set until it restarts; it takes effect with `roost reconfig`")
    assert place.config.get("A") == "10"
    assert (await place.reconfig()).changed == ["A", "MY_BASE", "NEGOTIATOR_INTERVAL"]
    assert place.daemon.settings.negotiator_interval == 4 + 1 * 2  # texts, as ever
    assert place.config.origin("A").name == "<set until restart>"
    assert not place.set.exists()
    assert (await place.order("A", "MY_BASE")).said == "A, MY_BASE unset; it takes effect with `roost reconfig`"
    await place.reconfig()
    assert place.daemon.settings.negotiator_interval == 20
    await place.order(A="30")
    assert place.begin().settings.negotiator_interval == 20


async def test_what_is_set_for_good_survives_the_restart_and_names_its_file(place):
    answer = await place.order(persistent=True, A="$(A) + 5", GROUP_QUOTA_physics__hep="12")
    assert answer.said.startswith(f"A, GROUP_QUOTA_physics.hep set in {place.set}; it takes effect")
    assert place.daemon.settings.negotiator_interval == 20
    for _ in range(2):
        assert place.begin().settings.negotiator_interval == 10 + 5 * 2
        assert place.daemon.settings.group_quota_by_groupname == {"physics.hep": 12.0}
    origin = place.config.origin("A")
    assert origin.name == str(place.set)
    assert place.set.read_text().splitlines()[origin.line - 1] == "A = $(A) + 5"
    assert os.stat(place.set).st_mode & 0o777 == 0o600
    assert str(place.set) in place.config.files
    assert (await place.order("a", "GROUP_QUOTA_PHYSICS.HEP", persistent=True)).said.startswith("a, GROUP_QUOTA_PHY")
    assert place.begin().settings.negotiator_interval == 20
    assert (await place.order("A", persistent=True)).said == "A was not set for good"


async def test_until_the_restart_wins_over_for_good_and_both_over_files_and_environment(place, monkeypatch):
    await place.order(persistent=True, A="1")
    await place.order(A="2")
    await place.reconfig()
    assert place.config.get("A") == "2"
    await place.order("A")
    await place.reconfig()
    assert place.config.get("A") == "1"
    config = load_config([place.file], subsystem="NEGOTIATOR", env={"_CONDOR_A": "77"})
    assert config.get("A") == "1"


async def test_what_is_read_at_the_start_only_is_told(place):
    assert "`roost restart`" in (await place.order(persistent=True, NEGOTIATOR_CYCLE_DELAY="3")).said
    assert "as the daemon starts only" in (await place.order(NEGOTIATOR_CYCLE_DELAY="3")).said


@pytest.mark.parametrize(
    ("level", "texts", "says"),
    [
        ("ADMINISTRATOR", {"NEGOTIATOR_INTERVAL": "soon"}, "NEGOTIATOR_INTERVAL = soon is not usable (give a number"),
        ("ADMINISTRATOR", {"A": "-1 * 1000000"}, "NEGOTIATOR_INTERVAL = -1 * 1000000 * 2 is not usable"),
        ("ADMINISTRATOR", {"MY_X": "1", "NEGOTIATOR_INTERVALL": "5"}, "did you mean NEGOTIATOR_INTERVAL?"),
        ("ADMINISTRATOR", {"MY_X": "$(MY_Y)", "MY_Y": "$(MY_X)"}, "refers to itself"),
        ("ADMINISTRATOR", {"NEGOTIATOR_TIMEOUT": "5"}, "NEGOTIATOR.NEGOTIATOR_TIMEOUT counts (set NEGOTIATOR."),
        ("ADMINISTRATOR", {"SCHEDD.MAX_JOBS_RUNNING": "5"}, "read by a schedd only, and this is a negotiator"),
        ("ADMINISTRATOR", {"CLAIM_WORKLIFE": "5"}, "list it in SETTABLE_ATTRS_ADMINISTRATOR"),
        ("ADMINISTRATOR", {"SETTABLE_ATTRS_WRITE": "*"}, "can be set in files only"),
        ("ADMINISTRATOR", {"NEGOTIATOR.SETTABLE_ATTRS_WRITE": "*"}, "can be set in files only"),
        ("ADMINISTRATOR", {"NEGOTIATOR_SETTABLE_ATTRS_WRITE": "*"}, "can be set in files only"),
        ("ADMINISTRATOR", {"ENABLE_PERSISTENT_CONFIG": "true"}, "can be set in files only"),
        ("ADMINISTRATOR", {"MY_X": "1\nB = 2"}, "MY_X can not be set to a text with line ends"),
        ("ADMINISTRATOR", {"MY_X": "1\\"}, "ends in a backslash"),
        ("ADMINISTRATOR", {"MY_X": "x" * 10_001}, "use at most 10000"),
        ("ADMINISTRATOR", {"MY_ X": "1"}, "use letters, digits"),
        ("ADMINISTRATOR", {"MY_X": "1", "my_x": "2"}, "named twice"),
        ("ADMINISTRATOR", {}, "nothing to set or unset"),
        ("WRITE", {"A": "1"}, "A is not among what WRITE may set: list it in SETTABLE_ATTRS_WRITE"),
        ("READ", {"MY_LIST": "1"}, "MY_LIST is not among what READ may set"),
        ("ROOT", {"A": "1"}, "A is not among"),
        ("", {"A": "1"}, "A is not among"),
    ],
)
@pytest.mark.parametrize("persistent", [False, True])
async def test_what_is_refused_changes_nothing(place, level, texts, says, persistent):
    await place.order(persistent=True, A="3")
    before = place.set.read_bytes()
    body = SetConfig(set=texts, persistent=persistent, level=level)
    answer = await orders.handle_order(place.daemon, Envelope(body, sender="gateway.g"))
    assert isinstance(answer, Failure)
    assert says in answer.reason
    assert answer.code == "refused"
    assert place.set.read_bytes() == before
    assert place.daemon.context.runtime == {}
    assert [name.name for name in place.set.parent.iterdir()] == [place.set.name]


async def test_unsetting_needs_the_right_too(place):
    await place.order(persistent=True, A="3")
    assert isinstance(await place.order("A", persistent=True, level="WRITE"), Failure)
    assert "A = 3" in place.set.read_text()


async def test_each_level_may_what_those_below_may_and_config_is_an_administrators(place):
    assert isinstance(await place.order(MY_LIST="x", level="WRITE"), OrderTaken)
    assert isinstance(await place.order(MY_LIST="y"), OrderTaken)
    place.file.write_text(place.file.read_text() + "SETTABLE_ATTRS_CONFIG = DEFAULT_PRIO_FACTOR\n")
    assert isinstance(await place.order(DEFAULT_PRIO_FACTOR="10"), OrderTaken)
    assert isinstance(await place.order(DEFAULT_PRIO_FACTOR="10", level="WRITE"), Failure)


async def test_a_list_for_one_kind_of_daemon_takes_the_place_of_that_for_all(place):
    place.file.write_text(place.file.read_text() + "NEGOTIATOR_SETTABLE_ATTRS_ADMINISTRATOR = MY_OWN\n")
    assert isinstance(await place.order(MY_OWN="1"), OrderTaken)
    assert isinstance(await place.order(A="1"), Failure)


@pytest.mark.parametrize("persistent", [False, True])
async def test_nothing_can_be_set_where_it_is_not_enabled(place, persistent):
    place.file.write_text("SETTABLE_ATTRS_ADMINISTRATOR = *\n")
    answer = await place.order(A="1", persistent=persistent)
    assert ("ENABLE_PERSISTENT_CONFIG" if persistent else "ENABLE_RUNTIME_CONFIG") in answer.reason
    place.file.write_text("SETTABLE_ATTRS_ADMINISTRATOR = *\nENABLE_PERSISTENT_CONFIG = true\n")
    assert "PERSISTENT_CONFIG_DIR" in (await place.order(A="1", persistent=True)).reason
    assert "PERSISTENT_CONFIG_DIR is not set" in str(place.load().warnings[0])


async def test_what_the_command_line_says_can_not_be_set(place):
    place.overrides = {"MY_X": "fixed"}
    answer = await place.order(MY_X="other")
    assert "MY_X would have no effect" in answer.reason
    assert "<command line>" in answer.reason


async def test_scopes_of_the_daemon_are_its_own(place):
    assert isinstance(await place.order(NEGOTIATOR__NEGOTIATOR_TIMEOUT="5"), OrderTaken)
    await place.reconfig()
    assert place.daemon.settings.negotiator_timeout == 5
    assert place.load(local_name="n2").persistent_file.name == ".config.NEGOTIATOR.n2"


async def test_what_became_bad_is_left_out_with_a_warning_and_can_be_unset(place):
    """Somebody edited the file, or a new release has other bounds: the daemon starts all the same."""
    await place.order(persistent=True, A="3", NEGOTIATOR_MIN_INTERVAL="5")
    place.set.write_text(place.set.read_text().replace("= 5", "= soon") + "include : /etc/passwd\nMY_FINE = 1\n")
    place.begin()
    assert place.config.get("A") == "3"
    assert place.config.get("MY_FINE") == "1"
    assert place.daemon.settings.negotiator_min_interval == 5  # the default
    told = [str(problem) for problem in place.config.warnings]
    assert [f"{place.set}, line 4: NEGOTIATOR_MIN_INTERVAL was set" in one for one in told] == [False, True]
    assert f"{place.set}, line 5: a line is left out" in told[0]
    assert isinstance(await place.order("NEGOTIATOR_MIN_INTERVAL", persistent=True), OrderTaken)
    assert not place.begin().context.config.warnings


async def test_one_that_is_bad_through_another_leaves_all_out(place):
    place.set.parent.mkdir()
    place.set.write_text("A = soon\nMY_FINE = 1\n")
    place.begin()
    assert place.daemon.settings.negotiator_interval == 20
    assert place.config.get("MY_FINE") is None
    assert len(place.config.warnings) == 2


async def test_files_that_are_bad_themselves_are_told_as_ever(place):
    await place.order(persistent=True, A="3")
    place.file.write_text(place.file.read_text() + "NEGOTIATOR_MIN_INTERVAL = soon\n")
    with pytest.raises(ConfigError, match="NEGOTIATOR_MIN_INTERVAL = soon"):
        place.begin()


async def test_a_daemon_that_can_not_begin_with_what_was_set_begins_without(place):
    await place.order(persistent=True, MY_BOMB="lit")
    place.begin()
    assert place.config.get("MY_BOMB") is None
    assert f"all that was set with config-val in {place.set} is left out" in str(place.config.warnings[-1])


@pytest.mark.parametrize("text", ["\x00\xff", "= 3\n", "A\n", "@=x\n", "A @=end\n1\n"])
async def test_no_file_keeps_a_daemon_from_starting(place, text):
    place.set.parent.mkdir()
    place.set.write_bytes(text.encode("latin-1"))
    place.begin()
    assert place.daemon.settings.negotiator_interval == 20
    assert place.config.warnings


async def test_a_file_that_others_may_write_is_not_believed(place):
    await place.order(persistent=True, A="3")
    place.set.chmod(0o666)
    place.begin()
    assert place.config.get("A") == "10"
    assert "others may write it" in str(place.config.warnings[0])


async def test_a_disk_that_takes_nothing_is_told_and_nothing_changes(place):
    place.set.parent.write_text("a file where the directory should be")
    answer = await place.order(persistent=True, A="3")
    assert isinstance(answer, Failure)
    assert place.begin().settings.negotiator_interval == 20


async def test_a_daemon_that_is_off_takes_what_is_set_for_good(place):
    context = make_context("NEGOTIATOR", config=place.load(), directory=place.directory)
    set_config_loader(context, place.load)
    off_daemon = type("Off", (OffDaemon,), {"subsystem": "NEGOTIATOR"})(context)
    body = SetConfig(set={"A": "3"}, persistent=True, level="ADMINISTRATOR")
    assert isinstance(await off_daemon._on_request(Envelope(body, sender="gateway.g")), OrderTaken)
    assert place.begin().settings.negotiator_interval == 6


async def test_without_files_nothing_is_set():
    daemon = Example(make_context("NEGOTIATOR"))
    answer = await orders.handle_order(
        daemon, Envelope(SetConfig(set={"A": "1"}, level="ADMINISTRATOR"), sender="gateway.g")
    )
    assert "no configuration files" in answer.reason


def test_reading_again_is_asked_with_what_is_set():
    seen = []
    context = make_context("NEGOTIATOR")
    set_config_loader(context, lambda dynamic: seen.append(dynamic) or context.config)
    context.runtime = {"A": "1"}
    context.reread()
    assert seen == [Dynamic({"A": "1"})]


class Demanding(Example):
    """Finds out in its setup that it can not go by what it is told."""

    async def setup(self):
        self.check(self.context.config)

    def check(self, config):
        if (config.get("MY_CORES") or "1") != "1":
            raise ConfigurationError(f"MY_CORES = {config['MY_CORES']}: this machine has 1 core")


async def test_what_the_daemon_itself_could_not_go_by_is_refused_before_it_is_written(place):
    place.daemon = Demanding(place.daemon.context)
    answer = await place.order(persistent=True, MY_CORES="2")
    assert "this machine has 1 core" in answer.reason
    assert not place.set.exists()


async def test_one_that_dies_of_it_at_its_start_starts_without_it_then(place):
    """Somebody wrote that into the file, or the machine has changed."""
    place.set.parent.mkdir()
    place.set.write_text("A = 3\nMY_CORES = 2\n")
    place.daemon = Demanding(place.begin().context)
    await place.daemon.context.bus.start()
    with pytest.raises(ConfigurationError):
        await run_daemon(place.daemon)
    config = place.load()
    assert config.get("MY_CORES") is None
    assert config.get("A") == "10"
    assert "could not start with it: MY_CORES = 2: this machine has 1 core" in str(config.warnings[0])
    # What is set or unset then goes with the rest, and the daemon tries again.
    place.begin()
    place.daemon = Demanding(place.daemon.context)
    assert isinstance(await place.order("MY_CORES", persistent=True), OrderTaken)
    assert place.load().get("A") == "3"
    assert not place.load().warnings
    await place.daemon.context.bus.stop()
