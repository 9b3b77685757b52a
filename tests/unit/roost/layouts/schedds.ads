MyType = "Scheduler"
Name = "ap1.example.org"
Machine = "ap1.example.org"
TotalRunningJobs = 12
TotalIdleJobs = 3
TotalHeldJobs = 1
TotalJobAds = 16
NumUsers = 2
ScheddIpAddr = "<1.2.3.4:9618>"

MyType = "Scheduler"
Name = "ap2"
Machine = "a-very-long-machine-name-of-schedd.example.org"
TotalRunningJobs = 123456789
TotalIdleJobs = 0
TotalHeldJobs = 0

