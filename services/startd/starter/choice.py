"""Which launcher starts a job, and in which image.

| the job | launcher |
|---|---|
| is of the vm universe | vm |
| asks for Docker (docker universe, WantDocker; DockerImage without WantContainer) | docker |
| asks for any container with an image of a registry (docker://) | docker where an engine answers, else apptainer |
| asks for any container with another image (a .sif file, a directory) | apptainer |
| asks for none, and SINGULARITY_JOB is true of slot and job | apptainer, with SINGULARITY_IMAGE_EXPR's image |
| else | process |
"""

from __future__ import annotations

from dataclasses import dataclass

from services.startd.launchers.apptainer.plan import (
    BadContainer,
    Plan,
    Rules,
    image_by_rule,
    make_plan,
    wants,
)
from services.startd.launchers.vm.rules import UNIVERSE
from services.startd.starter.job import HOLD_IMAGE, BadJob
from shared.classad import ClassAd

_REGISTRY = "docker://"


@dataclass(frozen=True, slots=True)
class Choice:
    """launcher: its name, as in `parts.Inside.launchers`."""

    launcher: str = "process"
    image: str = ""
    plan: Plan | None = None  # apptainer's


def choose(job: ClassAd, machine: ClassAd, rules: Rules) -> Choice:
    """See the module. machine: the slot's ad. Raises BadJob."""
    if job.eval("JobUniverse") == UNIVERSE:
        return Choice("vm")
    try:
        image = _image(job, machine)
        if image.launcher == "process" and wants(rules, machine, job):
            image = Choice("apptainer", image_by_rule(rules, machine, job))
        if image.launcher != "apptainer":
            return image
        return Choice("apptainer", image.image, make_plan(rules, image.image, machine, job))
    except BadContainer as error:
        raise BadJob(error.message, error.code) from error


def _image(job: ClassAd, machine: ClassAd) -> Choice:
    """What the job itself asks for."""
    docker, image = job.eval_string("DockerImage"), job.eval_string("ContainerImage")
    container = job.eval("WantContainer") is True or bool(image)
    if job.eval("WantDocker") is True or (docker and not container):
        image = docker or image
        if not image:
            raise BadJob("the job wants Docker but names no image: set docker_image", HOLD_IMAGE)
        return Choice("docker", image.removeprefix(_REGISTRY))
    if not container:
        return Choice()
    if not image and not docker:
        raise BadJob("the job wants a container but names no image: set container_image", HOLD_IMAGE)
    if image and not image.startswith(_REGISTRY):
        return Choice("apptainer", image)
    name = docker or image.removeprefix(_REGISTRY)
    if machine.eval("HasSingularity") is True and machine.eval("HasDocker") is not True:
        return Choice("apptainer", _REGISTRY + name)
    return Choice("docker", name)
