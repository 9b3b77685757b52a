"""Knobs of an execution point: the startd and its starters. One line adds another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, family, knob
from shared.config.knobs.common import CommonSettings


@declared
class StartdSettings(CommonSettings):
    """What an execution point: the startd and its starters reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "STARTD"

    update_interval: int = knob(
        "UPDATE_INTERVAL",
        "300",
        unit="s",
        least=0,
        meaning="between slot ad updates; also polling period in Owner state",
    )
    default_draining_start_expr: Expr | None = knob(
        "DEFAULT_DRAINING_START_EXPR",
        meaning="START of a machine that drains gracefully, where the drain names none; empty: no job starts",
    )
    start: Expr = knob("START", "True", meaning="willingness to run a job; also shapes Owner/Unclaimed under Desktop")
    rank: Expr = knob("RANK", "0", meaning="preference of the slot for jobs; booleans count 1/0")
    is_owner: Expr = knob(
        "IS_OWNER", "False", meaning="true keeps/moves an idle slot into Owner; local evaluation only"
    )
    want_suspend: Expr = knob("WANT_SUSPEND", "False", meaning="consider SUSPEND (must be exactly True)")
    want_vacate: Expr = knob("WANT_VACATE", "True", meaning="on entry to Preempting: true = Vacating, false = Killing")
    suspend: Expr = knob("SUSPEND", "False", meaning="suspend the job")
    continue_: Expr = knob("CONTINUE", "True", meaning="resume the suspended job")
    preempt: Expr = knob("PREEMPT", "False", meaning="stop the job (via Retiring)")
    kill: Expr = knob("KILL", "False", meaning="abort a graceful vacate at once")
    match_timeout: int = knob("MATCH_TIMEOUT", "120", unit="s", least=0, meaning="a slot may stay Matched")
    polling_interval: int = knob(
        "POLLING_INTERVAL", "5", unit="s", least=0, meaning="between policy evaluations while any slot is claimed"
    )
    killing_timeout: int = knob(
        "KILLING_TIMEOUT", "30", unit="s", least=0, meaning="in Killing before SIGKILL of children then starter"
    )
    machinemaxvacatetime: Expr = knob(
        "MachineMaxVacateTime", "$(MaxVacateTime)", unit="s", meaning="allowed for Vacating"
    )
    maxjobretirementtime: Expr = knob(
        "MAXJOBRETIREMENTTIME",
        "0",
        unit="s",
        meaning="of run time promised to a job before hard kill; -1 = at once even when peaceful",
    )
    roost_drain_aligned: bool = knob(
        "ROOST_DRAIN_ALIGNED",
        "false",
        meaning="jobs of a graceful drain stay until the one whose retirement is longest must leave, as HTCondor's "
        "manual has it; otherwise each leaves when its own is over, as HTCondor does",
    )
    claim_worklife: Expr = knob("CLAIM_WORKLIFE", "1200", unit="s", meaning="after which a claim takes no further job")
    runbenchmarks: Expr = knob(
        "RUNBENCHMARKS",
        "LastBenchmark == 0",
        meaning="run benchmarks while Unclaimed; FALSE or unset disables also at start-up",
    )
    max_claim_alives_missed: int = knob(
        "MAX_CLAIM_ALIVES_MISSED",
        "6",
        meaning="missed keep-alives before the lease ends when JobLeaseDuration is undefined",
    )
    job_renice_increment: Expr = knob("JOB_RENICE_INCREMENT", "0", meaning="nice value added to jobs")
    start_backfill: Expr = knob("START_BACKFILL", "false", meaning="enter Backfill from Unclaimed/Idle")
    evict_backfill: Expr = knob("EVICT_BACKFILL", "false", meaning="leave Backfill for Owner")
    enable_backfill: bool = knob("ENABLE_BACKFILL", "false", meaning="master switch of backfill")
    backfill_system: str | None = knob("BACKFILL_SYSTEM", meaning="only BOINC is defined")
    boinc_executable: str | None = knob("BOINC_Executable", meaning="backfill client program")
    boinc_initialdir: str | None = knob("BOINC_InitialDir", meaning="its working directory")
    boinc_universe: str | None = knob("BOINC_Universe", meaning="its universe")
    boinc_owner: str | None = knob("BOINC_Owner", meaning="user it runs as; on Windows domain\\user or user")
    boinc_arguments: str | None = knob(
        "BOINC_Arguments", meaning="its arguments (--attach_project URL KEY, --dir on Windows)"
    )
    boinc_environment: str | None = knob("BOINC_Environment", meaning="its environment")
    boinc_output: str | None = knob("BOINC_Output", meaning="its stdout file")
    boinc_error: str | None = knob("BOINC_Error", meaning="its stderr file")
    starter_allow_runas_owner: bool | None = knob("STARTER_ALLOW_RUNAS_OWNER", meaning="let jobs run as their owner")
    startd_attrs: tuple[str, ...] = knob("STARTD_ATTRS", meaning="custom attribute names put in every slot ad")
    slot_startd_attrs_by_n: Mapping[str, tuple[str, ...]] = family(
        "SLOT<N>_STARTD_ATTRS", meaning="extra names for slot N, appended after STARTD_ATTRS"
    )
    startd_slot_attrs: tuple[str, ...] = knob(
        "STARTD_SLOT_ATTRS", meaning="attributes of each slot copied to its sibling ads as slotN_<attr>"
    )
    startd_job_attrs: tuple[str, ...] = knob(
        "STARTD_JOB_ATTRS", meaning="job attributes copied into the claimed slot's ad; never its environment"
    )
    roost_credentials_on_disk: bool = knob(
        "ROOST_CREDENTIALS_ON_DISK",
        "false",
        meaning="credentials of jobs may lie in a plain directory, where none in memory can be had",
    )
    roost_credentials_dir: str = knob(
        "ROOST_CREDENTIALS_DIR",
        "",
        meaning="directory in a file system in memory (tmpfs) that the container engine finds at the same path: "
        "credentials of container jobs lie there, where the startd can mount nothing that the engine sees",
    )
    cred_check_interval: int = knob(
        "CRED_CHECK_INTERVAL", "60", unit="s", least=1, meaning="between two refreshes of a running job's credentials"
    )
    enable_url_transfers: bool = knob(
        "ENABLE_URL_TRANSFERS", "true", meaning="files of jobs may go by URL, by plug-ins that run as the jobs"
    )
    filetransfer_plugins: tuple[str, ...] = knob(
        "FILETRANSFER_PLUGINS", meaning="programs for more protocols than http, https, file and s3, or for these"
    )
    max_file_transfer_plugin_lifetime: int = knob(
        "MAX_FILE_TRANSFER_PLUGIN_LIFETIME", "72000", unit="s", least=1, meaning="a plug-in may take for its files"
    )
    data_reuse_directory: str = knob(
        "DATA_REUSE_DIRECTORY", meaning="where public input files are kept for other jobs; empty: in SPOOL"
    )
    data_reuse_bytes: int = knob(
        "DATA_REUSE_BYTES",
        "1073741824",
        unit="bytes",
        least=0,
        meaning="public input files that are kept for other jobs have at most; 0: none is kept",
    )
    enable_chirp_delayed: bool = knob(
        "ENABLE_CHIRP_DELAYED", "true", meaning="jobs may set attributes that go with the next report"
    )
    chirp_delayed_update_prefix: tuple[str, ...] = knob(
        "CHIRP_DELAYED_UPDATE_PREFIX", "Chirp*", meaning="names of such attributes, * for any letters"
    )
    chirp_delayed_update_max_attrs: int = knob(
        "CHIRP_DELAYED_UPDATE_MAX_ATTRS", "100", least=0, meaning="such attributes of one job"
    )
    num_slots: int | None = knob("NUM_SLOTS", meaning="number of static slots, not more than NUM_CPUS")
    num_cpus: int = knob("NUM_CPUS", "$(DETECTED_CPUS_LIMIT)", meaning="cores the machine is said to have")
    memory: int | None = knob("MEMORY", unit="MiB", meaning="the machine is said to have")
    reserved_memory: int = knob("RESERVED_MEMORY", "0", unit="MiB", meaning="kept back from jobs")
    slot_type_by_n: Mapping[str, str] = family(
        "SLOT_TYPE_<N>",
        meaning="shares of slot type N: fractions, percents, numbers, auto, or one for all; custom ones; :constraint",
    )
    slot_type_partitionable_by_n: Mapping[str, bool] = family(
        "SLOT_TYPE_<N>_PARTITIONABLE", meaning="slots of this type are partitionable"
    )
    slot_type_name_prefix_by_n: Mapping[str, str] = family(
        "SLOT_TYPE_<N>_NAME_PREFIX", meaning="names of these slots begin with it, in place of STARTD_RESOURCE_PREFIX"
    )
    startd_resource_prefix: str = knob(
        "STARTD_RESOURCE_PREFIX", "slot", meaning="names of slots begin with it, before their numbers"
    )
    num_slots_type_by_n: Mapping[str, int] = family(
        "NUM_SLOTS_TYPE_<N>", meaning="how many slots of type N; restart needed"
    )
    machine_resource_by_name: Mapping[str, str] = family(
        "MACHINE_RESOURCE_<name>", meaning="quantity of a custom resource"
    )
    machine_resource_names: tuple[str, ...] = knob(
        "MACHINE_RESOURCE_NAMES", meaning="enables the named custom resources"
    )
    machine_resource_inventory_by_name: Mapping[str, str] = family(
        "MACHINE_RESOURCE_INVENTORY_<name>", meaning="program that tells how much, or which devices, there are of it"
    )
    offline_machine_resource_by_name: Mapping[str, str] = family(
        "OFFLINE_MACHINE_RESOURCE_<name>", meaning="ids of its devices, or how many, that no slot gets"
    )
    roost_inventory_timeout: float = knob(
        "ROOST_INVENTORY_TIMEOUT", "60", unit="s", least=1, meaning="an inventory program may take"
    )
    max_slot_types: int = knob("MAX_SLOT_TYPES", "10", least=1, most=100, meaning="slot types are numbered from 1 to")
    execute: str = knob("EXECUTE", "$(LOCAL_DIR)/execute", meaning="directory of job sandboxes")
    slot_execute_by_n: Mapping[str, str] = family("SLOT<N>_EXECUTE", meaning="sandbox directory of slot N")
    consumption_policy: bool = knob("CONSUMPTION_POLICY", "false", meaning="negotiator carves the partitionable slot")
    slot_type_consumption_policy_by_n: Mapping[str, bool] = family(
        "SLOT_TYPE_<N>_CONSUMPTION_POLICY", meaning="per slot type"
    )
    consumption_by_resource: Mapping[str, Expr] = family("CONSUMPTION_<Resource>", meaning="amount a match consumes")
    consumption_cpus: Expr = knob(
        "CONSUMPTION_CPUS", "quantize(target.RequestCpus,{1})", meaning="cores consumed by a match"
    )
    consumption_memory: Expr = knob(
        "CONSUMPTION_MEMORY", "quantize(target.RequestMemory,{128})", unit="MiB", meaning="consumed by a match"
    )
    consumption_disk: Expr = knob(
        "CONSUMPTION_DISK", "quantize(target.RequestDisk,{1024})", unit="KiB", meaning="consumed by a match"
    )
    modify_request_expr_requestcpus: Expr = knob(
        "MODIFY_REQUEST_EXPR_REQUESTCPUS",
        "quantize(RequestCpus,{1})",
        meaning="EP-side rounding of cores before carving",
    )
    modify_request_expr_requestmemory: Expr = knob(
        "MODIFY_REQUEST_EXPR_REQUESTMEMORY",
        "quantize(RequestMemory,{128})",
        meaning="EP-side rounding of MiB before carving",
    )
    modify_request_expr_requestdisk: Expr = knob(
        "MODIFY_REQUEST_EXPR_REQUESTDISK",
        "quantize(RequestDisk,{1024})",
        meaning="EP-side rounding of KiB before carving",
    )
    use_pid_namespaces: bool = knob("USE_PID_NAMESPACES", "false", meaning="run each job in its own PID namespace")
    use_gid_process_tracking: bool = knob(
        "USE_GID_PROCESS_TRACKING", "false", meaning="track by supplementary GID (root, Linux); implies the procd"
    )
    min_tracking_gid: int = knob("MIN_TRACKING_GID", "0", meaning="first tracking GID; restart to change")
    max_tracking_gid: int = knob("MAX_TRACKING_GID", "0", meaning="last tracking GID; restart to change")
    use_procd: bool = knob("USE_PROCD", "true", meaning="use the process tracking daemon")
    procd_log: str = knob("PROCD_LOG", "$(LOG)/ProcLog", meaning="its log")
    dedicated_execute_account_regexp: str | None = knob(
        "DEDICATED_EXECUTE_ACCOUNT_REGEXP", meaning="accounts used only for jobs, tracked by uid"
    )
    base_cgroup: str | None = knob(
        "BASE_CGROUP", "htcondor", meaning="cgroup under which jobs get theirs; empty: they get none"
    )
    cgroup_memory_limit_policy: str = knob(
        "CGROUP_MEMORY_LIMIT_POLICY",
        "hard",
        choices=("hard", "soft", "custom", "none"),
        meaning="how a slot's memory limits its job: hard, soft, by CGROUP_HARD_MEMORY_LIMIT_EXPR, or not at all",
    )
    cgroup_hard_memory_limit_expr: Expr | None = knob(
        "CGROUP_HARD_MEMORY_LIMIT_EXPR",
        unit="MiB",
        meaning="a job's memory where the policy is custom (MY is the slot, TARGET the job); no number: the slot's",
    )
    cgroup_low_memory_limit: Expr | None = knob(
        "CGROUP_LOW_MEMORY_LIMIT",
        unit="MiB",
        meaning="memory that is not taken from a job while others have more than theirs (MY is the slot, TARGET the "
        "job); no number: as the policy has it",
    )
    cgroup_ignore_cache_memory: bool = knob(
        "CGROUP_IGNORE_CACHE_MEMORY",
        "true",
        meaning="what the kernel keeps of a job's files does not count as its memory",
    )
    starter_hide_gpu_devices: bool = knob(
        "STARTER_HIDE_GPU_DEVICES",
        "true",
        meaning="a job can not open NVIDIA GPUs that its slot has not been given, where the startd is root",
    )
    disable_swap_for_job: bool = knob("DISABLE_SWAP_FOR_JOB", "false", meaning="forbid swap to jobs")
    startd_enforce_disk_limits: bool = knob(
        "STARTD_ENFORCE_DISK_LIMITS",
        "false",
        meaning="per-job scratch filesystem (restart needed)",
    )
    lvm_volume_group_name: str | None = knob("LVM_VOLUME_GROUP_NAME", meaning="volume group to carve from")
    lvm_thinpool_name: str | None = knob("LVM_THINPOOL_NAME", meaning="thin pool logical volume")
    lvm_use_thin_provisioning: bool = knob("LVM_USE_THIN_PROVISIONING", "true", meaning="thin or thick logical volumes")
    lvm_backing_file: str = knob(
        "LVM_BACKING_FILE", "$(SPOOL)/startd_disk.img", meaning="loop file used when no volume group is given"
    )
    startd_cron_joblist: tuple[str, ...] = knob("STARTD_CRON_JOBLIST", meaning="names of cron jobs")
    startd_cron_config_val: str | None = knob("STARTD_CRON_CONFIG_VAL", meaning="config_val program handed to jobs")
    startd_cron_max_job_load: float = knob(
        "STARTD_CRON_MAX_JOB_LOAD", "0.1", least=0.01, most=1000, meaning="sum of job loads that may run together"
    )
    startd_cron_log_non_zero_exit: bool = knob(
        "STARTD_CRON_LOG_NON_ZERO_EXIT", "false", meaning="log stdout leftovers and stderr of a job that exits non-zero"
    )
    startd_cron_executable_by_job: Mapping[str, str] = family("STARTD_CRON_<Job>_EXECUTABLE", meaning="program")
    startd_cron_mode_by_job: Mapping[str, str] = family(
        "STARTD_CRON_<Job>_MODE", meaning="Periodic, WaitForExit, OneShot, OnDemand"
    )
    startd_cron_period_by_job: Mapping[str, str] = family("STARTD_CRON_<Job>_PERIOD", meaning="number with s, m or h")
    startd_cron_prefix_by_job: Mapping[str, str] = family(
        "STARTD_CRON_<Job>_PREFIX", meaning="text put before each attribute name"
    )
    startd_cron_args_by_job: Mapping[str, str] = family("STARTD_CRON_<Job>_ARGS", meaning="arguments")
    startd_cron_kill_by_job: Mapping[str, bool] = family(
        "STARTD_CRON_<Job>_KILL", meaning="kill a still-running instance when the next is due"
    )
    startd_cron_reconfig_rerun_by_job: Mapping[str, bool] = family(
        "STARTD_CRON_<Job>_RECONFIG_RERUN", meaning="run again at reconfig"
    )
    startd_cron_slots_by_job: Mapping[str, tuple[str, ...]] = family(
        "STARTD_CRON_<Job>_SLOTS", meaning="slot ids that get the output"
    )
    startd_cron_job_load_by_job: Mapping[str, float] = family(
        "STARTD_CRON_<Job>_JOB_LOAD", meaning="load the job is said to make"
    )
    startd_cron_env_by_job: Mapping[str, str] = family(
        "STARTD_CRON_<Job>_ENV", meaning="environment variables, as A=1;B=2 or in the new form of a submit file"
    )
    startd_cron_cwd_by_job: Mapping[str, str] = family("STARTD_CRON_<Job>_CWD", meaning="working directory")
    startd_cron_condition_by_job: Mapping[str, Expr] = family(
        "STARTD_CRON_<Job>_CONDITION",
        meaning="looked at before each start, in the machine's ad: the job runs only if it is true",
    )
    startd_cron_metrics_by_job: Mapping[str, str] = family(
        "STARTD_CRON_<Job>_METRICS",
        meaning="attributes of the output that measure a custom resource: SUM:Name, PEAK:Name, commas between them",
    )
    startd_cron_autopublish: str = knob(
        "STARTD_CRON_AUTOPUBLISH",
        "Never",
        choices=("Never", "Always", "If_Changed"),
        meaning="whether output goes to the pool at once rather than with the slot's next update",
    )
    benchmarks_joblist: tuple[str, ...] = knob("BENCHMARKS_JOBLIST", "mips kflops", meaning="benchmark jobs")
    benchmarks_executable_by_job: Mapping[str, str] = family("BENCHMARKS_<Job>_EXECUTABLE", meaning="benchmark program")
    benchmarks_job_load_by_job: Mapping[str, float] = family("BENCHMARKS_<Job>_JOB_LOAD", meaning="its load")
    benchmarks_args_by_job: Mapping[str, str] = family("BENCHMARKS_<Job>_ARGS", meaning="its arguments")
    benchmarks_max_job_load: float = knob(
        "BENCHMARKS_MAX_JOB_LOAD", "1.0", least=0.01, most=1000, meaning="sum of the loads that may run together"
    )
    docker: str = knob("DOCKER", "/usr/bin/docker", meaning="docker CLI, may start with sudo")
    docker_volumes: tuple[str, ...] = knob("DOCKER_VOLUMES", meaning="names of admin volumes")
    docker_volume_dir_by_name: Mapping[str, str] = family(
        "DOCKER_VOLUME_DIR_<name>", meaning="host[:container[:ro]] path of the volume"
    )
    docker_volume_dir_mount_if_by_name: Mapping[str, Expr] = family(
        "DOCKER_VOLUME_DIR_<name>_MOUNT_IF", meaning="mount only if true for machine + job"
    )
    docker_mount_volumes: tuple[str, ...] = knob("DOCKER_MOUNT_VOLUMES", meaning="volumes mounted into every container")
    docker_image_cache_size: int = knob(
        "DOCKER_IMAGE_CACHE_SIZE", "8", least=0, meaning="most recently used images kept"
    )
    docker_run_under_init: bool = knob(
        "DOCKER_RUN_UNDER_INIT",
        "true",
        meaning="an init of the engine's reaps processes that a job left behind, and hands signals on",
    )
    docker_drop_all_capabilities: Expr = knob(
        "DOCKER_DROP_ALL_CAPABILITIES", "true", meaning="drop capabilities and setuid; MY = machine, TARGET = job"
    )
    docker_extra_arguments: str | None = knob("DOCKER_EXTRA_ARGUMENTS", meaning="appended to the create command")
    docker_networks: tuple[str, ...] = knob("DOCKER_NETWORKS", meaning="custom networks jobs may ask for")
    docker_shm_size: Expr | None = knob(
        "DOCKER_SHM_SIZE", unit="bytes", meaning="for --shm-size, machine + job context"
    )
    singularity: str = knob("SINGULARITY", "$(LIBEXEC)/apptainer", meaning="runtime program")
    singularity_job: Expr = knob("SINGULARITY_JOB", "false", meaning="run the job in the container runtime")
    singularity_image_expr: Expr = knob("SINGULARITY_IMAGE_EXPR", "SingularityImage", meaning="image to run")
    singularity_bind_expr: Expr | None = knob("SINGULARITY_BIND_EXPR", meaning="space separated extra bind mounts")
    singularity_ignore_missing_bind_target: bool = knob(
        "SINGULARITY_IGNORE_MISSING_BIND_TARGET",
        "false",
        meaning="skip a mount whose target is missing in an exploded image",
    )
    singularity_run_test_before_job: bool = knob(
        "SINGULARITY_RUN_TEST_BEFORE_JOB", "true", meaning="test the image first; failure holds the job"
    )
    singularity_extra_arguments: str | None = knob(
        "SINGULARITY_EXTRA_ARGUMENTS", meaning="extra arguments for exec: options, or an expression that gives them"
    )
    singularity_target_dir: str | None = knob(
        "SINGULARITY_TARGET_DIR", meaning="scratch directory name inside; beats the job's container_target_dir"
    )
    singularity_verbosity: str = knob(
        "SINGULARITY_VERBOSITY", "-s", choices=("-s", "-q", "-v", "-d"), meaning="how much the runtime says"
    )
    roost_visits: Expr = knob(
        "ROOST_VISITS",
        "true",
        meaning="whether owners may run programs in, and look at files of, their running jobs; MY slot, TARGET job",
    )
    roost_max_visits: int = knob("ROOST_MAX_VISITS", "32", least=0, meaning="of these at a time on the machine")
    roost_singularity_test_timeout: float = knob(
        "ROOST_SINGULARITY_TEST_TIMEOUT",
        "1200",
        unit="s",
        least=1,
        meaning="longest test of an image, with its fetching",
    )
    mount_under_scratch: Expr | None = knob(
        "MOUNT_UNDER_SCRATCH",
        '"/tmp,/var/tmp"',
        meaning="directories made private per job (-S for the container runtime)",
    )
    java: str | None = knob("JAVA", meaning="runs jobs of the java universe: a path, or a name in PATH; unset: none")
    java_classpath_argument: str = knob(
        "JAVA_CLASSPATH_ARGUMENT", "-classpath", meaning="what stands before the list of classes and JAR files"
    )
    java_classpath_default: str = knob(
        "JAVA_CLASSPATH_DEFAULT",
        ".",
        meaning="where classes are looked for before the job's jar_files; blanks part them",
    )
    java_classpath_separator: str = knob("JAVA_CLASSPATH_SEPARATOR", ":", meaning="between the entries of that list")
    java_extra_arguments: str | None = knob(
        "JAVA_EXTRA_ARGUMENTS", meaning="of every job's Java, as arguments of a submit file are written"
    )
    vm_type: str | None = knob("VM_TYPE", meaning="kvm: runs virtual machines under QEMU; unset: none")
    vm_memory: int = knob("VM_MEMORY", "0", unit="MiB", least=0, meaning="of all virtual machines; 0: the machine's")
    vm_max_number: int = knob("VM_MAX_NUMBER", "0", least=0, meaning="of virtual machines at a time; 0: no bound")
    vm_networking: bool = knob("VM_NETWORKING", "false", meaning="whether virtual machines may have a network")
    vm_networking_type: tuple[str, ...] = knob("VM_NETWORKING_TYPE", "nat", meaning="which: nat, bridge")
    vm_networking_default_type: str | None = knob(
        "VM_NETWORKING_DEFAULT_TYPE", meaning="for jobs that name none; unset: the first"
    )
    vm_networking_bridge_interface: str | None = knob("VM_NETWORKING_BRIDGE_INTERFACE", meaning="the bridge, br0 say")
    roost_vm_program: str = knob("ROOST_VM_PROGRAM", "qemu-system-x86_64", meaning="QEMU, by path or by name in PATH")
    roost_vm_cpu: str | None = knob("ROOST_VM_CPU", meaning="a guest's processor, host say; unset: QEMU's common one")
    roost_vm_accelerator: str = knob(
        "ROOST_VM_ACCELERATOR", "kvm", meaning="how it runs guests: kvm, or tcg (in software, for tests)"
    )
    vm_gahp_server: str = knob("VM_GAHP_SERVER", "$(SBIN)/condor_vm-gahp", meaning="VM helper program")
    vm_gahp_log: str = knob("VM_GAHP_LOG", "$(LOG)/VMGahpLog", meaning="its log")
    gpu_discovery_extra: str | None = knob(
        "GPU_DISCOVERY_EXTRA", meaning="extra arguments of gpu_discovery: -extra, -nested, -not-nested"
    )
    hibernate: Expr | None = knob(
        "HIBERNATE", meaning='power state that the slot agrees to: "NONE", or one of S1 to S5 by its names (power.md)'
    )
    hibernate_check_interval: int = knob(
        "HIBERNATE_CHECK_INTERVAL", "0", unit="s", least=0, meaning="between power checks; non-zero enables"
    )
    unhibernate: Expr = knob(
        "UNHIBERNATE", "MachineLastMatchTime =!= UNDEFINED", meaning="wake the offline machine when true"
    )
    linux_hibernation_method: str | None = knob(
        "LINUX_HIBERNATION_METHOD", meaning="try only this method to sleep: pm-utils, /sys or /proc"
    )
    hibernation_plugin: str | None = knob(
        "HIBERNATION_PLUGIN",
        meaning="program that puts the machine to sleep instead: `ad` prints what it can, `set S3` does it",
    )
    hibernation_plugin_args: str | None = knob("HIBERNATION_PLUGIN_ARGS", meaning="its arguments before `ad` and `set`")
    hibernation_override_wol: bool = knob(
        "HIBERNATION_OVERRIDE_WOL",
        "False",
        meaning="sleep also where the network interface can not wake the machine, as far as the kernel tells",
    )
    hook_fetch_work_by_keyword: Mapping[str, str] = family(
        "<Keyword>_HOOK_FETCH_WORK", meaning="asks for work; gate of the other EP hooks"
    )
    hook_reply_fetch_by_keyword: Mapping[str, str] = family(
        "<Keyword>_HOOK_REPLY_FETCH", meaning="told accept or reject"
    )
    hook_evict_claim_by_keyword: Mapping[str, str] = family(
        "<Keyword>_HOOK_EVICT_CLAIM", meaning="told of eviction of fetched work"
    )
    hook_prepare_job_before_transfer_by_keyword: Mapping[str, str] = family(
        "<Keyword>_HOOK_PREPARE_JOB_BEFORE_TRANSFER", meaning="runs before input transfer"
    )
    hook_prepare_job_by_keyword: Mapping[str, str] = family(
        "<Keyword>_HOOK_PREPARE_JOB", meaning="runs after input transfer, before the job"
    )
    hook_update_job_info_by_keyword: Mapping[str, str] = family(
        "<Keyword>_HOOK_UPDATE_JOB_INFO", meaning="periodic status"
    )
    hook_job_exit_by_keyword: Mapping[str, str] = family("<Keyword>_HOOK_JOB_EXIT", meaning="after the job ends")
    hook_job_exit_timeout_by_keyword: Mapping[str, float] = family(
        "<Keyword>_HOOK_JOB_EXIT_TIMEOUT",
        unit="s",
        least=0.1,
        meaning="longest run of <Keyword>_HOOK_JOB_EXIT; else 30",
    )
    roost_hook_timeout: float = knob(
        "ROOST_HOOK_TIMEOUT", "600", unit="s", least=0.1, meaning="longest run of any other hook, which is killed then"
    )
    startd_job_hook_keyword: str | None = knob("STARTD_JOB_HOOK_KEYWORD", meaning="keyword of all slots")
    slot_job_hook_keyword_by_n: Mapping[str, str] = family("SLOT<N>_JOB_HOOK_KEYWORD", meaning="keyword of slot N")
    starter_default_job_hook_keyword: str | None = knob(
        "STARTER_DEFAULT_JOB_HOOK_KEYWORD", meaning="keyword when the job's is missing or invalid"
    )
    starter_job_hook_keyword: str | None = knob("STARTER_JOB_HOOK_KEYWORD", meaning="keyword forced over the job's")
    fetchworkdelay: Expr = knob("FetchWorkDelay", "300", unit="s", meaning="since the last fetch ended before the next")
    starter_initial_update_interval: int = knob(
        "STARTER_INITIAL_UPDATE_INTERVAL", "8", unit="s", least=0, meaning="to the first job update"
    )
    starter_update_interval: int = knob(
        "STARTER_UPDATE_INTERVAL", "300", unit="s", least=0, meaning="between job updates"
    )
    startd_name: str | None = knob("STARTD_NAME", meaning="name of the execution point, for more than one on a machine")
    disk: int | None = knob("DISK", unit="KiB", least=0, meaning="the sandbox disk is said to have; none: what is free")
    reserved_disk: int = knob("RESERVED_DISK", "0", unit="MiB", meaning="disk kept back from jobs")
    count_hyperthread_cpus: bool = knob("COUNT_HYPERTHREAD_CPUS", "true", meaning="threads of a core count as cores")
    slots_connected_to_console: int = knob(
        "SLOTS_CONNECTED_TO_CONSOLE", "0", meaning="slots that see the activity of the console"
    )
    slots_connected_to_keyboard: int = knob(
        "SLOTS_CONNECTED_TO_KEYBOARD", "0", meaning="slots that see the activity of any keyboard"
    )
    disconnected_keyboard_idle_boost: int = knob(
        "DISCONNECTED_KEYBOARD_IDLE_BOOST",
        "1200",
        unit="s",
        least=0,
        meaning="KeyboardIdle and ConsoleIdle, when the startd starts, of slots that see neither",
    )
    console_devices: tuple[str, ...] = knob(
        "CONSOLE_DEVICES", "mouse, console", meaning="names under /dev whose use is activity of the console"
    )
    startd_history: str | None = knob(
        "STARTD_HISTORY", meaning="file of the runs that ended here; not set: startd_history in SPOOL"
    )
    max_history_log: int = knob(
        "MAX_HISTORY_LOG", "20971520", unit="bytes", least=0, meaning="size at which the history file is put away"
    )
    max_history_rotations: int = knob("MAX_HISTORY_ROTATIONS", "2", least=1, meaning="history files put away at most")
    startd_latch_exprs: tuple[str, ...] = knob(
        "STARTD_LATCH_EXPRS",
        meaning="macros that slots publish, each with its value (<name>Value) and since when it is so (<name>Time)",
    )
    want_hold: Expr | None = knob(
        "WANT_HOLD", meaning="true when PREEMPT is: the job is held instead of going back to the queue"
    )
    want_hold_reason: Expr | None = knob("WANT_HOLD_REASON", meaning="the HoldReason of a job held so")
    want_hold_subcode: Expr | None = knob("WANT_HOLD_SUBCODE", meaning="the HoldReasonSubCode of a job held so")
    starter_rlimit_as: Expr | None = knob(
        "STARTER_RLIMIT_AS", "0", unit="MiB", meaning="address space of a job at most; 0: no limit"
    )
    user_job_wrapper: str | None = knob(
        "USER_JOB_WRAPPER", meaning="program that every job without a container is started through"
    )
    use_pss: bool = knob(
        "USE_PSS",
        "false",
        meaning="whether a job that runs as a process says ProportionalSetSizeKb: its memory, what it shares only by "
        "its share",
    )
    assign_cpu_affinity: Expr = knob(
        "ASSIGN_CPU_AFFINITY",
        "false",
        meaning="looked at in the job's ad: where true, the job is bound to cores of its own, as many as its slot has",
    )
    enforce_cpu_affinity: bool = knob(
        "ENFORCE_CPU_AFFINITY",
        "false",
        meaning="bind each job to the cores of SLOT<N>_CPU_AFFINITY, else to as many as its slot has",
    )
    slot_cpu_affinity_by_n: Mapping[str, str] = family(
        "SLOT<N>_CPU_AFFINITY", meaning="cores of the jobs in slot N, from 0 on, as 0, 2-3; * for all"
    )
    job_inherits_starter_environment: str = knob(
        "JOB_INHERITS_STARTER_ENVIRONMENT",
        "false",
        meaning="variables of the startd's environment that jobs outside of containers get: true for all, or a list of "
        "names with * for any letters; none that begins with _CONDOR_ or ROOST_",
    )
    startd_noclaim_shutdown: int = knob(
        "STARTD_NOCLAIM_SHUTDOWN",
        "0",
        unit="s",
        least=0,
        meaning="without any claim for so long the startd ends for good; 0: never",
    )
    starter_job_environment: str | None = knob(
        "STARTER_JOB_ENVIRONMENT",
        meaning="variables of jobs that do not set them, as the submit command environment has them",
    )
    environment_for_assigned_by_name: Mapping[str, str] = family(
        "ENVIRONMENT_FOR_Assigned<name>",
        meaning="variables of jobs with the devices of their slot, each with =/pattern/replacement/ or without",
    )
    environment_value_for_unassigned_by_name: Mapping[str, str] = family(
        "ENVIRONMENT_VALUE_FOR_UnAssigned<name>",
        meaning="what these variables are in a slot without such devices; unset: they are not set, of GPUs 10000",
    )
    starter_num_threads_env_vars: tuple[str, ...] = knob(
        "STARTER_NUM_THREADS_ENV_VARS",
        "CUBACORES GOMAXPROCS JULIA_NUM_THREADS MKL_NUM_THREADS NUMEXPR_NUM_THREADS OMP_NUM_THREADS "
        "OMP_THREAD_LIMIT OPENBLAS_NUM_THREADS PYTHON_CPU_COUNT ROOT_MAX_THREADS TF_LOOP_PARALLEL_ITERATIONS "
        "TF_NUM_THREADS",
        meaning="variables that tell a job how many cores it has",
    )
    starter: str = knob("STARTER", "$(SBIN)/condor_starter", meaning="path of the starter program")
    gpu_monitor: str = knob(
        "GPU_MONITOR", "$(LIBEXEC)/condor_gpu_utilization", meaning="program that watches the use of GPUs"
    )
    must_modify_request_exprs: bool = knob(
        "MUST_MODIFY_REQUEST_EXPRS", "false", meaning="a rounded request that does not fit is refused, not tried plain"
    )
    roost_startd_orphan_timeout: int = knob(
        "ROOST_STARTD_ORPHAN_TIMEOUT", "2400", unit="s", least=1, meaning="jobs live on without any startd at most"
    )
    roost_native_spawner: bool = knob(
        "ROOST_NATIVE_SPAWNER",
        "true",
        meaning="the spawner in C starts jobs where it was compiled and passes its test; else, and if false, Python "
        "does, which takes more time. Read when a fork server starts",
    )
    roost_startd_failures: int = knob(
        "ROOST_STARTD_FAILURES",
        "3",
        least=0,
        meaning="runs in a row that fail by the machine's fault until it takes no more for a while; 0: it always does",
    )
    roost_jobs_as_root: bool = knob(
        "ROOST_JOBS_AS_ROOT", "false", meaning="a startd that is root runs all jobs as root: as ROOST_OWN_USERS = *"
    )
    slot_user_by_n: Mapping[str, str] = family(
        "SLOT<N>_USER", meaning="account of jobs in slot N (1, or 1_2 of a dynamic slot) that do not run as their owner"
    )
    execute_login_is_dedicated: bool = knob(
        "EXECUTE_LOGIN_IS_DEDICATED",
        "false",
        meaning="accounts of slots, and nobody, are for jobs only, as DEDICATED_EXECUTE_ACCOUNT_REGEXP says of names",
    )
    roost_job_max_processes: int = knob(
        "ROOST_JOB_MAX_PROCESSES",
        "16384",
        least=0,
        meaning="processes and threads of a job, by its cgroup; 0: no limit",
    )
    mount_private_dev_shm: bool = knob(
        "MOUNT_PRIVATE_DEV_SHM", "true", meaning="each job of a startd that is root has a /dev/shm of its own"
    )
    roost_landlock: bool = knob(
        "ROOST_LANDLOCK", "true", meaning="confine jobs by Landlock too, where the kernel has it"
    )
    roost_own_users: tuple[str, ...] = knob(
        "ROOST_OWN_USERS",
        meaning="users, as name@domain, whose jobs run as processes of the startd's own account, without walls between "
        "them and it, also as root: its owner; *: everybody",
    )
    roost_hidden_from_jobs: tuple[str, ...] = knob(
        "ROOST_HIDDEN_FROM_JOBS",
        "$(SPOOL)",
        meaning="files and directories that are not granted to jobs of a startd that is not root, wherever they lie",
    )
    roost_job_read_paths: tuple[str, ...] = knob(
        "ROOST_JOB_READ_PATHS",
        "/bin, /sbin, /lib, /lib32, /lib64, /libx32, /usr, /opt, /etc, /nix, /gnu, /snap, /sys, /cvmfs, /sw, "
        "/software, /run/systemd/resolve, /run/resolvconf, /run/NetworkManager/resolv.conf, /var/lib/ca-certificates",
        meaning="what jobs of a startd that is not root may read and execute of its machine",
    )
    roost_job_write_paths: tuple[str, ...] = knob(
        "ROOST_JOB_WRITE_PATHS",
        "/home, /data, /scratch, /projects, /work, /mnt, /media, /srv, /nfs, /net, /afs, /gpfs, /lustre, /beegfs, "
        "/ceph, /tmp, /var/tmp, /dev, /proc",
        meaning="what they may also write there, as far as the account permits",
    )
    roost_seccomp: bool = knob(
        "ROOST_SECCOMP", "true", meaning="refuse jobs the system calls that container engines refuse by default"
    )
    roost_job_user_namespaces: bool = knob(
        "ROOST_JOB_USER_NAMESPACES",
        "false",
        meaning="jobs may make user namespaces, and mount in them: for Apptainer started by jobs",
    )
    roost_disk_check_interval: int = knob(
        "ROOST_DISK_CHECK_INTERVAL", "5", unit="s", least=1, meaning="between two looks at what jobs have on the disk"
    )
    roost_docker: bool = knob("ROOST_DOCKER", "true", meaning="look for a Docker engine and offer it to jobs")
    roost_docker_host: str | None = knob(
        "ROOST_DOCKER_HOST",
        meaning="address of the container engine, Docker's or Podman's: unix:///path/of/the.sock or tcp://host:port; "
        "none: DOCKER_HOST of the environment, else the first socket of an engine that may be used; restart to change",
    )
    docker_perform_test: bool = knob(
        "DOCKER_PERFORM_TEST", "true", meaning="Docker is offered only after a container of ours has run"
    )
    roost_docker_probe_interval: int = knob(
        "ROOST_DOCKER_PROBE_INTERVAL", "60", unit="s", least=1, meaning="between two looks at the Docker engine"
    )
    roost_docker_pull_timeout: int = knob(
        "ROOST_DOCKER_PULL_TIMEOUT", "900", unit="s", least=1, meaning="longest silence while an image is pulled"
    )
    roost_docker_user: str | None = knob(
        "ROOST_DOCKER_USER",
        meaning="uid:gid of jobs in containers; none: the startd's own, or nobody's where it is root",
    )
    roost_execute_on_host: str | None = knob(
        "ROOST_EXECUTE_ON_HOST",
        meaning="EXECUTE as the Docker engine's host sees it, for a startd in a container; none: the same path",
    )
    slot_weight: Expr = knob("SLOT_WEIGHT", "Cpus", meaning="cost of a slot; the same on all machines of a pool")
