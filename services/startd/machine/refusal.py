"""What is wrong with the division of a machine that a configuration asks for."""

from __future__ import annotations

from shared.errors import ConfigurationError


class ImpossiblePartition(ConfigurationError):
    """The configuration asks for slots that this machine can not have (SLT-09). Names the knob and the mend."""
