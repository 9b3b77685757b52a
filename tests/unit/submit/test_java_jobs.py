"""Submit files of the java universe. What HTCondor's library makes of them is asked by the family `submit`."""

import pytest

from roost.submit import Description, SubmitContext
from shared.config import ConfigError


def jobs(tmp_path, *lines):
    (tmp_path / "Hello.class").write_bytes(b"code")
    (tmp_path / "lib.jar").write_bytes(b"code")
    place = SubmitContext(tmp_path, "job.sub", "alice", {}, "example.org")
    text = "\n".join(("universe = java", "executable = Hello.class", *lines, "queue", ""))
    [cluster] = Description(text, place).clusters()
    return cluster, {**cluster.attributes, **cluster.procs[0]}


def test_the_class_and_its_files_travel_as_input(tmp_path):
    cluster, ad = jobs(tmp_path, "arguments = Hello 1", "jar_files = lib.jar", "java_vm_args = -Xmx64m")
    assert cluster.not_run == ""
    assert (ad["JobUniverse"], ad["Cmd"], ad["TransferExecutable"]) == (10, "java", False)
    assert set(ad["TransferInput"].split(",")) == {f"{tmp_path}/Hello.class", "lib.jar"}
    assert (ad["JarFiles"], ad["JavaVMArgs"], ad["Args"]) == ("lib.jar", "-Xmx64m", "Hello 1")
    assert "TARGET.HasJava" in str(ad["Requirements"])


def test_files_that_are_used_where_they_lie_stay_there(tmp_path):
    _, ad = jobs(tmp_path, "arguments = Hello", "jar_files = lib.jar", "should_transfer_files = NO")
    assert (ad["Cmd"], ad["JarFiles"]) == (f"{tmp_path}/Hello.class", "lib.jar")
    assert "TransferInput" not in ad


def test_arguments_of_java_in_all_forms(tmp_path):
    _, ad = jobs(tmp_path, "arguments = Hello", "java_vm_arguments = \"-Da='1 2'\"")
    assert ad["JavaVMArguments"] == "-Da=1' '2"
    _, ad = jobs(tmp_path, "arguments = Hello", 'java_vm_arguments2 = "-Da=1"')
    assert ad["JavaVMArguments"] == "-Da=1"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "needs the name of its class"),
        (("arguments = H", "java_vm_args = a", "java_vm_arguments = b"), "are the same"),
        (("arguments = H", "java_vm_args = a", 'java_vm_arguments2 = "b"'), "only the latter would count"),
        (("arguments = H", "java_vm_arguments2 = b"), "must be in double quotes"),
    ],
)
def test_what_can_not_be_meant_is_refused(tmp_path, lines, words):
    with pytest.raises(ConfigError, match=words):
        jobs(tmp_path, *lines)
