"""What another pool leaves behind, read for `roost import`: the accountant's records and the queue. Pure but for
questions about files of jobs."""
