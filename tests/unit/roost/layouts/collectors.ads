MyType = "Collector"
Name = "My Pool - cm.example.org@cm.example.org"
Machine = "cm.example.org"
RunningJobs = 12
IdleJobs = 3
HostsTotal = 10
HostsClaimed = 2
HostsUnclaimed = 8
