"""Backups of a pool: what is in one (`manifest`), how it is taken while the pool works (`take`), and how it is put back
(`restore`). `stored_state` reads and writes what lies in Redis."""
