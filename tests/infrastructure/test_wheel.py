"""What `pip wheel .` makes: all of the product, nothing else, the same bytes each time, and a pool without the
repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from services.startd.forkserver.build import PROGRAM, find_compiler
from tests.servers import Leashed
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "services", "shared", "roost")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def build(directory: Path) -> Path:
    """A wheel made from a copy of the checkout, as somebody else would."""
    tree = directory / "tree"
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc", PROGRAM.name)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tree / name)
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600", "PYTHONPATH": ""}
    command = [sys.executable, "-c", BUILD, str(directory)]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def test_it_holds_all_of_the_product_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    ours = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path != PROGRAM
    }
    # Where there is a compiler: for this kind of machine, with the spawner in C.
    compiled = {str(PROGRAM.relative_to(ROOT))} if find_compiler() else set()
    assert held == ours | compiled
    assert wheel.name.endswith("-py3-none-any.whl") == (not compiled)


def test_it_is_the_same_when_made_again(wheel, tmp_path):
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_a_pool_comes_up_from_it_alone(wheel, tmp_path):
    place = tmp_path / "installed"
    venv.create(place, with_pip=False, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    # What Roost stands on, but not the checkout: links of one environment's site-packages are read there only.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = place / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-index", "--no-deps", wheel]
    subprocess.run(install, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    home = tmp_path / "home"
    home.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_", "PYTHON"))}
    env |= {"HOME": str(home), "ROOST_POOL_DIR": str(home / "pool"), "_CONDOR_RUNBENCHMARKS": "false"}
    roost = place / "bin" / "roost"

    def said(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    where = Path(said(python, "-c", "import roost, services; print(roost.__file__)"))
    assert where.is_relative_to(place)
    pool = Leashed([roost, "up", "-port", "0"], log=tmp_path / "up.log", env=env, cwd=home)
    try:
        wait_until(lambda: (home / "pool" / "token").exists() or pool.returncode is not None, what="the pool")
        assert pool.returncode is None, pool.tail()
        said(roost, "submit", where.with_name("demo") / "hello.sub")
        said(roost, "wait", "1")
        assert "Hello" in "".join(path.read_text() for path in home.glob("hello.*.out"))
    finally:
        pool.close()
