"""The files of a job: the rules for its executable, its standard files, its log, and what travels with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from roost.submit import java, public_files, vm
from roost.submit.commands import NULL_FILE, Attributes, Commands, iwd, near, usage
from shared.config.errors import config_error

_SHOULD = {
    "YES": "YES",
    "TRUE": "YES",
    "ALWAYS": "YES",
    "NO": "NO",
    "FALSE": "NO",
    "NEVER": "NO",
    "IF_NEEDED": "IF_NEEDED",
    "AUTO": "IF_NEEDED",
}
#: NEVER is accepted and means the default, as in the reference.
_WHEN = {name: name for name in ("ON_EXIT", "ON_EXIT_OR_EVICT", "ON_SUCCESS")} | {
    "NEVER": "ON_EXIT",
    "ALWAYS": "ON_EXIT_OR_EVICT",
}

#: Bytes of a script's first line that are looked at.
_FIRST_LINE = 4096


def executable(c: Commands, out: Attributes) -> None:
    if vm.is_vm(out):
        vm.executable(c, out)
        return
    text = c.text("executable")
    transfer = c.boolean("transfer_executable")
    containers = "WantDocker" in out or "WantContainer" in out
    if not text:
        if not containers:
            typed = near("executable", [macro.name.lower() for macro in c.table], "write executable, not {}")
            raise config_error("No 'executable' parameter was provided", None, typed or "add executable = PROGRAM")
        out["Cmd"] = ""
        out["TransferExecutable"] = False
        size = 0
    else:
        inside = containers and text.startswith("/") and c.place.knobs.submit_container_never_xfer_absolute_cmd
        keep = transfer is False or (inside and transfer is None)
        path = c.place.directory / text
        out["Cmd"] = text if keep or text.startswith("/") else f"{c.place.directory}/{text}"
        size = 0
        if "$$" not in text:
            if os.path.exists(path):
                size = c.size(str(c.place.directory), text)
            elif not (keep and containers) and not keep:
                raise config_error(f"Executable file {text} does not exist", c.source("executable"), "correct the path")
        if keep:
            out["TransferExecutable"] = False
    if "ExecutableSize" not in out:  # the first job's: a cluster has one executable
        if text and out.get("TransferExecutable") is not False:
            _check_first_line(c, c.place.directory / text)
        c.image_kib = size if c.image_kib is None else c.image_kib
        out["ExecutableSize"] = size
        out["ImageSize"] = c.image_kib


def _check_first_line(c: Commands, path: Path) -> None:
    """A script whose first line ends as on DOS names an interpreter that is not there. Raises ConfigError."""
    if not path.is_file():  # of a pipe nothing may ever come
        return
    try:
        with path.open("rb") as file:
            line = file.readline(_FIRST_LINE)
    except OSError:
        return
    if not (line.startswith(b"#!") and line.endswith(b"\r\n")):
        return
    told = f"{path} is a script whose first line ends as on DOS (CR LF), so that no Linux machine runs it"
    if not c.place.allow_crlf_script:
        mend = f"run: dos2unix {path}; or give -allow-crlf-script"
        raise config_error(told, c.source("executable"), mend)
    c.warn(told, "executable")


def stdin(c: Commands, out: Attributes) -> None:
    _standard_file(c, out, ("input", "stdin"), "In", "StreamIn", "transfer_input")


def stdout(c: Commands, out: Attributes) -> None:
    _standard_file(c, out, ("output", "stdout"), "Out", "StreamOut", "transfer_output")


def stderr(c: Commands, out: Attributes) -> None:
    _standard_file(c, out, ("error", "stderr"), "Err", "StreamErr", "transfer_error")


def _standard_file(
    c: Commands, out: Attributes, names: tuple[str, ...], attribute: str, stream: str, transfer: str
) -> None:
    name = c.text(*names)
    streamed = bool(c.boolean(f"stream_{names[0]}"))
    out[attribute] = name or NULL_FILE
    wanted = c.boolean(transfer)
    if not name or name == NULL_FILE or wanted is False:
        out[f"Transfer{attribute}"] = False
    else:
        out[stream] = streamed


def logs(c: Commands, out: Attributes) -> None:
    log = c.text("log", "userlog")
    if log:
        out["UserLog"] = f"{iwd(c)}/{log}" if log[0] != "/" else log
    as_xml = c.boolean("log_xml")
    if as_xml is not None:
        out["UserLogUseXML"] = as_xml
    nodes = c.text("dagman_log")
    if nodes:
        out["DAGManNodesLog"] = f"{iwd(c)}/{nodes}" if nodes[0] != "/" else nodes


def _list(text: str) -> str:
    return ",".join(part.strip() for part in text.split(",") if part.strip())


def transfer(c: Commands, out: Attributes) -> None:
    should, when = vm.when(out) if vm.is_vm(out) else _when(c, out)
    out["ShouldTransferFiles"] = should
    if should != "NO":
        out["WhenToTransferOutput"] = when
    if should != "YES":
        out["FileSystemDomain"] = c.place.filesystem_domain
    inputs = _list(c.text("transfer_input_files", "TransferInputFiles") or "")
    if out.get("ContainerImageSource", "local") not in ("local", "docker", "oras"):
        if should == "NO":
            raise config_error(
                "the container image must be transferred, but should_transfer_files = NO",
                c.source("should_transfer_files"),
                "write transfer_container = false",
            )
        inputs = _list(f"{inputs},{c.text('container_image')}")
    if java.is_java(out) and should != "NO":
        inputs = _list(java.travelling(c, out, inputs))
    if inputs:
        out["TransferInput"] = inputs
    outputs = c.text("transfer_output_files", "TransferOutputFiles")
    public = _list(c.text("public_input_files") or "")
    if public:
        out["PublicInputFiles"] = public
        public_files.check(c, public)
    if outputs is not None and (listed := "" if outputs == '""' else _list(outputs)) + outputs.strip(" ,\t"):
        out["TransferOutput"] = listed
    remaps = c.text("transfer_output_remaps")
    if remaps is not None and not (len(remaps) > 1 and remaps[0] == remaps[-1] == '"'):
        raise config_error(
            f"transfer_output_remaps must be a quoted string, not: {remaps}",
            c.source("transfer_output_remaps"),
            'write "name = newname ; ..."',
        )
    if remaps and remaps != '""':
        out["TransferOutputRemaps"] = remaps[1:-1]
    extra = sum(c.size(iwd(c), name) for name in inputs.split(",") if name and "://" not in name and "$$" not in name)
    stdin = out.get("In", NULL_FILE)
    if stdin != NULL_FILE and "TransferIn" not in out:
        extra += c.size(iwd(c), stdin)
    image = usage(c, "image_size")
    if image is not None:
        out["ImageSize"] = image
    given = usage(c, "disk_usage")
    if given is None:
        out["DiskUsage"] = out["ExecutableSize"] + extra
        out["TransferInputSizeMB"] = (out["ExecutableSize"] + extra) // 1024
    else:
        out["DiskUsage"] = given
    for command, attribute in (
        ("transfer_checkpoint_files", "TransferCheckpoint"),
        ("checkpoint_destination", "CheckpointDestination"),
        ("encrypt_input_files", "EncryptInputFiles"),
        ("encrypt_output_files", "EncryptOutputFiles"),
        ("dont_encrypt_input_files", "DontEncryptInputFiles"),
        ("dont_encrypt_output_files", "DontEncryptOutputFiles"),
        ("output_destination", "OutputDestination"),
        ("transfer_plugins", "TransferPlugins"),
    ):
        text = c.text(command)
        if text:
            out[attribute] = text
    for command, attribute in (
        ("preserve_relative_paths", "PreserveRelativePaths"),
        ("skip_if_dataflow", "SkipIfDataflow"),
        ("transfer_container", "TransferContainer"),
    ):
        answer = c.boolean(command)
        if answer is not None:
            out[attribute] = answer
    _keys(c, out)
    c.boolean("skip_filechecks")
    code = c.integer("checkpoint_exit_code")
    if destination := out.get("CheckpointDestination"):
        if "://" not in destination:
            c.warn(
                f"checkpoint_destination = {destination} is no URL: the job will be held at its first checkpoint",
                "checkpoint_destination",
            )
        elif code is None and not c.text("MY.WantFTOnCheckpoint"):
            c.warn("checkpoint_destination has no effect without checkpoint_exit_code", "checkpoint_destination")
    if code is not None:
        if should == "NO":
            c.warn(
                "checkpoint_exit_code has no effect with should_transfer_files = NO: the first checkpoint is the end",
                "checkpoint_exit_code",
            )
        out["SuccessCheckpointExitCode"] = code
        out["WantFTOnCheckpoint"] = True
    schemes = {
        match[1].lower().rpartition("+")[2]
        for name in (
            *inputs.split(","),
            c.text("output_destination") or "",
            *(remap.partition("=")[2].strip() for remap in (remaps or "").strip('"').split(";")),
        )
        if (match := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", name))
    }
    plugins = [plugin.partition("=")[0] for plugin in (c.text("transfer_plugins") or "").split(";")]
    schemes -= {tag.strip().lower() for tags in plugins for tag in tags.split(",")}
    if schemes & {"s3", "gs"} and not {"EC2AccessKeyId", "EC2SecretAccessKey"} <= out.keys():
        raise config_error(
            "s3:// and gs:// URLs require aws_access_key_id_file and aws_secret_access_key_file",
            c.source("transfer_input_files"),
            "set both",
        )
    if schemes and out["JobUniverse"] not in (7, 12):  # beside the schedd: nothing travels
        out["WantTransferPluginMethods"] = ",".join(sorted(schemes))


#: Attributes of the files that hold the keys of a store of objects: HTCondor names them after EC2.
_KEYS = {
    "EC2AccessKeyId": ("aws_access_key_id_file", "s3_access_key_id_file", "gs_access_key_id_file"),
    "EC2SecretAccessKey": ("aws_secret_access_key_file", "s3_secret_access_key_file", "gs_secret_access_key_file"),
}


def _keys(c: Commands, out: Attributes) -> None:
    """The files themselves stay where they are: the access point reads them."""
    for attribute, names in _KEYS.items():
        name = c.text(*names)
        if name:
            path = name if name.startswith("/") else f"{iwd(c)}/{name}"
            if "$$" not in path and not os.path.isfile(path):
                raise config_error(
                    f"{path}, which is to hold a key, is no file", c.source(names[0]), "correct the path"
                )
            out[attribute] = path
    if region := c.text("aws_region"):
        out["AWSRegion"] = region


def _when(c: Commands, out: Attributes) -> tuple[str, str]:
    """should_transfer_files and when_to_transfer_output, which must not contradict each other or the other commands."""
    given, when = c.text("should_transfer_files"), c.text("when_to_transfer_output")
    by_default = c.place.knobs.submit_default_should_transfer_files or "IF_NEEDED"
    should = _SHOULD.get((given or by_default).upper(), "")
    if not should:
        raise config_error(
            f"invalid value ({given}) for should_transfer_files",
            c.source("should_transfer_files"),
            "specify YES, NO, or IF_NEEDED",
        )
    if when is not None and when.upper() not in _WHEN:
        raise config_error(
            f"invalid value ({when}) for when_to_transfer_output",
            c.source("when_to_transfer_output"),
            "specify ON_EXIT, ON_EXIT_OR_EVICT, or ON_SUCCESS",
        )
    if should == "NO":
        contradiction = next(
            (
                name
                for name in ("when_to_transfer_output", "transfer_input_files", "transfer_output_files")
                if c.text(name) is not None
            ),
            "transfer_executable" if c.boolean("transfer_executable") else "",
        )
        if not contradiction and "WhenToTransferOutput" in out:
            contradiction = "when_to_transfer_output"  # of an earlier job of the cluster
        if contradiction:
            raise config_error(
                f"{contradiction} contradicts should_transfer_files = {given}",
                c.source(contradiction),
                f"remove {contradiction}, or write should_transfer_files = YES",
            )
    wanted = _WHEN[(when or "ON_EXIT").upper()]
    if wanted == "ON_EXIT_OR_EVICT" and should == "IF_NEEDED":
        if given is not None or "ShouldTransferFiles" in out:
            raise config_error(
                "when_to_transfer_output = ON_EXIT_OR_EVICT contradicts should_transfer_files = IF_NEEDED",
                c.source("when_to_transfer_output"),
                "write should_transfer_files = YES",
            )
        should = "YES"
    return should, wanted
