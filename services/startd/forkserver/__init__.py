"""The fork server: the parent of all jobs of one startd, a small process that outlives it.

It is started by `client` with an interpreter that imports these modules and a few of the standard library only
(`python -I -S`): forking a small process takes a fraction of a millisecond, and nothing of ours can break it. It stays
in the directory that it is given:

- `lock`: held as long as it lives, so there is one server for a directory;
- `socket`: where a restarted startd connects, and proves with `secret` who it is (`proof`); the startd that started the
  server holds the other end of a socket pair. One client at a time; the newest that has proved itself wins;
- `results/<run>`: how a run ended, if the client has not acknowledged that a moment later.

Under it every run has a *nanny*, a fork of the server that is the job's parent and a "child subreaper": whatever a
job leaves behind, also after double forks and new sessions, becomes a child of its nanny, so nothing escapes and no
marker or scan over all processes is needed. When the job's main process ends, the nanny kills what is left, adds up
what all of them used (wait4), and reports. Should the server die, the nannies see their channel close, kill their
jobs and end; should a nanny be killed, the kernel kills the job's main process (PR_SET_PDEATHSIG) and the server kills
the orphans, which come to it.

A run has the lease of its claim here, as a moment of the machine's own clock (CLOCK_BOOTTIME, which goes on while the
machine sleeps): when it has passed, the run is killed, with a startd or without one (LEA-02). A nanny that does not
end its job although it was told to is killed in its turn, and the job with it.

Where a compiler built it, the nannies are in C: `spawner.c`, which `native` keeps. The modules `nanny`, `job` and
`cgroup` do the same where it is not there.

The startd decides how a job is isolated (cgroup, account, namespaces, mounts, Landlock), and says it in the request to
spawn (`core.isolation`); here it is only carried out. `server.Server` lists the frames.
"""

from services.startd.forkserver.frames import Frame, Frames, pack

#: The version of the walls that a server puts up, which it tells in its state: one of another takes no new jobs.
WALLS = 3

__all__ = ["WALLS", "Frame", "Frames", "pack"]
