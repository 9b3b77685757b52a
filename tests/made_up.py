"""How hypothesis makes up examples: the same few in each run of the gate, new ones by `--hypothesis-profile fuzz`."""

import hypothesis
from hypothesis.internal.conjecture import providers

FUZZ = "fuzz"
#: Examples of a test that does not say how many, when fuzzing.
FUZZED = 1000


def set_up() -> None:
    """Enter the profiles. No example fails for the time it takes: how long that is depends on what else the machine
    does."""
    hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=50)
    # Many more, and what failed is remembered.
    hypothesis.settings.register_profile(FUZZ, deadline=None, max_examples=FUZZED, print_blob=True)
    # tests.mutation asks only whether a test fails: an example that shows it need not be made smaller.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("gate")


#: Of the examples that a test asks for the gate draws so many, and fuzzing so many times as many.
SHARE, MORE = 0.4, 20
#: A test that asks for this many or fewer has its reasons.
FEW = 20


def fit(test: object, profile: str) -> None:
    """Have a test of hypothesis draw as many examples as the profile is to have of it."""
    test = getattr(test, "__func__", test)
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is None or profile not in ("", "gate", FUZZ) or hasattr(test, "_roost_fitted"):
        return
    asked = own.max_examples
    if profile == FUZZ:  # the profile's own number is one of fuzzing already
        number = asked if asked >= FUZZED else asked * MORE
    else:
        number = max(min(asked, FEW), int(asked * SHARE))
    test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=number)  # type: ignore[attr-defined]
    test._roost_fitted = True  # type: ignore[attr-defined]


def choose(profile: str) -> None:
    """Of constants in the source hypothesis makes examples too, of all modules that have been imported by then: those
    depend on which tests ran before. So only where new examples are wanted anyway; and to read all of the source takes
    each worker a second, or six in a new checkout."""
    if profile != FUZZ:
        providers._get_local_constants = lambda: providers._local_constants
