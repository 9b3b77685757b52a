"""The java universe: jobs that are classes of Java (condor_submit's commands jar_files and java_vm_args*)."""

from __future__ import annotations

from typing import Final

from roost.submit import quoting
from roost.submit.commands import Attributes, Commands
from shared.config.errors import config_error

UNIVERSE: Final = 10
#: How arguments are stored -> how those of Java itself are.
_STORED: Final = {"Args": "JavaVMArgs", "Arguments": "JavaVMArguments"}


def is_java(out: Attributes) -> bool:
    return bool(out.get("JobUniverse") == UNIVERSE)


def vm_arguments(c: Commands, out: Attributes) -> None:
    """Java's own arguments. Jobs of other universes get them too, as in the reference. Raises ConfigError."""
    first, second = c.text("java_vm_args"), c.text("java_vm_arguments", "JavaVMArgs")
    if first and second:
        raise config_error(
            "java_vm_args and java_vm_arguments are the same", c.source("java_vm_arguments"), "remove one of them"
        )
    old, new = second or first, c.text("java_vm_arguments2")
    if old and new and not c.boolean("allow_arguments_v1"):
        raise config_error(
            "java_vm_arguments and java_vm_arguments2 are both given, and only the latter would count",
            c.source("java_vm_arguments2"),
            "remove one of them, or write allow_arguments_v1 = true",
        )
    if new:
        out["JavaVMArguments"] = quoting.new_arguments(new, c.source("java_vm_arguments2"))
    elif old:
        name, value = quoting.stored_arguments(old, c.source("java_vm_args"))
        if value:
            out[_STORED[name]] = value


def check(c: Commands) -> None:
    """Raises ConfigError."""
    if not (c.text("arguments", "args") or c.text("arguments2")):
        raise config_error(
            "a java universe job needs the name of its class", c.source("universe"), "write arguments = CLASS"
        )


def travelling(c: Commands, out: Attributes, inputs: str) -> str:
    """Where files travel, the program is Java itself, and the class and JAR files come along as input does: all of
    the job's input files."""
    program = out["Cmd"]
    out["Cmd"], out["TransferExecutable"] = "java", False
    return ",".join(part for part in (inputs, program, c.text("jar_files") or "") if part)
