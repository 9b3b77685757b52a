"""From submit commands to job attributes: one rule for each group of commands that belong together.

A rule reads commands (`Commands.text`, `.expr`, ...) and writes attributes into a dict; values are Python's own or
parsed expressions. Which commands a rule read is remembered, so that for the second and later jobs of a cluster only
the rules run whose commands depend on something that changes from job to job.

Longer than other modules because it is one list: each rule is short, and the table at the end says their order.
"""

from __future__ import annotations

import math
import re
import signal

from engine.queue.crontab import FIELDS, BadCronTab, parse_crontab
from engine.queue.parallel import NODE_MARK
from roost.submit import java, quoting, vm
from roost.submit.commands import (
    Attributes,
    Commands,
    Rule,
    amount,
    is_number,
    iwd,
    leading_number,
    of_universe,
    references_of,
    unquoted,
)
from roost.submit.files import executable, logs, stderr, stdin, stdout, transfer
from roost.submit.requirements import requirements
from shared.classad import UNDEFINED, ClassAd, Expr, ParseError, evaluate, unparse
from shared.config.errors import config_error
from shared.config.evaluate import parse_whole
from shared.job_limits import is_limit_name

#: First words of a grid_resource that mean a batch system.
_BATCH_SYSTEMS = ("batch", "blah", "pbs", "lsf", "nqs", "sge", "slurm")
UNIVERSES = {
    "vanilla": 5,
    "docker": 5,
    "container": 5,
    "scheduler": 7,
    "grid": 9,
    "java": java.UNIVERSE,
    "parallel": 11,
    "local": 12,
    "vm": 13,
}
#: Universes that execution points run.
RUN = frozenset(UNIVERSES[name] for name in ("vanilla", "java", "parallel", "vm"))
#: Universes that the schedd itself runs, beside the queue.
BESIDE = frozenset((UNIVERSES["scheduler"], UNIVERSES["local"]))
_ZERO = (
    "NumCkpts",
    "NumRestarts",
    "CurrentHosts",
    "NumJobStarts",
    "CommittedTime",
    "NumSystemHolds",
    "JobSubmitMethod",
    "TotalSuspensions",
    "CommittedSlotTime",
    "NumJobCompletions",
    "CumulativeSlotTime",
    "LastSuspensionTime",
    "CommittedSuspensionTime",
    "CumulativeSuspensionTime",
    "ExitStatus",
)
_ZERO_REAL = (
    "RemoteSysCpu",
    "RemoteUserCpu",
    "RemoteWallClockTime",
    "CumulativeRemoteSysCpu",
    "CumulativeRemoteUserCpu",
)
_SIGNALS = {s.value: s.name for s in signal.Signals if s.name not in ("SIGPWR", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX")}


def basics(c: Commands, out: Attributes) -> None:
    out["MyType"] = "Job"
    out["TargetType"] = "Machine"
    out["MinHosts"] = out["MaxHosts"] = 1
    out["ExitBySignal"] = False
    for name in _ZERO:
        out[name] = 0
    for name in _ZERO_REAL:
        out[name] = 0.0
    out["JobSubmitFile"] = c.text("submit_file") or c.place.file
    out["Iwd"] = iwd(c)


def universe(c: Commands, out: Attributes) -> None:
    name = (c.text("universe") or c.place.knobs.default_universe or "vanilla").lower()
    cluster = out.get("JobUniverse")  # of a job before: one cluster has one universe
    if name.isdigit():
        name = next((known for known, number in UNIVERSES.items() if str(number) == name), name)
    if name not in UNIVERSES:
        raise config_error(
            f"I don't know about the '{name}' universe", c.source("universe"), f"choose one of {', '.join(UNIVERSES)}"
        )
    out["JobUniverse"] = UNIVERSES[name] if cluster is None else cluster
    if out["JobUniverse"] == UNIVERSES["parallel"]:
        c.table.defaults = {**c.table.defaults, "node": NODE_MARK}  # every node puts its number there
    image = c.text("container_image")
    docker = (c.text("docker_image") or "").strip('"')
    if image and (docker or name == "docker"):
        raise config_error(
            "docker_image and container_image can't be used together", c.source("container_image"), "remove one of them"
        )
    if name == "docker":
        if not docker:
            raise config_error("docker jobs require a docker_image", c.source("universe"), "add docker_image = NAME")
        out["WantDocker"] = True
        out["DockerImage"] = docker
    elif out["JobUniverse"] == UNIVERSES["scheduler"]:
        pass  # it runs beside the schedd as it is, whatever image is named
    elif image:
        out["WantContainer"] = True
        _container(image, c.boolean("transfer_container") is not False, c, out)
    elif docker:
        out["WantContainer"] = True
        out["DockerImage"] = docker
        out["WantDockerImage"] = True
    elif name == "container":
        raise config_error(
            "container jobs require a container_image", c.source("universe"), "add container_image = NAME"
        )
    for command, attribute in (
        ("container_target_dir", "ContainerTargetDir"),
        ("docker_pull_policy", "DockerPullPolicy"),
    ):
        text = c.text(command)
        if text:
            out[attribute] = unquoted(text) if command == "container_target_dir" else text
    override = c.boolean("docker_override_entrypoint")
    if override is not None:
        out["DockerOverrideEntrypoint"] = override
    network = c.text("docker_network_type")
    if network:
        out["DockerNetworkType"] = network
    services = c.text("container_service_names")
    if services and (docker or image):
        out["ContainerServiceNames"] = services
        for service in re.split(r"[\s,]+", services):
            command = f"{service}_container_port"
            port = c.number(command, strict=False) if c.text(command) else None
            if port is None:
                raise config_error(
                    f"container service '{service}' has no valid port",
                    c.source("container_service_names"),
                    f"add {command} = PORT",
                )
            out[f"{service}_ContainerPort"] = int(port)
    _other_universes(c, name, out)


def _other_universes(c: Commands, name: str, out: Attributes) -> None:
    if name == "java":
        java.check(c)
    if name == "vm":
        vm.commands(c, out)
    if name == "grid":
        resource = c.text("grid_resource")
        if not resource:
            raise config_error("grid_resource is not defined for a grid universe job", c.source("universe"), "add it")
        out["GridResource"] = resource
    if name == "parallel":
        count = c.integer("machine_count")
        if count is None:
            raise config_error("no machine_count specified", c.source("universe"), "add machine_count = N")
        out["MinHosts"] = out["MaxHosts"] = count
        out["WantIOProxy"] = out["JobRequiresSandbox"] = True


def _container(image: str, travels: bool, c: Commands, out: Attributes) -> None:
    """Images other than a registry's travel with the job and are named there without their directory."""
    if image.startswith("library:"):
        raise config_error(f"'{image}' is not a valid container image", c.source("container_image"), "name a .sif file")
    if image.startswith("docker:"):
        scheme, kind, source, travels_now = "docker", "WantDockerImage", "docker", False
    else:
        kind = "WantSIF" if image.strip('"').endswith(".sif") else "WantSandboxImage"
        scheme, colon, _ = image.partition(":")
        source, travels_now = scheme if colon else "cedar", travels and not image.startswith(("/cvmfs/", "oras:"))
    out["ContainerImage"] = image.rstrip("/").rpartition("/")[2] if travels_now else image
    if not travels_now and (not travels or scheme not in ("docker", "oras")):
        source = "local"
    out["ContainerImageSource"] = source
    out[kind] = True


def arguments(c: Commands, out: Attributes) -> None:
    text, new_form = c.text("arguments"), c.text("arguments2")
    if text is None and c.source("arguments") is None:  # one that is empty hides the other name
        text = c.text("args")
    _one_form(c, "arguments", text, new_form)
    if new_form:
        out["Arguments"] = quoting.new_arguments(new_form, c.source("arguments2"))
    elif text:
        name, value = quoting.stored_arguments(text, c.source("arguments"))
        out[name] = value
    elif "Args" not in out and "Arguments" not in out:
        out["Arguments"] = ""


def _one_form(c: Commands, command: str, text: str | None, new_form: str | None) -> None:
    """Both forms of a command may be there for readers of other versions only. Raises ConfigError."""
    allowed = f"allow_{command}_v1"
    both_allowed = c.boolean(allowed)
    if text and new_form and not both_allowed:
        told = f"{command} and {command}2 are both given, and only {command}2 would count"
        raise config_error(told, c.source(f"{command}2"), f"remove one of them, or write {allowed} = true")


def environment(c: Commands, out: Attributes) -> None:
    """The old form comes out only where the command `env` has one, whichever command the variables come from."""
    found: dict[str, str] = {}
    wanted = c.text("getenv", "get_env")
    if wanted:
        found.update(_inherited(c, wanted))
    text, old, new = c.text("environment"), c.text("env"), c.text("environment2")
    _one_form(c, "environment", text or old, new)
    if new:
        found.update(quoting.new_environment(new, c.source("environment2")))
    elif text or old:
        name = "environment" if text else "env"
        found.update(quoting.stored_environment(text or old or "", c.source(name)))
    if old and not new and not old.lstrip().startswith('"'):
        out["Env"] = ";".join(f"{name}={value}" for name, value in sorted(found.items()))
        out["EnvDelim"] = ";"
    else:
        out["Environment"] = quoting.environment_text(found)


def _inherited(c: Commands, wanted: str) -> dict[str, str]:
    environ = c.place.environment
    lowered = wanted.strip().lower()
    if (condition := _condition(lowered)) is not None:  # no variable has such a name
        lowered = "true" if condition else "false"
    if lowered == "false":
        return {}
    if lowered == "true":
        if not c.place.knobs.submit_allow_getenv:
            raise config_error(
                f"getenv = {wanted} is not allowed on this machine (SUBMIT_ALLOW_GETENV)",
                c.source("getenv"),
                "name the variables that the job needs: getenv = PATH, LANG",
            )
        return {name: value for name, value in environ.items() if "\n" not in value}
    patterns = [word for word in re.split(r"[\s,;]+", wanted) if word]
    take = [_glob(p) for p in patterns if not p.startswith("!")]
    leave = [_glob(p[1:]) for p in patterns if p.startswith("!")]
    return {
        name: value
        for name, value in environ.items()
        if (not take or any(p.fullmatch(name) for p in take)) and not any(p.fullmatch(name) for p in leave)
    }


def _condition(text: str) -> bool | None:
    """Whether a constant expression holds; None: it is none."""
    try:
        expr = parse_whole(text)
    except ParseError:
        return None
    value = None if references_of(expr) else evaluate(expr, ClassAd())
    return bool(value) if isinstance(value, bool | int | float) else None


def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.IGNORECASE)


def requests(c: Commands, out: Attributes) -> None:
    knobs = c.place.knobs
    for command, attribute, unit, default in (
        ("request_cpus", "RequestCpus", "", knobs.job_default_requestcpus),
        ("request_memory", "RequestMemory", "M", knobs.job_default_requestmemory),
        ("request_disk", "RequestDisk", "K", knobs.job_default_requestdisk),
    ):
        given = next((n for n in (command, f"MY.{attribute}") if c.text(n) is not None), command)
        text = c.text(given)
        if text is None:
            if vm.is_vm(out) and attribute == "RequestMemory":
                default = c.parse_text("MY.JobVMMemory", command, attribute)
                c.warn("request_memory was NOT specified. Using RequestMemory = MY.JobVMMemory", command)
            if not for_batch_system(out):
                out[attribute] = default
        elif text.lower() != "undefined":
            literal = amount(text, unit) if unit else None
            if unit and is_number(text):
                _missing_unit(c, given, text, unit)
            out[attribute] = c.parsed(given, attribute) if literal is None else literal
    gpus = next((name for name in ("request_gpus", "MY.RequestGPUs") if c.text(name) is not None), None)
    if gpus is not None and (c.text(gpus) or "").lower() != "undefined":
        out["RequestGPUs"] = c.parsed(gpus, "RequestGPUs")
    elif gpus is None and knobs.job_default_requestgpus is not None:
        out["RequestGPUs"] = knobs.job_default_requestgpus
    for attribute in c.custom_requests():
        name = attribute[len("Request") :]
        custom = next((n for n in (f"request_{name}", f"MY.{attribute}") if c.text(n) is not None), None)
        if custom is not None:
            out[attribute] = c.parsed(custom, attribute)
    if "RequestGPUs" in out:
        _gpu_properties(c, out)


def _missing_unit(c: Commands, command: str, text: str, unit: str) -> None:
    """SUBMIT_REQUEST_MISSING_UNITS. Raises ConfigError."""
    asked = (c.place.knobs.submit_request_missing_units or "").lower()
    told = f"{command} = {text} has no unit, and counts in {unit}iB"
    if asked == "error":
        raise config_error(told, c.source(command), f"write it: {command} = {text}{unit}")
    if asked == "warn":
        c.warn(told, command)


def for_batch_system(out: Attributes) -> bool:
    """Whether a grid job goes to a batch system, which has defaults of its own (SLT-22)."""
    resource = out.get("GridResource")
    word = resource.split()[:1] if isinstance(resource, str) else []
    return out.get("JobUniverse") == UNIVERSES["grid"] and word != [] and word[0].lower() in _BATCH_SYSTEMS


def _gpu_properties(c: Commands, out: Attributes) -> None:
    """require_gpus, and the gpus_minimum_... commands, which are and-ed to it."""
    terms = []
    for command, attribute, term in (
        ("gpus_minimum_capability", "GPUsMinCapability", "Capability >= GPUsMinCapability"),
        ("gpus_maximum_capability", "GPUsMaxCapability", "Capability <= GPUsMaxCapability"),
        ("gpus_minimum_memory", "GPUsMinMemory", "GlobalMemoryMb >= GPUsMinMemory"),
        ("gpus_minimum_runtime", "GPUsMinRuntime", "MaxSupportedVersion >= GPUsMinRuntime"),
    ):
        text = c.text(command)
        if text is None:
            continue
        if command == "gpus_minimum_memory":
            value = amount(text, "M")
        elif command == "gpus_minimum_runtime" and (match := re.fullmatch(r"(\d+)(?:\.(\d+))?", text)):
            whole = int(match[1])
            value = whole * 1000 + int(match[2] or 0) * 10 if whole < 1000 else whole  # as the driver tells its version
        else:
            value = None
        out[attribute] = c.parsed(command, attribute) if value is None else value
        terms.append(term)
    own = c.text("require_gpus")
    if own:
        c.parsed("require_gpus", "RequireGPUs")
        terms.insert(0, f"({own})" if terms and c.is_loose(own) else own)
    if terms:
        out["RequireGPUs"] = c.parse_text(" && ".join(terms), "require_gpus", "RequireGPUs")


def ranks(c: Commands, out: Attributes) -> None:
    name = "rank" if c.text("rank") else "preferences"
    knobs = c.place.knobs
    rank = c.parsed(name, "Rank") if c.text(name) else of_universe(out, knobs.default_rank_vanilla, knobs.default_rank)
    more = of_universe(out, knobs.append_rank_vanilla, knobs.append_rank)
    if more is not None:
        added = unparse(more)
        rank = c.parse_text(added if rank is None else f"({unparse(rank)}) + ({added})", name, "Rank")
    out["Rank"] = 0.0 if rank is None else rank
    out["JobPrio"] = c.integer("priority" if c.text("priority") else "prio") or 0


def needs(c: Commands, out: Attributes) -> None:
    text = requirements(c, out)
    out["Requirements"] = c.parse_text(text, "requirements", "Requirements")


def retries(c: Commands, out: Attributes) -> None:
    """max_retries, retry_until and success_exit_code each switch the retry machinery on."""
    maximum, success = c.integer("max_retries"), c.integer("success_exit_code")
    until = c.text("retry_until")
    remove = c.text("on_exit_remove")
    if maximum is None and success is None and until is None:
        if remove:
            out["OnExitRemove"] = c.parsed("on_exit_remove", "OnExitRemove")
    else:
        out["JobMaxRetries"] = maximum if maximum is not None else c.place.knobs.default_job_max_retries
        terms = ["NumJobCompletions > JobMaxRetries"]
        if success is not None:
            out["JobSuccessExitCode"] = success
            terms.append("ExitCode =?= JobSuccessExitCode")
        else:
            terms.append("ExitCode =?= 0")
        if until is not None:
            code = c.constant(c.parsed("retry_until", "retry_until"))
            if isinstance(code, float) and not math.isfinite(code):
                raise config_error(f"retry_until = {until} is out of bounds", c.source("retry_until"), "write a number")
            terms.append(f"ExitCode =?= {int(code)}" if isinstance(code, int | float) else until)
        if remove:
            c.parsed("on_exit_remove", "OnExitRemove")
            terms.append(remove)
        out["OnExitRemove"] = c.parse_text(" || ".join(terms), "retry_until", "OnExitRemove")
        out["OnExitHold"] = False
    if c.text("on_exit_hold"):
        out["OnExitHold"] = c.parsed("on_exit_hold", "OnExitHold")


def accounting(c: Commands, out: Attributes) -> None:
    group, user = c.text("accounting_group", "AccountingGroup"), c.text("accounting_group_user", "AcctGroupUser")
    if c.boolean("nice_user"):
        if group:
            c.warn("nice_user conflicts with accounting_group, which decides whose the job is", "nice_user")
        group = group or c.place.nice_group
        out["MaxJobRetirementTime"] = 0
    for command, text in (("accounting_group", group), ("accounting_group_user", user)):
        if text and not re.fullmatch(r"\S+", text):
            raise config_error(f"Invalid {command}: '{text}'", c.source(command), "remove the blanks")
    if not group and not user:
        return
    who = user or c.place.user
    out["AcctGroupUser"] = who
    if group:
        out["AcctGroup"] = group
        out["AccountingGroup"] = f"{group}.{who}"
    else:
        out["AccountingGroup"] = who


def limits(c: Commands, out: Attributes) -> None:
    plain, computed = c.text("concurrency_limits"), c.text("concurrency_limits_expr")
    if plain and computed:
        raise config_error(
            "concurrency_limits and concurrency_limits_expr can't be used together", c.source("concurrency_limits_expr")
        )
    if computed:
        out["ConcurrencyLimits"] = c.parsed("concurrency_limits_expr", "ConcurrencyLimits")
    elif plain:
        names = [name for name in re.split(r"[\s,]+", plain.lower()) if name]
        for name in names:
            if not is_limit_name(name.partition(":")[0]):
                raise config_error(
                    f"Invalid concurrency limit '{name}'", c.source("concurrency_limits"), "write NAME or NAME:UNITS"
                )
        out["ConcurrencyLimits"] = ",".join(sorted(names))


def lease(c: Commands, out: Attributes) -> None:
    text = c.text("job_lease_duration")
    if text is None:
        if out["JobUniverse"] in (5, java.UNIVERSE, 11, vm.UNIVERSE):
            default = c.place.knobs.job_default_lease_duration
            if default is not None:
                out["JobLeaseDuration"] = default
        return
    expr = c.parsed("job_lease_duration", "JobLeaseDuration")
    plain = re.fullmatch(r"\d+(\.\d*)?", text)  # an expression is none, as in the reference, but true is 1
    if text.lower() == "true" or (plain is not None and 0 < float(text) < 20):
        c.warn("JobLeaseDuration less than 20 seconds is not allowed, using 20 instead", "job_lease_duration")
        out["JobLeaseDuration"] = 20
    else:
        out["JobLeaseDuration"] = expr


def signals(c: Commands, out: Attributes) -> None:
    if out["JobUniverse"] != 5:
        out["KillSig"] = "SIGTERM"
    for command, attribute in (
        ("kill_sig", "KillSig"),
        ("remove_kill_sig", "RemoveKillSig"),
        ("hold_kill_sig", "HoldKillSig"),
    ):
        text = c.text(command)
        if not text:
            continue
        name = text.upper()
        number = leading_number(name)
        if not number and name[:1] != "0":
            number = signal.Signals[name].value if name in signal.Signals.__members__ else -1
        if number in _SIGNALS and (name[:1].isdigit() or _SIGNALS[number] == name):
            out[attribute] = _SIGNALS[number]
        else:
            raise config_error(
                f"invalid {command} '{text}'", c.source(command), "use a number or a name such as SIGTERM"
            )


def notification(c: Commands, out: Attributes) -> None:
    text = (c.text("notification") or c.place.knobs.job_default_notification or "never").lower()
    codes = {"never": 0, "always": 1, "complete": 2, "error": 3}
    if text not in codes:
        raise config_error("Notification must be 'Never', 'Always', 'Complete', or 'Error'", c.source("notification"))
    out["JobNotification"] = codes[text]


def hold(c: Commands, out: Attributes) -> None:
    if c.boolean("hold"):
        out["HoldReason"] = "submitted on hold at user's request"
        out["HoldReasonCode"] = 15
        out["JobStatus"] = 5
    else:
        out["JobStatus"] = 1


def deferral(c: Commands, out: Attributes) -> None:
    names = ("cron_minute", "cron_hour", "cron_day_of_month", "cron_month", "cron_day_of_week")
    commands = {attribute: name for (attribute, _, _), name in zip(FIELDS, names, strict=True)}
    cron = {attribute: text for attribute, name in commands.items() if (text := c.text(name))}
    out.update(cron)
    try:
        parse_crontab(cron)
    except BadCronTab as fault:  # condor_submit takes it too
        wrong = next(attribute for attribute in commands if attribute in str(fault))
        c.warn(f"{fault}: the access point will hold the job", commands[wrong])
    at = c.text("deferral_time")
    if not at and not cron:
        return
    if at and out["JobUniverse"] == UNIVERSES["scheduler"]:
        raise config_error(
            "deferral_time does not work for scheduler universe jobs", c.source("deferral_time"), "use local"
        )
    if at:
        out["DeferralTime"] = _natural(c, "deferral_time", "DeferralTime", "write a Unix time")
    for either, attribute, default in (
        (("cron_window", "deferral_window"), "DeferralWindow", 0),
        (("cron_prep_time", "deferral_prep_time"), "DeferralPrepTime", 300),
    ):
        given = next((name for name in either if c.text(name)), None)
        out[attribute] = _natural(c, given, attribute, "write seconds") if given else default
    if not c.text("MY.Requirements"):  # it comes with the terms of Requirements, as in the reference
        out["ScheddInterval"] = 300


def _natural(c: Commands, command: str, attribute: str, mend: str) -> Expr:
    """An expression. Raises ConfigError for a constant that is no non-negative integer."""
    expr = c.parsed(command, attribute)
    value = c.constant(expr)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise config_error(f"{command} = {c.text(command)} is no non-negative integer", c.source(command), mend)
    return expr


#: Commands that become one attribute as they are: (names, attribute, kind).
SIMPLE: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("batch_name",), "JobBatchName", "quoted"),
    (("batch_id",), "JobBatchId", "quoted"),
    (("description",), "JobDescription", "text"),
    (("notify_user",), "NotifyUser", "text"),
    (("remote_initialdir",), "RemoteIwd", "text"),
    (("submit_event_notes",), "SubmitEventNotes", "text"),
    (("submit_event_user_notes",), "SubmitEventUserNotes", "text"),
    (("email_attributes",), "EmailAttributes", "list"),
    (("append_files",), "AppendFiles", "text"),
    (("job_ad_information_attrs",), "JobAdInformationAttrs", "text"),
    (("job_machine_attrs",), "JobMachineAttrs", "text"),
    (("manifest_dir",), "ManifestDir", "text"),
    (("ulog_execute_attrs",), "UserLogExecuteEventAttrs", "text"),
    (("dag_node_name",), "DAGNodeName", "text"),
    (("priority_of_rank",), "PriorityOfRank", "text"),
    (("job_machine_attrs_history_length",), "JobMachineAttrsHistoryLength", "natural"),
    (("coresize", "core_size"), "CoreSize", "int"),
    (("match_list_length",), "LastMatchListLength", "int"),
    (("stack_size",), "StackSize", "expr"),
    (("buffer_files",), "BufferFiles", "expr"),
    (("file_remaps",), "FileRemaps", "expr"),
    (("compress_files",), "CompressFiles", "text"),
    (("fetch_files",), "FetchFiles", "text"),
    (("keep_claim_idle",), "KeepClaimIdle", "expr"),
    (("next_job_start_delay",), "NextJobStartDelay", "expr"),
    (("job_max_vacate_time",), "JobMaxVacateTime", "expr"),
    (("kill_sig_timeout",), "KillSigTimeout", "digits"),
    (("allowed_job_duration",), "AllowedJobDuration", "expr"),
    (("allowed_execute_duration",), "AllowedExecuteDuration", "expr"),
    (("max_job_retirement_time",), "MaxJobRetirementTime", "expr"),
    (("max_transfer_input_mb",), "MaxTransferInputMB", "expr"),
    (("max_transfer_output_mb",), "MaxTransferOutputMB", "expr"),
    (("noop_job",), "IsNoopJob", "expr"),
    (("noop_job_exit_code",), "NoopJobExitCode", "expr"),
    (("noop_job_exit_signal",), "NoopJobExitSignal", "expr"),
    (("max_idle",), "JobMaterializeMaxIdle", "int"),
    (("max_materialize",), "JobMaterializeLimit", "int"),
    (("periodic_hold",), "PeriodicHold", "expr"),
    (("periodic_hold_subcode",), "PeriodicHoldSubCode", "expr"),
    (("periodic_release",), "PeriodicRelease", "expr"),
    (("periodic_remove",), "PeriodicRemove", "expr"),
    (("periodic_vacate",), "PeriodicVacate", "expr"),
    (("on_exit_hold_subcode",), "OnExitHoldSubCode", "expr"),
    (("leave_in_queue",), "LeaveJobInQueue", "expr"),
    (("run_as_owner",), "RunAsOwner", "bool"),
    (("load_profile",), "LoadProfile", "bool"),
    (("manifest",), "ManifestDesired", "bool"),
    (("want_graceful_removal",), "WantGracefulRemoval", "expr"),
    (("erase_output_and_error_on_restart",), "EraseOutputAndErrorOnRestart", "bool"),
    (("want_io_proxy",), "WantIOProxy", "bool"),
    (("encrypt_execute_directory",), "EncryptExecuteDirectory", "bool"),
    (("starter_debug",), "JobStarterDebug", "quoted"),
    (("jar_files",), "JarFiles", "text"),
    (("dagman_job_id",), "DAGManJobId", "natural"),
    (("delegate_job_GSI_credentials_lifetime",), "DelegateJobGSICredentialsLifetime", "literal"),
)
_REASONS = (("periodic_hold_reason", "PeriodicHoldReason"), ("on_exit_hold_reason", "OnExitHoldReason"))


def simple(c: Commands, out: Attributes) -> None:
    for names, attribute, kind in SIMPLE:
        name = next((one for one in (*names, attribute) if c.text(one) is not None), None)
        if name is None:
            continue
        if kind == "text":
            text = c.text(name)
            assert text is not None
            out[attribute] = text
        elif kind == "quoted":
            out[attribute] = unquoted(c.text(name) or "")
        elif kind == "literal":
            if not re.fullmatch(r"-?\d+", c.text(name) or ""):
                raise config_error(f"invalid integer {name} = {c.text(name)}", c.source(name), "write a whole number")
            out[attribute] = int(c.text(name) or "")
        elif kind in ("int", "natural"):
            out[attribute] = c.integer(name, 0 if kind == "natural" else None)
        elif kind == "digits":
            out[attribute] = leading_number(c.text(name) or "")
        elif kind == "list":
            out[attribute] = ",".join(word for word in re.split(r"[\s,]+", c.text(name) or "") if word)
        elif kind == "bool":
            out[attribute] = c.boolean(name)
        else:
            out[attribute] = c.parsed(name, attribute)
    c.boolean("copy_to_spool")
    for command in ("use_scitokens", "use_x509userproxy"):
        if c.text(command) and c.boolean(command):
            raise config_error(f"{command} is not supported", c.source(command), f"remove {command}")
    if c.text("x509userproxy"):
        raise config_error("x509userproxy is not supported", c.source("x509userproxy"), "remove x509userproxy")
    services = [word for word in re.split(r"[\s,]+", c.text("use_oauth_services") or "") if word]
    for service in services:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", service) is None:
            raise config_error(
                f"use_oauth_services: {service} is no name of a service",
                c.source("use_oauth_services"),
                "write letters, digits and _.- ; handles (service*handle) are not supported",
            )
    if services:
        out["OAuthServicesNeeded"] = ",".join(dict.fromkeys(services))
    starter_log = unquoted(c.text("starter_log") or "")
    if starter_log:
        out["JobStarterLog"] = starter_log if starter_log[0] == "/" else f"{iwd(c)}/{starter_log}"
        if "JobStarterDebug" not in out:
            out["JobStarterDebug"] = True
    scitokens = c.text("scitokens_file")
    if scitokens:
        out["ScitokensFile"] = scitokens if scitokens[0] == "/" else f"{iwd(c)}/{scitokens}"
    cuda = c.text("cuda_version")
    if cuda is not None:
        match = re.fullmatch(r"(\d+)(?:\.(\d+))?", cuda)
        if match is None:
            raise config_error(f"cuda_version = {cuda} is no version", c.source("cuda_version"), "write x or x.y")
        out["CUDAVersion"] = int(match[1]) * 1000 + int(match[2] or 0)
    for command, attribute in _REASONS:
        if c.text(command):
            out[attribute] = c.parsed(command, attribute)
    if "LeaveJobInQueue" not in out:
        out["LeaveJobInQueue"] = False


def site(c: Commands, out: Attributes) -> None:
    """SUBMIT_ATTRS: what the administrator puts into every job, unless the job has its own."""
    out.update(c.place.site_attributes)


def own(c: Commands, out: Attributes) -> None:
    """`+Name = expr` and `MY.Name = expr`: the last word."""
    for command in c.names("my."):
        name = command[3:]
        text = c.text(command)
        if text is None:
            if name.lower() != "requirements":  # as the reference: a job has always some
                out[name] = UNDEFINED
        else:
            out[name] = c.parsed(command, name)


#: In this order: later rules read what earlier ones wrote.
RULES: tuple[Rule, ...] = (
    basics,
    universe,
    executable,
    arguments,
    java.vm_arguments,
    environment,
    stdin,
    stdout,
    stderr,
    logs,
    transfer,
    requests,
    ranks,
    accounting,
    limits,
    lease,
    signals,
    notification,
    retries,
    deferral,
    simple,
    needs,
    hold,
    site,
    own,
)


#: What a rule may write, in some jobs only, that other rules read.
WRITES: dict[Rule, tuple[str, ...]] = {
    universe: ("WantDocker", "WantContainer", "WantDockerImage", "WantSIF", "WantSandboxImage", "ContainerImageSource"),
    stdin: ("TransferIn",),
    transfer: ("WantFTOnCheckpoint", "WantTransferPluginMethods"),
    requests: ("RequestCpus",),
    deferral: ("ScheddInterval",),
}
