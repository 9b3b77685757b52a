"""What a DAG goes by of the DAGMAN_* knobs: this machine's, and those of its own CONFIG file, which win."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path

from engine.dag.run import Limits
from roost.personal_config import tool_config
from shared.config.effects import in_vain
from shared.config.errors import Problem, config_error
from shared.config.knobs import SubmitSettings
from shared.config.load import load_config


@dataclass(frozen=True, slots=True)
class Options:
    """Of a DAG's whole run; they stand in its journal. Durations in seconds."""

    max_rescue: int = 100
    reset_retries: bool = True
    node_log: str = ""  # absolute; empty: none
    append_vars: bool = False
    pending_report_s: float = 600.0
    hold_claim_s: int = 20
    least_priority: int | None = None  # of the jobs of all nodes; None: there is none
    suppress_notification: bool = False  # no mail about nodes, whatever they say


@dataclass(frozen=True, slots=True)
class Settings:
    """knobs: as they count for one DAG; in_vain: what its own file says, and nothing goes by."""

    knobs: SubmitSettings
    in_vain: tuple[Problem, ...] = ()

    def limits(self) -> Limits:
        knobs = self.knobs
        return Limits(
            max_jobs=knobs.dagman_max_jobs_submitted,
            max_idle=knobs.dagman_max_jobs_idle,
            max_pre=knobs.dagman_max_pre_scripts,
            max_post=knobs.dagman_max_post_scripts,
            always_post=knobs.dagman_always_run_post,
            retry_first=knobs.dagman_retry_node_first,
            depth_first=knobs.dagman_submit_depth_first,
        )

    def options(self, file: Path) -> Options:
        """file: the DAG's first, absolute."""
        knobs = self.knobs
        return Options(
            max_rescue=knobs.dagman_max_rescue_num,
            reset_retries=knobs.dagman_reset_retries_upon_rescue,
            node_log=_node_log(knobs.dagman_default_node_log or "", file),
            append_vars=knobs.dagman_default_append_vars,
            pending_report_s=knobs.dagman_pending_report_interval,
            hold_claim_s=knobs.dagman_hold_claim_time,
            suppress_notification=knobs.dagman_suppress_notification,
        )


def settings_of(config: str, directory: Path) -> Settings:
    """Of a DAG whose CONFIG is that, or empty. directory: that it is named from. Raises ConfigError, ClientError."""
    knobs = SubmitSettings.from_config(tool_config("SUBMIT"))
    own = config or knobs.dagman_config_file or ""
    if not own:
        return Settings(knobs)
    path = directory / own
    if not path.is_file():
        raise config_error(f"CONFIG {path}: there is no such file", None, "correct its name")
    said = load_config([path], subsystem="SUBMIT", env={})
    overrides = {name: text for name in said.names() if (text := said.get(name)) is not None}
    return Settings(SubmitSettings.from_config(tool_config("SUBMIT", overrides=overrides)), tuple(in_vain(said)))


def _node_log(pattern: str, file: Path) -> str:
    values = {"DAG_DIR": str(file.parent), "DAG_FILE": file.name, "OWNER": getpass.getuser()}
    for name, value in values.items():
        pattern = pattern.replace(f"@({name})", value)
    return str(file.parent / pattern) if pattern else ""
