"""The version of this release, as `pyproject.toml` has it (a test compares them)."""

VERSION = "0.1.0"
