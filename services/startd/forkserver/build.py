"""Compiles the spawner (`spawner.c`) where there is a compiler: `python build.py [TARGET]`.

Without one nothing happens and the fork server does the same in Python. It is done again only when the source has
changed. Run by itself (bin/setup), and by the wheel's build, which has none of our packages: so it imports nothing.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "spawner.c"
PROGRAM = HERE / "roost-spawner"
#: CFLAGS_SPAWNER, in the environment, comes after them.
FLAGS = (
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-fstack-protector-strong",
    "-D_FORTIFY_SOURCE=2",
    "-Wl,-z,relro,-z,now,-s",
)
#: The first that works: without a library to load a process is smaller, and a fork of it cheaper.
LINKS = (("-static-pie", "-fPIE"), ("-pie", "-fPIE"), ())


def digest(source: Path = SOURCE) -> str:
    """What a program says it was made from, and the server compares."""
    return hashlib.blake2b(source.read_bytes(), digest_size=16).hexdigest()


def find_compiler() -> list[str]:
    """The words to begin a command with; empty: there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    for words in (named, ["cc"], ["gcc"], ["clang"]):
        if words and shutil.which(words[0]):
            return words
    return []


def is_current(program: Path = PROGRAM) -> bool:
    """Whether a program is there that was made from the source as it is."""
    try:
        return digest().encode() in program.read_bytes()
    except OSError:
        return False


def compile_to(program: Path, flags: tuple[str, ...] = (), links: tuple[tuple[str, ...], ...] = LINKS) -> str:
    """Why there is no program now; empty: there is."""
    compiler = find_compiler()
    if sys.platform != "linux" or not compiler:
        return "no C compiler was found" if compiler == [] else "this is not Linux"
    said = ""
    made = program.with_name(f"{program.name}.{os.getpid()}")
    for link in links:
        own = shlex.split(os.environ.get("CFLAGS_SPAWNER", ""))
        command = [*compiler, *FLAGS, f'-DSOURCE="{digest()}"', *flags, *link, *own, "-o", str(made), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            os.replace(made, program)
            return ""
        said = said or done.stderr.strip()
    made.unlink(missing_ok=True)
    return f"{compiler[0]}: {said}"


def main(words: list[str]) -> None:
    program = Path(words[0]) if words else PROGRAM
    if not is_current(program):
        why = compile_to(program)
        if why:
            program.unlink(missing_ok=True)
            sys.stderr.write(f"The spawner is not compiled, and jobs are started by Python: {why}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
