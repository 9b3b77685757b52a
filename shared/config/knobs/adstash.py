"""Knobs of adstash, the export of job histories. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class AdstashSettings(CommonSettings):
    """What adstash reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "ADSTASH"

    adstash_sample_interval: int = knob(
        "ADSTASH_SAMPLE_INTERVAL", "1200", unit="s", least=1, meaning="between two exports"
    )
    adstash_schedd_history: bool = knob(
        "ADSTASH_SCHEDD_HISTORY", "true", meaning="export the histories of access points"
    )
    adstash_read_schedds: tuple[str, ...] = knob(
        "ADSTASH_READ_SCHEDDS", "*", meaning="names of the schedds whose histories are exported; *: all of the pool"
    )
    adstash_startd_history: bool = knob(
        "ADSTASH_STARTD_HISTORY", "false", meaning="export this machine's STARTD_HISTORY too"
    )
    startd_history: str | None = knob(
        "STARTD_HISTORY", meaning="file of the jobs that ran here; unset: startd_history in SPOOL"
    )
    adstash_ad_file: str | None = knob(
        "ADSTASH_AD_FILE", meaning="history file of this machine that is exported besides"
    )
    adstash_checkpoint_file: str = knob(
        "ADSTASH_CHECKPOINT_FILE", "$(SPOOL)/adstash_checkpoint.json", meaning="how far each source has been exported"
    )
    adstash_interface: str = knob(
        "ADSTASH_INTERFACE",
        "elasticsearch",
        choices=("elasticsearch", "opensearch", "jsonfile"),
        meaning="where records go: to a server, or to files of JSON lines in ADSTASH_JSON_DIR",
    )
    adstash_json_dir: str = knob("ADSTASH_JSON_DIR", "$(SPOOL)/adstash", meaning="directory of the files of JSON lines")
    adstash_se_host: str = knob(
        "ADSTASH_SE_HOST", "localhost:9200", meaning="host[:port] or URL of Elasticsearch or OpenSearch"
    )
    adstash_se_url_prefix: str | None = knob("ADSTASH_SE_URL_PREFIX", meaning="path before its API, behind a proxy")
    adstash_se_use_https: bool = knob("ADSTASH_SE_USE_HTTPS", "false", meaning="speak HTTPS to ADSTASH_SE_HOST")
    adstash_se_ca_certs: str | None = knob("ADSTASH_SE_CA_CERTS", meaning="file of authorities for HTTPS")
    adstash_se_username: str | None = knob("ADSTASH_SE_USERNAME", meaning="user of the server")
    adstash_se_password_file: str | None = knob(
        "ADSTASH_SE_PASSWORD_FILE", meaning="file with that user's password, which others can not read"
    )
    adstash_se_timeout: float = knob(
        "ADSTASH_SE_TIMEOUT", "120", unit="s", least=1, meaning="longest wait for one answer of the server"
    )
    adstash_se_bunch_size: int = knob(
        "ADSTASH_SE_BUNCH_SIZE", "250", least=1, most=10000, meaning="records in one request"
    )
    adstash_se_index_name: str = knob("ADSTASH_SE_INDEX_NAME", "htcondor-000001", meaning="index that records go to")
