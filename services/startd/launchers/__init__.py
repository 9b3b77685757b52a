"""Launchers: how a job is started, watched and ended, as a process or as a container."""
