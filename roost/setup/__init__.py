"""A machine becomes part of a pool: what is written there, and how systemd starts its daemons."""
