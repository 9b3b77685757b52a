"""Every knob of HTCondor 23.9.6 that nothing goes by here, or that only a part of what HTCondor does goes by.

A knob that is declared in this package and stands in neither table has effect. shared.config.effects reads them.
Tests compare the tables with what the code reads, with the names that HTCondor's manual has, and with those that its
library knows: a knob that gets its effect leaves its table in the same change. It is long, as
HTCondor has so many knobs.

In a name, `<SUBSYS>` stands for a daemon of HTCondor's, `<N>` for a number, and anything else in angle brackets for one
or more letters, digits, dots and underscores.
"""

from __future__ import annotations

from typing import Final

from shared.effects import Answer

_SCHEDD, _STARTD, _COLLECTOR, _NEGOTIATOR = ("SCHEDD",), ("STARTD",), ("COLLECTOR",), ("NEGOTIATOR",)
_GANGLIAD, _HAD, _SUBMIT = ("GANGLIAD",), ("HAD",), ("SUBMIT",)

#: Programs and daemons of HTCondor's and of ours, whose names begin those of their knobs.
DAEMONS: Final = (
    "MASTER COLLECTOR NEGOTIATOR SCHEDD STARTD SHADOW STARTER SUBMIT SUBMITTER TOOL CREDD KBDD GRIDMANAGER HAD "
    "REPLICATION TRANSFERER JOB_ROUTER ROOSTER DEFRAG GANGLIAD METRICD ADSTASH SHARED_PORT DAGMAN VM_GAHP C_GAHP "
    "EC2_GAHP GCE_GAHP ARC_GAHP AZURE_GAHP ANNEX ANNEX_GAHP ANNEXD PREEN PROCD KERNEL_TUNING GATEWAY JOURNAL REGISTRAR"
)

#: Nothing goes by these.
NONE: Final = (
    # ---------------------------------------------------------------- who may do what
    Answer(
        "nothing is agreed on between two daemons: the broker knows each by its user (docs/security.md), and TLS is "
        "on or off for the broker, the store and the gateway as wholes (docs/tls.md)",
        "SEC_<level>_ENCRYPTION SEC_<level>_INTEGRITY SEC_<level>_NEGOTIATION SEC_<level>_CRYPTO_METHODS "
        "SEC_<level>_AUTHENTICATION SEC_<level>_AUTHENTICATION_TIMEOUT SEC_<level>_SESSION_DURATION "
        "SEC_<level>_SESSION_LEASE SEC_SESSION_DURATION_SLOP SEC_TCP_SESSION_TIMEOUT SEC_TCP_SESSION_DEADLINE "
        "SEC_INVALIDATE_SESSIONS_VIA_TCP SEC_USE_FAMILY_SESSION SEC_ENABLE_MATCH_PASSWORD_AUTHENTICATION "
        "SEC_ENABLE_REMOTE_ADMINISTRATION SEC_DEBUG_PRINT_KEYS ENCRYPT_SECRETS SEC_USE_LOW_DATA_MODE "
        "DISABLE_AUTHENTICATION_IP_CHECK LEGACY_ALLOW_SEMANTICS FIPS HAD_FIPS_MODE",
    ),
    Answer(
        "what a daemon may say is granted to its user of the broker, by one table (docs/security.md), and by no "
        "list of hosts",
        "ALLOW_ADVERTISE_<daemon> DENY_ADVERTISE_<daemon> ALLOW_CLIENT DENY_CLIENT ALLOW_SOAP DENY_SOAP ALLOW_OWNER "
        "DENY_OWNER ALLOW_ADMIN_COMMANDS",
    ),
    Answer(
        "daemons are known by their users of the broker, people by tokens, certificates and accounts at the gateway "
        "(docs/security.md); there is no pool password",
        "SEC_PASSWORD_FILE SEC_PASSWORD_DOMAIN SEC_CLAIMTOBE_USER SEC_CLAIMTOBE_INCLUDE_DOMAIN FS_REMOTE_DIR "
        "FS_LOCAL_DIR FS_ALLOW_UNSAFE FS_ROOT_TO_CONDOR SEC_SYSTEM_KNOWN_HOSTS BOOTSTRAP_SSL_SERVER_TRUST "
        "BOOTSTRAP_SSL_SERVER_TRUST_PROMPT_USER COLLECTOR_BOOTSTRAP_SSL_CERTIFICATE AUTH_SSL_AUTOGENERATE_CERTFILE "
        "AUTH_SSL_AUTOGENERATE_KEYFILE SEC_ENABLE_IMPERSONATION_TOKENS SEC_IMPERSONATION_TOKEN_LIMITS "
        "SEC_TOKEN_REQUEST_LIMITS SEC_ENABLE_TOKEN_REQUEST SEC_ENABLE_TOKEN_FETCH SEC_TOKEN_AP_SIGNING_KEY_NAME "
        "SEC_ACCEPT_CAPABILITY_TOKENS SEC_USE_TOKENS_DATABASE TOKENS_DATABASE QUEUE_ALL_USERS_TRUSTED "
        "QUEUE_SUPER_USER_MAY_IMPERSONATE ALLOW_SUBMIT_FROM_KNOWN_USERS_ONLY USER_MAPFILE RUNTIME_CONFIG_ADMIN",
    ),
    Answer(
        "there is no Kerberos, GSI or VOMS: log in with SCITOKENS, IDTOKENS or SSL (docs/security.md)",
        "KERBEROS_CLIENT_KEYTAB KERBEROS_MAP_FILE KERBEROS_SERVER_KEYTAB KERBEROS_SERVER_PRINCIPAL "
        "KERBEROS_SERVER_SERVICE KERBEROS_SERVER_USER HAVE_EXT_KRB5 AUTH_SSL_ALLOW_CLIENT_PROXY "
        "AUTH_SSL_USE_CLIENT_PROXY_ENV_VAR AUTH_SSL_USE_VOMS_IDENTITY AUTH_SSL_REQUIRE_CLIENT_MAPPING "
        "USE_VOMS_ATTRIBUTES DELEGATE_FULL_JOB_GSI_CREDENTIALS DELEGATE_JOB_GSI_CREDENTIALS "
        "DELEGATE_JOB_GSI_CREDENTIALS_LIFETIME DELEGATE_JOB_GSI_CREDENTIALS_REFRESH GSI_DAEMON_NAME "
        "GSI_DAEMON_DIRECTORY GSI_DAEMON_CERT GSI_DAEMON_KEY GSI_DAEMON_PROXY GSI_DAEMON_TRUSTED_CA_DIR "
        "GSI_AUTHZ_CONF GSI_DELEGATION_KEYBITS GRIDMAP CRED_MIN_TIME_LEFT SHADOW_CHECKPROXY_INTERVAL "
        "CONDOR_GATEKEEPER",
    ),
    Answer(
        "CERTIFICATE_MAPFILE alone says who somebody is, and issuers are those of ROOST_SCITOKENS_ISSUER_<name>",
        "SEC_SCITOKENS_PLUGIN_<name>_COMMAND SEC_SCITOKENS_PLUGIN_<name>_MAPPING SEC_SCITOKENS_PLUGIN_NAMES "
        "SEC_SCITOKENS_ALLOW_EXTRA_SLASH SEC_SCITOKENS_CACHE SCITOKENS_FILE SEC_ENABLE_SCITOKEN_EXCHANGE",
    ),
    Answer(
        "there is no condor_credd: `roost store-cred` keeps tokens at the access point, below "
        "SEC_CREDENTIAL_DIRECTORY_OAUTH, and a program of yours renews them (docs/submit.md)",
        "CREDD CREDD_<what> SEC_CREDENTIAL_DIRECTORY_KRB SEC_CREDENTIAL_GETTOKEN_OPTS SEC_CREDENTIAL_MONITOR "
        "SEC_CREDENTIAL_PRODUCER SEC_CREDENTIAL_STORER SEC_CREDENTIAL_SWEEP_DELAY SEC_CREDENTIAL_SWEEP_INTERVAL "
        "SEC_CREDENTIAL_REFRESH_INTERVAL CREDMON_KRB CREDMON_OAUTH CREDMON_<what> LOCAL_CREDMON_<what> "
        "CONDOR_CREDENTIAL_DIR CRED_SUPER_USERS AUTO_INCLUDE_CREDD_IN_DAEMON_LIST BOX_AUTHORIZATION_URL "
        "BOX_TOKEN_URL DROPBOX_AUTHORIZATION_URL DROPBOX_TOKEN_URL GDRIVE_AUTHORIZATION_URL GDRIVE_TOKEN_URL "
        "ONEDRIVE_AUTHORIZATION_URL ONEDRIVE_TOKEN_URL <OAuth2Service>_RETURN_URL_SUFFIX "
        "<OAuth2Service>_CLIENT_SECRET_FILE MAX_CREDD_LOG",
        _SCHEDD,
    ),
    Answer(
        "credentials of OAuth services are brought by `roost store-cred`, and no web page asks for them",
        "<OAuth2Service>_AUTHORIZATION_URL <OAuth2Service>_CLIENT_ID <OAuth2Service>_TOKEN_URL",
        _SCHEDD,
        told=False,
    ),
    # ---------------------------------------------------------------- addresses and connections
    Answer(
        "daemons speak over RabbitMQ and have no port of their own",
        "COLLECTOR_PORT HAD_USE_SHARED_PORT NEGOTIATOR_SOCKET_CACHE_SIZE SHARED_PORT_PORT WANT_UDP_COMMAND_SOCKET "
        "SHARED_PORT SHARED_PORT_ARGS SHARED_PORT_AUDIT_LOG SHARED_PORT_DAEMON_AD_FILE SHARED_PORT_DEFAULT_ID "
        "SHARED_PORT_MAX_WORKERS SHARED_PORT_MAX_FILE_DESCRIPTORS MAX_SHARED_PORT_AUDIT_LOG "
        "MAX_NUM_SHARED_PORT_AUDIT_LOG USE_SHARED_PORT COLLECTOR_USES_SHARED_PORT DAEMON_SOCKET_DIR "
        "AUTO_INCLUDE_SHARED_PORT_IN_DAEMON_LIST HAD_SOCKET_NAME REPLICATION_SOCKET_NAME HAD_PORT REPLICATION_PORT "
        "HIGHPORT LOWPORT IN_HIGHPORT IN_LOWPORT OUT_HIGHPORT OUT_LOWPORT NETWORK_HOSTNAME "
        "NETWORK_MAX_PENDING_CONNECTS PRIVATE_NETWORK_INTERFACE PRIVATE_NETWORK_NAME TCP_FORWARDING_HOST "
        "TCP_KEEPALIVE_INTERVAL TCP_UPDATE_COLLECTORS UDP_LOOPBACK_FRAGMENT_SIZE UDP_NETWORK_FRAGMENT_SIZE "
        "SOCKET_LISTEN_BACKLOG UPDATE_COLLECTOR_WITH_TCP UPDATE_VIEW_COLLECTOR_WITH_TCP "
        "NONBLOCKING_COLLECTOR_UPDATE NEGOTIATOR_USE_NONBLOCKING_STARTD_CONTACT ALWAYS_REUSEADDR "
        "MAX_ACCEPTS_PER_CYCLE MAX_UDP_MSGS_PER_CYCLE MAX_TIMER_EVENTS_PER_CYCLE MAX_REAPS_PER_CYCLE "
        "RECEIVE_MSGS_DURATION COLLECTOR_SOCKET_BUFSIZE COLLECTOR_TCP_SOCKET_BUFSIZE PIPE_BUFFER_MAX CLIENT_TIMEOUT "
        "QUERY_TIMEOUT Q_QUERY_TIMEOUT <SUBSYS>_TIMEOUT_MULTIPLIER <SUBSYS>_ADDRESS_FILE "
        "<SUBSYS>_SUPER_ADDRESS_FILE <SUBSYS>_DAEMON_AD_FILE DEAD_COLLECTOR_MAX_AVOIDANCE_TIME "
        "COLLECTOR_HOST_FOR_NEGOTIATOR COLLECTOR_HOST_STRING SCHEDD_SEND_VACATE_VIA_TCP STARTD_CONTACT_TIMEOUT "
        "MAX_PENDING_STARTD_CONTACTS TOOLS_ASSUME_FIREWALLS STARTD_SENDS_ALIVES STARTER_HANDLES_ALIVES "
        "NEGOTIATOR_HOST ACCOUNTANT_HOST",
    ),
    Answer(
        "addresses are the broker's (ROOST_AMQP_URL), the gateway's (ROOST_GATEWAY_BIND) and the access point's for "
        "files (ROOST_SCHEDD_TRANSFER_HOST)",
        "NETWORK_INTERFACE BIND_ALL_INTERFACES ADVERTISE_IPV4_FIRST ENABLE_IPV4 ENABLE_IPV6 PREFER_IPV4 "
        "PREFER_OUTBOUND_IPV4 IGNORE_DNS_PROTOCOL_PREFERENCE IGNORE_TARGET_PROTOCOL_PREFERENCE NO_DNS "
        "DNS_CACHE_REFRESH HOST_ALIAS USE_COLLECTOR_HOST_CNAME CM_IP_ADDR SCHEDD_HOST",
    ),
    Answer(
        "machines behind a firewall connect to the broker, and nobody connects to them: there is nothing for CCB to do",
        "CCB_<what> USE_OUTBOUND_CCB",
    ),
    # ---------------------------------------------------------------- the master
    Answer(
        "the master (`python -m services.master`), systemd, a container engine or `roost up` starts daemons again: "
        "after 0.1 s, later each time",
        "DC_DAEMON_LIST MASTER MASTER_NAME MASTER_NEW_BINARY_DELAY MASTER_NEW_BINARY_RESTART "
        "MASTER_CHECK_NEW_EXEC_INTERVAL MASTER_RECOVER_FACTOR MASTER_<daemon>_BACKOFF_CEILING "
        "MASTER_<daemon>_BACKOFF_CONSTANT MASTER_<daemon>_BACKOFF_FACTOR MASTER_<daemon>_RECOVER_FACTOR "
        "MASTER_ATTRS MASTER_INSTANCE_LOCK MASTER_SHUTDOWN_<name> DEFAULT_MASTER_SHUTDOWN_SCRIPT START_DAEMONS "
        "START_MASTER MASTER_WAITS_FOR_GCB_BROKER <SUBSYS>_NOT_RESPONDING_TIMEOUT "
        "NOT_RESPONDING_WANT_CORE PUBLISH_OBITUARIES OBITUARY_LOG_LENGTH <SUBSYS>_ADMIN_EMAIL <SUBSYS>_USERID "
        "<SUBSYS>_FLAG PARENT_CHECK_FIRST_INTERVAL PARENT_CHECK_INTERVAL MASTER_DAEMON_AD_FILE "
        "DEFAULT_KILL_CHILDREN_ON_EXIT RECONNECT_BACKOFF_CEILING",
    ),
    Answer(
        "HAD decides which daemon leads, and the others wait (docs/daemons.md)",
        "MASTER_NEGOTIATOR_CONTROLLER MASTER_<daemon>_CONTROLLER MASTER_HA_LIST HA_LOCK_HOLD_TIME HA_LOCK_URL "
        "HA_POLL_PERIOD HA_<daemon>_LOCK_HOLD_TIME HA_<daemon>_LOCK_URL HA_<daemon>_POLL_PERIOD "
        "HAD_STAND_ALONE_DEBUG",
    ),
    Answer(
        "daemons are started by `python -m services.<daemon>` or the master, and a personal pool's by `roost up`",
        "COLLECTOR DEFRAG HAD NEGOTIATOR SBIN KBDD SCHEDD STARTD GANGLIAD ROOSTER JOB_ROUTER",
    ),
    Answer(
        "a HAD has the name of its negotiator, and no port of its own",
        "HAD_ARGS",
    ),
    Answer(
        "daemons keep the account that starts them",
        "CONDOR_IDS DISABLE_SETUID",
    ),
    Answer(
        "commands are part of the Python package",
        "BIN INCLUDE",
    ),
    Answer(
        "programs are part of the Python package",
        "LIB",
    ),
    Answer(
        "lock files are in SPOOL",
        "LOCK LOCK_FILE_UPDATE_INTERVAL <SUBSYS>_LOCK CREATE_LOCKS_ON_LOCAL_DISK LOCAL_DISK_LOCK_DIR "
        "IGNORE_NFS_LOCK_ERRORS FILE_LOCK_VIA_MUTEX",
    ),
    Answer(
        "what lives as long as a daemon is in SPOOL",
        "RUN TMP_DIR TEMP_DIR",
    ),
    Answer(
        "there is no condor_preen: daemons clear up after themselves",
        "PREEN PREEN_<what> VALID_SPOOL_FILES SYSTEM_VALID_SPOOL_FILES INVALID_LOG_FILES",
    ),
    Answer(
        "pages for the administrator are of the monitoring (docs/monitoring.md), and no mail is sent about daemons",
        "CONDOR_ADMIN CONDOR_SUPPORT_EMAIL",
    ),
    # ---------------------------------------------------------------- logs of daemons
    Answer(
        "daemons log to standard error, as lines of JSON (docs/daemons.md), and what starts them keeps and rotates "
        "that",
        "<SUBSYS>_LOG <SUBSYS>_<level>_LOG MAX_<SUBSYS>_LOG MAX_<SUBSYS>_<level>_LOG MAX_NUM_<SUBSYS>_LOG "
        "MAX_DEFAULT_LOG TRUNC_<SUBSYS>_LOG_ON_OPEN TRUNC_<SUBSYS>_<level>_LOG_ON_OPEN TRUNC_SCHED_LOG_ON_OPEN "
        "TRUNC_MATCH_LOG_ON_OPEN <SUBSYS>_LOG_KEEP_OPEN TOUCH_LOG_INTERVAL LOGS_USE_TIMESTAMP DEBUG_TIME_FORMAT "
        "LOG_TO_SYSLOG LOCK_DEBUG_LOG_TO_APPEND NEGOTIATOR_MATCH_LOG MAX_NEGOTIATOR_MATCH_LOG CORE_FILE_NAME "
        "CREATE_CORE_FILES DROP_CORE_ON_RECONFIG ABORT_ON_EXCEPTION EXCEPT_ON_ERROR <SUBSYS>_DEBUG_WAIT "
        "SCHED_DEBUG_WAIT MAX_TIME_SKIP ENABLE_STDOUT_TESTING ENABLE_DEPRECATION_WARNINGS SHADOW_STATS_LOG "
        "STARTER_STATS_LOG MAX_SHADOW_STATS_LOG MAX_STARTER_STATS_LOG STARTER_LOG_NAME_APPEND STARTER_LOCAL_LOGGING "
        "GAHP_DEBUG_HIDE_SENSITIVE_DATA C_GAHP_WORKER_THREAD_LOG FILE_TRANSFER_STATS_LOG SCHEDD_RESTART_REPORT",
    ),
    Answer(
        "what the gateway changed for whom is written to GATEWAY_AUDIT_LOG",
        "SCHEDD_AUDIT_LOG MAX_SCHEDD_AUDIT_LOG MAX_NUM_SCHEDD_AUDIT_LOG",
        _SCHEDD,
    ),
    Answer(
        "processes are followed by cgroups and by the startd's fork server",
        "PROCD_LOG USE_PROCD PROCD PROCD_ADDRESS PROCD_DEBUG PROCD_MAX_SNAPSHOT_INTERVAL PID_SNAPSHOT_INTERVAL "
        "RESTART_PROCD_ON_ERROR MAX_PROCD_LOG USE_PROCESS_GROUPS USE_CLONE_TO_CREATE_PROCESSES "
        "MAX_PID_COLLISION_RETRY DAEMON_CORE_KILL_ANY_PROCESS USE_KEYRING_SESSIONS "
        "DISCARD_SESSION_KEYRING_ON_STARTUP KEYRING_SESSION_CREATION_TIMEOUT PASSWD_CACHE_REFRESH",
        _STARTD,
    ),
    Answer(
        "the limits of a daemon are those of its unit of systemd, or of its container",
        "MAX_FILE_DESCRIPTORS <SUBSYS>_MAX_FILE_DESCRIPTORS ENABLE_KERNEL_TUNING KERNEL_TUNING_LOG "
        "LINUX_KERNEL_TUNING_SCRIPT",
    ),
    Answer(
        "nothing is added to the ad of such a daemon, or it has none: for slots there is STARTD_ATTRS",
        "<SUBSYS>_ATTRS",
    ),
    Answer(
        "statistics are in the daemons' ads and metrics as they are (docs/metrics.md), over STATISTICS_WINDOW_SECONDS",
        "STATISTICS_TO_PUBLISH STATISTICS_TO_PUBLISH_LIST STATISTICS_WINDOW_QUANTUM "
        "STATISTICS_WINDOW_QUANTUM_<collection> STATISTICS_WINDOW_SECONDS_<collection> DCSTATISTICS_TIMESPANS "
        "DCSTATISTICS_WINDOW_SECONDS WINDOWED_STAT_WIDTH SCHEDD_COLLECT_STATS_BY_<name> "
        "SCHEDD_COLLECT_STATS_FOR_<name> SCHEDD_EXPIRE_STATS_BY_<name> COLLECTOR_STATS_SWEEP COLLECTOR_DAEMON_STATS "
        "COLLECTOR_DAEMON_HISTORY_SIZE COLLECTOR_CLASS_HISTORY_SIZE TRANSFER_IO_REPORT_INTERVAL "
        "TRANSFER_IO_REPORT_TIMESPANS",
    ),
    Answer(
        "expressions are evaluated as those of HTCondor by default, and functions are built in (docs/classads.md)",
        "STRICT_CLASSAD_EVALUATION ENABLE_CLASSAD_CACHING CLASSAD_USER_LIBS CLASSAD_USER_PYTHON_LIB "
        "CLASSAD_USER_PYTHON_MODULES CLASSAD_ENABLE_USER_HOME PYTHON3_MODULE_SUFFIX PYTHON3_VERSION_MINOR "
        "CLASSAD_LOG_STRICT_PARSING",
    ),
    # ---------------------------------------------------------------- central manager
    Answer(
        "accounting is kept in Redis, which copies it itself; `roost import accountant` brings a file over",
        "ACCOUNTANT_DATABASE_FILE MAX_ACCOUNTANT_DATABASE_SIZE",
    ),
    Answer(
        "accounting is kept in Redis, which copies it itself",
        "<NAME>.REPLICATION_SOCKET_NAME REPLICATION REPLICATION_ARGS REPLICATION_LIST REPLICATION_USE_SHARED_PORT "
        "TRANSFERER NEGOTIATOR_STATE_FILE",
        _HAD,
    ),
    Answer(
        "an ad is gone at the moment its lifetime ends",
        "HOUSEKEEPING_INTERVAL",
        _COLLECTOR,
    ),
    Answer(
        "questions are answered page by page beside updates, within the bounds of docs/limits.md",
        "COLLECTOR_QUERY_MAX_WORKTIME COLLECTOR_QUERY_WORKERS COLLECTOR_QUERY_WORKERS_PENDING "
        "COLLECTOR_QUERY_WORKERS_RESERVE_FOR_HIGH_PRIO HANDLE_QUERY_IN_PROC_POLICY COLLECTOR_MAX_FILE_DESCRIPTORS "
        "COLLECTOR_REPEAT_STARTD_ADS",
        _COLLECTOR,
    ),
    Answer(
        "who may advertise what is granted by the broker's users (docs/security.md): no expression turns ads away",
        "COLLECTOR_REQUIREMENTS",
        _COLLECTOR,
    ),
    Answer(
        "all ads of a pool go on to CONDOR_VIEW_HOST, in messages with what has changed (docs/daemons.md)",
        "CONDOR_VIEW_CLASSAD_TYPES COLLECTOR_FORWARD_CLAIMED_PRIVATE_ADS COLLECTOR_FORWARD_FILTERING "
        "COLLECTOR_FORWARD_INTERVAL COLLECTOR_FORWARD_PROJECTION COLLECTOR_FORWARD_WATCH_LIST",
        _COLLECTOR,
    ),
    Answer(
        "slots are compared as columns, in one thread",
        "NEGOTIATOR_NUM_THREADS",
        _NEGOTIATOR,
    ),
    Answer(
        "request lists of all schedds are asked for over the bus, side by side",
        "NEGOTIATOR_PREFETCH_REQUESTS NEGOTIATOR_PREFETCH_REQUESTS_MAX_TIME",
        _NEGOTIATOR,
    ),
    Answer(
        "priorities of users are always weighed (docs/fair-share.md)",
        "NEGOTIATOR_IGNORE_USER_PRIORITIES NEGOTIATOR_CROSS_SLOT_PRIOS USE_GLOBAL_JOB_PRIOS MAX_GLOBAL_JOB_PRIOS",
        _NEGOTIATOR,
    ),
    Answer(
        "userprio asks the gateway, which always answers in parts",
        "USERPRIO_USE_NEGOTIATOR_MODULAR_QUERY",
    ),
    Answer(
        "the past of defrag is kept in Redis",
        "DEFRAG_STATE_FILE",
        ("DEFRAG",),
    ),
    Answer(
        "it is the old name of DEFRAG_DRAINING_SCHEDULE: set that",
        "DEFRAG_SCHEDULE",
        ("DEFRAG",),
    ),
    Answer(
        "packets go to gmond without its library, and are made of whole ads each time (docs/monitoring.md)",
        "GANGLIA_LIB GANGLIA_LIB_PATH GANGLIA_LIB64_PATH GANGLIAD_RESET_METRICS_FILE GANGLIAD_WANT_PROJECTION "
        "GANGLIAD_WANT_RESET_METRICS GANGLIA_RESET_METRICS_FILE GANGLIA_WANT_RESET_METRICS",
        _GANGLIAD,
    ),
    Answer(
        "Prometheus scrapes /metrics of each daemon (ROOST_HEALTH_PORT, docs/metrics.md)",
        "METRICD METRICD_<what> MAX_METRICD_LOG PROMETHEUS_HTTP_PORT PROMETHEUS_METRICS_FILE "
        "PROMETHEUS_DEFAULT_LABELS PROMETHEUS_METRICS_INCLUDE_TIMESTAMP",
    ),
    Answer(
        "adstash reads what its other knobs say (docs/knobs.md), page by page and in one thread",
        "ADSTASH_LOG ADSTASH_NUM_THREADS ADSTASH_READ_POOLS ADSTASH_READ_STARTDS ADSTASH_SCHEDD_HISTORY_MAX_ADS "
        "ADSTASH_SCHEDD_HISTORY_TIMEOUT ADSTASH_SCHEDD_JOB_EPOCH_HISTORY ADSTASH_SCHEDD_TRANSFER_EPOCH_HISTORY "
        "ADSTASH_SE_LOG_MAPPINGS ADSTASH_STARTD_HISTORY_MAX_ADS ADSTASH_STARTD_HISTORY_TIMEOUT",
        ("ADSTASH",),
    ),
    Answer(
        "there is no condor_lease_manager: claims have leases of their own",
        "LeaseManager.<what>",
    ),
    # ---------------------------------------------------------------- access point
    Answer(
        "FLOCK_TO names pools, and the identity that `roost enroll` brought from each (ROOST_SCHEDD_FLOCK_DIRECTORY) "
        "says where its broker is",
        "FLOCK_COLLECTOR_HOSTS FLOCK_NEGOTIATOR_HOSTS",
        _SCHEDD,
    ),
    Answer(
        "access points of other pools are let in by join tokens: roost enroll -create -role schedd -name NAME",
        "FLOCK_FROM",
        _SCHEDD,
    ),
    Answer(
        "there is no job router: JOB_TRANSFORM_<name> changes jobs as they come",
        "JOB_ROUTER_<what> MAX_JOB_MIRROR_UPDATE_LAG <Keyword>_HOOK_JOB_CLEANUP <Keyword>_HOOK_JOB_FINALIZE "
        "<Keyword>_HOOK_TRANSLATE_JOB",
        _SCHEDD,
    ),
    Answer(
        "there is no grid universe: jobs run on the pool's execution points only",
        "GRIDMANAGER GRIDMANAGER_<what> C_GAHP_<what> CGAHP_SCHEDD_INTERACTION_TIME CONDOR_GAHP CONDOR_GAHP_WORKER "
        "BATCH_GAHP BATCH_GAHP_CHECK_STATUS_ATTEMPTS BLAHPD_LOCATION ARC_GAHP ARC_GAHP_<what> AZURE_GAHP "
        "AZURE_GAHP_<what> EC2_GAHP EC2_GAHP_<what> EC2_RESOURCE_TIMEOUT GCE_GAHP GCE_GAHP_<what> BOINC_GAHP "
        "REMOTE_GAHP GAHP_SSL_CADIR GAHP_SSL_CAFILE HOLD_JOB_IF_CREDENTIAL_EXPIRES MAX_C_GAHP_LOG "
        "MAX_GRIDMANAGER_LOG CONDORC_ATTRS_TO_COPY SUBMIT_GENERATE_CONDOR_C_REQUIREMENTS "
        "SEC_C_GAHP_WORKER_THREAD_DEFAULT_SESSION_DURATION GLITE_LOCATION UNICORE_GAHP NORDUGRID_GAHP",
        _SCHEDD,
    ),
    Answer(
        "there is no annex: start execution points in the cloud, and enroll them (`roost enroll`)",
        "ANNEX_<what> HPC_ANNEX_ENABLED <region>.ANNEX_<what>",
        _SCHEDD,
    ),
    Answer(
        "managers of DAGs (`roost submit-dag`) have no such choice (docs/dags.md)",
        "DAGMAN_<what> MAX_DAGMAN_LOG",
        _SUBMIT,
    ),
    Answer(
        "a submit that the pool can not take is tried again for as long as that lasts; what can not be submitted at "
        "all fails its node at once",
        "DAGMAN_MAX_SUBMIT_ATTEMPTS DAGMAN_RETRY_SUBMIT_FIRST",
        _SUBMIT,
    ),
    Answer(
        "nodes are submitted as they become ready, four at a time, as fast as the schedd takes them",
        "DAGMAN_MAX_SUBMITS_PER_INTERVAL DAGMAN_SUBMIT_DELAY",
        _SUBMIT,
    ),
    Answer(
        "events are listened to: nothing is looked at every now and then",
        "DAGMAN_USER_LOG_SCAN_INTERVAL DAGMAN_QUEUE_UPDATE_INTERVAL",
        _SUBMIT,
    ),
    Answer(
        "no submit file is written of a DAG, or of one inside it: its line is submitted as it is",
        "DAGMAN_GENERATE_SUBDAG_SUBMITS DAGMAN_INSERT_SUB_FILE DAGMAN_COPY_TO_SPOOL DAGMAN_USE_DIRECT_SUBMIT",
        _SUBMIT,
    ),
    Answer(
        "rescue files say what is done, and are read with the DAG: none is a whole DAG",
        "DAGMAN_WRITE_PARTIAL_RESCUE",
        _SUBMIT,
    ),
    Answer("HOLD scripts are run at once, however many", "DAGMAN_MAX_HOLD_SCRIPTS", _SUBMIT),
    Answer(
        "jobs of the local universe are run by the schedd, as those of the scheduler universe are: without a scratch "
        "directory, and without a cgroup",
        "LOCAL_UNIV_EXECUTE LOCAL_UNIVERSE_<what> SCHEDD_USES_STARTD_FOR_LOCAL_UNIVERSE "
        "USE_CGROUPS_FOR_LOCAL_UNIVERSE STARTER_LOCAL SCHEDD_EXECUTE",
        _SCHEDD,
    ),
    Answer(
        "a job of the scheduler universe that is to run again does so at once, or later if it has just begun",
        "SCHEDULER_UNIVERSE_COOL_DOWN_DURATION",
        _SCHEDD,
    ),
    Answer(
        "jobs of the scheduler universe have the schedd's own nice value: begin their program with nice",
        "SCHED_UNIV_RENICE_INCREMENT",
        _SCHEDD,
    ),
    Answer(
        "nodes of parallel jobs get their slots from the negotiator, as all jobs do, and any slot may be one: START, "
        "RANK and PREEMPTION_REQUIREMENTS say who may have it, and who leaves for whom",
        "DEDICATED_SCHEDULER_USE_FIFO DEDICATED_SCHEDULER_WAIT_FOR_SPOOLER DedicatedScheduler "
        "ParallelSchedulingGroup SCHEDD_PREEMPTION_RANK SCHEDD_PREEMPTION_REQUIREMENTS",
        _SCHEDD,
    ),
    Answer(
        "they are of scripts for parallel jobs, which read them from the environment: set them there (environment)",
        "OPENMPI_EXCLUDE_NETWORK_INTERFACES OPENMPI_INSTALL_PATH MPI_CONDOR_RSH_PATH MPI_MASTER_IP MPI",
        _SCHEDD,
    ),
    Answer(
        "there is no shadow: the schedd itself speaks with the startd of each job, and looks after its files",
        "SHADOW SHADOW_<what> MAX_SHADOW_LOG REAL_TIME_JOB_SUSPEND_UPDATES",
        _SCHEDD,
    ),
    Answer(
        "the queue is kept in SPOOL, in a database, whose writes are on disk when a submit is answered",
        "JOB_QUEUE_LOG MAX_JOB_QUEUE_LOG_ROTATIONS SCHEDD_JOB_QUEUE_LOG_FLUSH_DELAY CONDOR_FSYNC "
        "SCHEDD_BACKUP_SPOOL QUEUE_CLEAN_INTERVAL SCHEDD_NON_DURABLE_LATE_MATERIALIZE",
        _SCHEDD,
    ),
    Answer(
        "numbers of clusters go up by one and are never used again",
        "SCHEDD_CLUSTER_INCREMENT_VALUE SCHEDD_CLUSTER_INITIAL_VALUE SCHEDD_CLUSTER_MAXIMUM_VALUE",
        _SCHEDD,
    ),
    Answer(
        "a cluster is limited by MAX_JOBS_PER_SUBMISSION of its access point",
        "SUBMIT_MAX_PROCS_IN_CLUSTER",
        _SCHEDD,
    ),
    Answer(
        "jobs end and leave the queue as they do, without a rate; starts have one (JOB_START_COUNT, JOB_START_DELAY)",
        "JOB_STOP_COUNT JOB_STOP_DELAY JOB_IS_FINISHED_COUNT JOB_IS_FINISHED_INTERVAL",
        _SCHEDD,
    ),
    Answer(
        "policies of jobs are looked at every PERIODIC_EXPR_INTERVAL, whatever that costs, within the bounds of "
        "docs/limits.md",
        "MAX_PERIODIC_EXPR_INTERVAL PERIODIC_EXPR_TIMESLICE SCHEDD_INTERVAL_TIMESLICE",
        _SCHEDD,
    ),
    Answer(
        "a job whose run broke off may start again at once; a machine that fails jobs backs off by itself",
        "SYSTEM_ON_VACATE_COOL_DOWN SYSTEM_MAX_RELEASES",
        _SCHEDD,
    ),
    Answer(
        "attributes are kept from change by IMMUTABLE_JOB_ATTRS, and from view by ROOST_SCHEDD_PRIVATE_JOB_ATTRS",
        "PROTECTED_JOB_ATTRS SYSTEM_PROTECTED_JOB_ATTRS SYSTEM_IMMUTABLE_JOB_ATTRS SECURE_JOB_ATTRS "
        "SYSTEM_SECURE_JOB_ATTRS IGNORE_ATTEMPTS_TO_SET_SECURE_JOB_ATTRS",
        _SCHEDD,
    ),
    Answer(
        "SIGNIFICANT_ATTRIBUTES says all; nothing is added to or taken from what negotiators name",
        "ADD_SIGNIFICANT_ATTRIBUTES REMOVE_SIGNIFICANT_ATTRIBUTES REMOVE_SIGNIFICANT_ATTRIBUTES_REGEX "
        "SCHEDD_ROUND_ATTR_<attr>",
        _SCHEDD,
    ),
    Answer(
        "a schedd tells of its submitters as long as they have jobs, and asks for matches whenever some wait",
        "ABSENT_SUBMITTER_LIFETIME ABSENT_SUBMITTER_UPDATE_RATE CURB_MATCHMAKING SCHEDD_ASSUME_NEGOTIATOR_GONE "
        "SCHEDD_SEND_RESCHEDULE SUBMIT_SEND_RESCHEDULE SCHEDD_USE_SLOT_WEIGHT SCHEDD_SLOT_WEIGHT "
        "SCHEDD_QUERY_WORKERS SCHEDD_MAX_FILE_DESCRIPTORS SCHEDD_DAEMON_HISTORY SCHEDD_NOW_JOB_VACATE_TIMEOUT",
        _SCHEDD,
    ),
    Answer(
        "a claim of a partitionable slot is for one carved slot, and the negotiator gives out the rest at once",
        "CLAIM_PARTITIONABLE_LEFTOVERS ENABLE_CLAIMABLE_PARTITIONABLE_SLOTS MAX_PARTITIONABLE_SLOT_CLAIM_TIME "
        "CLAIM_RECYCLING_CONSIDER_LIMITS",
    ),
    Answer(
        "no expression of the access point stands between a job and a slot: let JOB_TRANSFORM_<name> change "
        "Requirements",
        "START_VANILLA_UNIVERSE",
        _SCHEDD,
    ),
    Answer(
        "HISTORY has whole ads and is rotated by its size; records of runs are in the queue's database "
        "(`roost history -epochs`)",
        "ENABLE_HISTORY_ROTATION ROTATE_HISTORY_DAILY ROTATE_HISTORY_MONTHLY HISTORY_HELPER "
        "HISTORY_HELPER_MAX_CONCURRENCY HISTORY_HELPER_MAX_HISTORY JOB_EPOCH_HISTORY "
        "JOB_EPOCH_HISTORY_DIR LIBRARIAN "
        "LIBRARIAN_<what> MAX_LIBRARIAN_LOG USING_LIBRARIAN",
        _SCHEDD,
    ),
    Answer(
        "event logs are written by one process, which locks and syncs them as it must",
        "EVENT_LOG_COUNT_EVENTS EVENT_LOG_FSYNC EVENT_LOG_LOCKING EVENT_LOG_ROTATION_LOCK ENABLE_USERLOG_FSYNC "
        "ENABLE_USERLOG_LOCKING LOG_ON_NFS_IS_ERROR USERLOG_FILE_CACHE_CLEAR_INTERVAL USERLOG_FILE_CACHE_MAX "
        "ALWAYS_CLOSE_USERLOG WANT_XML_LOG",
        _SCHEDD,
    ),
    Answer(
        "mail about jobs goes by SMTP_SERVER or MAIL, from MAIL_FROM, without a signature",
        "SENDMAIL EMAIL_SIGNATURE",
        _SCHEDD,
    ),
    Answer(
        "a job's spool is a directory in SPOOL that its owner alone may read",
        "ALTERNATE_JOB_SPOOL CHOWN_JOB_SPOOL_FILES JOB_SPOOL_PERMISSIONS",
        _SCHEDD,
    ),
    Answer(
        "transfers are limited in number (MAX_CONCURRENT_UPLOADS, MAX_CONCURRENT_DOWNLOADS), each in its turn",
        "TRANSFER_QUEUE_USER_EXPR MAX_TRANSFER_QUEUE_AGE MAX_CONCURRENT_UPLOADS_PER_USER "
        "FILE_TRANSFER_DISK_LOAD_THROTTLE FILE_TRANSFER_DISK_LOAD_THROTTLE_LONG_HORIZON "
        "FILE_TRANSFER_DISK_LOAD_THROTTLE_SHORT_HORIZON FILE_TRANSFER_DISK_LOAD_THROTTLE_WAIT_BETWEEN_INCREMENTS "
        "STARTER_FILE_XFER_STALL_TIMEOUT STARTER_UPLOAD_TIMEOUT ALLOW_TRANSFER_REMAP_TO_MKDIR TRANSFER_JOB_ATTRS "
        "MAX_REMAP_RECURSIONS",
    ),
    Answer(
        "plug-ins for URLs run as the job, take one file or many as they say, and what they say is in the hold reason",
        "ENABLE_MULTIFILE_TRANSFER_PLUGINS RUN_FILETRANSFER_PLUGINS_WITH_ROOT "
        "LOG_FILETRANSFER_PLUGIN_STDOUT_ON_FAILURE STASH_PLUGIN AUTO_USE_FEATURE_PelicanRetryPolicy",
    ),
    Answer(
        "no web server serves public files: they come from the access point, or by URL, and machines keep them "
        "(DATA_REUSE_BYTES)",
        "ENABLE_HTTP_PUBLIC_FILES HTTP_PUBLIC_FILES_ADDRESS HTTP_PUBLIC_FILES_ROOT_DIR HTTP_PUBLIC_FILES_STALE_AGE "
        "HTTP_PUBLIC_FILES_USER",
    ),
    Answer(
        "a plug-in is asked what it can, and proves it with the first job",
        "<PLUGIN>_TEST_URL",
        _STARTD,
        told=False,
    ),
    Answer(
        "the schedd removes checkpoints itself, of one job after the other; SCHEDD_CHECKPOINT_CLEANUP_TIMEOUT counts",
        "CHECKPOINT_CLEANUP_TIMEOUT MAX_CHECKPOINT_CLEANUP_PROCS",
    ),
    Answer("a job that saved itself goes on where it is", "CHECK_REACTIVATE_AFTER_CHECKPOINT"),
    Answer(
        "`roost q` shows what its options say, and asks the gateway",
        "CONDOR_Q_DASH_BATCH_IS_DEFAULT CONDOR_Q_ONLY_MY_JOBS CONDOR_Q_SHOW_OLD_SUMMARY CONDOR_Q_USE_V3_PROTOCOL",
    ),
    Answer(
        "job sets are not kept: batches of jobs have a name (batch_name)",
        "USE_JOBSETS",
        _SCHEDD,
    ),
    Answer(
        "submit commands are HTCondor's own ones, and an administrator's are attributes (SUBMIT_ATTRS)",
        "EXTENDED_SUBMIT_COMMANDS EXTENDED_SUBMIT_HELPFILE SUBMIT_TEMPLATE_NAMES SUBMIT_TEMPLATE_<name> "
        "SUBMIT_PREVENT_MULTI_QUEUE",
        _SUBMIT,
    ),
    Answer(
        "submit always looks at files, tells of unused macros, and asks for each custom resource in Requirements",
        "SUBMIT_SKIP_FILECHECKS WARN_ON_UNUSED_SUBMIT_FILE_MACROS SUBMIT_GENERATE_CUSTOM_RESOURCE_REQUIREMENTS "
        "INTERACTIVE_SUBMIT_ARGS_OVERRIDE INTERACTIVE_SUBMIT_CMD_OVERRIDE CONTAINER_SHARED_FS "
        "DEFAULT_IO_BUFFER_SIZE DEFAULT_IO_BUFFER_BLOCK_SIZE "
        "GLOBAL_JOB_ID_WITH_TIME APPEND_RANK_STANDARD APPEND_REQ_STANDARD APPEND_REQ_VM DEFAULT_RANK_STANDARD",
        _SUBMIT,
    ),
    # ---------------------------------------------------------------- execution point
    Answer(
        "the startd's fork server starts jobs",
        "STARTER STARTER_LIST",
        _STARTD,
    ),
    Answer(
        "no user numbers travel: who has no account runs as the slot's user (SLOT<N>_USER), or nobody",
        "SOFT_UID_DOMAIN NOBODY_SLOT_USER DYNAMIC_RUN_ACCOUNT_LOCAL_GROUP REUSE_CONDOR_RUN_ACCOUNT",
        _STARTD,
    ),
    Answer(
        "the broker's user, not its host, says which access point holds a claim and names the user",
        "TRUST_UID_DOMAIN TRUST_LOCAL_UID_DOMAIN",
        _STARTD,
    ),
    Answer(
        "scratch directories are not encrypted: put EXECUTE on an encrypted file system",
        "ENCRYPT_EXECUTE_DIRECTORY ENCRYPT_EXECUTE_DIRECTORY_FILENAMES DISABLE_EXECUTE_DIRECTORY_ENCRYPTION "
        "ECRYPTFS_ADD_PASSPHRASE ECRYPTFS_KEY_TIMEOUT",
        _STARTD,
    ),
    Answer(
        "jobs get the environment of their ad, STARTER_JOB_ENVIRONMENT and JOB_INHERITS_STARTER_ENVIRONMENT",
        "STARTER_SETS_HOME_ENV",
        _STARTD,
    ),
    Answer(
        "GPUs are looked for where the configuration has `use FEATURE : GPUs`",
        "STARTD_DETECT_GPUS",
        _STARTD,
    ),
    Answer(
        "memory is limited as CGROUP_MEMORY_LIMIT_POLICY says, and measured by the job's cgroup",
        "CGROUP_SOFT_MEMORY_LIMIT_EXPR CREATE_CGROUP_WITHOUT_ROOT MEMORY_USAGE_METRIC MEMORY_USAGE_METRIC_VM "
        "STARTER_ALWAYS_HOLD_ON_OOM "
        "STARTD_LEFTOVER_PROCS_BREAK_SLOTS BROKEN_SLOT_CONTEXT_ATTRS CONTINUE_TO_ADVERTISE_BROKEN_DYNAMIC_SLOTS",
        _STARTD,
    ),
    Answer(
        "the kernel keeps the most memory that a job's cgroup held, and the job's end tells it: nothing polls",
        "CGROUP_POLLING_INTERVAL",
        _STARTD,
    ),
    Answer(
        "processors are limited by NUM_CPUS, and a partitionable slot keeps one claim id for any number of carved "
        "slots",
        "MAX_NUM_CPUS NUM_CLAIMS",
        _STARTD,
    ),
    Answer(
        "swap and disk are told as the machine has them, at each update",
        "RESERVED_SWAP STARTD_RECOMPUTE_DISK_FREE SYSAPI_GET_LOADAVG STARTD_HAS_BAD_UTMP UPDATE_OFFSET "
        "UPDATE_SPREAD_TIME",
        _STARTD,
    ),
    Answer(
        "slot ads are told as they are, with all that preemption of partitionable slots looks at, beside one of the "
        "daemon",
        "ADVERTISE_PSLOT_ROLLUP_INFORMATION STARTD_PARTITIONABLE_SLOT_ATTRS "
        "ENABLE_STARTD_DAEMON_AD STARTD_PRINT_ADS_FILTER STARTD_PRINT_ADS_ON_SHUTDOWN SYSTEM_STARTD_ATTRS "
        "SYSTEM_STARTD_JOB_ATTRS SYSTEM_STARTD_LATCH_EXPRS SYSTEM_STARTD_SLOT_ATTRS",
        _STARTD,
    ),
    Answer(
        "claim ids stay with the startd and the schedd, in no file",
        "STARTD_CLAIM_ID_FILE STARTD_SHOULD_WRITE_CLAIM_ID_FILE VALID_COD_USERS",
        _STARTD,
    ),
    Answer(
        "a claim comes with its first job: none waits for one while its machine drains",
        "MAX_DRAINING_ACTIVATION_DELAY",
        _STARTD,
    ),
    Answer(
        "a scratch directory is its job's alone, and is gone with it",
        "JOB_EXECDIR_PERMISSIONS KEEP_OUTPUT_SANDBOX KEEP_DATA_CLAIM_IDLE STARTER_NESTED_SCRATCH NAMED_CHROOT "
        "PER_JOB_NAMESPACES USE_NFS",
        _STARTD,
    ),
    Answer(
        "`roost exec` runs programs beside a job without sshd; ROOST_VISITS says who may",
        "ENABLE_SSH_TO_JOB SCHEDD_ENABLE_SSH_TO_JOB SSH_TO_JOB_<what> CONDOR_SSHD CONDOR_SSH_KEYGEN "
        "CONDOR_SSH_TO_JOB_FAKE_PASSWD_ENTRY",
    ),
    Answer(
        "Java takes as much of the slot's memory for its heap as it does by itself: JAVA_EXTRA_ARGUMENTS and "
        "java_vm_args say otherwise (-Xmx)",
        "JAVA_MAXHEAP_ARGUMENT",
        _STARTD,
    ),
    Answer(
        "the engine is spoken to over its socket: see ROOST_DOCKER",
        "DOCKER",
        _STARTD,
    ),
    Answer(
        "containers are run as docs/execution/containers.md tells, and images that are cached are told as they are",
        "DOCKER_CACHE_ADVERTISE_INTERVAL DOCKER_LOG_DRIVER_NONE DOCKER_LOG_DRIVER_NAME "
        "DOCKER_TEST_IMAGE_NAME DOCKER_TEST_IMAGE_PATH DOCKER_SKIP_IMAGE_ARCH_CHECK DOCKER_TRUST_LOCAL_IMAGES "
        "DOCKER_PAT_PRODUCER CONTAINER_IMAGES_COMMON_BY_DEFAULT ALLOW_COMMON_FILES_ON_LVS",
        _STARTD,
    ),
    Answer(
        "a job runs in a container where it asks for one, or SINGULARITY_JOB says so",
        "USE_DEFAULT_CONTAINER DEFAULT_CONTAINER_IMAGE",
        _STARTD,
    ),
    Answer(
        "Apptainer is tested with ROOST_SINGULARITY_TEST_TIMEOUT, and gets what SINGULARITY_BIND_EXPR and "
        "SINGULARITY_EXTRA_ARGUMENTS say",
        "SINGULARITY_USE_PID_NAMESPACES SINGULARITY_MOUNT_HOME SINGULARITY_TEST_SANDBOX SINGULARITY_ADD_ROCM_FLAG",
        _STARTD,
    ),
    Answer(
        "virtual machines run under QEMU, without a helper",
        "VM_GAHP_LOG VM_GAHP_SERVER VM_GAHP_REQ_TIMEOUT VM_GAHP_CONFIG VM_GAHP_SEND_ALL_CLASSAD MAX_VM_GAHP_LOG "
        "VM_RECHECK_INTERVAL VM_SOFT_SUSPEND VM_STATUS_INTERVAL VM_STATUS_MAX_ERROR VM_KILLING_TIMEOUT "
        "VM_MAX_MEMORY VM_HARDWARE_VT VM_NETWORKING_MAC_PREFIX LIBVIRT_XML_SCRIPT LIBVIRT_XML_SCRIPT_ARGS "
        "XEN_<what> PERIODIC_CHECKPOINT WALL_CLOCK_CKPT_INTERVAL",
        _STARTD,
    ),
    Answer(
        "a volume that is too full takes no more jobs; sizes of volumes are the job's disk",
        "LVM_BACKING_FILE_SIZE_MB LVM_HIDE_MOUNT LVM_THIN_LV_EXTRA_SIZE_MB LVM_THICK_LV_MARGIN",
        _STARTD,
    ),
    Answer(
        "reports of a running job come every STARTER_UPDATE_INTERVAL",
        "STARTER_UPDATE_INTERVAL_MAX STARTER_UPDATE_INTERVAL_TIMESLICE STARTER_FIRST_CHILDALIVE_DELAY "
        "STARTER_DIAGNOSTIC_send_ep_logs",
        _STARTD,
    ),
    Answer(
        "HTCondor's manual has this hook under a name that its code does not ask for, and it is not asked for here "
        "either",
        "<Keyword>_HOOK_REPLY_CLAIM <Keyword>_HOOK_PREPARE_JOB_ARGS",
        _STARTD,
    ),
    Answer(
        "cron jobs are ended and started by a reconfiguration (<JobName>_RECONFIG_RERUN), and get no signal",
        "STARTD_CRON_<Job>_RECONFIG SCHEDD_CRON_<Job>_RECONFIG STARTD_CRON_NAME SCHEDD_CRON_NAME",
    ),
    Answer(
        "a benchmark runs when RunBenchmarks says so, with its program, arguments and load",
        "BENCHMARKS_<Job>_CWD BENCHMARKS_<Job>_ENV BENCHMARKS_<Job>_KILL BENCHMARKS_<Job>_MODE "
        "BENCHMARKS_<Job>_PERIOD BENCHMARKS_<Job>_PREFIX BENCHMARKS_<Job>_SLOTS BENCHMARKS_CONFIG_VAL",
        _STARTD,
    ),
    Answer(
        "idle times are those of the consoles of this machine, and no condor_kbdd tells of a desktop's",
        "KBDD_<what> MAX_KBDD_LOG KEYBOARD_CPUS",
        _STARTD,
    ),
    Answer(
        "a machine is not started anew by its startd",
        "STARTD_REBOOT_COMMAND STARTD_FACTORY_SCRIPT_<what>",
        _STARTD,
    ),
    Answer(
        "it is of Windows",
        "ADD_WINDOWS_FIREWALL_EXCEPTION WINDOWS_FIREWALL_FAILURE_RETRY WINDOWS_RMDIR WINDOWS_RMDIR_OPTIONS "
        "WINDOWS_SOFTKILL SKIP_WINDOWS_LOGON_NETWORK USE_VISIBLE_DESKTOP STARTD_PUBLISH_DOTNET "
        "STARTD_PUBLISH_WINREG DOT_NET_VERSIONS OPEN_VERB_FOR_<EXT>_FILES ALLOW_SCRIPTS_TO_RUN_AS_EXECUTABLES "
        "SUBMIT_PUBLISH_WINDOWS_OSVERSIONINFO",
        _STARTD,
    ),
    Answer(
        "there is no file of each user's own: the environment sets macros (_CONDOR_<knob>)",
        "USER_CONFIG_FILE",
    ),
    Answer(
        "it is of a later version of HTCondor",
        "PLACEMENTD PLACEMENTD_<what> SUM_OF_CATALOGS CATALOG_SPACE",
    ),
    Answer(
        "a submitter's domain is that of the user, or of ACCOUNTANT_LOCAL_DOMAIN",
        "ACCOUNTING_DOMAIN",
        _SCHEDD,
    ),
    Answer(
        "the machine does not set it here: write it down where a file refers to it",
        "IP_ADDRESS_IS_IPV6",
        told=False,
    ),
    Answer(
        "HTCondor's library knows the name, and its manual says nothing of it",
        "BIOTECH PARROT PLUGINS PLUGIN_DIR POLLING_PERIOD SCP SSHD SSHD_ARGS SSH_KEYGEN SSH_KEYGEN_ARGS "
        "USE_SCRIPT_TO_CREATE_CONFIG XEN_BOOTLOADER SUBSYS BenchmarkTimer BigJob MediumJob IsCollector IsMPI "
        "IsMaster IsNegotiator IsSchedd IsShadow IsStandard IsStartd IsStarter IsSubmit IsTool IsVM IsWindows "
        "CONDOR_BUILD_PLATFORM",
        told=False,
    ),
)

#: A part of what HTCondor does goes by these: which one.
PART: Final = (
    Answer(
        "the gateway goes by it, for people: READ, WRITE, ADMINISTRATOR, CONFIG, and those of the work of one "
        "daemon; daemons are known by their users of the broker (docs/security.md)",
        "ALLOW_<level> DENY_<level>",
    ),
    Answer(
        "the gateway goes by FS, IDTOKENS, SSL and SCITOKENS of READ, WRITE, ADMINISTRATOR, CONFIG and DEFAULT, for "
        "people (docs/security.md)",
        "SEC_<level>_AUTHENTICATION_METHODS SEC_<what>",
    ),
    Answer(
        "the master starts what it names, `roost up` what it names besides the daemons of every pool; a container "
        "starts one daemon",
        "DAEMON_LIST",
    ),
    Answer(
        "D_FULLDEBUG, D_ALL and categories with :2 make the log more detailed; others change nothing",
        "<SUBSYS>_DEBUG ALL_DEBUG",
    ),
    Answer(
        "it says where a pool's HADs are; daemons reach each other through the broker (ROOST_AMQP_URL)",
        "COLLECTOR_HOST CONDOR_HOST",
    ),
    Answer(
        "set to anything it keeps machines that expire as absent or offline; they are in Redis, and no file is written",
        "COLLECTOR_PERSISTENT_AD_LOG",
    ),
    Answer(
        "a HAD whose negotiator dies goes by it; other daemons are started again by what started them",
        "MASTER_BACKOFF_CEILING MASTER_BACKOFF_CONSTANT MASTER_BACKOFF_FACTOR",
    ),
)

#: Set by the machine and by HTCondor itself, as here: a file may refer to them.
GIVEN: Final = (
    "ARCH CONDOR_VERSION CondorIsAdmin DETECTED_CORES DETECTED_CPUS DETECTED_CPUS_LIMIT DETECTED_MEMORY "
    "DETECTED_PHYSICAL_CPUS FULL_HOSTNAME HOSTNAME IP_ADDRESS IPV4_ADDRESS IPV6_ADDRESS LOCALNAME OPSYS "
    "OPSYSANDVER OPSYSLEGACY OPSYSLONGNAME OPSYSMAJORVER OPSYSNAME OPSYSSHORTNAME OPSYSVER PID PPID REAL_GID "
    "REAL_UID SUBSYSTEM TILDE UNAME_ARCH UNAME_OPSYS USERNAME UTSNAME_MACHINE UTSNAME_NODENAME UTSNAME_RELEASE "
    "UTSNAME_SYSNAME UTSNAME_VERSION"
)
