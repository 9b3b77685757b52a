"""The java universe on an execution point: what JAVA is asked, how a job's command line is made, who runs it."""

import asyncio
from pathlib import Path

import pytest

from services.startd.core.run.failures import RunFailed
from services.startd.core.run.job_launch import Launch
from services.startd.exec.java.launcher import probe
from services.startd.exec.java.plan import (
    BadJavaSetting,
    JavaFound,
    JavaSettings,
    choose_java,
    java_attributes,
    java_words,
    read_java_settings,
    read_properties,
)
from shared.classad import ClassAd, parse_expr
from shared.config import load_config
from shared.config.knobs import StartdSettings

PRINTED = """Property settings:
    file.encoding = UTF-8
    java.class.path =
    java.runtime.version = 17.0.15+6-Debian-1deb12u1
    java.specification.version = 17
    java.vendor = Debian
    java.version = 17.0.15
    path.separator = :

openjdk version "17.0.15" 2025-04-15
"""
FOUND = JavaFound("/usr/bin/java", "Debian", "17.0.15", "17")


def rules_of(**knobs):
    env = {f"_CONDOR_{name}": value for name, value in knobs.items()}
    return read_java_settings(StartdSettings.from_config(load_config([], subsystem="STARTD", env=env)))


def launch(job, *words, cwd="/x/dir_1"):
    return Launch(
        run="1", executable="java", argv=("java", *words), env={}, cwd=cwd, stdin="", stdout="", stderr="",
        scratch=Path("/x/dir_1"), cpus=1.0, memory_mib=64, job_ad=ClassAd(job),
    )  # fmt: skip


def test_there_is_no_java_unless_it_is_named():
    rules = rules_of()
    assert rules == JavaSettings()
    assert asyncio.run(probe(rules)) == JavaFound()
    assert java_attributes(rules, JavaFound()) == {}


def test_what_java_says_of_itself():
    assert read_properties("/usr/bin/java", PRINTED) == FOUND
    assert java_attributes(JavaSettings("/usr/bin/java"), FOUND) == {
        "HasJava": True,
        "JavaVendor": "Debian",
        "JavaVersion": "17.0.15",
        "JavaSpecificationVersion": "17",
    }
    broken = read_properties("/opt/java", "Error occurred during initialization of VM\n\n")
    assert (broken.program, "initialization of VM" in broken.trouble) == ("", True)
    assert java_attributes(JavaSettings("/opt/java"), broken) == {}
    assert java_attributes(JavaSettings("/opt/java"), None) == {}


def test_a_program_that_is_no_java_is_told(tmp_path):
    missing = asyncio.run(probe(JavaSettings(str(tmp_path / "java"))))
    assert "is no program" in missing.trouble
    script = tmp_path / "java"
    script.write_text("#!/bin/sh\necho 'out of order' >&2\nexit 3\n")
    script.chmod(0o755)
    assert "exit status 3" in asyncio.run(probe(JavaSettings(str(script)))).trouble
    script.write_text("#!/bin/sh\necho hello\n")
    assert "does not tell its version: hello" in asyncio.run(probe(JavaSettings(str(script)))).trouble
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{PRINTED}END\n")
    assert asyncio.run(probe(JavaSettings(str(script)))).version == "17.0.15"


def test_the_command_line():
    rules = rules_of(
        JAVA="/usr/bin/java",
        JAVA_CLASSPATH_ARGUMENT="-cp",
        JAVA_CLASSPATH_DEFAULT=". /opt/lib.jar",
        JAVA_EXTRA_ARGUMENTS="\"-Xmx1g '-Dname=two words'\"",
    )
    job = {"JarFiles": "/home/ann/a.jar, b.jar", "JavaVMArgs": "-verbose -Dx=1"}
    assert java_words(rules, launch(job, "Hello", "an argument")) == (
        "-cp",
        ".:/opt/lib.jar:/x/dir_1/a.jar:/x/dir_1/b.jar",
        "-Xmx1g",
        "-Dname=two words",
        "-Dchirp.config=/x/dir_1/.chirp.config",
        "-verbose",
        "-Dx=1",
        "Hello",
        "an argument",
    )
    # Where files are used where they lie, JAR files are, too; the new form of arguments goes before the old one.
    job |= {"JavaVMArguments": "-Dy='1 2'"}
    words = java_words(JavaSettings("java", "-cp", ";"), launch(job, "Hello", cwd="/home/ann"))
    assert words[:2] == ("-cp", ".;/home/ann/a.jar;b.jar")
    assert words[3:] == ("-Dy=1 2", "Hello")
    with pytest.raises(RunFailed, match="java_vm_args"):
        java_words(rules, launch({"JavaVMArguments": "'open"}, "Hello"))


def test_words_that_can_not_be_read_are_refused_with_their_knob():
    with pytest.raises(BadJavaSetting, match="JAVA_EXTRA_ARGUMENTS"):
        rules_of(JAVA_EXTRA_ARGUMENTS='"\'open"')


def test_who_is_run_by_java():
    rules, machine = JavaSettings("java"), ClassAd({"Contained": True})
    assert choose_java(ClassAd({"JobUniverse": 5}), machine, rules) is None
    choice = choose_java(ClassAd({"JobUniverse": 10}), machine, rules)
    assert choice is not None
    assert choice.launcher == "java"
    # A machine that puts jobs into containers does not offer a Java that would run outside of them.
    contained = rules_of(JAVA="java", SINGULARITY_JOB="Contained")
    with pytest.raises(RunFailed, match="SINGULARITY_JOB"):
        choose_java(ClassAd({"JobUniverse": 10}), machine, contained)
    assert java_attributes(contained, FOUND) == {}
    assert java_attributes(rules_of(JAVA="java", SINGULARITY_JOB="false"), FOUND)["HasJava"] is True
    assert parse_expr("false") == JavaSettings().contained
