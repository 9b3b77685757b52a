"""Machines that sleep while nobody needs them (docs/power.md)."""
