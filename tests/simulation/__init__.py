"""Whole pools of real daemons in one process, under virtual time, with seeded faults: docs/simulation.md."""
