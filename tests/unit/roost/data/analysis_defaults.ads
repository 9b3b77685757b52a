ClusterId = 1
ProcId = 0
Owner = "a"
JobStatus = 1
JobUniverse = 5
QDate = 1795252000
RequestCpus = 1
One = 1
Two = NoThere
Requirements = TARGET.Cpus >= (One ?: 0) && TARGET.Cpus > (Two ?: -1) && TARGET.Memory > (MY.Nope ?: 100) && TARGET.Memory > ((One ?: (5))) && (RequestGPUs ?: 0) <= (TARGET.GPUs ?: 0) && TARGET.Cpus < (One ?: TARGET.Memory) && TARGET.Mips > ((One) ?: 0.5)
