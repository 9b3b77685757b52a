"""What a pool does when its parts are killed, hung or cut off while jobs run: `python -m bench.faults`."""
