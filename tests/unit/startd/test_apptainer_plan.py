"""The command lines of containers, and what the runtime's last words mean."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.startd.core.run.failures import RunFailed
from services.startd.core.run.job_launch import Launch
from services.startd.exec import registry
from services.startd.exec.apptainer.launcher import RuntimeFound, _has_target, attributes_of
from services.startd.exec.apptainer.plan import (
    ApptainerPlan,
    Around,
    BadApptainerSetting,
    BadContainer,
    image_by_rule,
    inside_path,
    is_about_program,
    last_words,
    make_command,
    make_plan,
    read_apptainer_settings,
    refusal,
    wants,
)
from shared.classad import ClassAd
from shared.config import ConfigError, load_config
from shared.config.knobs import StartdSettings
from tests.spec import spec

D = "/execute/dir_462373"
SLOT = ClassAd({"Name": "slot1", "Cpus": 1, "HasSingularity": True, "HasDocker": False})


def rules(**knobs):
    env = {f"_CONDOR_{name}": value for name, value in knobs.items()}
    return read_apptainer_settings(StartdSettings.from_config(load_config([], subsystem="STARTD", env=env)))


def launch(**fields):
    values = {
        "run": "r",
        "executable": f"{D}/demo",
        "argv": (f"{D}/demo", "3"),
        "env": {"TMPDIR": D, "X": "1"},
        "cwd": D,
        "stdin": "",
        "stdout": "",
        "stderr": "",
        "scratch": Path(D),
        "cpus": 1.0,
        "memory_mib": 1,
    }
    return Launch(**values | fields)


def line(plan, *, missing=(), in_image=None, verb="exec", **fields):
    """The command as one line, without the runtime's own variables."""
    around = Around(lambda path: path not in missing, lambda image, path: in_image and path in in_image)
    return shlex.join(make_command("/usr/bin/singularity", verb, plan, launch(**fields), around, "/bin").argv)


def choose(job, machine, settings):
    return registry.choose(job, machine, dict.fromkeys(("vm", "docker", "java", "process")) | {"apptainer": settings})


def plan_for(job=None, slot=SLOT, image="/images/debian", **knobs):
    return make_plan(rules(**knobs), image, slot, ClassAd(job or {}))


@spec("SNG-09", "SNG-10", "W-69")
def test_the_line_of_the_manual():
    assert line(plan_for()) == (
        f"/usr/bin/singularity -s exec -S /tmp -S /var/tmp --pwd {D} -B {D} --no-home -C /images/debian {D}/demo 3"
    )


@spec("SNG-11", "W-69")
def test_the_line_with_a_target_directory():
    """The knob beats the job"""
    wanted = f"--pwd /srv -B {D}:/srv --no-home -C /images/debian /srv/demo 3"
    for plan in (
        plan_for(SINGULARITY_TARGET_DIR="/srv"),
        plan_for({"ContainerTargetDir": "/srv/"}),
        plan_for({"ContainerTargetDir": "/other"}, SINGULARITY_TARGET_DIR="/srv"),
    ):
        assert line(plan).endswith(wanted)


@spec("SNG-07", "W-69")
def test_gpus_add_the_flag():
    slot = ClassAd({"GPUs": 1})
    assert f" -B {D} --nv --no-home -C " in line(plan_for(slot=slot))
    assert "--nv" not in line(plan_for(slot=ClassAd({"GPUs": 0})))


@spec("SNG-10")
def test_scratch_directories_are_those_of_the_knob_but_none_that_would_hide_the_jobs():
    assert line(plan_for(MOUNT_UNDER_SCRATCH='"/a /b,/c"')).startswith(
        "/usr/bin/singularity -s exec -S /a -S /b -S /c -"
    )
    assert " -S " not in line(plan_for(MOUNT_UNDER_SCRATCH='""'))
    under = line(plan_for(), scratch=Path("/tmp/x/dir_1"), cwd="/tmp/x/dir_1")
    assert "-S /tmp " not in under
    assert "-S /var/tmp " in under
    # What counts is the name inside.
    inside = plan_for({"ContainerTargetDir": "/srv"})
    assert "-S /tmp " in line(inside, scratch=Path("/tmp/x/dir_1"), cwd="/tmp/x/dir_1")
    assert "-S" not in line(plan_for({"ContainerTargetDir": "/tmp"}, MOUNT_UNDER_SCRATCH='"/tmp"'))


@spec("SNG-05", "SNG-06")
def test_binds_are_left_out_when_they_can_not_be():
    plan = plan_for(SINGULARITY_BIND_EXPR='"/nfs /gone /data:/inside:ro"')
    assert f" -B {D} -B /nfs -B /data:/inside:ro --no-home " in line(plan, missing={"/gone"})
    strict = {"in_image": {"/nfs"}}
    assert "-B /data:/inside:ro" in line(plan, **strict)
    lenient = plan_for(SINGULARITY_BIND_EXPR='"/nfs /data:/inside:ro"', SINGULARITY_IGNORE_MISSING_BIND_TARGET="true")
    assert "/inside" not in line(lenient, **strict)
    assert "-B /nfs" in line(lenient, **strict)
    # Of an image that is a file nobody knows what it has.
    assert "/inside" in line(lenient, in_image=None)


@spec("SNG-05")
def test_binds_by_an_expression():
    """(Target.Owner == "TrustedUser") ? ... : """ ""
    knob = {"SINGULARITY_BIND_EXPR": '(Target.Owner == "TrustedUser") ? TARGET.Mine : ""'}
    assert plan_for({"Owner": "TrustedUser", "Mine": "/a /b"}, **knob).binds == ("/a", "/b")
    assert plan_for({"Owner": "mallory", "Mine": "/a /b"}, **knob).binds == ()
    assert plan_for({}, SINGULARITY_BIND_EXPR="TARGET.Nothing").binds == ()
    with pytest.raises(BadContainer, match="SINGULARITY_BIND_EXPR"):
        plan_for({}, SINGULARITY_BIND_EXPR="42")


@spec("SNG-12")
def test_extra_arguments_as_they_are_or_by_an_expression():
    assert plan_for(SINGULARITY_EXTRA_ARGUMENTS="-w --hostname 'a b'").extra == ("-w", "--hostname", "a b")
    assert plan_for(SINGULARITY_EXTRA_ARGUMENTS='"-w"').extra == ("-w",)
    both = 'strcat("--hostname ", MY.Name, "-", TARGET.Owner)'
    assert plan_for({"Owner": "al"}, SINGULARITY_EXTRA_ARGUMENTS=both).extra == ("--hostname", "slot1-al")
    assert plan_for({}, SINGULARITY_EXTRA_ARGUMENTS="TARGET.None").extra == ()
    with pytest.raises(BadApptainerSetting, match="SINGULARITY_EXTRA_ARGUMENTS"):
        rules(SINGULARITY_EXTRA_ARGUMENTS="what, now")
    assert line(plan_for(SINGULARITY_EXTRA_ARGUMENTS="-w")).endswith(f" -C -w /images/debian {D}/demo 3")


@spec("SNG-13")
def test_how_much_the_runtime_says():
    assert line(plan_for()).startswith("/usr/bin/singularity -s exec ")
    assert line(plan_for(SINGULARITY_VERBOSITY="-d")).startswith("/usr/bin/singularity -d exec ")
    with pytest.raises(ConfigError, match="SINGULARITY_VERBOSITY"):
        rules(SINGULARITY_VERBOSITY="--oops")


@spec("SNG-02", "W-70")
def test_who_runs_in_a_container():
    mine = rules(
        SINGULARITY_JOB="!isUndefined(TARGET.SingularityImage)", SINGULARITY_IMAGE_EXPR="TARGET.SingularityImage"
    )
    assert not wants(mine, SLOT, ClassAd())
    assert choose(ClassAd(), SLOT, mine).launcher == "process"
    chosen = choose(ClassAd({"SingularityImage": "docker://ubuntu:20"}), SLOT, mine)
    assert (chosen.launcher, chosen.image) == ("apptainer", "docker://ubuntu:20")
    for text in ("false", "TARGET.Nothing", '"yes"', "1/0"):
        assert not wants(rules(SINGULARITY_JOB=text), SLOT, ClassAd())
    assert not wants(rules(), SLOT, ClassAd({"SingularityImage": "x"}))  # the default
    assert wants(rules(SINGULARITY_JOB="MY.Cpus == TARGET.Want"), SLOT, ClassAd({"Want": 1}))


@spec("SNG-03")
def test_the_image_must_be_a_string():
    assert image_by_rule(rules(), SLOT, ClassAd({"SingularityImage": "a"})) == "a"
    for job in ({}, {"SingularityImage": 3}, {"SingularityImage": " "}):
        with pytest.raises(BadContainer, match="SINGULARITY_IMAGE_EXPR"):
            image_by_rule(rules(), SLOT, ClassAd(job))
    with pytest.raises(RunFailed):
        choose(ClassAd(), SLOT, rules(SINGULARITY_JOB="true"))


@spec("SNG-03")
@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("/images/debian", "/images/debian"),
        ("image.sif", f"{D}/image.sif"),
        ("docker://ubuntu:20", "docker://ubuntu:20"),
        ("http://host/x.sif", "http://host/x.sif"),
        ("--writable", f"{D}/--writable"),
    ],
)
def test_a_relative_image_lies_in_the_scratch_directory(image, named):
    assert f" -C {named} " in line(plan_for(image=image))


@pytest.mark.parametrize(
    ("job", "slot", "launcher", "image"),
    [
        ({"WantDocker": True, "DockerImage": "a"}, {}, "docker", "a"),
        ({"DockerImage": "docker://a"}, {}, "docker", "a"),
        ({"WantContainer": True, "ContainerImage": "x.sif"}, {"HasDocker": True}, "apptainer", "x.sif"),
        ({"WantContainer": True, "ContainerImage": "docker://a"}, {"HasDocker": True}, "docker", "a"),
        ({"WantContainer": True, "ContainerImage": "docker://a"}, {}, "docker", "a"),
        ({"WantContainer": True, "ContainerImage": "docker://a"}, {"HasSingularity": True}, "apptainer", "docker://a"),
        ({"WantContainer": True, "DockerImage": "a"}, {"HasSingularity": True}, "apptainer", "docker://a"),
        ({"WantContainer": True, "DockerImage": "a"}, {"HasSingularity": True, "HasDocker": True}, "docker", "a"),
        ({}, {"HasSingularity": True, "HasDocker": True}, "process", ""),
    ],
)
def test_which_launcher(job, slot, launcher, image):
    chosen = choose(ClassAd(job), ClassAd(slot), rules())
    assert (chosen.launcher, chosen.image) == (launcher, image)


@pytest.mark.parametrize("job", [{"WantDocker": True}, {"WantContainer": True}])
def test_a_container_without_an_image_is_a_mistake_of_the_job(job):
    with pytest.raises(RunFailed, match="names no image"):
        choose(ClassAd(job), SLOT, rules())


@spec("SNG-11")
@pytest.mark.parametrize("path", ["relative", "/", "/a/../b", "/a:b", "/a,b", "//"])
def test_bad_target_directories_are_refused(path):
    with pytest.raises(BadContainer, match="container_target_dir"):
        plan_for({"ContainerTargetDir": path})
    with pytest.raises(BadApptainerSetting, match="SINGULARITY_TARGET_DIR"):
        rules(SINGULARITY_TARGET_DIR=path)


@spec("SNG-04")
def test_a_job_without_file_transfer_runs_where_its_files_are():
    assert f"--pwd /home/al -B {D} -B /home/al --no-home" in line(plan_for(), cwd="/home/al")
    target = plan_for({"ContainerTargetDir": "/srv"})
    assert f"--pwd /home/al -B {D}:/srv -B /home/al --no-home" in line(target, cwd="/home/al")


def test_a_job_without_a_program_is_the_images_own():
    assert line(plan_for(), executable="", argv=("a", "b")).endswith(
        " run -S /tmp -S /var/tmp --pwd " + (f"{D} -B {D} --no-home -C /images/debian a b")
    )


@spec("SNG-08")
def test_the_images_test_before_the_job():
    """Its own; of a tree that has none /bin/true"""
    assert line(plan_for(), verb="test").endswith(
        f" test -S /tmp -S /var/tmp --pwd {D} -B {D} --no-home -C /images/debian"
    )
    bare = line(plan_for(), verb="test", in_image={"/bin/sh"})
    assert bare.endswith("-C /images/debian /bin/sh -c true")


@spec("SNG-07", "SNG-11")
def test_the_jobs_variables_get_through_under_both_names():
    around = Around(lambda _: True, lambda *_: None)
    plan = ApptainerPlan("/i", target_dir="/srv")
    env = make_command("/r", "exec", plan, launch(env={"A": f"{D}/x", "B": D + "y", "HOME": "/h"}), around, "/p").env
    assert env["PATH"] == "/p"
    assert env["APPTAINERENV_A"] == env["SINGULARITYENV_A"] == "/srv/x"
    assert env["APPTAINERENV_B"] == D + "y"
    assert "APPTAINERENV_HOME" not in env
    assert "A" not in env
    assert env["APPTAINER_CACHEDIR"].startswith(D)


@given(st.dictionaries(st.text("ABC_", min_size=1), st.text(max_size=5), max_size=4))
def test_no_variable_of_a_job_is_one_of_the_runtimes(variables):
    around = Around(lambda _: True, lambda *_: None)
    names = {f"APPTAINER{name}": value for name, value in variables.items()} | {"LD_PRELOAD": "x", "PATH": "y"}
    env = make_command("/r", "exec", ApptainerPlan("/i"), launch(env=names), around, "/p").env
    assert env["PATH"] == "/p"
    assert "LD_PRELOAD" not in env
    known = {
        f"{family}_{name}" for family in ("APPTAINER", "SINGULARITY") for name in ("CACHEDIR", "TMPDIR", "NO_EVAL")
    }
    assert {name for name in env if not name.startswith(("APPTAINERENV_", "SINGULARITYENV_"))} == known | {
        "PATH",
        "LANG",
    }


def test_names_inside():
    assert inside_path(D, D, "/srv") == "/srv"
    assert inside_path(f"{D}/a", D, "/srv") == "/srv/a"
    assert inside_path(f"{D}x/a", D, "/srv") == f"{D}x/a"
    assert inside_path(f"{D}/a", D, "") == f"{D}/a"


FATAL = "FATAL:   container creation failed: mount: no such thing\n"


@pytest.mark.parametrize(
    ("code", "printed", "said", "reason"),
    [
        (255, False, FATAL, "container creation failed: mount: no such thing"),
        (255, False, "INFO:    Converting\nWARNING: odd\n" + FATAL, "container creation failed: mount: no such thing"),
        (255, False, "\x1b[31mFATAL:  \x1b[0m gone\n", "gone"),
        (255, True, FATAL, ""),
        (255, False, "mine\n" + FATAL, ""),
        (255, False, "FATAL: mine\n", ""),
        (255, False, "INFO:    only\n", ""),
        (255, False, "", ""),
        (1, False, FATAL, ""),
        (None, False, FATAL, ""),
    ],
)
def test_a_refusal_of_the_runtimes_is_told_from_an_end_of_the_jobs(code, printed, said, reason):
    assert refusal(code, printed, said) == reason


def test_whether_a_refusal_is_about_the_program():
    assert is_about_program('exec: "/no/prog": stat /no/prog: no such file or directory', "/no/prog")
    assert not is_about_program("stat /image: no such file or directory", "/no/prog")
    assert not is_about_program("container creation failed", "")


@given(st.text())
def test_last_words_are_one_short_line(said):
    words = last_words(said)
    assert len(words) <= 400
    assert "\n" not in words


@spec("SNG-06")
def test_what_an_exploded_image_has(tmp_path):
    """Links lead where they would inside"""
    image = tmp_path / "image"
    (image / "usr/lib").mkdir(parents=True)
    (image / "lib").symlink_to("/usr/lib")
    (image / "out").symlink_to("../../../../../etc")
    (image / "loop").symlink_to("loop")
    (image / "usr/lib/file").touch()
    has = {path: _has_target(str(image), path) for path in ("/lib/file", "/lib/none", "/out", "/loop", "/../usr", "/")}
    assert has == {"/lib/file": True, "/lib/none": False, "/out": False, "/loop": False, "/../usr": True, "/": True}
    assert _has_target(str(image / "usr/lib/file"), "/") is None


@spec("SNG-01")
@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, {"HasSingularity": False}),
        (RuntimeFound(), {"HasSingularity": False}),
        (RuntimeFound("v", trouble="t"), {"HasSingularity": False, "SingularityOfflineReason": "t"}),
        (
            RuntimeFound("v", sandbox=True, trouble="no loop device"),
            {
                "HasSingularity": True,
                "SingularityVersion": "v",
                "HasSandboxImage": True,
                "HasSIF": False,
                "HasContainer": True,
            },
        ),
    ],
)
def test_what_slots_say_of_the_runtime(found, says):
    assert attributes_of(found) == says
