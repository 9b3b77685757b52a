AddressV1 = "{[ p=\"primary\"; a=\"127.0.0.1\"; port=21151; n=\"Internet\"; alias=\"refhost.ref\"; ], [ p=\"IPv4\"; a=\"127.0.0.1\"; port=21151; n=\"Internet\"; alias=\"refhost.ref\"; ]}"
AuthenticatedIdentity = "condor@family"
AuthenticationMethod = "FAMILY"
COLLECTOR_StartTime = 1795352098
COLLECTOR_Timestamp = 1783878459
CondorPlatform = "$CondorPlatform: X86_64-Debian_13 $"
CondorVersion = "$CondorVersion: 23.9.6 2026-07-12 PackageID: 23.9.6+dfsg-2.1+b10 $"
DaemonCoreDutyCycle = 0.003545062769709451
DaemonLastReconfigTime = 1795352098
DaemonStartTime = 1795352098
DetectedCpus = 2
DetectedMemory = 24105
LastHeardFrom = 1795352103
LinuxCapabilities = "0x1fffeffffff"
Machine = "refhost.ref"
MASTER_StartTime = 1795352098
MASTER_Timestamp = 1783878459
MasterIpAddr = "<127.0.0.1:21151?addrs=127.0.0.1-21151&alias=refhost.ref>"
MonitorSelfAge = 2
MonitorSelfCPUUsage = 0.5
MonitorSelfImageSize = 24244
MonitorSelfRegisteredSocketCount = 1
MonitorSelfResidentSetSize = 16464
MonitorSelfSecuritySessions = 2
MonitorSelfTime = 1795352098
MyAddress = "<127.0.0.1:21151?addrs=127.0.0.1-21151&alias=refhost.ref>"
MyCurrentTime = 1795352103
MyType = "DaemonMaster"
Name = "refhost.ref"
NEGOTIATOR_StartTime = 1795352098
NEGOTIATOR_Timestamp = 1783878459
PrivateNetworkName = "refhost.ref"
RealUid = 0
RecentDaemonCoreDutyCycle = 0.003545062769709451
SCHEDD_StartTime = 1795352098
SCHEDD_Timestamp = 1783878459
STARTD_StartTime = 1795352098
STARTD_Timestamp = 1783878459
UpdateSequenceNumber = 1
UpdatesHistory = "00000000000000000000000000000000"
UpdatesLost = 0
UpdatesSequenced = 0
UpdatesTotal = 1

MyType = "DaemonMaster"
Name = "m2"
CondorVersion = "$CondorVersion: 10.9.0 2023-09-28 BuildID: 678199 PackageID: 10.9.0-1 $"
DetectedCpus = 128
DetectedMemory = 1031000
DaemonStartTime = 1794352000
LastHeardFrom = 1795352000

MyType = "DaemonMaster"
Name = "m3"

