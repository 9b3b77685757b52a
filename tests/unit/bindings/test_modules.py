"""The modules under HTCondor's names, in a process of their own: the environment has the reference's of these names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BINDINGS = Path(__file__).resolve().parents[3] / "bindings"


def run(program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (*paths, BINDINGS, BINDINGS.parent)))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["classad2", "classad", "htcondor2", "htcondor"])
def test_a_module_says_whose_it_is(name):
    done = run(
        f"import {name} as m; print(m.__doc__, m.version()); [getattr(m, n) for n in m.__all__]", BINDINGS / "modules"
    )
    assert done.returncode == 0, done.stderr
    assert f"{name} of Roost" in done.stdout
    assert "Roost 0." in done.stdout


def test_a_mixture_of_both_distributions_is_refused(tmp_path):
    (tmp_path / "htcondor-25.14.1.dist-info").mkdir()
    (tmp_path / "htcondor-25.14.1.dist-info" / "METADATA").write_text("Name: htcondor\nVersion: 25.14.1\n")
    (tmp_path / "classad2").symlink_to(BINDINGS / "modules" / "classad2")
    done = run("import classad2", tmp_path)
    assert done.returncode == 0, done.stderr  # a link leads to where there is no such distribution
    (tmp_path / "classad2").unlink()
    (tmp_path / "classad2").mkdir()
    (tmp_path / "classad2" / "__init__.py").write_text((BINDINGS / "modules" / "classad2" / "__init__.py").read_text())
    done = run("import classad2", tmp_path)
    assert "ImportError: the distribution htcondor 25.14.1 and roost-htcondor are both installed" in done.stderr
