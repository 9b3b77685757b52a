"""How hypothesis makes up examples: the same few in each run of the gate, new ones by `--hypothesis-profile fuzz`."""

import hypothesis
from hypothesis.internal.conjecture import providers

FUZZ = "fuzz"


def set_up() -> None:
    """Enter the profiles. No example fails for the time it takes: how long that is depends on what else the machine
    does."""
    hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=50)
    # Many more, and what failed is remembered.
    hypothesis.settings.register_profile(FUZZ, deadline=None, max_examples=1000, print_blob=True)
    # tests.mutation asks only whether a test fails: an example that shows it need not be made smaller.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("gate")


def choose(profile: str) -> None:
    """Of constants in the source hypothesis makes examples too, of all modules that have been imported by then: those
    depend on which tests ran before. So only where new examples are wanted anyway; and to read all of the source takes
    each worker a second, or six in a new checkout."""
    if profile != FUZZ:
        providers._get_local_constants = lambda: providers._local_constants
