"""What a submit file asks for and no pool of ours does: refused where the job would wait for ever or the opposite would
happen, else told. TABLE is by the attribute of the job, COMMANDS has what is written into no job; what expressions read
that nothing has is in shared/effects.

Tests compare both tables with what the daemons and this package read, and the commands that HTCondor documents with
all of them: what gets its effect leaves the table in the same change. docs/effects-submit.md is made from them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final

from shared.classad import UNDEFINED, ClassAd, Expr, references
from shared.classad.expr import Literal, fold
from shared.effects import Answer, by_name
from shared.effects.job_attributes import UNSET
from shared.effects.machine_attributes import NEVER


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """command: of the submit file, or +Attribute. told: what happens, and what to do. refused: whether such a job is
    not queued. Any value asks for it but false, 0 and an empty text."""

    command: str
    told: str
    refused: bool = False


_NO_CHECKPOINTS = "no execution point saves virtual machines that go on: leave it out"
_NO_SCRIPTS = "only the program runs: call the other one in a script that is the executable"
_ONE_PRIORITY = "a user's jobs go by priority, then by age: set priority"
_NO_ENCRYPTION = "transfers are encrypted for all files or none, by the pool (docs/tls.md): leave it out"

#: Attribute of the job -> what nobody does about it.
TABLE: Final[Mapping[str, WithoutEffect]] = {
    "PreCmd": WithoutEffect("+PreCmd", _NO_SCRIPTS, refused=True),
    "PostCmd": WithoutEffect("+PostCmd", _NO_SCRIPTS, refused=True),
    "RequestedChroot": WithoutEffect(
        "+RequestedChroot", "no execution point has named roots: leave it out", refused=True
    ),
    "RemoteIwd": WithoutEffect(
        "remote_initialdir", "jobs run in their scratch directories, or in initialdir: leave it out", refused=True
    ),
    "JobVMCheckpoint": WithoutEffect("vm_checkpoint", _NO_CHECKPOINTS, refused=True),
    "EncryptExecuteDirectory": WithoutEffect(
        "encrypt_execute_directory", "no execution point encrypts scratch directories: leave it out", refused=True
    ),
    "EncryptInputFiles": WithoutEffect("encrypt_input_files", _NO_ENCRYPTION, refused=True),
    "EncryptOutputFiles": WithoutEffect("encrypt_output_files", _NO_ENCRYPTION, refused=True),
    "DontEncryptInputFiles": WithoutEffect("dont_encrypt_input_files", _NO_ENCRYPTION, refused=True),
    "DontEncryptOutputFiles": WithoutEffect("dont_encrypt_output_files", _NO_ENCRYPTION, refused=True),
    "StreamIn": WithoutEffect("stream_input", "input travels before the job starts"),
    "JobStarterLog": WithoutEffect("starter_log", "the startd's log stays where it is"),
    "JobStarterDebug": WithoutEffect("starter_debug", "the startd's log stays as it is"),
    "ScitokensFile": WithoutEffect("scitokens_file", "list it in transfer_input_files, or see `roost store-cred`"),
    "DelegateJobGSICredentialsLifetime": WithoutEffect(
        "delegate_job_GSI_credentials_lifetime", "there are no proxy certificates"
    ),
    "BufferFiles": WithoutEffect("buffer_files", "it is of the standard universe"),
    "CompressFiles": WithoutEffect("compress_files", "it is of the standard universe"),
    "FileRemaps": WithoutEffect("file_remaps", "it is of the standard universe: see transfer_output_remaps"),
    "PreJobPrio1": WithoutEffect("+PreJobPrio1", _ONE_PRIORITY),
    "PreJobPrio2": WithoutEffect("+PreJobPrio2", _ONE_PRIORITY),
    "PostJobPrio1": WithoutEffect("+PostJobPrio1", _ONE_PRIORITY),
    "PostJobPrio2": WithoutEffect("+PostJobPrio2", _ONE_PRIORITY),
    "LoadProfile": WithoutEffect("load_profile", "it is of Windows"),
}


_GRID: Final = "there is no grid universe: jobs run in this pool"
#: Commands that are written into no job, or into one that no pool of ours runs.
COMMANDS: Final = (
    Answer(
        _GRID,
        "grid_resource arc_application arc_data arc_resources arc_rte azure_admin_key azure_admin_username "
        "azure_auth_file azure_image azure_location azure_size batch_extra_submit_args batch_project batch_queue "
        "batch_runtime boinc_authenticator_file cloud_label_names cloud_label_<key> ec2_access_key_id ec2_ami_id "
        "ec2_availability_zone ec2_block_device_mapping ec2_ebs_volumes ec2_elastic_ip ec2_iam_profile_arn "
        "ec2_iam_profile_name ec2_instance_type ec2_keypair ec2_keypair_file ec2_parameter_names "
        "ec2_parameter_<name> ec2_secret_access_key ec2_security_groups ec2_security_ids ec2_spot_price "
        "ec2_tag_names ec2_tag_<key> ec2_user_data ec2_user_data_file ec2_vpc_ip ec2_vpc_subnet gce_account "
        "gce_auth_file gce_image gce_json_file gce_machine_type gce_metadata gce_metadata_file gce_preemptible "
        "globus_rematch globus_resubmit globus_rsl nordugrid_rsl keystore_alias keystore_file "
        "keystore_passphrase_file remote_universe WantNameTag",
    ),
    Answer(
        "there are no proxy certificates: `roost store-cred` keeps the tokens of services that jobs use",
        "MyProxyCredentialName MyProxyHost MyProxyNewProxyLifetime MyProxyPassword MyProxyRefreshThreshold "
        "MyProxyServerDN",
    ),
    Answer(
        "a service has one token: `roost store-cred` keeps it, with the rights and for the servers it was made for",
        "<service>_oauth_permissions <service>_oauth_resource",
    ),
    Answer(
        "no script runs before the nodes of a parallel job: let the executable begin with what is to be done",
        "parallel_script_shadow parallel_script_starter",
    ),
    Answer(
        "it is of the standard universe",
        "allow_startup_script buffer_block_size buffer_size fetch_files local_files want_remote_io",
    ),
    Answer(
        "it is of hypervisors that are not here: virtual machines run under KVM",
        "kernel vmware_dir vmware_should_transfer_files vmware_snapshot_disk xen_initrd xen_kernel "
        "xen_kernel_params xen_root",
    ),
    Answer("the executable is copied when a job starts, or by `-spool` when it is submitted", "copy_to_spool"),
    Answer("there are no job sets: batch_name groups jobs", "jobset"),
    Answer("it is of programs that speak MPI 1", "rendezvousdir"),
    Answer("a job has the groups that its account has", "primary_unix_group"),
)

#: A part of what HTCondor does goes by these: which one.
PART: Final = (
    Answer("services by their names, without handles", "use_oauth_services"),
    Answer("only `false`: there are neither tokens of one's own nor proxies", "use_scitokens use_x509userproxy"),
)
_POLICIES: Final = (
    *("PeriodicHold", "PeriodicRelease", "PeriodicRemove", "PeriodicVacate", "OnExitHold", "OnExitRemove"),
    *("LeaveJobInQueue", "PeriodicHoldReason", "OnExitHoldReason"),
)
_MATCHING: Final = ("Requirements", "Rank")
_GAP: Final = "<[a-z]+>"


def without_effect(
    attributes: Mapping[str, Any], procs: Collection[Mapping[str, Any]], names: Set[str] | None = None
) -> list[WithoutEffect]:
    """What these jobs ask for in vain, in the order of TABLE. attributes: what they share; procs: what differs;
    names: of all attributes in procs, where they are known."""
    differing = TABLE.keys() & (set(chain.from_iterable(procs)) if names is None else names)
    return [
        row
        for name, row in TABLE.items()
        if (name in attributes and _asks(attributes[name]))
        or (name in differing and any(_asks(proc[name]) for proc in procs if name in proc))
    ]


def command_in_vain(name: str) -> str:
    """Why nothing goes by a command of this name, in lower case; empty for others."""
    exact, families = _commands()
    return exact.get(name) or next((why for pattern, why in families if pattern.fullmatch(name)), "")


def read_in_vain(attributes: Mapping[str, Any]) -> list[str]:
    """What policies of a job read that no job has, and its Requirements and Rank that no slot has, unless somebody
    makes it up: a line for each."""
    found: list[str] = []
    for names, known, whose in ((_POLICIES, _unset(), "job"), (_MATCHING, _never(), "slot")):
        for name in names:
            expr = attributes.get(name)
            if not isinstance(expr, Expr) or isinstance(expr, Literal):
                continue
            read = references(expr, my=ClassAd(dict(attributes)))
            asked = read.unscoped | (read.missing if whose == "job" else read.target)
            told = (known[fold(one)] for one in sorted(asked) if fold(one) in known)
            found += (f"{name} reads {one}, which no {whose} has: {why}" for one, why in told)
    return found


def _by_key(answers: Iterable[Answer]) -> dict[str, tuple[str, str]]:
    return {fold(name): (name, why) for name, why in by_name(answers).items()}


@cache
def _unset() -> Mapping[str, tuple[str, str]]:
    return _by_key(UNSET)


@cache
def _never() -> Mapping[str, tuple[str, str]]:
    return _by_key(NEVER)


@cache
def _commands() -> tuple[Mapping[str, str], list[tuple[re.Pattern[str], str]]]:
    named = by_name(COMMANDS)
    exact = {name.lower(): why for name, why in named.items()}
    families = [(re.compile(re.sub(_GAP, ".+", name)), why) for name, why in named.items() if "<" in name]
    return exact, families


def _asks(value: Any) -> bool:
    if isinstance(value, Literal):
        value = value.value
    if isinstance(value, Expr):
        return True  # it depends
    return value is not UNDEFINED and bool(value)
