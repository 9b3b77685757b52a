"""The launchers as they are registered: a further one is a kind in the table, and nothing else knows of it."""

from services.startd.core.run.job_launch import Choice
from services.startd.exec import registry
from services.startd.exec.api import LauncherKind
from shared.classad import ClassAd
from shared.config import load_config
from shared.config.knobs import StartdSettings

KNOBS = StartdSettings.from_config(load_config([], subsystem="STARTD", env={}))


def choose_podman(job, machine, settings):
    image = job.eval_string("PodmanImage")
    return Choice("podman", f"{settings}/{image}") if image else None


def test_a_further_launcher_is_one_line(monkeypatch):
    podman = LauncherKind(
        name="podman", make=lambda host: host, choose=choose_podman, read_settings=lambda knobs: "registry"
    )
    monkeypatch.setattr(registry, "KINDS", (podman, *registry.KINDS))
    settings = registry.read_launcher_settings(KNOBS)
    chosen = registry.choose(ClassAd({"PodmanImage": "debian"}), ClassAd(), settings)
    assert chosen == Choice("podman", "registry/debian")
    assert registry.choose(ClassAd(), ClassAd(), settings) == Choice("process")


def test_every_job_has_a_launcher():
    """The last kind takes whatever the others do not want."""
    settings = registry.read_launcher_settings(KNOBS)
    assert registry.KINDS[-1].choose(ClassAd(), ClassAd(), settings["process"]) == Choice("process")
    assert len({kind.name for kind in registry.KINDS}) == len(registry.KINDS)
