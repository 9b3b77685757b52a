"""The pure matchmaking engine, which no daemon owns.

The negotiator, the schedd, the startd, `roost negotiate`, `roost what-if` and `roost analyze` all decide with it. It
takes data and returns data: no I/O, no clock, no randomness, no logging. It imports `shared` only, and of that neither
the bus nor the store (`.importlinter` holds both).
"""
