"""The Requirements that a job gets: the user's own, and terms for what the job asks for, in fixed order. A term is left
out when the user's text already speaks of it, except for Disk and Memory."""

from __future__ import annotations

from typing import Any

from roost.submit import java, vm
from roost.submit.commands import Commands, of_universe
from shared.classad import UNDEFINED, references, unparse
from shared.classad.expr import Literal, Parens

LOCAL = 12
_NEWER = 'versioncmp(split(TARGET.CondorVersion)[1],"8.9.7") >= 0'


def requirements(c: Commands, out: dict[str, Any]) -> str:
    """The text of Requirements. `out` has the job's other attributes."""
    own = c.text("requirements")
    if own and c.text("MY.Requirements") is not None:
        c.warn("+Requirements (or MY.Requirements) overrides requirements: remove one of them", "MY.Requirements")
    knobs = c.place.knobs
    more = of_universe(out, knobs.append_req_vanilla, knobs.append_requirements)
    terms = [f"({own})"] if own else []
    if more is not None:
        terms.append(f"({unparse(more)})")
    named: set[str] = set()
    for expr in (c.parsed("requirements", "Requirements") if own else None, more):
        if expr is not None:
            found = references(expr)
            named |= {_attribute(name.lower()) for name in (*found.external, *found.internal)}
    if "arch" not in named and not java.is_java(out):
        terms.append(f'(TARGET.Arch == "{c.place.arch}")')
    terms += _platform(c, out, named)
    terms += _amounts(c, out, named)
    term = _transfer(c, out, named)
    if term:
        terms.append(term)
    if out.get("WantFTOnCheckpoint") or c.text("MY.WantFTOnCheckpoint"):
        terms.append("TARGET.HasSelfCheckpointTransfers")
    if "ScheddInterval" in out:
        able = "" if out["JobUniverse"] == LOCAL else "TARGET.HasJobDeferral && "
        terms.append(
            f"{able}(((time() + ScheddInterval) >= (DeferralTime - DeferralPrepTime)) "
            "&& (time() < (DeferralTime + DeferralWindow)))"
        )
    if "CUDAVersion" in out:
        terms.append("CUDAVersion <= TARGET.CUDAMaxSupportedVersion")
    return " && ".join(terms)


def _attribute(reference: str) -> str:
    """The name that a reference like target.memory speaks of; those of other scopes are left whole."""
    scope, dot, name = reference.partition(".")
    return name.partition(".")[0] if dot and scope in ("target", "my") else reference


def _wanted(value: Any, least: float) -> bool:
    """Whether an amount needs a term: an expression does, also a constant one; a number when it is above `least`."""
    while isinstance(value, Parens):
        value = value.inner
    literal = value.value if isinstance(value, Literal) else value
    return not isinstance(literal, int | float) or literal > least


def _is_undefined(c: Commands, command: str, own: str) -> bool:
    """Whether an amount is made undefined by its attribute, +RequestCpus or the like: that is a wish of its own, as in
    the reference, while the command that says undefined is none."""
    return c.text(command) is None and c.source(own) is not None and (c.text(own) or "undefined").lower() == "undefined"


def _platform(c: Commands, out: dict[str, Any], named: set[str]) -> list[str]:
    if out.get("WantDocker"):
        terms = ["TARGET.HasDocker"]
        network = out.get("DockerNetworkType")
        if network and network not in ("host", "none", "nat"):
            terms.append("StringListMember(My.DockerNetworkType,TARGET.DockerNetworks)")
        return terms
    if out.get("WantContainer"):
        image = c.text("container_image") or "docker:"
        kind = "DockerURL" if image.startswith("docker:") else "SIF" if image.endswith(".sif") else "SandboxImage"
        return ["TARGET.HasContainer", f"TARGET.Has{kind}"]
    if vm.is_vm(out):
        return vm.platform(out, named)
    if java.is_java(out):
        return ["TARGET.HasJava"]
    if named & {"opsys", "opsysandver", "opsysname", "opsyslongname", "opsysshortname"}:
        return []
    return [f'(TARGET.OpSys == "{c.place.opsys}")']


def _amounts(c: Commands, out: dict[str, Any], named: set[str]) -> list[str]:
    terms = []
    for resource in ("Disk", "Memory"):
        if resource.lower() in named:
            c.warn(
                f"your Requirements expression refers to TARGET.{resource}. This is obsolete. Set "
                f"request_{resource.lower()} and the Requirements are extended as needed",
                "requirements",
            )
    if "RequestDisk" not in out:
        terms.append("(TARGET.Disk >= DiskUsage)")
    elif _wanted(out["RequestDisk"], 0):
        terms.append("(TARGET.Disk >= RequestDisk)")
    if vm.is_vm(out):
        terms += vm.amounts(out, named)
    elif "RequestMemory" in out and _wanted(out["RequestMemory"], 1):
        terms.append("(TARGET.Memory >= RequestMemory)")
    wants_cpus = "RequestCpus" in out and _wanted(out["RequestCpus"], 1)
    if "cpus" not in named and (wants_cpus or _is_undefined(c, "request_cpus", "MY.RequestCpus")):
        terms.append("(TARGET.Cpus >= RequestCpus)")
    for attribute in sorted({*c.custom_requests(), "RequestGPUs"}, key=str.lower):
        if attribute not in out or attribute[len("Request") :].lower() in named:
            continue
        if attribute == "RequestGPUs" and "RequireGPUs" in out and _wanted(c.literal(out["RequestGPUs"]), 0):
            terms.append("(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs)")
        else:
            terms += _custom(c, attribute, out[attribute])
    if out.get("EncryptExecuteDirectory") is True:
        terms.append("TARGET.HasEncryptExecuteDirectory")
    if c.text("use_oauth_services"):
        terms.append("TARGET.HasJobCredentials")
    return terms


def _custom(c: Commands, attribute: str, value: Any) -> list[str]:
    resource = attribute[len("Request") :]
    literal = c.literal(value)
    if isinstance(literal, str):
        return [f"regexp({attribute},TARGET.{resource})"] if literal else []
    number = isinstance(literal, int | float) and not isinstance(literal, bool) and literal > 0
    wanted = number or literal is None or literal is UNDEFINED
    return [f"(TARGET.{resource} >= {attribute})"] if wanted else []


def _transfer(c: Commands, out: dict[str, Any], named: set[str]) -> str:
    domain = "(TARGET.FileSystemDomain == MY.FileSystemDomain)"
    should = out["ShouldTransferFiles"]
    if out["JobUniverse"] in (7, 12):  # beside the schedd: nothing travels
        return ""
    if should == "NO":
        return "" if "filesystemdomain" in named else domain
    if "hasfiletransfer" in named:
        return ""
    capable = "TARGET.HasJobTransferPlugins" if out.get("TransferPlugins") else "TARGET.HasFileTransfer"
    if any(
        name in out
        for name in ("EncryptInputFiles", "EncryptOutputFiles", "DontEncryptInputFiles", "DontEncryptOutputFiles")
    ):
        capable += " && TARGET.HasPerFileEncryption"
    newer = out.get("PreserveRelativePaths") or out.get("TransferCheckpoint")
    if newer or out["WhenToTransferOutput"] == "ON_SUCCESS":
        capable += f" && {_NEWER}"
    for method in str(out.get("WantTransferPluginMethods", "")).split(","):
        if method and "hasfiletransferpluginmethods" not in named:
            capable += f' && stringListIMember("{method}",TARGET.HasFileTransferPluginMethods)'
    return f"({capable})" if should == "YES" or "filesystemdomain" in named else f"({domain} || ({capable}))"
