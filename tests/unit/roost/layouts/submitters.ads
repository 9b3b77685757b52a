MyType = "Submitter"
Name = "alice@example.org"
Machine = "ap1.example.org"
ScheddName = "ap1.example.org"
RunningJobs = 12
IdleJobs = 3
HeldJobs = 1

MyType = "Submitter"
Name = "alice@example.org"
Machine = "ap2"
ScheddName = "ap2"
RunningJobs = 1
IdleJobs = 3
HeldJobs = 0

MyType = "Submitter"
Name = "group_a.bob@example.org"
Machine = "ap2"
ScheddName = "ap2"
RunningJobs = 1000
IdleJobs = 3000
HeldJobs = 0
