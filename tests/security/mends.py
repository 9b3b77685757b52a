"""Whether the tests of attacks notice that a wall is gone: each wall is taken away, and its tests have to fail.

    nice .venv/bin/python -m tests.security.mends                     # all rows
    nice .venv/bin/python -m tests.security.mends users engine-socket # some

A row of MENDS says which lines of the product hold a boundary, as text that is replaced (`changes`), and which tests
must fail then. Each row gets a copy of the checkout of its own, in which that is changed and these tests run, daemons
that are processes included. Before, all of them run in a copy that is as it is: who fails there says nothing. By hand,
as it takes an hour; tests/security/test_mends.py holds the table to the product in every run.

`tests.mutation` changes one thing after another in the functions of a pure core, in forks of one process. That reaches
no other process, no constant and no table, which most walls are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A row's tests are given up after this long, in seconds: they are not noticed then.
LONGEST_S = 600


@dataclass(frozen=True)
class Mend:
    """name: what to call it by. holds: the boundary. file: of the product. changes: old and new text, each old one
    once in the file. tests: file and function, all of which must fail."""

    name: str
    holds: str
    file: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


def _row(name: str, holds: str, file: str, old: str, new: str, *tests: str) -> Mend:
    return Mend(name, holds, file, ((old, new),), tests)


_WALLS, _SENDERS, _RIGHTS = (f"tests/security/test_{name}.py" for name in ("walls", "senders", "broker_rights"))
_STATEMENTS, _HTTP = "tests/unit/bus/test_statements.py", "tests/security/test_http_strict.py"
_JOB, _SPAWNER = "services/startd/forkserver/job.py", "services/startd/forkserver/spawner.c"
_SPAWNER_TEST = "tests/unit/startd/test_spawner.py"
_DEFINITIONS, _BUS = "shared/bus/definitions.py", "shared/bus/senders.py"
_FRAMING = "services/gateway/core/http_framing.py"
_IDTOKENS, _LISTS, _ENROLL = (
    f"tests/security/test_{name}.py" for name in ("idtokens", "authorization_lists", "enroll")
)
_RULES, _GROUPS = "tests/unit/schedd/test_rules.py", "tests/integration/test_schedd_rules.py"
_CATALOGUE, _REGISTRY = "shared/config/catalogue.py", "services/registrar/core/registry.py"
_HARDENING = "tests/unit/compose/test_hardening.py"

MENDS: tuple[Mend, ...] = (
    # ---- jobs and the daemon that runs them
    _row(
        "settings-that-name-secrets",
        "what a setting names as a secret is no job's, where that lies in a place that is granted",
        "services/startd/isolation/job_view.py",
        "if _NAMES_SECRET.search(macro.name):",
        "if False:",
        f"{_WALLS}::test_what_a_setting_names_is_nobodys_but_the_daemons",
    ),
    _row(
        "landlock",
        "a job of a startd that is not root sees only what it is granted",
        _JOB,
        'kernel.landlock(view["grants"])',
        "pass",
        f"{_WALLS}::test_a_job_gets_nothing_of_the_startds",
    ),
    _row(
        "no-new-privileges-and-filter",
        "a job gains no rights and makes no dangerous calls",
        _JOB,
        """            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        filter_calls(request)
""",
        "            pass\n",
        f"{_WALLS}::test_a_job_gains_no_rights_and_calls_nothing_dangerous",
    ),
    _row(
        "native-landlock",
        "a job of a startd that is not root sees only what it is granted, when the spawner in C starts it",
        _SPAWNER,
        "    confine(order);\n",
        "",
        f"{_WALLS}::test_a_job_gets_nothing_of_the_startds",
    ),
    _row(
        "native-filter",
        "a job makes no dangerous calls, when the spawner in C starts it",
        _SPAWNER,
        "    filter_calls(order);\n",
        "",
        f"{_WALLS}::test_a_job_gains_no_rights_and_calls_nothing_dangerous",
    ),
    _row(
        "native-test",
        "a spawner that lacks a wall is not used",
        "services/startd/forkserver/native.py",
        'if last.get("op") != "ended" or last.get("status") != PROBED << 8:',
        "if False:",
        f"{_SPAWNER_TEST}::test_one_that_lacks_a_wall_does_not_pass_its_test",
    ),
    _row(
        "native-source",
        "a spawner of another source is not used",
        "services/startd/forkserver/native.py",
        "if greeting != wanted:",
        "if False:",
        f"{_SPAWNER_TEST}::test_one_of_another_source_or_for_other_walls_is_not_used",
    ),
    _row(
        "native-unknown-words",
        "an order with a word that the spawner does not know starts nothing",
        _SPAWNER,
        """        if (!names[index])
            return refuse(refusal, "start", "%s: the spawner does not know %.60s", where, member->key);
""",
        """        if (!names[index])
            continue;
""",
        f"{_SPAWNER_TEST}::test_what_it_does_not_know_or_understand_is_refused",
        f"{_SPAWNER_TEST}::test_a_word_that_it_does_not_know_starts_nothing",
    ),
    _row(
        "capabilities",
        "a job has no capability, and can get none",
        _JOB,
        """        if isinstance(kept, int):
            kernel.bound_capabilities(kept)
""",
        "",
        f"{_WALLS}::test_a_job_gains_no_rights_and_calls_nothing_dangerous",
    ),
    _row(
        "engine-socket",
        "a startd that holds an engine's socket takes no process jobs",
        "services/startd/core/separation.py",
        "    if sockets:\n",
        "    if False:\n",
        f"{_WALLS}::test_a_startd_that_holds_an_engines_socket_takes_no_process_jobs",
        f"{_WALLS}::test_where_nothing_separates_them_only_own_users_and_containers_are_taken",
    ),
    _row(
        "no-landlock-no-jobs",
        "without root and Landlock a slot takes no jobs of others",
        "services/startd/core/separation.py",
        "    if separation.by or EVERYBODY in own_users:\n",
        "    if True:\n",
        f"{_WALLS}::test_without_landlock_and_root_the_jobs_of_others_are_refused",
        f"{_WALLS}::test_where_nothing_separates_them_only_own_users_and_containers_are_taken",
    ),
    _row(
        "no-landlock-no-starts",
        "nor is one of them started that the slot had taken before",
        "services/startd/isolation/manager.py",
        "        if why:\n            raise Fault.NOT_SEPARATED.failure(why)\n",
        "",
        f"{_WALLS}::test_nor_starts_one_that_a_slot_took_before",
    ),
    _row(
        "roots-own-pool",
        "in root's own pool the jobs of others are not root's",
        "services/startd/isolation/manager.py",
        'if not self.host.root or is_own(self.rules.own_users, job.eval_string("User")):',
        "if not self.host.root or self.rules.own_users:",
        f"{_WALLS}::test_in_roots_own_pool_the_jobs_of_others_are_not_roots",
    ),
    _row(
        "closed-to-others",
        "where only root can enter EXECUTE the jobs of others are refused",
        "services/startd/core/separation.py",
        "        if closed_to_others:\n",
        "        if False:\n",
        f"{_WALLS}::test_where_only_root_can_enter_the_jobs_of_others_are_refused",
    ),
    _row(
        "number-of-processes",
        "a fork bomb ends at a limit, without control groups too",
        "services/startd/isolation/manager.py",
        'if "cgroup" not in request and self.rules.most_processes:',
        "if False:",
        f"{_WALLS}::test_a_fork_bomb_ends_at_a_limit_without_cgroups_too",
    ),
    _row(
        "fork-server-secret",
        "who does not know the fork server's secret is not heard",
        "services/startd/forkserver/server.py",
        "good = caller.proves(self.secret, answer) and not descends_from(caller.pid, os.getpid())",
        "good = not descends_from(caller.pid, os.getpid())",
        "tests/security/test_fork_server.py::test_who_does_not_know_the_secret_is_not_heard",
    ),
    Mend(
        "fork-server-jobs",
        "a job commands no fork server, even with its secret",
        "services/startd/forkserver/server.py",
        (
            ("if uid not in (0, os.geteuid()) or descends_from(pid, os.getpid()):", "if False:"),
            (
                "good = caller.proves(self.secret, answer) and not descends_from(caller.pid, os.getpid())",
                "good = caller.proves(self.secret, answer)",
            ),
        ),
        ("tests/security/test_fork_server.py::test_a_job_can_not_command_it_even_with_its_secret",),
    ),
    # ---- the bus
    _row(
        "table-of-senders",
        "an execution point's user commands no schedd and no negotiator",
        _BUS,
        "if reason := why_not(envelope, arrival, self.rows):",
        "if (reason := why_not(envelope, arrival, self.rows)) and False:",
        f"{_SENDERS}::test_who_reads_the_password_of_an_execution_point_commands_no_access_point",
        f"{_SENDERS}::test_nor_a_negotiator",
    ),
    _row(
        "closed-by-default",
        "a message without a row is refused",
        _BUS,
        """    if row is None:
        return f"{kind}: nobody may send it""",
        """    if row is None:
        return "" and f"{kind}: nobody may send it""",
        "tests/unit/bus/test_senders.py::test_a_message_without_a_row_is_refused",
    ),
    _row(
        "own-name",
        "a daemon speaks for itself only, whatever the key of its message",
        _BUS,
        "if said is not None and said != want:",
        "if False:",
        f"{_SENDERS}::test_a_foreign_ad_in_ones_own_name_is_dropped",
    ),
    _row(
        "seal-of-dead-letters",
        "a message that is put back has no more rights than it had",
        "shared/bus/amqp/bus.py",
        "if not self._publisher.seal.fits(delivery.seal, delivery.came_to, delivery.publisher, "
        "await delivery.digest()):",
        "if False:",
        f"{_SENDERS}::test_orders_to_a_machine_come_from_gateways_and_not_by_the_way_of_dead_letters",
    ),
    _row(
        "statements",
        "a gateway's user without its key speaks for nobody",
        _BUS,
        "if self.believer is None or arrival.exchange is None or role_of(envelope.sender) != GATEWAY:",
        "if True:",
        f"{_SENDERS}::test_not_even_a_gateways_password_makes_an_administrator",
        f"{_SENDERS}::test_a_daemon_that_knows_no_key_obeys_nobody_and_says_what_to_set",
    ),
    _row(
        "signatures",
        "nothing in a statement can be changed, and it holds for its message only",
        "shared/bus/statements.py",
        "key.verify(signature, _text(envelope, digest, inbox, person, until))",
        "pass",
        f"{_STATEMENTS}::test_nothing_in_it_can_be_changed",
        f"{_STATEMENTS}::test_a_statement_holds_for_its_message_only",
        f"{_STATEMENTS}::test_it_holds_at_its_inbox_only",
    ),
    _row(
        "replays",
        "no message is obeyed twice, nor by the next life of a daemon",
        "shared/bus/statements.py",
        "            if not again:\n",
        "            if False:\n",
        f"{_STATEMENTS}::test_a_message_is_believed_once_but_when_the_broker_delivers_it_again",
        f"{_SENDERS}::test_no_message_is_obeyed_again_by_the_next_life_of_a_daemon",
    ),
    _row(
        "scopes-at-daemons",
        "a token for some operations opens no others at the daemons either",
        _BUS,
        "if not any(level >= NEEDS[one] and in_scope(one, person.scopes) for one in operations):",
        "if False:",
        f"{_STATEMENTS}::test_a_token_for_some_operations_opens_no_others_at_the_daemons_either",
    ),
    _row(
        "foreign-inboxes",
        "nobody binds a queue to the inboxes of others",
        _DEFINITIONS,
        '"read": f"^({own})$"}]',
        '"read": _ALL}]',
        f"{_RIGHTS}::test_one_queue_can_not_be_bound_to_others_inboxes",
    ),
    _row(
        "one-user-a-machine",
        "a daemon reaches its own queues and no others",
        _DEFINITIONS,
        'one = re.escape(name) if name else "[^*#]+"',
        'one = "[^*#]+"',
        f"{_RIGHTS}::test_a_daemon_reaches_its_own_queues_and_no_others",
    ),
    _row(
        "own-ads",
        "a daemon publishes its own ads and no others",
        _DEFINITIONS,
        "daemon = rf\"{role}@{re.escape(name) if name else '.*'}\"",
        'daemon = rf"{role}@.*"',
        f"{_RIGHTS}::test_a_daemon_binds_and_sends_as_its_role_needs_and_not_otherwise",
    ),
    _row(
        "claims-of-others",
        "a startd reports only on runs that it was given",
        _BUS,
        "    if arrival.user is not None and not vouched(arrival.user, sender):\n",
        "    if False:\n",
        f"{_RIGHTS}::test_what_the_default_exchange_lets_through_is_refused_by_its_receiver",
    ),
    # ---- Redis
    _row(
        "commands-of-redis",
        "no role gives Redis a command that it does not need",
        "shared/state/acl.py",
        'words += [f"+{command}" for command in sorted(rights.all_commands)]',
        'words += ["+@all"]',
        "tests/security/test_redis_rights.py::test_every_command_that_is_not_granted_is_refused",
    ),
    _row(
        "keys-of-redis",
        "no role reaches a key of Redis that it does not need",
        "shared/state/acl.py",
        'words = patterns("", rights.keys) + patterns("%R", rights.reads)',
        'words = ["~*"]',
        "tests/security/test_redis_rights.py::test_every_key_that_is_not_granted_is_refused",
    ),
    # ---- files, users and secrets
    Mend(
        "files-of-daemons",
        "what daemons keep is their account's alone",
        "shared/private_files.py",
        (("DIRECTORY: Final = 0o700", "DIRECTORY: Final = 0o755"), ("FILE: Final = 0o600", "FILE: Final = 0o644")),
        (
            "tests/security/test_files_of_daemons.py::test_databases_are_made_closed",
            "tests/security/test_files_of_daemons.py::test_no_daemon_leaves_a_file_to_others",
        ),
    ),
    _row(
        "users",
        "who has the same name in another domain is a stranger",
        "shared/users.py",
        "return domain == its_domain or domain.lower() == its_domain.lower()",
        "return True",
        "tests/security/test_users.py::test_names_and_domains",
        "tests/security/test_users.py::test_a_namesake_of_another_domain_can_do_nothing_to_a_job",
        "tests/security/test_users.py::test_super_users_are_those_of_uid_domain",
    ),
    _row(
        "accounts",
        "only a user of UID_DOMAIN has the account of that name",
        "shared/users.py",
        "return name if uid_domain and domain.lower() == uid_domain.lower() else ",
        "return name or ",
        "tests/security/test_users.py::test_an_account_is_that_of_a_user_of_uid_domain_only",
        "tests/security/test_users.py::test_a_namesake_of_the_daemons_account_gets_no_files_of_its",
    ),
    _row(
        "private-attributes",
        "a job's environment is its owner's",
        "services/schedd/core/rights.py",
        "known = self._hidden[owner] = _NOTHING if sees else self._rights.private",
        "known = self._hidden[owner] = _NOTHING if sees else _NOTHING",
        "tests/security/test_private_attributes.py::test_others_are_not_shown_an_environment",
        "tests/security/test_private_attributes.py::test_no_constraint_tells_of_anothers_environment",
        "tests/security/test_private_attributes.py::test_a_token_to_read_reads_no_environment_by_any_route",
    ),
    _row(
        "sizes-of-files",
        "who sends more than a job asked for is cut off",
        "shared/transfer/extraction.py",
        "if self.limit_bytes is not None and self.received + info.size > self.limit_bytes:",
        "if False:",
        "tests/security/test_transfer_bounds.py::test_a_liar_is_cut_off_at_the_limit",
        "tests/security/test_transfer_bounds.py::test_one_file_that_never_ends_stops_at_its_header",
    ),
    _row(
        "names-of-credentials",
        "no user of credentials reaches out of the directory",
        "services/schedd/io/credentials.py",
        'if "/" in name or name in (".", "..") or name.startswith("@"):',
        "if False:",
        "tests/security/test_credentials.py::test_no_user_reaches_out_of_the_directory",
    ),
    # ---- accounting groups that an administrator assigns
    _row(
        "asked-groups",
        "nobody's jobs are charged to a group that the map does not give him",
        _CATALOGUE,
        "= RequestedAcctGroup is undefined || RequestedAcctGroup == AcctGroup\n",
        "= True\n",
        f"{_RULES}::test_no_line_or_another_group_is_refused",
        f"{_GROUPS}::test_another_group_is_refused_and_nothing_is_queued",
    ),
    _row(
        "unregistered-groups",
        "who writes the name of a group into his job is charged to that of the map",
        _CATALOGUE,
        '   EVALSET AccountingGroup = join(".",AcctGroup,AcctGroupUser)\n',
        "",
        f"{_RULES}::test_what_a_user_writes_himself_does_not_get_round_the_map",
    ),
    _row(
        "groups-stay",
        "no edit moves a job to another group",
        _CATALOGUE,
        "IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) AcctGroup AcctGroupUser AccountingGroup\n",
        "",
        f"{_RULES}::test_what_a_user_writes_himself_does_not_get_round_the_map",
        f"{_GROUPS}::test_the_group_can_not_be_changed_afterwards",
    ),
    # ---- budgets
    _row(
        "budget-of-a-question",
        "all evaluations of one question have one budget",
        "shared/classad/budget.py",
        "if self.steps >= 0 and self.made >= 0 and self.seconds >= 0:\n            return True",
        "if True:\n            return True",
        "tests/security/test_budgets.py::test_a_budget_is_shared_by_all_evaluations_and_says_what_was_met",
    ),
    Mend(
        "budget-of-an-evaluation",
        "no evaluation holds a loop",
        "shared/classad/evaluate.py",
        (
            # Not for ever, as the tests are to end.
            ("MAX_STEPS: Final = 25_000", "MAX_STEPS: Final = 500_000"),
            ("EVALUATION_S: Final = 0.015", "EVALUATION_S: Final = 0.15"),
            ("MAX_MADE: Final = 1 << 20", "MAX_MADE: Final = 4 << 26"),
        ),
        ("tests/security/test_budgets.py::test_no_evaluation_takes_longer_than_a_loop_may_be_silent",),
    ),
    _row(
        "turns-of-others",
        "long work gives way to others",
        "shared/cooperative.py",
        "        return time.perf_counter() > self._until\n",
        "        return False\n",
        "tests/integration/test_large_queue.py::test_others_have_their_turn_meanwhile",
        "tests/unit/adstash/test_export.py::test_others_have_their_turn_while_records_are_read",
    ),
    _row(
        "turns-of-questions",
        "a question about many ads gives way to others",
        "shared/classad/question.py",
        "        if lasted > SLICE_S:\n",
        "        if False:\n",
        "tests/security/test_loops.py::test_a_schedd_is_not_held_by_constraints",
        "tests/security/test_budgets.py::test_hostile_constraints_do_not_silence_a_collector",
    ),
    _row(
        "lists-of-messages",
        "lists and maps of a message have a length",
        "shared/messages/base.py",
        "if isinstance(value, list | dict) and len(value) > kind.most_entries:",
        "if False:",
        "tests/security/test_message_bounds.py::test_a_list_or_map_that_is_too_long_is_refused_by_its_name",
    ),
    _row(
        "values-of-messages",
        "a message has no more values than its type may have",
        "shared/messages/wire.py",
        "        if left < 0:\n",
        "        if False:\n",
        "tests/security/test_message_bounds.py::test_so_is_a_message_of_too_many_values_wherever_they_are",
    ),
    _row(
        "head-of-large-messages",
        "nothing of a large message is read that its sender may not send",
        "shared/bus/senders.py",
        "if reason := why_not_from(head.type, head.sender, arrival, self.rows):",
        "if (reason := why_not_from(head.type, head.sender, arrival, self.rows)) and False:",
        "tests/unit/bus/test_large_messages.py::test_one_that_its_sender_may_not_send_is_not_read",
    ),
    _row(
        "odd-frames",
        "no message takes a daemon off the bus, or holds its loop, by what it says beside its body",
        "shared/bus/amqp/frames.py",
        "looked_at = readable(frame) if kind == _HEADER else",
        "looked_at = frame if kind == _HEADER else",
        "tests/security/test_odd_frames.py::test_no_message_takes_a_daemon_off_the_bus",
    ),
    _row(
        "keys-that-are-no-text",
        "nor does one by its routing key",
        "shared/bus/amqp/frames.py",
        "if kind == _HEADER else _with_readable_key(frame)",
        "if kind == _HEADER else frame",
        "tests/security/test_odd_frames.py::test_nor_does_the_key_of_a_broadcast",
    ),
    _row(
        "turns-between-frames",
        "messages that come together are not handled in one turn of the loop",
        "shared/bus/amqp/frames.py",
        "        if self._frames % TURN == 0:\n",
        "        if False:\n",
        "tests/unit/bus/test_frames.py::test_others_have_their_turn_between_frames_that_came_together",
    ),
    _row(
        "values-of-ads",
        "no ad holds a loop by what it is made of",
        "shared/classad/cells.py",
        "        if maps > 1:\n",
        "        if False:\n",
        "tests/unit/daemon/test_ad_bounds.py::test_what_is_no_ad_is_refused_before_there_is_an_object_for_each_value",
    ),
    _row(
        "number-of-ads",
        "a daemon has so many ads of a type, however it tells of them",
        "shared/daemon/ad_bounds.py",
        "    if many > max(MOST_OF_DAEMON, len(known)):\n",
        "    if False:\n",
        "tests/unit/daemon/test_ad_bounds.py::test_a_daemon_has_so_many_ads_of_a_type_however_it_tells_of_them",
    ),
    _row(
        "turns-between-ads",
        "a page of others' ads holds no loop",
        "shared/daemon/readable_ads.py",
        "        await turn.yield_if_due()\n",
        "",
        "tests/unit/daemon/test_readable_ads.py::test_others_have_their_turn_between_ads",
    ),
    _row(
        "slot-table-in-a-thread",
        "no ads hold a negotiator's loop while its slot table takes them in",
        "services/negotiator/cycle_runner.py",
        "await asyncio.to_thread(self.table.carry_out, changes)",
        "self.table.carry_out(changes)",
        "tests/unit/negotiator/test_cycle_runner.py::test_the_slot_table_is_brought_up_to_date_in_a_thread",
    ),
    _row(
        "callers-gone",
        "nobody works for an HTTP client that has gone",
        "shared/bus/memory.py",
        "                wait.end()\n            raise",
        "                pass\n            raise",
        "tests/security/test_callers_gone.py::test_a_question_ends_at_the_daemon_too_when_its_client_has_gone",
    ),
    _row(
        "callers-gone-on-servers",
        "nor on RabbitMQ for a gateway that waits no longer",
        "shared/bus/amqp/calls.py",
        "self._give_up(envelope.id, deadline)\n            raise",
        "pass\n            raise",
        "tests/contract/test_bus.py::test_who_works_for_a_gateway_learns_that_nobody_waits_any_more",
    ),
    # ---- the way in
    _row(
        "one-length",
        "no request has a Content-Length and a Transfer-Encoding",
        _FRAMING,
        "            if length is not None:\n",
        "            if False:\n",
        "tests/unit/gateway/test_http_framing.py::test_what_can_be_read_in_two_ways_does_not",
    ),
    _row(
        "line-ends",
        "a line of a request ends with a carriage return and a line feed",
        _FRAMING,
        'if not line.endswith(b"\\r\\n"):',
        "if False:",
        "tests/unit/gateway/test_http_framing.py::test_what_can_be_read_in_two_ways_does_not",
    ),
    _row(
        "size-of-a-head",
        "the head of a request has at most 64 KiB",
        _FRAMING,
        "if self._state is _State.HEAD and self._size + len(self._line) > MAX_HEAD:",
        "if False:",
        "tests/unit/gateway/test_http_framing.py::test_a_head_that_is_too_large_is_refused_also_when_it_comes_at_once",
        f"{_HTTP}::test_a_large_header_is_refused_as_documented",
    ),
    _row(
        "names-of-the-gateway",
        "a name that points at a gateway is not yet its own",
        "services/gateway/core/host_check.py",
        "        if not self.knows(host):\n",
        "        if False:\n",
        f"{_HTTP}::test_a_name_that_points_here_is_not_yet_the_gateways",
    ),
    _row(
        "pages-of-others",
        "a page of another host changes nothing",
        "services/gateway/core/host_check.py",
        "if origin is not None and changes and not self._ours(origin, given):",
        "if False:",
        f"{_HTTP}::test_another_page_changes_nothing",
        f"{_HTTP}::test_a_websocket_of_another_page_is_not_opened",
    ),
    _row(
        "transfers-in-the-clear",
        "no token of a transfer leaves a machine without TLS",
        "shared/transfer/tls.py",
        "if not self.in_the_clear and not await is_this_machine(host):",
        "if False:",
        "tests/security/test_https.py::test_a_token_is_not_sent_to_another_machine_without_tls",
    ),
    _row(
        "failed-logins",
        "guesses from one address end",
        "services/gateway/core/failed_logins.py",
        "return max(self._addresses.wait(network(address), now), self._secrets.wait(secret, now))",
        "return 0.0",
        "tests/security/test_failed_logins.py::test_guesses_from_one_address_end_and_others_go_on",
    ),
    _row(
        "names-of-users",
        "users are names that can be one",
        "shared/user_names.py",
        'if not _NAME.fullmatch(name) or ".." in name or name.endswith("."):',
        "if False:",
        "tests/security/test_token_rights.py::test_no_token_is_made_for_a_user_that_can_be_none",
        "tests/security/test_token_rights.py::test_the_pure_check_says_the_same",
    ),
    _row(
        "tokens-of-tokens",
        "who may make tokens makes none that opens more, and sees none that does",
        "services/gateway/core/authorization.py",
        "    return wide + more\n",
        "    return []\n",
        "tests/security/test_token_rights.py::test_a_tokens_administrator_makes_nothing_wider",
        "tests/security/test_token_rights.py::test_a_tokens_administrator_sees_and_revokes_no_more_than_its_own",
    ),
    _row(
        "audiences",
        "a token of an issuer for somebody else opens nothing",
        "services/gateway/core/scitokens.py",
        "if not any(one in issuer.audiences for one in audiences):",
        "if False:",
        "tests/security/test_oidc.py::test_what_a_token_says_is_looked_at",
    ),
    _row(
        "signatures-of-issuers",
        "a token that an issuer's key did not sign opens nothing",
        "services/gateway/core/scitokens.py",
        '                "verify_exp": False,\n',
        '                "verify_signature": False,\n                "verify_exp": False,\n',
        "tests/security/test_oidc.py::test_a_token_of_another_key_and_one_that_was_changed",
    ),
    _row(
        "signatures-of-idtokens",
        "an IDTOKEN that no key of the pool signed opens nothing",
        "shared/idtokens.py",
        'options={"verify_exp": False,',
        'options={"verify_signature": False, "verify_exp": False,',
        f"{_IDTOKENS}::test_who_has_no_key_signs_nothing",
    ),
    _row(
        "algorithms-of-idtokens",
        "what signs an IDTOKEN is HMAC with SHA-256, whatever its header says",
        "services/gateway/auth/idtokens.py",
        'if header.get("alg") != "HS256" or not isinstance(name, str):',
        "if not isinstance(name, str):",
        f"{_IDTOKENS}::test_who_has_no_key_signs_nothing",
    ),
    _row(
        "names-of-signing-keys",
        "a token names no file outside of the directory of keys",
        "shared/idtokens.py",
        "if not _KEY_NAME.fullmatch(name):",
        "if False:",
        f"{_IDTOKENS}::test_a_token_names_no_file",
    ),
    _row(
        "files-of-signing-keys",
        "a key that others may read signs nothing",
        "shared/idtokens.py",
        "if status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):",
        "if False:",
        f"{_IDTOKENS}::test_a_key_that_others_may_read_signs_nothing",
    ),
    _row(
        "lists-of-the-shut-out",
        "whom a DENY list names has nothing of that level, nor of those that imply it",
        "services/gateway/core/access_lists.py",
        "        if self.denied(level, user, address, names):\n            return False\n",
        "",
        f"{_LISTS}::test_levels",
        f"{_LISTS}::test_a_gateway_goes_by_its_lists",
    ),
    _row(
        "processes-of-jobs-at-the-socket",
        "a process without new privileges, as jobs are, is nobody at the local socket",
        "services/gateway/auth/local_peer.py",
        'return value.strip() != "0"',
        "return False",
        "tests/security/test_logins.py::test_a_process_without_new_privileges_sends_a_token",
        "tests/security/test_logins.py::test_a_job_gets_nothing_by_the_socket",
    ),
    # ---- who comes in as a daemon
    _row(
        "roles-of-join-tokens",
        "a join token lets in daemons of its roles only",
        _REGISTRY,
        "        if role not in found.roles:\n",
        "        if False:\n",
        f"{_ENROLL}::test_a_join_token_lets_in_only_whom_it_was_made_for",
    ),
    _row(
        "number-of-a-join-token",
        "a join token lets in as many as it was made for",
        _REGISTRY,
        "        if found.left < 1:\n",
        "        if False:\n",
        f"{_ENROLL}::test_a_join_token_lets_in_only_whom_it_was_made_for",
    ),
    _row(
        "names-that-are-taken",
        "nobody gets the user of a daemon that has one",
        _REGISTRY,
        "        if before is not None and not before.revoked:\n",
        "        if False:\n",
        f"{_ENROLL}::test_a_join_token_lets_in_only_whom_it_was_made_for",
    ),
    # ---- images
    _row(
        "images-by-digest",
        "whatever an image is made of can be named by digest",
        "compose/Dockerfile",
        "FROM ${PYTHON_IMAGE} AS runtime\n",
        "FROM python:3.11-slim AS runtime\n",
        f"{_HARDENING}::test_what_our_image_is_made_of_can_be_named_by_digest",
    ),
    _row(
        "rights-of-services",
        "a container of a daemon has no capability",
        "compose/compose.yaml",
        '  user: "10001:10001"\n  cap_drop: [ALL]\n',
        '  user: "10001:10001"\n  cap_drop: []\n',
        f"{_HARDENING}::test_a_service_has_no_rights_that_it_does_not_need",
    ),
    _row(
        "set-uid-files-of-the-image",
        "no program in the image gives rights to who runs it",
        "compose/Dockerfile",
        "    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \\\n",
        "",
        "tests/security/test_image.py::test_no_file_of_the_image_gives_rights_to_who_runs_it",
    ),
)


def troubles(mend: Mend) -> Iterator[str]:
    """Why a row can not be tried: what it changes, or a test, is not there any more."""
    text = (ROOT / mend.file).read_text()
    for old, new in mend.changes:
        if (count := text.count(old)) != 1:
            yield f"{mend.name}: {old.strip()!r} stands {count} times in {mend.file}"
        text = text.replace(old, new)
    try:
        if mend.file.endswith(".py"):
            compile(text, mend.file, "exec")
    except SyntaxError as error:
        yield f"{mend.name}: {mend.file} can not be read any more then: {error}"
    for test in mend.tests:
        file, _, function = test.partition("::")
        if not (ROOT / file).is_file() or f"def {function}(" not in (ROOT / file).read_text():
            yield f"{mend.name}: there is no {test}"


def _copy(place: Path) -> Path:
    """The files of this checkout, changes that are not committed included, and what Python made of them."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    for folder in {Path(name).parent for name in names if name.endswith(".py")}:
        if (made := ROOT / folder / "__pycache__").is_dir():
            shutil.copytree(made, place / folder / "__pycache__")
    (place / ".venv").symlink_to(ROOT / ".venv")
    return place


def _failures(place: Path, tests: Sequence[str]) -> tuple[set[str], str]:
    """Which of these tests (file and function) fail in a copy, and what pytest said."""
    words = ["-n", "0", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider"]
    # The copy goes before the checkout, in whatever is started there too.
    surroundings = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "pytest", *words, *dict.fromkeys(tests)]
    try:
        done = subprocess.run(
            command, cwd=place, env=surroundings, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        said = f"given up after {LONGEST_S} s"
    return set(re.findall(r"^FAILED (\S+?::\w+)", said, re.M)), said


def run(mends: Sequence[Mend], *, keep: Path | None) -> int:
    """Try these rows. keep: a directory for what pytest said. Returns how many were not noticed."""
    print("the tests, nothing changed: ", end="", flush=True)
    with tempfile.TemporaryDirectory(prefix="roost-mends-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)  # as elsewhere in these tests, jobs of other accounts have to get there
        bad, said = _failures(_copy(Path(folder)), [test for mend in mends for test in mend.tests])
    if " passed" not in said:
        print(f"none ran\n{said[-4000:]}")
        return len(mends)
    print(f"{len(bad)} fail" if bad else "none fails", flush=True)
    left = 0
    for mend in mends:
        if failing := [test for test in mend.tests if test in bad]:
            left += 1
            print(f"{mend.name}: NOT TRIED, as {', '.join(failing)} fails without a change", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="roost-mends-", dir="/var/tmp") as folder:
            os.chmod(folder, 0o755)
            file = _copy(Path(folder)) / mend.file
            text = file.read_text()
            for old, new in mend.changes:
                text = text.replace(old, new)
            file.write_text(text)
            failed, said = _failures(Path(folder), mend.tests)
        silent = [test for test in mend.tests if test not in failed]
        left += bool(silent)
        told = "noticed by " + ", ".join(test.partition("::")[2] for test in mend.tests)
        print(f"{mend.name}: {'NOT NOTICED by ' + ', '.join(silent) if silent else told}", flush=True)
        if keep is not None:
            (keep / f"{mend.name}.txt").write_text(said)
    print(f"{len(mends)} rows, {len(mends) - left} noticed, {left} not")
    return left


def main(argv: Sequence[str]) -> int:
    known = {mend.name: mend for mend in MENDS}
    parser = argparse.ArgumentParser(prog="python -m tests.security.mends", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows; all of them if none: {', '.join(known)}")
    parser.add_argument("--keep", type=Path, help="write what pytest said of each row into this directory")
    options = parser.parse_args(argv)
    if strange := [name for name in options.names if name not in known]:
        parser.error(f"there is no row {', '.join(strange)}: there are {', '.join(known)}")
    chosen = [known[name] for name in options.names] or list(MENDS)
    if wrong := [trouble for mend in chosen for trouble in troubles(mend)]:
        print("\n".join(wrong))
        return 2
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    return 1 if run(chosen, keep=options.keep) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
