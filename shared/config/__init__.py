"""HTCondor's configuration language and the typed knobs.

from shared.config import Config, ConfigError, load_config
from shared.config.knobs import NegotiatorSettings
"""

from shared.config.config import Config, load_config
from shared.config.errors import ConfigError, Problem, Source

__all__ = ["Config", "ConfigError", "Problem", "Source", "load_config"]
