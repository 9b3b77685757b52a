MyType = "Machine"
Name = "s0@a"
Machine = "a"
Cpus=1
Memory=1024
OpSys = "LINUX"
OpSysAndVer = "Debian13"
OpSysShortName = "Debian"

MyType = "Machine"
Name = "s1@a"
Machine = "a"
Cpus=1
Memory=1024
OpSysAndVer = "Debian13"
OpSysShortName = "Debian"

MyType = "Machine"
Name = "s2@a"
Machine = "a"
Cpus=1
Memory=1024
Arch = 7
OpSys = "LINUX"
OpSysAndVer = "Debian13"
OpSysShortName = "Debian"

MyType = "Machine"
Name = "s3@a"
Machine = "a"
Cpus=1
Memory=1024
Arch = "X86_64"
OpSysAndVer = "Debian13"
OpSysShortName = "Debian"

MyType = "Machine"
Name = "s4@a"
Machine = "a"
Cpus=1
Memory=1024
OpSys = "LINUX"
OpSysShortName = "Debian"

MyType = "Machine"
Name = "s5@a"
Machine = "a"
Cpus=1
Memory=1024
Arch = "ppc"
OpSys = "LINUX"

MyType = "Machine"
Name = "s6@a"
Machine = "a"
Cpus=1
Memory=1024

MyType = "Machine"
Name = "s7@a"
Machine = "a"
Cpus=1
Memory=1024
Arch = undefined
OpSys = "WINDOWS"
OpSysAndVer = "WINDOWS1000"
OpSysShortName = "Win10"

MyType = "Machine"
Name = "s8@a"
Machine = "a"
Cpus=1
Memory=1024
OpSys = 3
OpSysAndVer = "Debian13"

MyType = "Machine"
Name = "s9@a"
Machine = "a"
Cpus=1
Memory=1024
Arch = ""
OpSys = "LINUX"
OpSysAndVer = "Debian13"

