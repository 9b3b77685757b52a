"""Attributes that HTCondor's slots have and slots here never do, so that a job that asks for one waits in vain.

A test compares NEVER with what execution points publish: one that gets such an attribute leaves the table.
"""

from __future__ import annotations

from typing import Final

from engine.analyze.expressions import reads
from engine.analyze.requirements import Requirements
from shared.classad import parse_expr
from shared.classad.columnar import OTHER_SIDE
from shared.classad.expr import fold

_CHECKPOINTS: Final = "no execution point takes checkpoints of a job that goes on"
_CLOUD: Final = "machines do not find out which cloud they are in; an administrator may say it by STARTD_ATTRS"
_DISKS: Final = "machines do not find that out; an administrator may say it by STARTD_ATTRS"
_ENCRYPTION: Final = "no execution point encrypts scratch directories"
_JAVA: Final = "there is no Java universe: the program is java, with its arguments"
_LOCAL: Final = "jobs come from access points only"
_SYSTEM: Final = "Arch, OpSys, OpSysAndVer and OpSysMajorVer tell what runs there"
_WINDOWS: Final = "it is of Windows"

#: Attribute of a slot -> why no slot has it, and what there is instead.
NEVER: Final = {
    "CgroupEnforced": "every execution point says in its log how far it confines jobs",
    "CloudImage": _CLOUD,
    "CloudInstanceID": _CLOUD,
    "CloudInterruptible": _CLOUD,
    "CloudPlatform": _CLOUD,
    "CloudProvider": _CLOUD,
    "CloudRegion": _CLOUD,
    "CloudVMType": _CLOUD,
    "CloudZone": _CLOUD,
    "CondorPlatform": _SYSTEM,
    "CondorVersion": "the version is RoostVersion",
    "DockerCachedImageSizeMb": "HasDocker tells of an engine, and nothing of the images that it has",
    "DotNetVersions": _WINDOWS,
    "HasCheckpointing": _CHECKPOINTS,
    "HasEncryptExecuteDirectory": _ENCRYPTION,
    "HasJICLocalConfig": _LOCAL,
    "HasJICLocalStdin": _LOCAL,
    "HasJava": _JAVA,
    "HasPerFileEncryption": _ENCRYPTION,
    "HasRemoteSyscalls": "there is no standard universe",
    "HasRotationalScratch": _DISKS,
    "HasSelfCheckpointTransfers": _CHECKPOINTS,
    "HasSshd": "`roost exec` runs programs beside a job without sshd",
    "HasUserNamespaces": _DISKS,
    "JavaMFlops": _JAVA,
    "JavaVendor": _JAVA,
    "JavaVersion": _JAVA,
    "StarterAbilityList": "what a slot can do are attributes by themselves: HasDocker, HasFileTransfer",
    "UtsnameMachine": _SYSTEM,
    "UtsnameNodename": _SYSTEM,
    "UtsnameRelease": _SYSTEM,
    "UtsnameSysname": _SYSTEM,
    "UtsnameVersion": _SYSTEM,
    "WindowsBuildNumber": _WINDOWS,
    "WindowsMajorVersion": _WINDOWS,
    "WindowsMinorVersion": _WINDOWS,
}
_BY_KEY: Final = {fold(name): name for name in NEVER}


def unadvertised(needs: Requirements) -> dict[str, str]:
    """What the job's Requirements read of NEVER and no slot has, in the order of NEVER, with the reason. One that an
    administrator made up under such a name (STARTD_ATTRS) is there."""
    asked: set[str] = set()
    for each in needs.mine:
        if (expr := each.conjunct.expr) is not None:
            asked |= reads(expr, OTHER_SIDE, needs.job_has).slot & _BY_KEY.keys()
    return {
        name: NEVER[name]
        for key, name in _BY_KEY.items()
        if key in asked and not needs.slots.matching.mask(parse_expr(f"{name} =!= undefined")).any()
    }
