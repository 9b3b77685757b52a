"""Jobs of the java universe on a startd. A script stands for Java: it tells its version, and writes down how it was
called."""

from services.startd.core.run.job_launch import CHIRP_CONFIG
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

JAVA = """#!/bin/sh
if [ "$1" = -XshowSettings:properties ]; then
    echo "    java.version = 17.0.1" >&2
    echo "    java.vendor = Example" >&2
    exit 0
fi
printf '%s\\n' "$@"
exit 3
"""


def stand_in(tmp_path):
    path = tmp_path / "java"
    path.write_text(JAVA)
    path.chmod(0o755)
    return path


async def offered(pool):
    launcher = pool.startd.shared.launchers["java"]
    await eventually(lambda: launcher.found is not None)
    return launcher.attributes(())


async def test_a_class_with_its_files_is_run_by_java(tmp_path):
    async with Pool(tmp_path, JAVA=str(stand_in(tmp_path)), JAVA_EXTRA_ARGUMENTS="-Xmx64m") as pool:
        assert await offered(pool) == {"HasJava": True, "JavaVendor": "Example", "JavaVersion": "17.0.1"}
        folder = tmp_path / "access"
        folder.mkdir()
        async with Endpoint(folder) as endpoint:
            (endpoint.input / "Hello.class").write_bytes(b"code")
            (endpoint.input / "lib.jar").write_bytes(b"code")
            activation = pool.activation(
                cmd="java", url=endpoint.url, JobUniverse=10, TransferExecutable=False, Arguments="Hello 'two words'",
                JarFiles="/home/ann/lib.jar", JavaVMArgs="-Da=b", Out="out", ShouldTransferFiles="YES",
            )  # fmt: skip
            answer = await pool.call(pool.request(activation))
            assert answer.type == "claim.granted", answer
            end = await pool.schedd.end_of(activation.job_id)
            assert (end.exit.reason, end.exit.exit_code) == ("exited", 3)
            words = (endpoint.output / "_condor_stdout").read_text().splitlines()
        scratch = words[3].removeprefix("-Dchirp.config=").removesuffix(f"/{CHIRP_CONFIG}")
        assert scratch.startswith(str(pool.execute))
        assert words == [
            "-classpath",
            f".:{scratch}/lib.jar",
            "-Xmx64m",
            f"-Dchirp.config={scratch}/{CHIRP_CONFIG}",
            "-Da=b",
            "Hello",
            "two words",
        ]


async def test_a_machine_without_java_gives_the_job_back(tmp_path):
    async with Pool(tmp_path, JAVA=str(tmp_path / "java")) as pool:
        assert await offered(pool) == {}
        activation, _ = await pool.run("java", JobUniverse=10, Iwd=str(tmp_path), Arguments="Hello")
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.reason == "failed"
        assert "is no program: install Java" in end.exit.message
        # It is there now, and the configuration is read again.
        stand_in(tmp_path)
        pool.startd.shared.launchers["java"].reread()
        await eventually(lambda: bool(pool.startd.shared.launchers["java"].attributes(())))
