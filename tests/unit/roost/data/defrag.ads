MyType = "Defrag"
Name = "d1"
MachinesDraining = 1
MachinesDrainingPeak = 3
DrainedMachines = 12

MyType = "Defrag"
Name = "d2"

