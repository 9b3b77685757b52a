"""Cron jobs of a daemon (daemon ClassAd hooks): programs that a startd or schedd runs from time to time, whose output
becomes attributes of its ads.

`jobs` reads the knobs, `output` the language in which programs answer, `schedule` decides who runs when; all three
are pure. `crontab` is the shell that runs the programs.
"""
