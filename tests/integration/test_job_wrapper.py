"""USER_JOB_WRAPPER: the program that every job without a container is started through."""

from dataclasses import replace

from tests.startd_pool import Pool
from tests.waiting import eventually


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_a_job_is_started_through_the_wrapper_and_becomes_it(tmp_path):
    wrapper = script(tmp_path / "wrapper", '#!/bin/sh\nexport WRAPPED="yes $1"\nulimit -c 0\nexec "$@"\n')
    cmd = script(tmp_path / "job", '#!/bin/sh\necho "$WRAPPED" "$@"\nexit 7\n')
    async with Pool(tmp_path, USER_JOB_WRAPPER=wrapper) as pool:
        activation, _ = await pool.run(cmd, Iwd=str(tmp_path), Arguments="'a b' c", Out="out", Err="err")
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 7)
        assert (tmp_path / "out").read_text() == f"yes {cmd} a b c\n"
        # What is no program is the machine's fault, not the job's.
        script(tmp_path / "wrapper", "no program", 0o644)
        activation, _ = await pool.run(cmd, Iwd=str(tmp_path), Out="out", Err="err")
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.reason == "failed"
        assert "USER_JOB_WRAPPER can not be run" in end.exit.message
        # Also without a restart: the knob is read for each job.
        current = pool.startd.shared.current
        process = replace(current.settings.launchers["process"], wrapper="")
        launchers = {**current.settings.launchers, "process": process}
        current.settings = replace(current.settings, launchers=launchers)
        activation, _ = await pool.run(cmd, Iwd=str(tmp_path), Out="out", Err="err")
        await eventually(lambda: (tmp_path / "out").read_text().strip() == "")
        assert (await pool.schedd.end_of(activation.job_id)).exit.exit_code == 7
