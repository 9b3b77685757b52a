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
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory

MyType = "Job"
ClusterId = 2
ProcId = 0
Owner = "alice@ref"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory

MyType = "Job"
ClusterId = 3
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
Requirements = TARGET.Memory >= RequestMemory
AccountingGroup = "g.alice"

MyType = "Job"
ClusterId = 4
ProcId = 0
Owner = "bob"
User = "alice@x"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory
Submitter = "carl"

MyType = "Job"
ClusterId = 5
ProcId = 0
Owner = "alice"
User = "zed"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory

MyType = "Job"
ClusterId = 6
ProcId = 0
Owner = "ALICE"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory

MyType = "Job"
ClusterId = 7
ProcId = 0
Owner = "x"
User = "alice"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory

MyType = "Job"
ClusterId = 8
ProcId = 0
Owner = "x"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory
AcctGroupUser = "alice"

MyType = "Job"
ClusterId = 9
ProcId = 0
Owner = "x"
JobStatus = 1
JobUniverse = 5
QDate = 1700000000
Cmd = "/bin/x"
RequestCpus = 1
RequestMemory = 100
RequestDisk = 20
Requirements = TARGET.Memory >= RequestMemory
AccountingGroup = "alice@ref"
Submitter = "alice@ref"

