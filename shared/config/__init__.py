"""HTCondor's configuration language and the typed knobs.

from shared.config import Config, ConfigError, load_config
from shared.config.knobs import NegotiatorSettings
"""

from shared.config.config import Config
from shared.config.errors import ConfigError, Problem, Source
from shared.config.load import load_config

__all__ = ["Config", "ConfigError", "Problem", "Source", "load_config"]
