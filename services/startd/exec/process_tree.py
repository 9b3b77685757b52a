"""What a tree of processes uses, where no control group counts it."""

from __future__ import annotations

import psutil

from services.startd.core.run.job_launch import Measured
from services.startd.forkserver.processes import memory_of_kib


def measure_tree(first: int) -> Measured:
    """What the processes below a first one (a nanny, the init of a container) use; those that end meanwhile count as
    far as they were seen. Memory that several share counts once, where the kernel tells whose it is."""
    user = system = 0.0
    rss = size = count = 0
    try:
        processes = psutil.Process(first).children(recursive=True)
    except psutil.NoSuchProcess:
        return Measured()
    for process in processes:
        try:
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        user += times.user + times.children_user
        system += times.system + times.children_system
        rss += memory_of_kib(process.pid) or memory.rss // 1024
        size += memory.vms
        count += 1
    return Measured(user, system, size // 1024, rss, count)
