"""Configuration files: macros, functions, conditions, lines that go on, templates."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from shared.config import Config, ConfigError, load_config
from tests.reference.family import REFUSED, Case, Facts, Family

NAMES = ("A", "B", "C", "D", "X.Y", "Long_Name", "9LIVES")
SCOPES = ("", "", "", "TOOL.", "SCHEDD.")
VALUES = (
    *("1", "", "$(A)", "$(B)", "$(C:dd)", "x $(A) y", "$(SELF) more", "$(D:$(B))", "$(LIST)", "true", "$ENV(WORD)"),
    *("$ENV(NOPE:q)", "$Fnx(P)", "$Fpq(P)", "$Fdd(P)", '"str"', "a/b.c", "$EVAL(NUM)", "$(DOLLAR)(A)", "$$(A)"),
    *("$( A )", "$(NUM)*2", "$INT(NUM,%05d)", "$REAL(NUM)", "$STRING(TXT)", "$SUBSTR(P,1,3)", "$CHOICE(1,LIST)"),
    *("$DIRNAME(P)", "$($(WHICH))", "$(A$(B))", "2 # kept", "$(a)b", "$(NOPE:a b)", "$(NOPE:-1)", "$int(NUM)"),
)
#: Found wanting once, or seldom used.
RARE = (
    *(
        "$(X:$(LIST))",
        "$(NOPE:(a) b)",
        "$STRING(NUM)",
        "$STRING(WHICH)",
        "$Fu(P)",
        "$Fn(P)",
        "$Fx(P)",
        "$Fq(P)",
        "$Fa(P)",
    ),
    *("$Fp(P)", "$F(P)", "$Fw(P)", "$Fb(P)", "$Fbd(P)", "$Ff(P)", "$BASENAME(P)", "$SUBSTR(P,-3)", "$SUBSTR(TXT,2)"),
    *("$CHOICE(NUM,LIST)", "$CHOICE(0,p,q)", "$INT(WHICH)", "$REAL(NUM,%.2f)", "$EVAL(1+2)", "$(OPSYS)", "$(ARCH)"),
    *("$(NOPE:$(NOPE2:z))", "$(SUBSYSTEM)", "$(TXT)", "$EVAL(TXT)", "$RANDOM_CHOICE(z)", "$RANDOM_INTEGER(4,4)"),
    *("$(DETECTED_CPUS)", "$(NUM_SLOTS)", "$(MY.A)", "$(A) # $(B)", "a,b , c", "$STRING(TXT,%s)"),
)
CONDITIONS = (
    *("true", "false", "!true", "0", "1.5", "yes", "defined A", "!defined B", "defined X.Y", "defined GROUP_NAMES"),
    *("version > 8.1", "version < 8.1.6", "!version >= 8.0", "defined use FEATURE:GPUs", "defined"),
)
#: Templates, with arguments where they take any.
TEMPLATES = (
    *("FEATURE : PartitionableSlot(3,10%)", "role:EXECUTE", "POLICY : Desktop", "ROLE : Personal", "ROLE : Submit"),
    *("POLICY : Always_Run_Jobs", "POLICY : UWCS_Desktop", "POLICY : Limit_Job_Runtimes(100)", "ROLE:CentralManager"),
    *("POLICY : Preempt_if_Cpus_Exceeded", "POLICY : Hold_If_Memory_Exceeded", "FEATURE : GPUs", "FEATURE : GPUs(-x)"),
    *("FEATURE : StaticSlots(2, 3, cpus=1)", "FEATURE : Hibernate", "FEATURE : UWCS_Desktop_Policy_Values"),
    *("POLICY : Preempt_If(A)", "POLICY : Want_Hold_If(A,B,C)", "FEATURE : PartitionableSlot"),
)
FIXED = 'P = /a/b.d/c.tar.gz\nNUM = 7/2\nTXT = "some text"\nLIST = p, q, r\nWHICH = NUM\n'
ENVIRONMENT = {"WORD": "<$(NUM)>", "_CONDOR_D": "from environment", "_condor_Long_Name": "$(NUM)"}
ASKED = (
    *("SLOT_TYPE_3", "NUM_SLOTS_TYPE_3", "DAEMON_LIST", "IS_OWNER", "START", "SUSPEND", "CONTINUE", "PREEMPT"),
    *("WANT_SUSPEND", "WANT_VACATE", "KILL", "RANK", "WANT_HOLD", "WANT_HOLD_REASON", "SLOT_TYPE_1", "SLOT_TYPE_2"),
    *(
        "NUM_SLOTS_TYPE_1",
        "NUM_SLOTS_TYPE_2",
        "SLOT_TYPE_1_PARTITIONABLE",
        "HIBERNATE",
        "MACHINE_RESOURCE_INVENTORY_GPUS",
    ),
)


def random_file(chance: random.Random, rare: bool = False) -> str:
    """A file that both can read: every `if` closed, no text at which the reference ends or hangs. rare: also with
    values and templates of which some were wrong once."""
    values, templates = (VALUES + RARE, TEMPLATES) if rare else (VALUES, TEMPLATES[:3])
    lines: list[str] = []
    depth = 0
    for _ in range(chance.randint(4, 25)):
        kind = chance.random()
        name = chance.choice(NAMES)
        if kind < 0.12:
            lines.append("if " + chance.choice(CONDITIONS))
            depth += 1
        elif kind < 0.18 and depth:
            lines.append("endif")
            depth -= 1
        elif kind < 0.25:
            inside = chance.choice(("$(NUM)", "x \\\n  y"))
            lines += [f"{name} @=tag", "   first line", "# no line", "", inside, " @tag"]
        elif kind < 0.32:
            middle = chance.choice(("# dropped \\", "   two \\", "\\"))
            lines += [f"{name} = one \\", middle, chance.choice(("three", "", "  "))]
        elif kind < 0.38:
            lines.append("use " + chance.choice(templates))
        else:
            scope = chance.choice(SCOPES)
            text = chance.choice(values).replace("SELF", scope + name)
            lines.append(f"{scope}{name}{chance.choice((' = ', '=', ' =', '= '))}{text}")
    return FIXED + "\n".join(lines + ["endif"] * depth) + "\n"


def has_loop(config: Config) -> bool:
    """Whether a macro refers to itself: the reference does not come back from such a file."""
    for name in NAMES:
        try:
            config.get(name)
        except ConfigError as error:
            if "refers to itself" in str(error):
                return True
    return False


def read(text: str) -> Config:
    """As the reference's module reads it. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "pool.conf"
        path.write_text(text)
        return load_config([path], subsystem="TOOL", env=ENVIRONMENT)


def comparable(config: Config) -> list[str]:
    """The names to ask for: the Python module does not look at TOOL.X where there is no plain X, unlike programs."""
    plain = {macro.name.lower() for macro in config.macros() if macro.text}
    names = (*NAMES, *ASKED)
    return [name for name in names if name.lower() in plain or config.default(name) is not None]


def _make(rng: random.Random) -> Case:
    while True:
        text = random_file(rng, rare=True)
        try:
            config = read(text)
        except ConfigError:
            return {"text": text, "environment": ENVIRONMENT, "names": list(NAMES)}
        if not has_loop(config):
            return {"text": text, "environment": ENVIRONMENT, "names": comparable(config)}


def _ours(case: Case) -> Facts:
    try:
        config = read(case["text"])
    except ConfigError as error:
        return {REFUSED: str(error)}
    return {name: _value(config, name) for name in case["names"]}


def _value(config: Config, name: str) -> str | None:
    try:
        return config.get(name)
    except ConfigError:
        return REFUSED


def _known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    if question == "RANK" and mine == "0" and theirs is None:
        return "RANK's default is written down"
    if mine == REFUSED:
        return "what can not be evaluated is refused with its line, not taken for nothing"
    return ""


CONFIGURATION = Family("configuration", _make, _ours, _known)
