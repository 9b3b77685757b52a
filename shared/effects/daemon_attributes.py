"""Attributes that the ads of HTCondor's schedds, collectors and negotiators have, and that
those of daemons here lack. A test compares this with ads of both: tests/data/reference_metrics/ads_of_daemons.json."""

from __future__ import annotations

from typing import Final

from shared.effects import Answer

#: Of any daemon.
_ALL: Final = (
    Answer(
        "daemons have no addresses of their own: MyAddress is the name of the daemon's inbox at the broker",
        "AddressV1 CollectorHost CollectorIpAddr NegotiatorIpAddr PrivateNetworkName",
    ),
    Answer(
        "daemons are known by their users of the broker: `roost identities`",
        "AuthenticatedIdentity AuthenticationMethod",
    ),
    Answer(
        "RoostVersion is the daemon's own; slots tell the version of HTCondor whose rules are obeyed, and their system",
        "CondorPlatform CondorVersion",
    ),
    Answer(
        "DaemonStartTime tells since when it runs; `roost config-val` what it goes by",
        "DaemonLastReconfigTime",
    ),
    Answer("what a machine has is told by its slots", "DetectedCpus DetectedMemory VirtualMemory"),
    Answer("LastHeardFrom and DaemonStartTime tell times", "MyCurrentTime"),
    Answer("daemons keep the account that starts them", "RealUid"),
    Answer("UpdatesTotal and UpdatesLost tell how many ads came", "UpdatesHistory"),
    Answer("`roost config-val COLLECTOR_UPDATE_INTERVAL` tells it", "UpdateInterval"),
)
#: By the type of the ad.
NEVER: Final = {
    "Scheduler": (
        *_ALL,
        Answer("UpdatesTotal and UpdatesLost tell how many ads came", "UpdatesSequenced"),
        Answer(
            "a schedd asks for matches whenever some jobs wait",
            "CurbMatchmaking ScheddSwapExhausted WantResAd",
        ),
        Answer(
            "transfers are bounded by their number alone",
            "FileTransferDiskThrottleHigh FileTransferDiskThrottleLimit FileTransferDiskThrottleLow",
        ),
        Answer(
            "what waits is TransferQueueMBWaitingToDownload and TransferQueueMBWaitingToUpload",
            "FileTransferMBWaitingToDownload FileTransferMBWaitingToUpload",
        ),
        Answer("in which order transfers wait is not told", "TransferQueueUserExpr"),
        Answer(
            "how many transfers go on and wait is told as it is now",
            "TransferQueueDownloadWaitTime TransferQueueDownloadWaitTimePeak TransferQueueNumDownloadingPeak "
            "TransferQueueNumUploadingPeak TransferQueueNumWaitingToDownloadPeak TransferQueueNumWaitingToUploadPeak "
            "TransferQueueUploadWaitTime TransferQueueUploadWaitTimePeak",
        ),
        Answer("when the queue was begun is not kept", "JobQueueBirthdate"),
        Answer("a job whose run broke off may start again at once", "JobsCoolDown RecentJobsCoolDown"),
        Answer("NumUsers tells how many have jobs", "NumOwners"),
        Answer("Autoclusters tells how many there are", "RecentAutoclusters"),
        Answer("the factories of late materialization are listed by `roost q -factory`", "JobsUnmaterialized"),
        Answer(
            "histograms are of all jobs since the daemon's start: JobsCompletedRuntimes and so on",
            "RecentJobsBadputRuntimes RecentJobsBadputSizes RecentJobsCompletedRuntimes RecentJobsCompletedSizes",
        ),
        Answer("time that came to nothing is told together, as JobsAccumBadputTime", "JobsRestartReconnectsBadput"),
        Answer("jobs with odd times are not counted", "JobsWierdTimestamps RecentJobsWierdTimestamps"),
        Answer(
            "negotiators tell how many requests they looked at: LastNegotiationCycleNumJobsConsidered<N>",
            "RecentResourceRequestsSent ResourceRequestsSent",
        ),
        Answer(
            "`roost config-val` tells the bounds of jobs beside the schedd",
            "MaxRunningSchedulerJobsPerOwner StartLocalUniverse StartSchedulerUniverse",
        ),
    ),
    "Collector": (
        *_ALL,
        Answer(
            "questions are counted together: QueriesTotal, ActiveQueryWorkers, PendingQueries",
            "ActiveQueryWorkersPeak ForkQueriesFromNEGOTIATOR ForkQueriesFromTOOL InProcQueriesFromSCHEDD "
            "InProcQueriesFromTOOL PendingQueriesPeak RecentForkQueriesFromNEGOTIATOR RecentForkQueriesFromTOOL "
            "RecentInProcQueriesFromSCHEDD RecentInProcQueriesFromTOOL",
        ),
        Answer(
            "machines behind a firewall connect to the broker: there is nothing for CCB to do",
            "CCBEndpointsConnected CCBEndpointsConnectedPeak CCBEndpointsRegistered CCBEndpointsRegisteredPeak "
            "CCBReconnects CCBRequests CCBRequestsFailed CCBRequestsNotFound CCBRequestsSucceeded RecentCCBReconnects "
            "RecentCCBRequests RecentCCBRequestsFailed RecentCCBRequestsNotFound RecentCCBRequestsSucceeded",
        ),
        Answer("no mail is sent about daemons", "CondorAdmin"),
        Answer(
            "running jobs are counted together: RunningJobs",
            " ".join(
                f"{when}JobsRunning{universe}"
                for when in ("Current", "Max")
                for universe in (
                    *("All", "Grid", "Java", "Linda", "Local", "MPI", "PVM", "PVMD", "Parallel", "Pipe", "Scheduler"),
                    *("Standard", "Unknown", "VM", "Vanilla"),
                )
            ),
        ),
        Answer("how many ads there are is told as it is now", "MachineAdsPeak SubmitterAdsPeak"),
        Answer("MonitorSelfCPUUsage tells both", "MonitorSelfSysCpuTime MonitorSelfUserCpuTime"),
        Answer(
            "updates are counted of all types together: UpdatesTotal, UpdatesLost, RecentUpdatesTotal",
            " ".join(
                [
                    *("UpdatesInitial", "RecentUpdatesInitial"),
                    *("RecentUpdatesLost", "RecentUpdatesLostMax", "RecentUpdatesLostRatio"),
                    *(
                        f"{recent}Updates{what}_{kind}"
                        for recent in ("", "Recent")
                        for what in ("Initial", "Lost", "Total")
                        for kind in (
                            *("Accounting", "Collector", "Negotiator", "Schedd", "Slot", "StartD", "Submittor"),
                        )
                    ),
                ]
            ),
        ),
    ),
    "Negotiator": (
        *_ALL,
        Answer("UpdatesTotal and UpdatesLost tell how many ads came", "UpdatesSequenced"),
        Answer(
            "processor time is told of the cycle as a whole: LastNegotiationCycleCpuTime<N>",
            " ".join(
                f"LastNegotiationCycle{phase}CpuTime{number}"
                for phase in ("Phase1", "Phase2", "Phase3", "Phase4", "Prefetch")
                for number in range(3)
            ),
        ),
        Answer(
            "rounds are counted as LastNegotiationCyclePieSpins<N>",
            "LastNegotiationCycleSlotShareIter0 LastNegotiationCycleSlotShareIter1 LastNegotiationCycleSlotShareIter2",
        ),
    ),
}
