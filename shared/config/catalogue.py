"""The templates behind `use ROLE`, `use FEATURE`, `use POLICY` and `use SECURITY`.

Each has the effect that the manual describes ("Configuration Templates", and the sections on policies of
execution points), in our own arrangement. Templates use each other; what they add to a list or an expression
is joined to what was there.
"""

from __future__ import annotations

from collections.abc import Mapping

_STRONG = """
SEC_DEFAULT_AUTHENTICATION = required
SEC_DEFAULT_INTEGRITY = required
"""

_ENCRYPTED = f"{_STRONG}SEC_DEFAULT_ENCRYPTION = required\n"


def _role(daemons: str) -> str:
    return f"DAEMON_LIST = $(DAEMON_LIST) {daemons}\n"


def _token_role(role: str, more: str = "") -> str:
    return f"use ROLE : {role}\nuse SECURITY : get_htcondor_idtokens\n{more}"


def _needs(count: int, name: str, what: str, category: str = "FEATURE") -> str:
    """An error for a template without its last required argument."""
    return f"if ! $({count}?)\nerror : use {category} : {name} needs {what}\nendif\n"


def _cron(prefix: str, job: str, mode: str, *lines: str) -> str:
    """One cron job: its name joins the job list, its knobs are set."""
    knob = f"{prefix}_{job}"
    return "\n".join(
        (
            f"{prefix}_JOBLIST = $({prefix}_JOBLIST) {job}",
            f"{knob}_MODE = {mode}",
            *(f"{knob}_{line}" for line in lines),
        )
    )


def _one_shot(name: str, prefix: str, job: str, first: int) -> str:
    run = (f"EXECUTABLE = $({first})", f"ARGS = $({first + 1})", "KILL = true", "RECONFIG_RERUN = true")
    return _needs(first, name, "a program behind its name") + _cron(prefix, job, "OneShot", *run)


def _periodic(name: str, prefix: str, job: str, first: int) -> str:
    run = (f"PERIOD = $({first})", f"EXECUTABLE = $({first + 1})", f"ARGS = $({first + 2})")
    needs = _needs(first + 1, name, "a period and a program behind its name")
    return needs + _cron(prefix, job, "Periodic", *run)


def _continuous(name: str, prefix: str, job: str, first: int) -> str:
    run = ("PERIOD = 0", f"EXECUTABLE = $({first})", f"ARGS = $({first + 1})")
    needs = _needs(first, name, "a program behind its name")
    return needs + _cron(prefix, job, "WaitForExit", *run)


def _exceeded(macro: str, condition: str, before: str = "") -> str:
    return f"{before}{macro} = {condition}\n"


_CPUS = _exceeded("CPU_EXCEEDED", "(CpusUsage > Cpus + 0.8)", "use POLICY : Startd_Publish_CpusUsage\n")
_MEMORY = _exceeded("MEMORY_EXCEEDED", "(JobUniverse != 13 && MemoryUsage =!= UNDEFINED && MemoryUsage > Memory)")
_DISK = _exceeded("DISK_EXCEEDED", "(JobUniverse != 13 && DiskUsage =!= UNDEFINED && DiskUsage > Disk)")


def _runtime(macro: str) -> str:
    age = "(time() - JobCurrentStartDate)"
    return f'MAX_JOB_RUNTIME = $(1:24*3600)\n{macro} = (JobState == "Running") && ({age} > $(MAX_JOB_RUNTIME))\n'


def _hold(name: str, subcode: int, reason: str) -> str:
    """Hold a job by the condition in macro `name`; reason and subcode can be set, the reason afterwards."""
    told = f"HOLD_REASON_{name}"
    return f"{told} = {reason}\nuse POLICY : Want_Hold_If({name}, $(HOLD_SUBCODE_{name}:{subcode}), $({told}))\n"


_FRAGMENTS = """
PolicyExprFragments = 1
NonCondorLoadAvg = (LoadAvg - CondorLoadAvg)
ActivationTimer = ifThenElse(JobStart =!= UNDEFINED, (time() - JobStart), 0)
LastCkpt = (time() - LastPeriodicCheckpoint)
KeyboardBusy = (KeyboardIdle < $(MINUTE))
ConsoleBusy = (ConsoleIdle  < $(MINUTE))
KeyboardNotBusy = ($(KeyboardBusy) == False)
CpuIdle = ($(NonCondorLoadAvg) <= $(BackgroundLoad))
CpuBusy = ($(NonCondorLoadAvg) >= $(HighLoad))
JustCPU = ($(CPUBusy) && ($(KeyboardBusy) == False))
MachineBusy = ($(CPUBusy) || $(KeyboardBusy))
"""

_BUSY_LATCH = """
if ! defined PolicyExprFragments
use FEATURE : POLICY_EXPR_FRAGMENTS
endif
STARTD_LATCH_EXPRS = $(STARTD_LATCH_EXPRS) CpuBusy
CpuBusyTimer = IfThenElse(CpuBusyValue is 1, time() - CpuBusyTime, 0)
"""

_DESKTOP = f"""{_BUSY_LATCH}
START = ((KeyboardIdle > $(StartIdleTime)) && ( $(CPUIdle) || (State != "Unclaimed" && State != "Owner")) )
SUSPEND = ($(KeyboardBusy) || ( ($(CpuBusyTimer) > 120) && $(ActivationTimer) > 90))
CONTINUE = ($(CPUIdle) && ($(ActivityTimer) > 10) && (KeyboardIdle > $(ContinueIdleTime)))
WANT_SUSPEND = ($(SmallJob) || $(KeyboardNotBusy) || $(IsVanilla) ) && ( $(SUSPEND))
WANT_VACATE = $(ActivationTimer) > 600 || $(IsVanilla)
PREEMPT = (((Activity == "Suspended") && ($(ActivityTimer) > $(MaxSuspendTime))) \
|| (SUSPEND && (WANT_SUSPEND == False)))
KILL = False
MaxJobRetirementTime = 0
CLAIM_WORKLIFE =
IS_OWNER = (START =?= False)
SLOTS_CONNECTED_TO_KEYBOARD = 1000000
SLOTS_CONNECTED_TO_CONSOLE = 1000000
"""

_UWCS_VALUES = f"""{_BUSY_LATCH}
UWCS_START = ( (KeyboardIdle > $(StartIdleTime)) && ( $(CPUIdle) || (State != "Unclaimed" && State != "Owner")) )
UWCS_SUSPEND = ( $(KeyboardBusy) || ( ($(CpuBusyTimer) > 2 * $(MINUTE)) && $(ActivationTimer) > 90 ) )
UWCS_CONTINUE = ( $(CPUIdle) && ($(ActivityTimer) > 10) && (KeyboardIdle > $(ContinueIdleTime)) )
UWCS_WANT_SUSPEND = ( $(SmallJob) || $(KeyboardNotBusy) || $(IsVanilla) ) && ( $(SUSPEND) )
UWCS_WANT_VACATE = ( $(ActivationTimer) > 10 * $(MINUTE) || $(IsVanilla) )
UWCS_PREEMPT = ( ((Activity == "Suspended") && ($(ActivityTimer) > $(MaxSuspendTime))) \
|| (SUSPEND && (WANT_SUSPEND == False)) )
UWCS_KILL = false
UWCS_MaxJobRetirementTime = 0
UWCS_PERIODIC_CHECKPOINT = $(LastCkpt) > (3 * $(HOUR) + $RANDOM_INTEGER(-30,30,1) * $(MINUTE) )
UWCS_PREEMPTION_REQUIREMENTS = ((SubmitterGroup =?= RemoteGroup) && ($(StateTimer) > (1 * $(HOUR))) \
&& (RemoteUserPrio > TARGET.SubmitterUserPrio * 1.2)) || (MY.NiceUser == True)
UWCS_PREEMPTION_RANK = (RemoteUserPrio * 1000000) - ifThenElse(isUndefined(TotalJobRuntime), 0, TotalJobRuntime)
UWCS_NEGOTIATOR_PRE_JOB_RANK = (10000000 * My.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED)) \
- (100000 * Cpus) - Memory
UWCS_NEGOTIATOR_POST_JOB_RANK = (RemoteOwner =?= UNDEFINED) \
* (ifthenElse(isUndefined(KFlops), 1000, Kflops) - SlotID - 1.0e10*(Offline=?=True))
"""

_UWCS_DESKTOP = (
    "use FEATURE : UWCS_Desktop_Policy_Values\n"
    + "".join(
        f"{name} = $(UWCS_{name})\n"
        for name in (
            *("START", "SUSPEND", "CONTINUE", "PREEMPT", "KILL", "WANT_SUSPEND", "WANT_VACATE", "CLAIM_WORKLIFE"),
            *("MaxJobRetirementTime", "PERIODIC_CHECKPOINT", "PREEMPTION_REQUIREMENTS", "PREEMPTION_RANK"),
            *("NEGOTIATOR_PRE_JOB_RANK", "NEGOTIATOR_POST_JOB_RANK"),
        )
    )
    + "IS_OWNER = (START =?= False)\nSLOTS_CONNECTED_TO_KEYBOARD = 1024*1024\n"
)

_HOURS = """
WorkdayBeginHour = $(1:8)
WorkdayEndHour = $(2:12+5)
WorkdayBeginMinuteStartJobs = ($(WorkdayBeginHour))*60 - 29.5
WorkdayBeginMinuteStopJobs = ($(WorkdayBeginHour))*60 - 9.5
WorkdayEndMinute = ($(WorkdayEndHour))*60 + 0.5
RunJobsHours = ClockMin < $INT(WorkdayBeginMinuteStartJobs) || ClockMin > $INT(WorkdayEndMinute)
NoJobsHours = ClockMin > $INT(WorkdayBeginMinuteStopJobs) && ClockMin < $INT(WorkdayEndMinute)
if $(3?)
WorkweekFirstDay = $(3:1)
WorkweekLastDay = $(4:5)
IsWeekend = ClockDay < $INT(WorkweekFirstDay) || ClockDay > $INT(WorkweekLastDay)
IsWorkday = ClockDay >= $INT(WorkweekFirstDay) && ClockDay <= $INT(WorkweekLastDay)
RunJobsHours = $(IsWeekend) || $(RunJobsHours)
NoJobsHours = $(IsWorkday) && $(NoJobsHours)
endif
RunJobsHours = ($(RunJobsHours))
NoJobsHours = ($(NoJobsHours))
"""

_LOADED = """
NonCondorLoadAvg = (LoadAvg - CondorLoadAvg)
CpuBusy = ($(NonCondorLoadAvg) >= $(HighLoad))
STARTD_LATCH_EXPRS = $(STARTD_LATCH_EXPRS) CpuBusy
CpuBusyTimer = (CpuBusyValue * (time() - CpuBusyTime))
"""

_EVICT = """
WANT_SUSPEND = False
WANT_VACATE = True
SUSPEND = False
CONTINUE = True
KILL = False
MaxJobRetirementTime = 0
CLAIM_WORKLIFE =
IS_OWNER = (START =?= False)
SLOTS_CONNECTED_TO_KEYBOARD = 1000000
SLOTS_CONNECTED_TO_CONSOLE = 1000000
"""

_DESKTOP_HOURS = f"""use FEATURE : Policy_Hours_To_Start($(1+))
{_LOADED}PREEMPT = $(NoJobsHours)
START = $(RunJobsHours)
{_EVICT}"""

_DESKTOP_IDLE = f"""if $(1?)
use FEATURE : Policy_Hours_To_Start($(1+))
endif
{_LOADED}CpuIdle = ($(NonCondorLoadAvg) <= $(BackgroundLoad))
PreemptKeyboardIdleTime = 60
PreemptCpuBusyTime = 120
PREEMPT = (KeyboardIdle < $(PreemptKeyboardIdleTime)) || ($(CpuBusyTimer) > $(PreemptCpuBusyTime))
if defined NoJobsHours
PREEMPT = ($(PREEMPT)) && ($(NoJobsHours))
endif
START = (KeyboardIdle > $(StartIdleTime)) && $(CPUIdle)
if defined RunJobsHours
START = ($(START)) || ($(RunJobsHours))
endif
{_EVICT}"""

_CHECKPOINT_DESTINATIONS = """
TOOL_CLASSAD_USER_MAP_NAMES = $(TOOL_CLASSAD_USER_MAP_NAMES) checkpoint_destination_map
SCHEDD_CLASSAD_USER_MAP_NAMES = $(SCHEDD_CLASSAD_USER_MAP_NAMES) checkpoint_destination_map
CLASSAD_USER_MAPFILE_checkpoint_destination_map = $(CHECKPOINT_DESTINATION_MAPFILE)
CLASSAD_USER_MAP_PREFIX_checkpoint_destination_map = TRUE
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) ValidateCheckpointDestination
JOB_TRANSFORM_ValidateCheckpointDestination @=transform
   EVALSET CheckpointDestinationValid = ifthenelse(undefined =?= userMap("checkpoint_destination_map", \
CheckpointDestination), undefined, True)
@transform
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) CheckpointDestinationValid
SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) RejectInvalidCheckpointDestination
SUBMIT_REQUIREMENT_RejectInvalidCheckpointDestination = CheckpointDestination =?= undefined \
|| CheckpointDestinationValid =?= True
SUBMIT_REQUIREMENT_RejectInvalidCheckpointDestination_REASON = "This access point knows no way to clean up your \
checkpoint_destination. It may lack the / at the end of its URL."
"""


def _cloud(provider: str) -> str:
    program = f"$(LIBEXEC)/common-cloud-attributes-{provider}.py"
    return f"use FEATURE : StartdCronOneShot(cloud, {program}, $(0))\nSTARTD_CRON_cloud_PREFIX = Cloud\n"


def _nothing(name: str, why: str, body: str = "") -> str:
    """A template of HTCondor's for what is not there: its macros are set, and somebody hears of it."""
    return f"warning : use FEATURE : {name} has no effect: {why}\n{body}"


_TESTING_VALUES = """
TESTINGMODE_START = True
TESTINGMODE_SUSPEND = False
TESTINGMODE_CONTINUE = True
TESTINGMODE_PREEMPT = False
TESTINGMODE_KILL = False
TESTINGMODE_WANT_SUSPEND = False
TESTINGMODE_WANT_VACATE = True
TESTINGMODE_PERIODIC_CHECKPOINT = False
TESTINGMODE_PREEMPTION_REQUIREMENTS = False
TESTINGMODE_PREEMPTION_RANK = 0
TESTINGMODE_CLAIM_WORKLIFE = 1200
"""

ROLES = {
    "Personal": "CONDOR_HOST = 127.0.0.1\nCOLLECTOR_HOST = $(CONDOR_HOST):0\nRunBenchmarks = 0\n"
    "DAEMON_LIST = MASTER COLLECTOR NEGOTIATOR STARTD SCHEDD\n",
    "CentralManager": _role("COLLECTOR NEGOTIATOR"),
    "Submit": _role("SCHEDD"),
    "Execute": _role("STARTD"),
    "get_htcondor_central_manager": _token_role("CentralManager"),
    "get_htcondor_submit": _token_role("Submit", "ALLOW_WRITE = $(ALLOW_WRITE) *\n"),
    "get_htcondor_execute": _token_role("Execute"),
}

FEATURES = {
    "PartitionableSlot": "SLOT_TYPE_$(1:1) = $(2+:100%)\nSLOT_TYPE_$(1:1)_PARTITIONABLE = true\n"
    "NUM_SLOTS_TYPE_$(1:1) = 1\n",
    # Without a third argument the share is left to the automatic division.
    "StaticSlots": "NUM_SLOTS_TYPE_$(1:1) = $(2:$(NUM_CPUS))\nSLOT_TYPE_$(1:1) = $(3+)\n"
    "SLOT_TYPE_$(1:1)_PARTITIONABLE = false\n",
    "GPUs": "MACHINE_RESOURCE_INVENTORY_GPUs = $(LIBEXEC)/condor_gpu_discovery $(1) "
    "-properties $(GPU_DISCOVERY_EXTRA)\n"
    "use FEATURE : GPUsMonitor\n",
    "GPUsMonitor": "STARTD_JOB_ATTRS = $(STARTD_JOB_ATTRS) GPUsUsage GPUsMemoryUsage\n"
    + _cron(
        "STARTD_CRON",
        "GPUs_MONITOR",
        "WaitForExit",
        "PERIOD = 300",
        "EXECUTABLE = $(GPU_MONITOR)",
        "METRICS = SUM:GPUs, PEAK:GPUsMemory",
        'CONDITION = TotalGPUs > 0 && OpSys =!= "WINDOWS"',
    ),
    "Monitor": "if $(5?)\n"
    + _cron(
        "STARTD_CRON",
        "$(1)_MONITOR",
        "$(2)",
        "PERIOD = $(3)",
        "EXECUTABLE = $(4)",
        "METRICS = $(5+)",
    )
    + "\nelse\nerror : use FEATURE : Monitor needs a resource, mode, period, program and metrics\nendif\n",
    "Ganglia": "DAEMON_LIST = $(DAEMON_LIST),GANGLIAD\n",
    "Adstash": "ADSTASH_SCHEDD_HISTORY = True\nDAEMON_LIST = $(DAEMON_LIST),ADSTASH\n",
    "AssignAccountingGroup": _needs(1, "AssignAccountingGroup", "the file of the map")
    + """use FEATURE : ScheddUserMapFile(AssignAccountingGroup, $(1))
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) AssignAccountingGroup
JOB_TRANSFORM_AssignAccountingGroup @=transform
   EVALSET AcctGroupUser = ifThenElse(User is undefined || User == strcat(Owner,"@$(UID_DOMAIN)"), Owner, User)
   COPY AcctGroup = RequestedAcctGroup
   EVALSET AcctGroup = usermap("AssignAccountingGroup",AcctGroupUser,AcctGroup)
   EVALSET AccountingGroup = join(".",AcctGroup,AcctGroupUser)
@transform
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) AcctGroup AcctGroupUser AccountingGroup
if $(2:True)
SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) CheckRequestedGroup
endif
SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) AssignAccountingGroup
SUBMIT_REQUIREMENT_CheckRequestedGroup = RequestedAcctGroup is undefined || RequestedAcctGroup == AcctGroup
SUBMIT_REQUIREMENT_CheckRequestedGroup_REASON = strcat("You may not use accounting group ", RequestedAcctGroup)
SUBMIT_REQUIREMENT_AssignAccountingGroup = AcctGroup isnt undefined && AccountingGroup isnt undefined
SUBMIT_REQUIREMENT_AssignAccountingGroup_REASON = strcat("No accounting group is known for ", Owner)
""",
    "ScheddUserMapFile": _needs(2, "ScheddUserMapFile", "a name and a file")
    + "SCHEDD_CLASSAD_USER_MAP_NAMES = $(SCHEDD_CLASSAD_USER_MAP_NAMES) $(1)\n"
    "CLASSAD_USER_MAPFILE_$(1) = $(2)\n",
    "SetJobAttrFromUserMap": _needs(3, "SetJobAttrFromUserMap", "an attribute, what it is mapped from, and a map")
    + """if $(4?)
use FEATURE : ScheddUserMapFile($(3), $(4))
endif
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) Set$(1)
JOB_TRANSFORM_Set$(1) = [ eval_set_$(1)=usermap("$(3)",$(2),$(1)); ]
SUBMIT_REQUIREMENT_NAMES = $(SUBMIT_REQUIREMENT_NAMES) Require$(1)
SUBMIT_REQUIREMENT_Require$(1) = $(1) isnt undefined
SUBMIT_REQUIREMENT_Require$(1)_REASON = strcat("No $(1) is known for ", $(2)?:"undefined")
""",
    "StartdCronOneShot": _one_shot("StartdCronOneShot", "STARTD_CRON", "$(1)", 2),
    "StartdCronPeriodic": _periodic("StartdCronPeriodic", "STARTD_CRON", "$(1)", 2),
    "StartdCronContinuous": _continuous("StartdCronContinuous", "STARTD_CRON", "$(1)", 2),
    "ScheddCronOneShot": _one_shot("ScheddCronOneShot", "SCHEDD_CRON", "$(1)", 2),
    "ScheddCronPeriodic": _periodic("ScheddCronPeriodic", "SCHEDD_CRON", "$(1)", 2),
    "ScheddCronContinuous": _continuous("ScheddCronContinuous", "SCHEDD_CRON", "$(1)", 2),
    "OneShotCronHook": _one_shot("OneShotCronHook", "$(1)", "$(2)", 3),
    "PeriodicCronHook": _periodic("PeriodicCronHook", "$(1)", "$(2)", 3),
    "ContinuousCronHook": _continuous("ContinuousCronHook", "$(1)", "$(2)", 3),
    "ChildCollector": """if ! defined TOP_COLLECTOR_HOST
TOP_COLLECTOR_HOST = $(COLLECTOR_HOST)
endif
DAEMON_LIST = $(DAEMON_LIST) COLLECTOR$(1)
COLLECTOR$(1) = $(COLLECTOR)
if $(2?)
COLLECTOR$(1)_ARGS = -p $(2)
else
COLLECTOR$(1)_ARGS = -sock collector$(1)
endif
COLLECTOR$(1).COLLECTOR_NAME = Collector$(1)
COLLECTOR$(1).CONDOR_VIEW_HOST = $(TOP_COLLECTOR_HOST)
COLLECTOR$(1).CCB_RECONNECT_FILE = $(SPOOL)/Collector$(1).ccb_reconnect
""",
    "Remote_Runtime_Config": "ENABLE_RUNTIME_CONFIG = True\nALLOW_CONFIG = $(ALLOW_ADMINISTRATOR)\n"
    "if $(0#)\nSETTABLE_ATTRS_CONFIG = $(SETTABLE_ATTRS_CONFIG) $(0)\nendif\n",
    "Remote_Config": "use FEATURE : Remote_Runtime_Config($(0))\nENABLE_PERSISTENT_CONFIG = True\n"
    "PERSISTENT_CONFIG_DIR = $(SPOOL)\n",
    "JobsHaveInstanceIDs": "SYSTEM_JOB_MACHINE_ATTRS = $(SYSTEM_JOB_MACHINE_ATTRS) CloudInstanceID\n",
    "CommonCloudAttributesAWS": _cloud("aws"),
    "CommonCloudAttributesGoogle": _cloud("google"),
    "HPC_Annex": _nothing(
        "HPC_Annex", "execution points join this pool with `python -m services.startd`", "HPC_ANNEX_ENABLED = true\n"
    ),
    "KRB": _nothing(
        "KRB",
        "no daemon keeps Kerberos credentials of jobs",
        "SEC_CREDENTIAL_DIRECTORY_KRB = /var/lib/condor/krb_credentials\n",
    ),
    "OAuth": _nothing(
        "OAuth",
        "no daemon keeps OAuth credentials of jobs",
        "SEC_CREDENTIAL_DIRECTORY_OAUTH = /var/lib/condor/oauth_credentials\n",
    ),
    "PelicanCache": _nothing(
        "PelicanCache", "no daemon of a pool runs a cache of Pelican's", "PELICANCACHE_SIZE = $(1:256GB)\n"
    ),
    "Policy_Expr_Fragments": _FRAGMENTS,
    "Policy_Hours_To_Start": _HOURS,
    "UWCS_Desktop_Policy_Values": _UWCS_VALUES,
    "TestingMode_Policy_Values": _TESTING_VALUES,
}

POLICIES = {
    "Always_Run_Jobs": """START = True
SUSPEND = False
CONTINUE = True
PREEMPT = False
KILL = False
WANT_SUSPEND = False
WANT_VACATE = True
CLAIM_WORKLIFE = 1200
MaxJobRetirementTime = 2147483647
PREEMPTION_REQUIREMENTS = False
PREEMPTION_RANK =
NEGOTIATOR_CONSIDER_PREEMPTION = False
""",
    "Desktop": _DESKTOP,
    "Desktop_Hours": _DESKTOP_HOURS,
    "Desktop_Idle": _DESKTOP_IDLE,
    "OnlyRegisteredCheckpointDestinations": _CHECKPOINT_DESTINATIONS,
    "UWCS_Desktop": _UWCS_DESKTOP,
    "Limit_Job_Runtimes": 'MAX_JOB_RUNTIME = $(1:24*3600)\nPREEMPT = (Activity == "Busy") '
    "&& ((time() - EnteredCurrentActivity) > $(MAX_JOB_RUNTIME))\n"
    "MaxJobRetirementTime = $(MAX_JOB_RUNTIME)+120\n",
    "Startd_Publish_CpusUsage": 'CpusUsage = ifthenelse(TotalLoadAvg > 0.0 && Activity!="Idle", '
    "CondorLoadAvg/TotalLoadAvg*MIN({TotalLoadAvg, $(DETECTED_CORES)}), 0)\nSTARTD_ATTRS = $(STARTD_ATTRS) CpusUsage\n",
    # the argument of these two is the name of the macro that holds the condition
    "Preempt_If": _needs(1, "Preempt_If", "the macro of the condition", "POLICY")
    + "WANT_SUSPEND = $($(1)) =!= true && $(WANT_SUSPEND:False)\n"
    "PREEMPT = $($(1)) || $(PREEMPT:False)\n"
    "MAXJOBRETIREMENTTIME = ifthenelse($($(1)),-1,$(MAXJOBRETIREMENTTIME:0))\n",
    "Want_Hold_If": _needs(3, "Want_Hold_If", "the macro of the condition, a subcode and a reason", "POLICY")
    + """use POLICY : Preempt_If($(1))
if defined WANT_HOLD
WANT_HOLD = (JobUniverse != 1 && $($(1))) || $(WANT_HOLD)
else
WANT_HOLD = (JobUniverse != 1 && $($(1)))
endif
WANT_HOLD_REASON = ifThenElse($($(1)), "$(3+)", $(WANT_HOLD_REASON:UNDEFINED))
WANT_HOLD_SUBCODE = ifThenElse($($(1)), $(2) , $(WANT_HOLD_SUBCODE:UNDEFINED))
""",
    "Preempt_If_Cpus_Exceeded": _CPUS + "use POLICY : Preempt_If(CPU_EXCEEDED)\n",
    "Preempt_If_Memory_Exceeded": _MEMORY + "use POLICY : Preempt_If(MEMORY_EXCEEDED)\n",
    "Preempt_If_Disk_Exceeded": _DISK + "use POLICY : Preempt_If(DISK_EXCEEDED)\n",
    "Preempt_If_Runtime_Exceeds": _runtime("PREEMPT_RUNTIME_EXCEEDS")
    + "use POLICY : Preempt_If(PREEMPT_RUNTIME_EXCEEDS)\n",
    "Hold_If_Cpus_Exceeded": _CPUS + _hold("CPU_EXCEEDED", 101, "CPU usage exceeded request_cpus"),
    "Hold_If_Memory_Exceeded": _MEMORY + _hold("MEMORY_EXCEEDED", 102, "memory usage exceeded request_memory"),
    "Hold_If_Runtime_Exceeds": _runtime("HOLD_RUNTIME_EXCEEDS")
    + """HOLD_REASON_RUNTIME_EXCEEDS = runtime exceeded maximum ($(MAX_JOB_RUNTIME) seconds)
use POLICY : Want_Hold_If(HOLD_RUNTIME_EXCEEDS, $(HOLD_SUBCODE_RUNTIME_EXCEEDS:103), $(HOLD_REASON_RUNTIME_EXCEEDS))
""",
    "Hold_If_Disk_Exceeded": _DISK + _hold("DISK_EXCEEDED", 104, "disk usage exceeded allocated disk"),
}

_PEER_HOSTS = "$(FULL_HOSTNAME) $(IPV4_ADDRESS) $(IPV6_ADDRESS)"
_PEER_USERS = "$(authuser)@$(FULL_HOSTNAME) $(authuser)@$(IP_ADDRESS)"


def _allow(*, administrator: str, negotiator: str, daemon: str, write: str) -> str:
    return (
        f"ALLOW_READ = *\nALLOW_WRITE = {write}\nALLOW_DAEMON = {daemon}\n"
        f"ALLOW_NEGOTIATOR = {negotiator}\nALLOW_ADMINISTRATOR = {administrator}\n"
    )


def _with_flocking(who: str, peers: str) -> str:
    levels = "".join(
        f"ALLOW_{level}_{daemon} = $(ALLOW_{level}) $(FLOCK_FROM)\n"
        for level in ("READ", "WRITE")
        for daemon in ("COLLECTOR", "STARTD")
    )
    allowed = _allow(administrator=who, negotiator=who, daemon=peers, write=peers)
    return f"{allowed}{levels}ALLOW_NEGOTIATOR_SCHEDD = $(ALLOW_NEGOTIATOR) $(FLOCK_NEGOTIATOR_HOSTS)\n"


_POOL_IDENTITY = "condor@$(TRUST_DOMAIN)"

SECURITY = {
    "Host_Based": _with_flocking("$(CONDOR_HOST)", _PEER_HOSTS) + "LEGACY_ALLOW_SEMANTICS = TRUE\n",
    "User_Based": f"{_STRONG}authuser = condor\n" + _with_flocking("$(authuser)@$(CONDOR_HOST)", _PEER_USERS),
    "With_Authentication": _STRONG,
    "Strong": _ENCRYPTED,
    "FIPS": _ENCRYPTED + "FIPS = True\nSEC_DEFAULT_CRYPTO_METHODS = AES,3DES\n",
    "recommended": _ENCRYPTED
    + "".join(f"SEC_{who}_AUTHENTICATION = OPTIONAL\n" for who in ("READ", "CLIENT"))
    + _allow(
        administrator="$(1:condor)@* condor@password $(2:root@*) $(3+)",
        negotiator="$(1:condor)@* condor@password",
        daemon="$(1:condor)@* condor@password",
        write="*",
    )
    + "SECURITY_MODEL = 24.0\n",
    "recommended_v9_0": _ENCRYPTED
    + "".join(f"SEC_READ_{what} = OPTIONAL\n" for what in ("AUTHENTICATION", "ENCRYPTION", "INTEGRITY"))
    + _allow(
        administrator="$(1:condor)@* condor_pool@* $(2:root@*) $(3+)",
        negotiator="$(1:condor)@* condor_pool@*",
        daemon="$(1:condor)@* condor_pool@*",
        write="*",
    )
    + "SECURITY_MODEL = 9.0\n",
    "get_htcondor_idtokens": _ENCRYPTED
    + "TRUST_DOMAIN = $(CONDOR_HOST)\n"
    + _allow(
        administrator=f"root@* {_POOL_IDENTITY}",
        negotiator=_POOL_IDENTITY,
        daemon=_POOL_IDENTITY,
        write=_POOL_IDENTITY,
    )
    + """SEC_DEFAULT_AUTHENTICATION_METHODS = IDTOKENS, FS
SEC_READ_AUTHENTICATION_METHODS = $(SEC_DEFAULT_AUTHENTICATION_METHODS), ANONYMOUS
SEC_CLIENT_AUTHENTICATION_METHODS = $(SEC_DEFAULT_AUTHENTICATION_METHODS), ANONYMOUS
""",
}

TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "ROLE": ROLES,
    "FEATURE": FEATURES,
    "POLICY": POLICIES,
    "SECURITY": SECURITY,
}
