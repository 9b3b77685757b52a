MyType = "HAD"
Name = "had1@x"
HadIsActive = true
HadState = "LEADER"

MyType = "Generic"
Name = "thing"
Machine = "m"

MyType = "Storage"
Name = "st"
Disk = 100
Subnet = "1.2.3"

MyType = "License"
Name = "li"

