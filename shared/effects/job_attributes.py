"""Attributes of jobs that HTCondor documents, and that jobs here never have, or have in part.

A job may give itself any attribute (`+Name = value`), and has it then. What nobody else sets is undefined in policies
that read it. What a job asks for in vain is in roost/submit/effects.py. Tests compare these with the code.
"""

from __future__ import annotations

from typing import Final

from shared.effects import Answer

_GRID: Final = "there is no grid universe: jobs run in this pool"

#: No daemon and no submit file's command gives a job these.
UNSET: Final = (
    Answer(
        _GRID,
        "BatchExtraSubmitArgs BatchProject BatchQueue BatchRuntime BoincAuthenticatorFile CloudLabelNames "
        "EC2AmiID EC2BlockDeviceMapping EC2ElasticIp EC2IamProfileArn EC2IamProfileName "
        "EC2InstanceName EC2InstanceType EC2KeyPair EC2KeyPairFile EC2ParameterNames EC2RemoteVirtualMachineName "
        "EC2SecurityGroups EC2SecurityIDs EC2SpotPrice EC2SpotRequestID EC2StatusReasonCode "
        "EC2TagNames EC2UserData EC2UserDataFile GceAccount GceAuthFile GceImage GceJsonFile GceMachineType "
        "GceMetadata GceMetadataFile GcePreemptible GridJobStatus GridResourceUnavailableTime "
        "SubmitterGlobalJobId Nonessential",
    ),
    Answer(
        "there are no proxy certificates: `roost store-cred` keeps the tokens of services that jobs use",
        "X509UserProxy X509UserProxyEmail X509UserProxyExpiration X509UserProxyFirstFQAN X509UserProxyFQAN "
        "X509UserProxySubject X509UserProxyVOName",
    ),
    Answer(
        "a job tells who submitted it (User), and nothing of the token",
        "AuthTokenSubject AuthTokenIssuer AuthTokenGroups AuthTokenScopes AuthTokenId",
    ),
    Answer(
        "no execution point takes checkpoints of a job that goes on",
        "CkptArch CkptOpSys WantCheckpoint",
    ),
    Answer(
        "blocks of disks are not counted: BytesSent and BytesRecvd tell what was transferred",
        "BlockReads BlockWrites RecentBlockReadKbytes RecentBlockReads RecentBlockWriteKbytes RecentBlockWrites IOWait",
    ),
    Answer("a run's use of GPUs is GPUsAverageUsage and GPUsMemoryUsage", "GPUsUsage"),
    Answer("when spooled output was fetched is told by StageOutFinish", "StageOutStart"),
    Answer(
        "a startd that is away is told by the job event log (022, 023, 024), and counted in NumJobReconnects",
        "JobCurrentReconnectAttempt JobDisconnectedDate JobReconnectFailures TotalJobReconnectAttempts "
        "LastJobLeaseRenewal",
    ),
    Answer(
        "times of a job's life are QDate, JobStartDate, JobCurrentStartDate, JobCurrentStartExecutingDate and "
        "CompletionDate; its time on slots is RemoteWallClockTime, and that of its last run LastRemoteWallClockTime",
        "InitialWaitDuration JobMaterializeDate",
    ),
    Answer("the items of a factory's jobs are kept in the queue's database", "JobMaterializeItemsFile"),
    Answer("jobs run at execution points: RemoteUserCpu and RemoteSysCpu", "LocalSysCpu LocalUserCpu"),
    Answer("it says why a job was evicted, without a number of its own", "VacateReasonSubCode"),
    Answer("there are no job sets: batch_name groups jobs", "JobSetId JobSetName"),
    Answer("a released job is idle", "JobStatusOnRelease"),
    Answer("daemons have no addresses of their own: RemoteHost names the slot", "StartdPrincipal StarterIpAddr"),
    Answer("files of the scratch directory are not counted: DiskUsage is their size", "ScratchDirFileCount"),
    Answer("it is of Windows", "NTDomain WindowsBuildNumber WindowsMajorVersion WindowsMinorVersion"),
    Answer("it is of the standard universe", "WantRemoteIO"),
    Answer("it is of grid jobs: Out and Err say where output goes", "TransferErr TransferOut"),
    Answer("NFS is left to keep its own cache", "IwdFlushNFSCache"),
    Answer("a job tells the services whose tokens it uses in OAuthServicesNeeded", "UseOAuthServices"),
    Answer("deferred jobs have DeferralTime, DeferralWindow and DeferralPrepTime", "DeferralOffset"),
    Answer("jobs tell nothing of the machine of their submit", "CondorPlatform"),
    Answer(
        "a node's job tells its try by DAGManNodeRetry; a DAG counts its idle and held jobs, and its nodes by state",
        "DAGNodeRetry DAG_AdUpdateTime DAG_InRecovery DAG_JobsCompleted DAG_JobsRunning DAG_JobsSubmitted",
    ),
    Answer("virtual machines get their addresses from their hosts", "VM_MACAddr"),
    Answer(
        "commands before and after a program belong into a script that calls it",
        "PreArgs PreArguments PreEnv PreEnvironment SuccessPreExitBySignal SuccessPreExitCode SuccessPreExitSignal "
        "PostArgs PostArguments PostEnv PostEnvironment SuccessPostExitBySignal SuccessPostExitCode "
        "SuccessPostExitSignal PreCmdExitBySignal PreCmdExitCode PreCmdExitSignal PostCmdExitBySignal "
        "PostCmdExitCode PostCmdExitSignal",
    ),
)

#: Jobs have these, and they tell less than HTCondor's.
PART: Final = (
    Answer(
        "it is as it was when the job was submitted, and nothing goes by it",
        "CurrentHosts MaxHosts MinHosts NumRestarts NumSystemHolds",
    ),
    Answer("jobs in Docker have it", "BlockReadKbytes BlockWriteKbytes"),
    Answer("offline and absent machines have it, no job", "Absent"),
)
