"""A recorded interval once more, under virtual time, through the real negotiator: `roost what-if`."""
