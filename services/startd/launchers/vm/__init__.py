"""Jobs that are virtual machines (the vm universe)."""
