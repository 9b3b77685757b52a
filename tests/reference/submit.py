"""Submit files: commands of every kind, macros, functions, conditions, queue statements, lines that are wrong, and what
an administrator's configuration adds. A side's answers are the job ads, attribute by attribute."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from roost.submit import Description, SubmitContext
from roost.submit.description import site_attributes
from shared.classad import unparse
from shared.config import ConfigError, load_config
from shared.config.knobs import SubmitSettings
from tests.reference.family import REFUSED, Case, Facts, Family
from tests.reference.submit_facts import ENVIRONMENT, FILES, facts

#: With 23.9's rule for programs of containers, which the library has left since.
DOMAINS: Final = (
    "UID_DOMAIN = pool.example\nFILESYSTEM_DOMAIN = pool.example\nARCH = X86_64\nOPSYS = LINUX\n"
    "SUBMIT_CONTAINER_NEVER_XFER_ABSOLUTE_CMD = true\n"
)
EXPRESSIONS = (
    *(
        "true",
        "false",
        "TRUE",
        "1",
        "0",
        "3",
        "-1",
        "2.5",
        "1+2",
        "undefined",
        "MY.X",
        "ImageSize > 10",
        '"text"',
        "a b",
    ),
    *("NumJobStarts >= 3", "time() - QDate > 3600", "(JobStatus == 2) && (x =?= undefined)", "ifThenElse(A, 1, 2)"),
    *("JobStatus == 5 && HoldReasonCode != 1", "$(NUM)", "$(NUM) * 2", "3 +", "(1", "{1,2}", "[a=1]", "0x10", "1e3"),
)
BOOLEANS = ("true", "false", "True", "yes", "no", "1", "0", "t", "2", "1 > 2", "maybe", "", "$(NOPE)", "undefined")
INTEGERS = ("0", "1", "2", "3", "7", "20", "100", "-1", "2.5", "3+4", "$(NUM)", "ten", "1k", "", "0x10", "08", " 5 ")
AMOUNTS = (
    *("1", "10", "100", "1K", "2048K", "1 M", "1.5G", "2GB", "1T", "100MiB", "1k", "512mb", "3 GB", "0", "-1", "0.5G"),
    *("$(NUM)*1024", "ImageSize * 2", "undefined", "ifThenElse(A, 1, 2)", "10X", "1e3", "1024 + 5", "max({1, 2})", ""),
)
TEXTS = (
    *("word", "two words", '"quoted"', '"two words"', "it's", "$(NUM)", "a,b, c", "a,b", "x=1;y=2", "$(LIST)", "", "é"),
    *('un"even', "back\\slash", "  blanks  ", "a\tb", "#no comment", "$(Process)", "x.$(Cluster).$(Process)", "100%"),
)
FILE_LISTS = (
    *(
        "in.txt",
        "in.txt, a.txt",
        "a.txt,b.txt",
        "nosuch.txt",
        "adir",
        "adir/",
        "sub/prog",
        "in.$(Process).txt",
        "/etc/hosts",
    ),
    *(
        "http://x.example/f",
        "in.txt http://x.example/f",
        "c d.txt",
        '"a.txt, b.txt"',
        "s3://b/k",
        "$(LIST)",
        "",
        "osdf:///x/y",
    ),
)
NAMES_OF_FILES = (
    "o",
    "out.txt",
    "out/o",
    "o.$(Process)",
    "/dev/null",
    "/tmp/o",
    "nodir/o",
    "a b",
    "",
    '"o"',
    "$(NOPE)o",
)
ARGUMENTS = (
    *(
        "a",
        "a b",
        "a  b",
        "a 'b c'",
        '"a b"',
        "\"a 'b c' d\"",
        '"a ""b"" c"',
        "\"it''s\"",
        "\"'it''s'\"",
        'a \\"b\\"',
        'a "b',
    ),
    *(
        "-n $(Process)",
        "$(NUM) $(LIST)",
        '"$(LIST)"',
        "\"'$(LIST)'\"",
        "$$(Memory)",
        "$$([1+2])",
        "a\tb",
        '"a\tb"',
        "''",
    ),
    *(
        "\"''\"",
        "\"'a'b'c'\"",
        '"\'a"',
        '"a" b',
        "a\\b",
        "$(Item)",
        "é",
        "*",
        "$(DOLLAR)x",
        "a;b",
        "a=b",
        '""',
        '"',
        "a''b",
    ),
)
ENVIRONMENTS = (
    *(
        "A=1",
        "A=1;B=2",
        "B=2;A=1",
        '"A=1 B=2"',
        "\"A='x y' B=2\"",
        '"A=""q"""',
        "\"A='it''s'\"",
        "A=1;;B=2",
        "A = 1",
        "A",
    ),
    *(
        "A=$(NUM)",
        '"A=$(LIST)"',
        "A=1;A=2",
        '"A=1 A=2"',
        "A=b c;D=e",
        '"A=1',
        "A=1|B=2",
        "=1",
        '"=1"',
        "A=",
        '"A= B=2"',
        "",
    ),
    *("A=1;", "A='x'", '"A=x;y"', "$(NOPE)", '""', "A=$$(Memory)", '"A=$(Item)"', "A=a=b"),
)
LIMITS = ("A", "a,b", "A:2", "b:1.5, a", "a a", "a:0", "a:-1", "a b:3", "a.b", "1a", "a:x", "a,,b", "$(LIST)", "")
SIGNALS = ("SIGTERM", "sigkill", "TERM", "9", "3", "SIGUSR1", "SIGNOSUCH", "0", "999", "-1", "SIGTERM ", "")
REQUIREMENTS = (
    *(
        "Memory > 3",
        'Arch == "X86_64"',
        'OpSys == "LINUX"',
        "TARGET.Disk > 5",
        "Cpus > 1",
        "HasFileTransfer",
        "true",
        "1",
    ),
    *(
        'FileSystemDomain == "x"',
        "RequestMemory > 5",
        "MY.x",
        "a && (b || c)",
        'OpSysAndVer =?= "X"',
        'regexp("a", Name)',
    ),
    *(
        "OpSysMajorVer == 9",
        "TARGET.GPUs > 0",
        "(Memory > $(NUM))",
        "Memory >",
        "x = 3",
        "TARGET.Foo >= 1",
        "Machine != LastRemoteHost",
    ),
    *("TARGET.HasDocker", 'TARGET.UidDomain == "x"', 'stringListMember("a", l)', "{1}", '"true"', "$(NOPE)"),
)
GPUS = ("Capability > 5", "true", "x >", "GlobalMemoryMb > 100", "1", "")
IMAGES = (
    "debian",
    "docker://debian",
    "img.sif",
    "imgdir",
    "/cvmfs/x/y",
    '"debian"',
    "oras://x/y",
    "http://x.example/i.sif",
    "a b",
    "",
)
GETENVS = (
    "true",
    "false",
    "PATH",
    "PATH, HOME",
    "WORD",
    "N_*",
    "!WORD, *",
    "NOPE",
    "P*,!PATH",
    "1",
    "yes",
    "",
    '"WORD"',
)
UNIVERSES = (
    "vanilla",
    "vanilla",
    "vanilla",
    "5",
    "Vanilla",
    "docker",
    "container",
    "scheduler",
    "local",
    "parallel",
    "vm",
    "nosuch",
    "9",
)
NOTIFICATIONS = ("never", "always", "Complete", "ERROR", "sometimes", "0", "")
TRANSFERS = ("YES", "no", "IF_NEEDED", "if_needed", "true", "false", "always", "never", "maybe", "auto", "")
WHENS = ("ON_EXIT", "on_exit_or_evict", "ON_SUCCESS", "never", "")
REMAPS = ('"a=b"', '"a=b;c=d/e"', '"a = b ; c=/d"', "a=b", '"a"', '"a=http://x.example/y"', "")
GROUPS = ("g", "g.h", "g.h.i", "a b", "g.", ".g", "$(NUM)", "g@h", "", '"g"')
WINDOWS = ("60", "0", "-1", "3.5", "x", "MY.y", "")
CRONS = ("*", "0", "*/10", "1-5", "1,2", "99", "x", "")
OAUTHS = ("$(NOPE)", "")
#: Commands, with their weight and the values they are drawn with. A kind of value may be used by many.
_ROWS: Final = (
    (5, ARGUMENTS, "arguments args"),
    (2, ARGUMENTS, "arguments2"),
    (5, ENVIRONMENTS, "environment env"),
    (1, ENVIRONMENTS, "environment2"),
    (3, GETENVS, "getenv get_env"),
    (6, AMOUNTS, "request_memory request_disk"),
    (3, AMOUNTS, "request_cpus request_gpus request_widgets request_Lic RequestMemory"),
    (1, AMOUNTS, "request_cpu image_size disk_usage gpus_minimum_memory stack_size max_transfer_input_mb"),
    (1, AMOUNTS, "max_transfer_output_mb gpus_minimum_capability gpus_maximum_capability gpus_minimum_runtime"),
    (2, GPUS, "require_gpus"),
    (5, REQUIREMENTS, "requirements"),
    (3, EXPRESSIONS, "rank preferences periodic_hold periodic_release periodic_remove on_exit_hold on_exit_remove"),
    (2, EXPRESSIONS, "leave_in_queue job_lease_duration max_job_retirement_time periodic_hold_subcode retry_until"),
    (1, EXPRESSIONS, "on_exit_hold_subcode periodic_vacate job_max_vacate_time allowed_job_duration noop_job"),
    (1, EXPRESSIONS, "allowed_execute_duration keep_claim_idle next_job_start_delay noop_job_exit_code buffer_files"),
    (1, EXPRESSIONS, "periodic_hold_reason on_exit_hold_reason concurrency_limits_expr want_graceful_removal"),
    (3, INTEGERS, "priority prio max_retries success_exit_code"),
    (1, INTEGERS, "coresize core_size match_list_length job_machine_attrs_history_length kill_sig_timeout"),
    (1, INTEGERS, "dagman_job_id deferral_time machine_count cuda_version delegate_job_GSI_credentials_lifetime"),
    (2, BOOLEANS, "transfer_executable stream_output stream_error hold nice_user transfer_output transfer_error"),
    (1, BOOLEANS, "run_as_owner load_profile manifest want_io_proxy encrypt_execute_directory transfer_input"),
    (1, BOOLEANS, "erase_output_and_error_on_restart skip_if_dataflow preserve_relative_paths copy_to_spool log_xml"),
    (1, BOOLEANS, "allow_startup_script stream_input transfer_container docker_override_entrypoint use_x509userproxy"),
    (2, TEXTS, "batch_name description notify_user log"),
    (1, TEXTS, "batch_id submit_event_notes submit_event_user_notes email_attributes remote_initialdir append_files"),
    (
        1,
        TEXTS,
        "job_machine_attrs ulog_execute_attrs job_ad_information_attrs manifest_dir dag_node_name starter_debug",
    ),
    (1, TEXTS, "compress_files fetch_files starter_log output_destination docker_network_type container_target_dir"),
    (1, TEXTS, "jar_files docker_pull_policy container_service_names transfer_plugins encrypt_input_files"),
    (
        1,
        TEXTS,
        "encrypt_output_files dont_encrypt_input_files dont_encrypt_output_files public_input_files file_remaps",
    ),
    (4, FILE_LISTS, "transfer_input_files"),
    (2, FILE_LISTS, "transfer_output_files transfer_checkpoint_files"),
    (3, NAMES_OF_FILES, "output error input"),
    (1, NAMES_OF_FILES, "stdout stderr stdin initialdir"),
    (2, REMAPS, "transfer_output_remaps"),
    (3, TRANSFERS, "should_transfer_files"),
    (2, WHENS, "when_to_transfer_output"),
    (2, SIGNALS, "kill_sig remove_kill_sig hold_kill_sig"),
    (2, LIMITS, "concurrency_limits"),
    (2, GROUPS, "accounting_group accounting_group_user"),
    (2, NOTIFICATIONS, "notification"),
    (2, UNIVERSES, "universe"),
    (1, IMAGES, "docker_image container_image"),
    (1, WINDOWS, "deferral_window deferral_prep_time cron_window cron_prep_time"),
    (1, CRONS, "cron_minute cron_hour cron_day_of_month cron_month cron_day_of_week"),
    (
        3,
        EXPRESSIONS + TEXTS,
        "+Own +Project MY.Own +x.y +RequestCpus +JobPrio +AccountingGroup +Requirements +Nice +WantX",
    ),
)
COMMANDS: Final = [(name, values) for weight, values, names in _ROWS for name in names.split() for _ in range(weight)]
MACROS = (
    *("1", "$(A)", "$(B)x", "$(NUM)", "$(Item)", "$(Process)", "$INT(NUM)", "$INT(NUM,%04d)", "$REAL(NUM,%.2f)", "x y"),
    *("$CHOICE(1,LIST)", "$CHOICE(Process,LIST)", "$CHOICE(0,p,q)", "$SUBSTR(WORD,1,2)", "$SUBSTR(WORD,-2)", "$Fn(P)"),
    *("$Fnx(P)", "$Fpq(P)", "$Fd(P)", "$Fa(P)", "$Fp(P)", "$Fqa(P)", "$BASENAME(P)", "$DIRNAME(P)", "$ENV(WORD)"),
    *("$ENV(NOPE)", "$ENV(NOPE:d)", "$STRING(TXT)", "$EVAL(NUM)", "$(NOPE:d)", "$(NUM:d)", "$(A:$(B))", "$$(Cpus)"),
    *(
        "$(DOLLAR)(A)",
        "$(Step)",
        "$(Row)",
        "$(ItemIndex)",
        "$(Cluster)",
        "$(JobId)",
        "$(ProcId)",
        "$(OPSYS)",
        "$(ARCH)",
    ),
    *(
        "$(SUBMIT_FILE)",
        "$(IsLinux)",
        "$(UID_DOMAIN)",
        "$(x)",
        "$(y)",
        "$RANDOM_CHOICE(z)",
        "$RANDOM_INTEGER(4,4)",
        "$(My.Own)",
    ),
)
CONDITIONS = (
    *("true", "false", "!true", "0", "1", "yes", "no", "defined A", "defined NOPE", "!defined NUM", "version >= 8.1"),
    *("version < 8.0", "$(NUM) > 2", "defined Process", "$(IsLinux)", "$(NOPE)", "A", '"x" == "x"', "", "defined"),
)
#: Queue statements that give no job.
EMPTY = ("queue 0", "queue in ()", "queue x matching nosuch*")
QUEUES = (
    *(
        "queue",
        "queue",
        "queue",
        "queue 1",
        "queue 2",
        "queue 3",
        "Queue",
        "queue $(COUNT)",
        EMPTY[0],
        "queue x",
        "queue -1",
    ),
    *(
        "queue Item in (a, b)",
        "queue in (a b)",
        "queue x in (p, q)",
        "queue 2 x in (p, q)",
        "queue x,y from (\np, 1\nq 2\n)",
    ),
    *("queue x,y from (\np\nq, 2, 3\n)", "queue from items.txt", "queue x from items.txt", "queue x,y from table.csv"),
    *(
        "queue x matching *.dat",
        "queue x matching files *.txt",
        "queue matching dirs *",
        "queue x in [1:] (a b c)",
        EMPTY[1],
    ),
    *(
        "queue x in [::2] (a b c d)",
        "queue x in [:1] (a b c)",
        "queue x,y in (a b)",
        "queue x from nosuch.txt",
        "queue 2 # two",
    ),
    *(
        "queue x from (\n# c\na\n\nb c\n)",
        "queue x in (\na,\nb\n)",
        "queue x,y,z from (\n1,2,3\n4 5 6\n7,,9\n)",
        "queue 1+1",
    ),
    *(EMPTY[2], "queue x from [1:2] items.txt", "queue $(NUM) x in a b", "queue executable in (x.sh)"),
)
NO_BOOLEAN = (
    "transfer_executable is a condition, and refused where it is none; the reference takes all but F... for true"
)
WRONG_LINES = (
    *("nonsense", "= 3", "two words = 3", "arguments", "my-name = 3", "if", "endif", "else", "+ = 3", "+Own =", "+Own"),
    *("executable", "include : nosuch.inc", "include : inc.txt", "use FEATURE : GPUs", "error : no", "warning : yes"),
    *(
        "+Own = 3 +",
        "+9x = 1",
        "MY. = 2",
        "request_ = 3",
        "a @=end\nx",
        "+Own = a b",
        "elif true",
        "x @=end\n one\n two\n@end",
    ),
)
SETTINGS = (
    *('SUBMIT_ATTRS = Site\nSite = "here"', "APPEND_REQUIREMENTS = (Site == 1)", "APPEND_REQ_VANILLA = TARGET.Ok"),
    *(
        "APPEND_RANK = Memory",
        "DEFAULT_RANK = KFlops",
        "JOB_DEFAULT_NOTIFICATION = error",
        "JOB_DEFAULT_REQUESTGPUS = 1",
    ),
    *(
        "JOB_DEFAULT_REQUESTMEMORY = 512",
        "JOB_DEFAULT_REQUESTDISK = 1024",
        "JOB_DEFAULT_REQUESTCPUS = 2",
        "SUBMIT_ALLOW_GETENV = false",
    ),
    *("DEFAULT_JOB_MAX_RETRIES = 5", "SUBMIT_DEFAULT_SHOULD_TRANSFER_FILES = YES", "JOB_DEFAULT_LEASE_DURATION = 100"),
    *("SUBMIT_REQUEST_MISSING_UNITS = error", "DEFAULT_UNIVERSE = scheduler", "NICE_USER_ACCOUNTING_GROUP_NAME = nice"),
    *("SUBMIT_CONTAINER_NEVER_XFER_ABSOLUTE_CMD = false", "SUBMIT_CONTAINER_NEVER_XFER_ABSOLUTE_CMD = 1"),
    *("SUBMIT_EXPRS = Two\nTwo = 1 + 1", "APPEND_RANK_VANILLA = Disk", "DEFAULT_RANK_VANILLA = Mips"),
)


def _command(rng: random.Random) -> str:
    name, values = rng.choice(COMMANDS)
    if rng.random() < 0.1:
        name = rng.choice((name.upper(), name.capitalize()))
    value = rng.choice(values if rng.random() < 0.93 else MACROS)
    return f"{name}{rng.choice((' = ', ' = ', '=', ' =', '  =  '))}{value}"


def _lines(rng: random.Random) -> Iterator[str]:
    for name in (
        "NUM = 7/2",
        "LIST = p, q, r",
        "P = /a/b.d/c.tar.gz",
        'TXT = "some text"',
        "WORD = abcdef",
        "COUNT = 2",
    ):
        if rng.random() < 0.9:
            yield name
    depth = 0
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 6, 9))):
        kind = rng.random()
        if kind < 0.1:
            yield f"{rng.choice(('A', 'B', 'x', 'Own'))} = {rng.choice(MACROS)}"
        elif kind < 0.14:
            depth += 1
            yield f"if {rng.choice(CONDITIONS)}"
        elif kind < 0.17 and depth:
            yield rng.choice(("else", "elif true", "elif defined A"))
        elif kind < 0.2 and depth:
            depth -= 1
            yield "endif"
        elif kind < 0.205:
            yield rng.choice(WRONG_LINES)
        else:
            yield _command(rng)
    yield from ["endif"] * depth


def make(rng: random.Random) -> Case:
    """A submit file and its configuration. Eight of nine have an executable that is there."""
    lines = list(_lines(rng))
    executable = rng.choice(
        (*("x.sh",) * 16, "sub/prog", "nosuch", "/bin/sleep", "x.$(ARCH).sh", "adir", "", "crlf.txt")
    )
    lines.insert(rng.randrange(len(lines) + 1) if rng.random() < 0.1 else 0, f"executable = {executable}")
    config = rng.sample(SETTINGS, rng.randint(1, 2)) if rng.random() < 0.1 else []
    text = "\n".join([*lines, rng.choice(QUEUES)]) + "\n"
    return {"text": text, "config": DOMAINS + "".join(line + "\n" for line in config)}


def place_files(place: Path) -> Path:
    """The folder that the files of a case are in."""
    folder = place / "files"
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    return folder


@cache
def _folder() -> Path:
    """One for all cases of this process."""
    return place_files(Path(_PLACE.name))


_PLACE = tempfile.TemporaryDirectory(prefix="roost-submit-files-")


def _context(text: str) -> SubmitContext:
    """The place of a submit, where the configuration says so much."""
    path = _folder().parent / "pool.conf"
    path.write_text(text)
    config = load_config([path], subsystem="SUBMIT", env={})
    knobs = SubmitSettings.from_config(config)
    return SubmitContext(
        directory=_folder(),
        file="",
        user="root",
        environment=ENVIRONMENT,
        filesystem_domain="pool.example",
        nice_group=config.get("NICE_USER_ACCOUNTING_GROUP_NAME") or "nice-user",
        knobs=knobs,
        site_attributes=site_attributes(config, knobs),
    )


def _ours(case: Case) -> Facts:
    before = Path.cwd()
    os.chdir(_folder())
    try:
        description = Description(case["text"], _context(case["config"]), now=1.0)
        clusters = list(description.clusters())
    except ConfigError as error:
        return {REFUSED: str(error)}
    finally:
        os.chdir(before)
    ads = [{**cluster.attributes, **proc} for cluster in clusters for proc in cluster.procs]
    texts = [{name: unparse(value, syntax="old") for name, value in ad.items()} for ad in ads]
    return facts(texts, str(_folder()))


def _paired(mine: Facts, theirs: Facts) -> tuple[Facts, Facts]:
    """Of jobs that one side alone has, their number is enough."""
    both = min(mine["jobs"], theirs["jobs"])
    sides = (
        {name: value for name, value in side.items() if name == "jobs" or int(name.split()[0]) < both}
        for side in (mine, theirs)
    )
    return next(sides), next(sides)


def _known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    """What condor_submit does otherwise than the library under it (recorded in tests/unit/submit/reference), and what
    Roost does on purpose (docs/submit.md)."""
    text, said = case["text"], str(mine if theirs is None else theirs)
    if text.rstrip().endswith(EMPTY):
        return "library: a queue statement without items gives a job; condor_submit gives none"
    if question == REFUSED and theirs is None:
        if "Executable file" in said:
            return "library: an executable that is not there passes; condor_submit refuses it"
        if "copy_to_spool" in said:
            return "library: copy_to_spool is not looked at; condor_submit refuses what is neither true nor false"
        if "transfer_executable" in said:
            return NO_BOOLEAN
        if "I don't know about the" in said:
            return "a universe is a name or a number; the reference takes the number that a text begins with"
        if "cuda_version = -" in said:
            return "cuda_version is refused below 0; the reference takes -1 for 4294967295"
    if question == REFUSED and mine is None:
        if re.search(r"^two words =", text, re.MULTILINE) and said == "":
            return "library: a name of two words is refused; condor_submit takes it"
        if "units suffix" in said and "request_" not in text.lower():
            return "SUBMIT_REQUEST_MISSING_UNITS is not held against the administrator's own default"
    if question.endswith((" transferexecutable", " cmd")) and "transfer_executable" in text.lower():
        return NO_BOOLEAN
    if "defined process" in text.lower():
        return "library: `if defined Process` is true; condor_submit says no"
    if re.match(r"[1-9]\d* (stream|transfer)(in|out|err)$", question):
        return "library: what a further job says of its streams is written again without a change"
    if re.match(r"[1-9]\d* environment$", question) and theirs == '""' and re.search("get_?env", text, re.I):
        return "library: getenv of the first job says whether any has the environment"
    if re.match(r"[1-9]\d* jobleaseduration$", question) and mine == "20":
        return "library: a job_lease_duration below 20 becomes 20 in the first job only"
    return ""


def _cause(question: str, mine: Any, theirs: Any) -> str:
    return re.sub(r"^\d+ ", "", question)


SUBMIT = Family("submit", make, _ours, _known, _cause, _paired)
