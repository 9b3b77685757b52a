"""How fast the execution point is: `python -m bench.startd`."""
