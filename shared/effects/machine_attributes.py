"""Attributes of slots that HTCondor documents, and that slots here never have, or have in part.

An administrator may give slots any attribute (STARTD_ATTRS), and they have it then. Tests compare these with what
execution points publish: one that gets such an attribute leaves the table.
"""

from __future__ import annotations

from typing import Final

from shared.effects import Answer

#: No slot has these.
NEVER: Final = (
    Answer(
        "what is in use is told by each slot: Cpus, Memory, Disk, GPUs, and TotalSlotCpus and so on",
        "ExcessBackfillCpus ExcessBackfillDisk ExcessBackfillGPUs ExcessBackfillMemory TotalBackfillInUseCpus "
        "TotalBackfillInUseDisk TotalBackfillInUseMemory TotalInUseCpus TotalInUseDisk TotalInUseGPUs TotalInUseMemory",
    ),
    Answer("every execution point says in its log how far it confines jobs", "CgroupEnforced"),
    Answer(
        "machines do not find out which cloud they are in; an administrator may say it by STARTD_ATTRS",
        "CloudImage CloudInstanceID CloudInterruptible CloudPlatform CloudProvider CloudRegion CloudVMType CloudZone",
    ),
    Answer(
        "Arch, OpSys, OpSysAndVer and OpSysMajorVer tell what runs there",
        "CondorPlatform",
    ),
    Answer("HasDocker tells of an engine, and nothing of the images that it has", "DockerCachedImageSizeMb"),
    Answer("it is of Windows", "DotNetVersions WindowsBuildNumber WindowsMajorVersion WindowsMinorVersion"),
    Answer(
        "no execution point takes checkpoints of a job that goes on",
        "HasCheckpointing LastPeriodicCheckpoint",
    ),
    Answer("no execution point encrypts scratch directories", "HasEncryptExecuteDirectory HasPerFileEncryption"),
    Answer("jobs come from access points only", "HasJICLocalConfig HasJICLocalStdin"),
    Answer("Java is not measured: JavaVersion and JavaVendor tell which it is", "JavaMFlops"),
    Answer("there is no standard universe", "HasRemoteSyscalls"),
    Answer(
        "machines do not find that out; an administrator may say it by STARTD_ATTRS",
        "HasRotationalScratch",
    ),
    Answer("`roost exec` runs programs beside a job without sshd", "HasSshd"),
    Answer("what a slot can do are attributes by themselves: HasDocker, HasFileTransfer", "StarterAbilityList"),
    Answer(
        "daemons have no addresses of their own: Machine and Name tell who a slot is",
        "AddressV1 COLLECTOR_HOST_STRING PrivateNetworkName",
    ),
    Answer("daemons are known by their users of the broker: `roost identities`", "AuthenticatedIdentity"),
    Answer("machines have no end of their own that their slots would tell", "TimeToLive"),
    Answer(
        "what a run uses is in its job's ad: DiskUsage, ResidentSetSize, RemoteUserCpu",
        "CpusUsage DiskUsage ExecutableSize NumPids",
    ),
    Answer(
        "when work is fetched next, and was last, is in the startd's log",
        "LastFetchWorkCompleted LastFetchWorkSpawned NextFetchWorkDelay",
    ),
    Answer(
        "NumDynamicSlots tells how many there are now", "NewDSlotNotMatch NumDynamicSlotsTime RecentNewDSlotNotMatch"
    ),
    Answer("DaemonStartTime tells since when it runs; `roost config-val` what it goes by", "DaemonLastReconfigTime"),
    Answer("LoadAvg and CondorLoadAvg tell the load; policies may have a macro CpuBusy", "CpuBusy"),
    Answer("a job's directory is in the log of its job (001), and in its environment", "CondorScratchDir"),
    Answer("UpdatesTotal and UpdatesLost tell how many ads came", "UpdatesHistory UpdatesSequenced"),
    Answer("every execution point does", "HasStartDaemonAd HasTransferInputRemaps"),
    Answer("every startd is an execution point of its own", "IsLocalStartd"),
    Answer("a claim ends by CLAIM_WORKLIFE, which no ad tells", "ClaimEndTime MaxClaimTime"),
    Answer("a machine that can be woken is IsWakeAble", "IsWakeEnabled"),
    Answer("RemoteNegotiatingGroup tells under which group a slot was claimed", "RemoteAutoregroup"),
    Answer("TotalJobSuspendTime tells of the job", "TotalClaimSuspendTime"),
    Answer("the amounts of a virtual machine are those of its slot: Memory and Cpus", "VM_Guest_Mem"),
    Answer("the instructions that machines tell of are has_avx, has_avx2, has_avx512f, ...", "has_avx512dnni"),
    Answer("a GPU's temperature is DieTempC", "<name>BoardTempC"),
    Answer("the CUDA that a GPU's driver has is MaxSupportedVersion", "<name>RuntimeVersion"),
)

#: Slots have these, and they tell less than HTCondor's.
PART: Final = (
    Answer(
        "machines have it that may sleep (HIBERNATE_CHECK_INTERVAL), and what wakes them where their network tells",
        "HibernationLevel HibernationState HibernationSupportedStates IsWakeAble IsWakeOnLanEnabled"
        " IsWakeOnLanSupported Unhibernate WakeOnLanEnabledFlags WakeOnLanSupportedFlags",
    ),
    Answer("partitionable slots have it whose parts have GPUs", "ChildGPUs"),
    Answer("a slot that was claimed by a group's submitter has it", "RemoteNegotiatingGroup"),
    Answer("it is the name of the daemon's inbox at the broker, no address", "MyAddress StartdIpAddr"),
    Answer("the version of HTCondor whose rules are obeyed; RoostVersion is the daemon's own", "CondorVersion"),
    Answer("jobs have it; the cores of a slot are Cpus", "JobVM_VCPUS"),
    Answer("no ad has it; in expressions it is time()", "CurrentTime"),
)
