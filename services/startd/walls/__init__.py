"""Walls between jobs, and between jobs and the machine: accounts, cgroups, namespaces, disks."""
