"""Configurations as administrators write them load, expand and make settings for every daemon.

With ROOST_MANUAL_PAGES naming a directory of HTCondor's manual pages, as reStructuredText in .txt or .rst files,
every configuration in them is tried, too.
"""

import os
import re
import textwrap
from pathlib import Path

import pytest

from shared.config import load_config
from shared.config.errors import NoEffect
from shared.config.knobs import SETTINGS

OWN = {
    "groups": """
        GROUP_NAMES = physics, physics.theory, physics.lab, biology
        GROUP_QUOTA_physics = 20
        GROUP_QUOTA_DYNAMIC_physics.theory = 0.75
        GROUP_ACCEPT_SURPLUS_physics.lab = true
        GROUP_PRIO_FACTOR_biology = 2.0
        """,
    "limits": "LICENCE_LIMIT = 3\nCONCURRENCY_LIMIT_DEFAULT = 25\nCONCURRENCY_LIMIT_DEFAULT_big = 2\n",
    "slots": """
        use FEATURE : PartitionableSlot(1, 75%)
        SLOT_TYPE_2 @=shares
          cpus = 1
          memory = 25%
        @shares
        NUM_SLOTS_TYPE_2 = $(DETECTED_CORES) * 2
        SLOT_TYPE_2_PARTITIONABLE = false
        """,
    "desktop": """
        use POLICY : Desktop
        WorkHours = ( (ClockMin >= 480 && ClockMin < 1020) && (ClockDay > 0 && ClockDay < 6) )
        AfterHours = ( ! $(WorkHours) )
        START = $(AfterHours) && $(CPUIdle) && KeyboardIdle > $(StartIdleTime)
        """,
    "cron": """
        STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) probe
        STARTD_CRON_probe_EXECUTABLE = $(LIBEXEC)/probe
        STARTD_CRON_probe_PERIOD = 5m
        STARTD_CRON_probe_PREFIX = Probe_
        """,
    "view servers": """
        VIEW1 = $(COLLECTOR)
        VIEW1_ARGS = -f -p 12345 -local-name VIEW1
        VIEW1_ENVIRONMENT = _CONDOR_COLLECTOR_LOG=$(LOG)/View1Log
        VIEW1.POOL_HISTORY_DIR = $(LOCAL_DIR)/history1
        DAEMON_LIST = $(DAEMON_LIST), VIEW1
        """,
    "hooks": "SITE_HOOK_FETCH_WORK = $(LIBEXEC)/fetch\nSTARTD_JOB_HOOK_KEYWORD = SITE\nFetchWorkDelay = 5 * 6\n",
    "choice": """
        if defined CENTRAL
          CONDOR_HOST = $(CENTRAL)
        elif version >= 8.0
          CONDOR_HOST = central.example.org
        else
          error : what is this
        endif
        """,
}

BLOCK = re.compile(r"^( *)\.\. code-block:: condor-config *\n((?:\1[ \t]+.*\n|[ \t]*\n)+)", re.MULTILINE)


def manual_blocks():
    """(file and line, text) of each configuration in the manual's pages; a text that stops at `...` is cut there."""
    folder = os.environ.get("ROOST_MANUAL_PAGES")
    if not folder:
        return
    for page in sorted(Path(folder).iterdir()):
        if page.suffix in (".txt", ".rst"):
            text = page.read_text(encoding="utf-8").expandtabs()
            for match in BLOCK.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield (
                    f"{page.name}:{line}",
                    textwrap.dedent(re.sub(r"(?m)^ *:\w+:.*$", "", match[2])).strip().removesuffix("..."),
                )


EXAMPLES = [*OWN.items(), *manual_blocks()]


@pytest.mark.parametrize(("where", "text"), EXAMPLES, ids=[where for where, _ in EXAMPLES])
def test_example_loads_and_expands(tmp_path, where, text):
    path = tmp_path / "pool.conf"
    path.write_text(textwrap.dedent(text).strip() + "\n")
    config = load_config([path], env={})
    defined = [macro for macro in config.macros() if macro.source.name == str(path)]
    values = {macro.name: config.get(macro.name) for macro in defined}
    assert values or "if " in text, where


@pytest.mark.parametrize("where", OWN)
def test_own_example_makes_settings_for_every_daemon(tmp_path, where):
    path = tmp_path / "pool.conf"
    path.write_text(textwrap.dedent(OWN[where]).strip() + "\n")
    for kind in SETTINGS:
        config = load_config([path], subsystem=kind.SUBSYSTEM, env={})
        told = [one for one in config.warnings if not isinstance(one, NoEffect)]  # examples of HTCondor's have some
        assert [one for one in told if "there is no such file" not in one.message] == []
        kind.from_config(config)
