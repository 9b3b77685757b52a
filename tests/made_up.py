"""How hypothesis makes up examples: the same few in each run of the gate, new ones by `--hypothesis-profile fuzz`."""

import hypothesis


def set_up() -> None:
    """Enter the profiles. No example fails for the time it takes: how long that is depends on what else the machine
    does."""
    hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=50)
    # Many more, and what failed is remembered.
    hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=1000, print_blob=True)
    # tests.mutation asks only whether a test fails: an example that shows it need not be made smaller.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("gate")
