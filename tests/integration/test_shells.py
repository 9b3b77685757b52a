"""Completion of the `roost` command in real shells."""

import os
import shutil
import subprocess
import sys

import pytest

from roost.cli.main import COMMANDS
from tests import warm
from tests.integration.pools import ROOT


@pytest.fixture
def shell(tmp_path):
    """What a shell completes, with a `roost` on its way and no pool."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "roost").symlink_to(warm.programs() / "roost")
    (tmp_path / "job.sub").touch()
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    env = kept | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "ZDOTDIR": str(tmp_path),
        "TERM": "xterm",
    }

    def run(*words):
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert not done.stderr, done.stderr
        return done.stdout

    return run


def installed(name):
    if shutil.which(name) is None:
        pytest.fail(f"no {name}: install it (bin/test does), or leave it out with --without shells", pytrace=False)


def test_bash_completes(shell):
    ask = (
        "source <(roost completion bash);"
        'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _roost; echo "${COMPREPLY[*]}"; };'
        "try roost qe; try roost q -bet; try roost submit jo; try roost config-val NUM_CPU; try roost hold ''"
    )
    lines = shell("bash", "--norc", "-c", ask).splitlines()
    assert lines == ["qedit", "-better-analyze -better-analyse", "job.sub", "NUM_CPUS", ""]


@pytest.mark.shells
def test_fish_completes(shell):
    installed("fish")
    ask = (
        "roost completion fish | source;"
        "for line in 'roost qe' 'roost q -bet' 'roost submit jo' 'roost config-val NUM_CPU' 'A=1 roost q --co';"
        ' complete -C "$line"; end'
    )
    lines = [line.split("\t") for line in shell("fish", "--no-config", "-c", ask).splitlines()]
    words = [words[0] for words in lines]
    assert words == ["qedit", "-better-analyse", "-better-analyze", "job.sub", "NUM_CPUS", "--constraint"]
    assert lines[0][1] == COMMANDS["qedit"][1]


@pytest.mark.shells
def test_zsh_completes(shell, tmp_path):
    """At its prompt: every line is typed, completed with TAB, and written down with ctrl-T."""
    installed("zsh")
    (tmp_path / ".zshrc").write_text(
        "PS1='% '; autoload -Uz compinit; compinit -u -D; source <(roost completion zsh)\n"
        "seen() { print -r -- \"$BUFFER\" >>seen; BUFFER=''; }; zle -N seen; bindkey '^T' seen\n"
    )
    typed = ["roost qe", "roost q -bet", "roost submit jo", "roost config-val NUM_CPU", "roost q --co"]
    keys = "".join(f"{line}\t\x14" for line in typed) + "exit\n"
    (tmp_path / "keys").write_text(keys)
    in_a_terminal = (
        "import os, pty, sys; keys = open('keys', 'rb').read()\n"
        "pid, terminal = pty.fork()\n"
        "if pid == 0: os.execvp('zsh', ['zsh', '-d', '-i'])\n"
        "os.write(terminal, keys)\n"
        "try:\n"
        "    while os.read(terminal, 4096): pass\n"
        "except OSError: pass\n"
    )
    shell(sys.executable, "-c", in_a_terminal)
    assert (tmp_path / "seen").read_text().splitlines() == [
        "roost qedit ",
        "roost q -better-analy",
        "roost submit job.sub ",
        "roost config-val NUM_CPUS ",
        "roost q --constraint ",
    ]
