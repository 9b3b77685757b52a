MyType = "Grid"
Name = "g1"
NumJobs = 3
SubmitsAllowed = 10
SubmitsWanted = 2
RunningJobs = 1
IdleJobs = 2

MyType = "Grid"
Name = "g2"

