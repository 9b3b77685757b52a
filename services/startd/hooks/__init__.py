"""Hooks: programs of the administrator that fetch work for slots, and that prepare, watch and end jobs."""
