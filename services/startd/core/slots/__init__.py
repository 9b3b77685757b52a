"""Slots, claims and the runs on them: every decision about them, without I/O."""
