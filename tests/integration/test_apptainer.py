"""Jobs in containers of a real Apptainer."""

import contextlib
import signal
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from shared.messages.claims import DeactivateClaim
from shared.messages.visits import StartVisit, Wish
from tests.integration.isolated_pool import NOBODY, IsolatedPool, is_root, open_directory
from tests.integration.test_visits import USER, Visitor
from tests.spec import spec
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 90.0


@pytest.fixture
def runtime(apptainer, monkeypatch):
    monkeypatch.setenv("PATH", apptainer.env["PATH"])
    return apptainer


@pytest.fixture
def make_pool(runtime, tmp_path):
    """make_pool(KNOB=value): a pool whose startd has the runtime."""
    tmp_path.chmod(0o755)
    return lambda **knobs: Pool(tmp_path, **{"SINGULARITY": str(runtime.program)} | knobs)


@pytest.fixture
def in_image(make_pool, runtime):
    """in_image(KNOB=value): a pool that runs every job in the test image."""
    rules = {"SINGULARITY_JOB": "true", "SINGULARITY_IMAGE_EXPR": f'"{runtime.sandbox}"'}
    return lambda **knobs: make_pool(**rules | knobs)


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


@pytest.fixture
def broken(runtime, tmp_path):
    """A runtime that can be broken and mended: `.break_()`, `.mend()`."""

    class Broken:
        program = tmp_path / "runtime.sh"

        def write(self, text):
            new = self.program.with_suffix(".new")
            new.write_text(f"#!/bin/sh\n{text}\n")
            new.chmod(0o755)
            new.rename(self.program)

        def mend(self):
            self.write(f'exec {runtime.program} "$@"')

        def break_(self):
            words = "FATAL:   container creation failed: no more containers today"
            self.write(f'test "$1" = --version && exec {runtime.program} --version; echo "{words}" >&2; exit 255')

    found = Broken()
    found.mend()
    return found


def ad_of(pool):
    return pool.startd.shared.runs.machine_ad("slot1@node1")


async def tried(pool):
    """What was found when the runtime was tried."""
    await eventually(lambda: pool.startd.shared.launchers["apptainer"].found is not None)
    return pool.startd.shared.launchers["apptainer"].found


async def start(pool, files, text=None, **attrs):
    """A job with a script of its own."""
    job = {"Out": "out", "Err": "err", "Iwd": "/nowhere", "cmd": "job.sh"}
    if text is not None:
        (files.input / "condor_exec.exe").write_text(f"#!/bin/sh\n{text}\n")
    activation = pool.activation(url=files.url, **job | attrs)
    return activation, await pool.call(pool.request(activation))


async def end_of(pool, activation):
    return (await pool.schedd.end_of(activation.job_id, timeout=PATIENCE_S)).exit


async def run(pool, files, text, **attrs):
    """Run a script to its good end; what it printed."""
    activation, _ = await start(pool, files, text, **attrs)
    end = await end_of(pool, activation)
    assert (end.reason, end.exit_code) == ("exited", 0), (end, files.text("_condor_stderr"))
    return files.text("_condor_stdout")


def processes_in(directory):
    """Processes that have to do with a directory: by command line, or because they stand in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(directory) in word for word in (*process.cmdline(), process.cwd())):
                found.append(process)
    return found


# ---------------------------------------------------------------- what the machine says


@spec("SNG-01")
async def test_a_working_runtime_is_told_of(make_pool):
    async with make_pool() as pool:
        found = await tried(pool)
        ad = ad_of(pool)
        assert (ad.eval("HasSingularity"), found.trouble) == (True, "")
        assert ad.eval("SingularityVersion").startswith("apptainer version ")
        for name in ("HasSandboxImage", "HasSIF", "HasContainer", "HasDockerURL"):
            assert ad.eval(name) is True, name
        assert "SingularityOfflineReason" not in ad
        assert not list(pool.execute.glob(".apptainer-*"))


@spec("SNG-01")
async def test_a_runtime_that_runs_nothing_is_told_of_until_it_is_mended(make_pool, broken):
    """False, with the reason"""
    broken.break_()
    async with make_pool(SINGULARITY=str(broken.program)) as pool:
        await tried(pool)
        ad = ad_of(pool)
        assert ad.eval("HasSingularity") is False
        assert "no more containers today" in ad.eval("SingularityOfflineReason")
        assert "HasSIF" not in ad
        broken.mend()
        await eventually(lambda: ad_of(pool).eval("HasSingularity") is True)
        assert "SingularityOfflineReason" not in ad_of(pool)


async def test_a_machine_without_a_runtime_says_so_and_gives_no_reason(make_pool, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    async with make_pool(SINGULARITY="/no/such/apptainer") as pool:
        if (await tried(pool)).version:
            pytest.skip("this machine has a runtime of its own")
        assert ad_of(pool).eval("HasSingularity") is False
        assert "SingularityOfflineReason" not in ad_of(pool)


# ---------------------------------------------------------------- jobs


@spec("SNG-02", "SNG-03", "SNG-04")
async def test_a_job_runs_in_its_image(make_pool, files, runtime):
    rules = {
        "SINGULARITY_JOB": "!isUndefined(TARGET.SingularityImage)",
        "SINGULARITY_IMAGE_EXPR": "TARGET.SingularityImage",
    }
    (files.input / "data").write_text("input\n")
    text = "cat /etc/image data; pwd; echo x > made; echo bad >&2; exit 3"
    async with make_pool(**rules) as pool:
        activation, _ = await start(pool, files, text, SingularityImage=str(runtime.sandbox))
        end = await end_of(pool, activation)
        assert (end.reason, end.exit_code, end.output_committed) == ("exited", 3, True), end
        inside, data, where = files.text("_condor_stdout").splitlines()
        assert (inside, data) == ("debian", "input")
        assert Path(where).parent == pool.execute
        assert files.text("_condor_stderr") == "bad\n"
        assert files.text("made") == "x\n"
        await eventually(lambda: not list(pool.execute.glob("dir_*")))


@spec("SNG-02", "W-70")
async def test_without_the_attribute_a_job_runs_plain(make_pool, files):
    async with make_pool(SINGULARITY_JOB="!isUndefined(TARGET.SingularityImage)") as pool:
        assert await run(pool, files, "test -e /etc/image || echo plain") == "plain\n"


@contextlib.asynccontextmanager
async def web_of(path):
    """The URL of a server that has one file."""

    async def get(request):
        return web.FileResponse(path)

    app = web.Application()
    app.add_routes([web.get("/image.sif", get)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/image.sif"
    finally:
        await runner.cleanup()


@spec("SNG-03")
@pytest.mark.parametrize("how", ["file", "relative", "http"])
async def test_images_of_other_kinds(in_image, files, runtime, how):
    """A file, one that came with the job, and one that is fetched"""
    async with web_of(runtime.sif) as url:
        image = {"file": str(runtime.sif), "relative": "image.sif", "http": url}[how]
        if how == "relative":
            (files.input / "image.sif").write_bytes(runtime.sif.read_bytes())
        async with in_image(SINGULARITY_IMAGE_EXPR="SingularityImage") as pool:
            assert await run(pool, files, "cat /etc/image", SingularityImage=image) == "debian\n"
            # What was fetched lay in the scratch directory, and is no output.
            assert {path.name for path in files.output.iterdir()} == {"_condor_stdout", "_condor_stderr"}


async def test_the_container_universe_runs_files_and_directories(make_pool, files, runtime):
    """A job of the container universe, without SINGULARITY_JOB"""
    async with make_pool() as pool:
        attrs = {"WantContainer": True, "ContainerImage": str(runtime.sandbox)}
        assert await run(pool, files, "cat /etc/image", **attrs) == "debian\n"
        program = {"cmd": "/usr/bin/cat", "TransferExecutable": False, "Arguments": "/etc/image"}
        assert await run(pool, files, None, **attrs, **program) == "debian\n"


@spec("SNG-03")
async def test_an_expression_that_gives_no_image_holds_the_job(in_image, files):
    """It must be a string"""
    async with in_image(SINGULARITY_IMAGE_EXPR="TARGET.ClusterId") as pool:
        activation, _ = await start(pool, files, "exit 0")
        end = await end_of(pool, activation)
        assert (end.reason, end.hold_code) == ("hold", 45)
        assert "SINGULARITY_IMAGE_EXPR" in end.message


@spec("SNG-05")
async def test_more_directories_are_mounted_and_missing_ones_passed_over(in_image, files, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "table").write_text("numbers\n")
    binds = f'strcat("{shared}:/opt/shared ", TARGET.More)'
    async with in_image(SINGULARITY_BIND_EXPR=binds) as pool:
        text = "cat /opt/shared/table; test ! -e /opt/missing"
        assert await run(pool, files, text, More=f"{tmp_path}/missing:/opt/missing") == "numbers\n"


@spec("SNG-06")
@pytest.mark.parametrize("ignore", ["true", "false"])
async def test_a_mount_without_a_place_in_an_exploded_image(in_image, files, tmp_path, ignore):
    """Left out where the knob says so; else the runtime gets it, and this one makes the place"""
    shared = tmp_path / "shared"
    shared.mkdir()
    knobs = {"SINGULARITY_BIND_EXPR": f'"{shared}:/nowhere/at/all {shared}:/opt"'}
    async with in_image(**knobs, SINGULARITY_IGNORE_MISSING_BIND_TARGET=ignore) as pool:
        text = 'mount() { grep -c " $1 " /proc/mounts; }; mount /nowhere/at/all; mount /opt; true'
        assert await run(pool, files, text) == ("0\n1\n" if ignore == "true" else "1\n1\n")


@spec("SNG-07")
async def test_the_jobs_environment_gets_through(in_image, files):
    async with in_image() as pool:
        text = 'printf "%s|" "$ODD" "$BATCH_SYSTEM" "$OMP_NUM_THREADS"; test "$TMPDIR" = "$PWD" && test ! "$RABBIT"'
        out = await run(pool, files, text, Environment="ODD='a,b = \"c\" $d'", RequestCpus=2)
        assert out == 'a,b = "c" $d|HTCondor|2|'


@spec("SNG-07")
async def test_a_slot_with_gpus_shows_them_to_the_container(in_image, files, capsys):
    """The flag; this machine has none to be seen"""
    async with in_image(MACHINE_RESOURCE_GPUs="1") as pool:
        await run(pool, files, "true", RequestGPUs=1)
        assert " --nv --no-home -C " in capsys.readouterr().out


@spec("SNG-08")
async def test_an_image_that_fails_its_test_holds_the_job(in_image, files, tmp_path):
    async with in_image(SINGULARITY_IMAGE_EXPR=f'"{tmp_path}/no-image"') as pool:
        activation, _ = await start(pool, files, "exit 0")
        end = await end_of(pool, activation)
        assert (end.reason, end.hold_code) == ("hold", 45), end
        assert "no-image" in end.message
        assert ad_of(pool).eval("HasSingularity") is True


@spec("SNG-08")
async def test_an_images_own_test_is_run(in_image, files, runtime, tmp_path):
    """The image's test, and none where the knob says so"""
    tests = tmp_path / "actions"
    tests.mkdir()
    (tests / "test").write_text("#!/bin/sh\necho the moon is wrong\nexit 5\n")
    (tests / "test").chmod(0o755)
    image = tmp_path / "image"
    for part in ("dev", "proc", "sys", "tmp", "var/tmp", "etc", ".singularity.d/actions"):
        (image / part).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (image / name).symlink_to(f"usr/{name}")
    (image / "usr").mkdir()
    (image / ".singularity.d/actions/test").write_text((tests / "test").read_text())
    (image / ".singularity.d/actions/test").chmod(0o755)
    knobs = {
        "SINGULARITY_IMAGE_EXPR": f'"{image}"',
        "SINGULARITY_BIND_EXPR": f'"{runtime.sandbox}/usr:/usr"',
    }
    async with in_image(**knobs) as pool:
        activation, _ = await start(pool, files, "exit 0")
        end = await end_of(pool, activation)
        assert (end.reason, end.hold_code) == ("hold", 45), end
        assert "exit status 5" in end.message
        assert "the moon is wrong" in end.message
        await pool.stop()
        pool.macros["SINGULARITY_RUN_TEST_BEFORE_JOB"] = "false"
        await pool.start()
        activation, _ = await start(pool, files, "exit 0")
        end = await end_of(pool, activation)
        assert "the moon" not in end.message, end


@spec("SNG-09")
async def test_the_command_is_logged_in_the_order_of_the_manual(in_image, files, runtime, capsys):
    async with in_image() as pool:
        where = (await run(pool, files, "pwd", Arguments="3")).strip()
        command = f"{runtime.program} -s exec -S /var/tmp --pwd {where} -B {where} --no-home -C {runtime.sandbox}"
        assert f"{command} {where}/condor_exec.exe 3" in capsys.readouterr().out


@spec("SNG-10")
async def test_directories_under_scratch_are_the_jobs_own(in_image, files):
    async with in_image(MOUNT_UNDER_SCRATCH='"/opt,/srv"') as pool:
        text = "echo x > /opt/made && cat /opt/made && echo y > /srv/made && ls /srv && ! touch /usr/made 2>&-"
        assert await run(pool, files, text) == "x\nmade\n"
        assert await run(pool, files, "ls /opt /srv") == "/opt:\n\n/srv:\n"


@spec("SNG-11")
async def test_the_scratch_directory_may_have_another_name_inside(in_image, files):
    """The knob beats the job"""
    text = "pwd; echo $_CONDOR_SCRATCH_DIR $TMPDIR; test -r $_CONDOR_JOB_AD && echo x > made; echo $0"
    async with in_image() as pool:
        out = await run(pool, files, text, ContainerTargetDir="/mine")
        assert out == "/mine\n/mine /mine\n/mine/condor_exec.exe\n"
        assert files.text("made") == "x\n"
        await pool.stop()
        pool.macros["SINGULARITY_TARGET_DIR"] = "/srv"
        await pool.start()
        out = await run(pool, files, text, ContainerTargetDir="/mine")
        assert out == "/srv\n/srv /srv\n/srv/condor_exec.exe\n"


@spec("SNG-12")
@pytest.mark.parametrize(
    "knob", ["--env FROM_KNOB=42", 'ifThenElse(TARGET.Special && MY.Cpus > 0, "--env FROM_KNOB=42", "")']
)
async def test_more_arguments_as_they_are_or_by_an_expression(in_image, files, knob):
    async with in_image(SINGULARITY_EXTRA_ARGUMENTS=knob) as pool:
        assert await run(pool, files, "echo $FROM_KNOB", Special=True) == "42\n"


@spec("SNG-13")
async def test_the_runtime_says_more_if_asked(in_image, files):
    """In the job's standard error"""
    async with in_image(SINGULARITY_VERBOSITY="-d") as pool:
        await run(pool, files, "true")
        assert "DEBUG" in files.text("_condor_stderr")


# ---------------------------------------------------------------- ends


async def test_a_program_that_is_not_in_the_image_holds_the_job(in_image, files):
    async with in_image() as pool:
        activation, _ = await start(pool, files, None, cmd="/no/such/program", TransferExecutable=False)
        end = await end_of(pool, activation)
        assert (end.reason, end.hold_code) == ("hold", 6), end
        assert "/no/such/program" in end.message


@pytest.mark.parametrize(
    "text", ["exit 255", "echo 'FATAL:   mine' >&2; echo out; exit 255", "echo mine >&2; exit 255"]
)
async def test_the_jobs_own_255_is_its_exit_status(in_image, files, text):
    async with in_image() as pool:
        activation, _ = await start(pool, files, text)
        end = await end_of(pool, activation)
        assert (end.reason, end.exit_code) == ("exited", 255), end


async def test_a_runtime_that_breaks_gives_the_job_back_and_the_machine_says_so(in_image, files, broken):
    """A launch failure is not the job's"""
    async with in_image(SINGULARITY=str(broken.program), SINGULARITY_RUN_TEST_BEFORE_JOB="false") as pool:
        assert (await tried(pool)).works
        broken.break_()
        activation, _ = await start(pool, files, "exit 0")
        end = await end_of(pool, activation)
        assert end.reason in ("evicted", "failed"), end
        assert "no more containers today" in end.message
        assert ad_of(pool).eval("HasSingularity") is False


async def test_a_runtime_that_breaks_is_found_by_the_images_test_too(in_image, files, broken):
    async with in_image(SINGULARITY=str(broken.program)) as pool:
        assert (await tried(pool)).works
        broken.break_()
        activation, _ = await start(pool, files, "exit 0")
        end = await end_of(pool, activation)
        assert end.reason == "failed", end
        assert ad_of(pool).eval("HasSingularity") is False


STUBBORN = "trap '' TERM; (setsid sleep 1000 &) ; echo up > up; while :; do sleep 0.1; done"


@pytest.mark.parametrize("kind", ["sandbox", "sif"])
async def test_a_killed_job_leaves_no_process(in_image, files, runtime, kind):
    async with in_image(SINGULARITY_IMAGE_EXPR=f'"{getattr(runtime, kind)}"') as pool:
        activation, granted = await start(pool, files, STUBBORN)
        await eventually(lambda: list(pool.execute.glob("dir_*/up")))
        assert processes_in(pool.execute / "dir_")
        stop = DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="remove", how="fast")
        await pool.call(stop)
        assert (await end_of(pool, activation)).reason == "killed"
        await eventually(lambda: not processes_in(pool.execute / "dir_"))
        await eventually(lambda: not list(pool.execute.glob("dir_*")))


async def test_a_job_is_asked_to_leave_by_its_signal(in_image, files):
    text = "trap 'echo asked; exit 7' TERM; echo up > up; while :; do sleep 0.1; done"
    async with in_image() as pool:
        activation, granted = await start(pool, files, text, JobMaxVacateTime=60)
        await eventually(lambda: list(pool.execute.glob("dir_*/up")))
        stop = DeactivateClaim(
            claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="hold", want_output=True
        )
        await pool.call(stop)
        end = await end_of(pool, activation)
        assert (end.reason, end.exit_code) == ("killed", 7), end
        assert files.text("_condor_stdout") == "asked\n"


async def test_a_job_that_a_signal_ends_says_so(in_image, files):
    async with in_image() as pool:
        activation, _ = await start(pool, files, "kill -ABRT $$")
        end = await end_of(pool, activation)
        assert signal.SIGABRT in (end.exit_signal, (end.exit_code or 128) - 128), end


async def test_a_restarted_startd_finds_its_containers(in_image, files):
    text = "echo up > up; while test ! -e go; do sleep 0.1; done; echo done; exit 4"
    async with in_image() as pool:
        activation, _ = await start(pool, files, text)
        await eventually(lambda: list(pool.execute.glob("dir_*/up")))
        await pool.running(activation.job_id)
        await pool.restart()
        (up,) = pool.execute.glob("dir_*/up")
        up.with_name("go").touch()
        end = await end_of(pool, activation)
        assert (end.reason, end.exit_code) == ("exited", 4), end
        assert files.text("_condor_stdout") == "done\n"


async def test_what_a_job_uses_is_measured(in_image, files):
    text = "python3 -c 'x = bytearray(120 << 20); i = 0\nwhile i < 6000000: i += 1'"
    async with in_image() as pool:
        activation, _ = await start(pool, files, text, RequestMemory=1024)
        report = await pool.schedd.end_of(activation.job_id)
        assert report.exit.exit_code == 0, report.exit
        assert report.usage.resident_set_kib > 120 << 10
        assert report.usage.user_cpu_s > 0.05


# ---------------------------------------------------------------- as jobs' own account, behind walls


@pytest.fixture
async def walled(runtime):
    """A startd that is root and runs jobs as nobody, in the test image."""
    if not is_root():
        pytest.skip("only root gives jobs accounts of their own")
    knobs = {
        "SINGULARITY": str(runtime.program),
        "SINGULARITY_JOB": "true",
        "SINGULARITY_IMAGE_EXPR": f'"{runtime.sandbox}"',
    }
    with open_directory() as path:
        async with IsolatedPool(path, **knobs) as pool:
            yield pool


async def test_an_ordinary_account_runs_containers(walled):
    """What the machine says of the runtime is true for the account that jobs have."""
    found = await tried(walled)
    assert found.sandbox, found
    text = "id -u; cat /etc/image; pwd; grep CapEff /proc/self/status; echo x > made; ls .."
    report, out = await walled.run(text)
    assert (report.exit.reason, report.exit.exit_code) == ("exited", 0), report.exit
    uid, image, where, capabilities, listed = out.splitlines()
    assert (uid, image) == (str(NOBODY), "debian")
    assert capabilities.split()[1] == "0" * 16
    assert listed == Path(where).name


async def test_files_as_images_run_where_the_machine_says_so(walled, runtime):
    found = await tried(walled)
    assert ad_of(walled).eval("HasSIF") is found.sif
    walled.pool.macros["SINGULARITY_IMAGE_EXPR"] = f'"{runtime.sif}"'
    await walled.pool.restart()
    report, out = await walled.run("cat /etc/image")
    if found.sif:
        assert out == "debian\n"
    else:
        assert (report.exit.reason, report.exit.hold_code) == ("hold", 45), report.exit


async def test_more_memory_than_the_slot_has_holds_the_job(walled):
    """By the cgroup that the runtime is in: there the limit works without the runtime's help."""
    if not walled.startd.shared.isolation.cgroups:
        pytest.skip("this machine has no cgroups to be used")
    report, _ = await walled.run("python3 -c 'x = bytearray(1 << 30)'", RequestMemory=64)
    assert (report.exit.reason, report.exit.hold_code) == ("hold", 34), report.exit


async def test_a_visitor_is_in_the_container(walled):
    job_id, _ = await walled.begin("echo up > up; exec sleep 1000")
    await walled.running(job_id)
    await eventually(lambda: list(walled.execute.glob("dir_*/up")))
    run = walled.run_of(job_id)
    wish = Wish(kind="run", command=["/bin/sh", "-c", "cat /etc/image; id -u; pwd; ps ax | wc -l; echo y > made; tty"])
    asked = StartVisit(claim_id=run.record.claim_id, job_id=job_id, attempt=1, user=USER, wish=wish)
    visitor = Visitor(walled.pool, (await walled.pool.call(asked)).visit)
    await visitor.write(b"", eof=True)
    end = await visitor.finish()
    image, uid, where, processes, _ = visitor.out.decode().splitlines()
    assert (image, uid, where) == ("debian", str(NOBODY), str(run.scratch)), (visitor.err, end)
    assert int(processes) < 10
    made = run.scratch / "made"
    assert (made.read_text(), made.stat().st_uid) == ("y\n", NOBODY)
