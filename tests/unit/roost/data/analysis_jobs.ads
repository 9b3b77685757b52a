MyType = "Job"
ClusterId = 1
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = ifthenelse(MemoryUsage isnt undefined,MemoryUsage,100)
RequestDisk = DiskUsage
Requirements = (TARGET.Arch == "X86_64" || TARGET.Arch == "ARM") && !(TARGET.Memory < RequestMemory) && (Nothing =?= undefined) && (TARGET.Disk >= RequestDisk) && TARGET.HasFoo && (1 + 1 == 2)
DiskUsage = 20
AutoClusterId = 2

MyType = "Job"
ClusterId = 1
ProcId = 1
Owner = "alice"
User = "alice@ref"
JobStatus = 2
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory
AutoClusterId = 2
LastMatchTime = 1700000100

MyType = "Job"
ClusterId = 2
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
JobUniverse = 7
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory

MyType = "Job"
ClusterId = 3
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
JobUniverse = 9
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory
GridResource = "condor a b"

MyType = "Job"
ClusterId = 3
ProcId = 1
Owner = "alice"
User = "alice@ref"
JobStatus = 5
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (Memory > 5000 || Arch=="ARM") && (HasFoo || Cpus > 3) && RequestMemory < 1000 && (false || true)
HoldReason = "bad"

MyType = "Job"
ClusterId = 4
ProcId = 0
Owner = "bob"
User = "bob@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (TARGET.A0 == 0 || (MY.B0 isnt undefined && regexp("abc.*",TARGET.Cccc))) && (TARGET.A1 == 1 || (MY.B1 isnt undefined && regexp("abc.*",TARGET.Cccc))) && (TARGET.A2 == 2 || (MY.B2 isnt undefined && regexp("abc.*",TARGET.Cccc)))
LastMatchTime = 1700000100
LastRejMatchReason = "no match found "
LastRejMatchTime = 1700000200
AutoClusterId = 1

MyType = "Job"
ClusterId = 5
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = requestmemory > 1 && foo && target.memory > 3 && (CurrentTime > 4 || KFlops > 1.5) && Cpus > bar.x && (HasFoo ? Cpus > 2 : Memory > 100)
Foo = Memory > 3 && JobUniverse > 1
bar = [x=Owner]
LastRejMatchTime = 1700000200

MyType = "Job"
ClusterId = 6
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 3
JobUniverse = 12
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = false

MyType = "Job"
ClusterId = 7
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20

MyType = "Job"
ClusterId = 8
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 3000
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus

MyType = "Job"
ClusterId = 9
ProcId = 0
Owner = "alice"
User = "alice@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (((undefined) && HasFoo) || time() > 4) && ifThenElse(Cpus > 3, Arch == "ARM", HasFoo) && ((Memory > 10) == (Cpus > 3)) && !(Memory > 10000)

MyType = "Job"
ClusterId = 20
ProcId = 0
Owner = "carl"
User = "carl@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (((undefined) || (MY.JobStatus == 1) && ((RequestMemory > 1000) ? (Name == "slot1@m2") : (Cpus > 8)))) || (((CurrentTime > 4 && time() > Memory)) || ((HasFoo) && (KFlops > 1.5)))

MyType = "Job"
ClusterId = 20
ProcId = 1
Owner = "carl"
User = "carl@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = time() > Memory

MyType = "Job"
ClusterId = 20
ProcId = 2
Owner = "carl"
User = "carl@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (Arch == "ARM" ? Arch == "X86_64" : RequestMemory < 1000)

MyType = "Job"
ClusterId = 20
ProcId = 3
Owner = "carl"
User = "carl@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (((MY.JobStatus == 1) && (false)) || ((Memory && Memory))) || ((JobStatus) || (Name == "slot1@m2"))

MyType = "Job"
ClusterId = 20
ProcId = 4
Owner = "carl"
User = "carl@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = (HasFoo) && (Memory)

MyType = "Job"
ClusterId = 20
ProcId = 5
Owner = "carl"
User = "carl@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = ((CurrentTime < 4 ? (MY.Nope) || (time() > JobStatus) : true)) || (((MY.JobStatus == 1) ? ((true) && (Memory > 5000)) : ((RequestMemory < 1000) || (time() > JobStatus))))

