"""Adds the spawner in C to what is built from pyproject.toml, where there is a compiler: the wheel is for this kind of
machine then, and for every one otherwise."""

import runpy
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDER = "services/startd/forkserver"
BUILD = runpy.run_path(str(Path(__file__).parent / FOLDER / "build.py"))


class BuildWithSpawner(build_py):
    """What bin/setup makes in the source's own place, in the wheel's."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and is_compiled():
            target = Path(self.build_lib, FOLDER, BUILD["PROGRAM"].name)
            why = BUILD["compile_to"](target)
            if why:
                sys.exit(f"{BUILD['SOURCE']}: {why}")


class WheelWithSpawner(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """The program needs this kind of machine and no kind of Python."""
        _, _, platform = super().get_tag()
        return ("py3", "none", platform) if is_compiled() else super().get_tag()


class WithProgram(Distribution):
    def has_ext_modules(self) -> bool:
        """As for an extension: all goes where files for one kind of machine go."""
        return is_compiled()


def is_compiled() -> bool:
    return sys.platform == "linux" and bool(BUILD["find_compiler"]())


setup(distclass=WithProgram, cmdclass={"build_py": BuildWithSpawner, "bdist_wheel": WheelWithSpawner})
