"""The master: starts the daemons that DAEMON_LIST names on this machine, and starts again those that end."""
