"""The rows of MiroFlow's ToolManager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.manifest.paths import (
    ACCESS,
    BY_SERVER,
    EXAMPLES,
    FALLBACK,
    GUARD,
    MANAGER_FALLBACK,
    ONCE,
    PLAYWRIGHT_SESSION,
    SERVED,
    URLS,
)

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "A003-1": (f"{BY_SERVER}::test_with_timeout_passes_results_and_raises_at_the_end",),
    "A003-2": (
        f"{BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",
        f"{BY_SERVER}::test_check_10_arguments_by_position_and_by_keyword_are_the_same",
    ),
    "A003-3": (
        f"{BY_SERVER}::test_a_url_defines_a_server_and_the_blacklist_applies_to_it",
        f"{BY_SERVER}::test_duplicate_names_and_invalid_arguments_are_refused",
        f"{EXAMPLES}::test_the_orchestrator_of_miroflow_runs_unchanged",
    ),
    "A003-4": (f"{BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",),
    "A003-5": (f"{BY_SERVER}::test_check_28_a_task_log_is_written_at_once_and_never_breaks_a_call",),
    "A003-6": (
        f"{BY_SERVER}::test_check_28_a_task_log_is_written_at_once_and_never_breaks_a_call",
        f"{MANAGER_FALLBACK}::test_the_task_log_contains_each_step_of_the_fallback",
        f"{EXAMPLES}::test_the_orchestrator_of_miroflow_runs_unchanged",
    ),
    "A003-7": (
        f"{URLS}::test_a_guarded_url_is_refused_in_every_spelling",
        f"{URLS}::test_lookalikes_of_guarded_urls_are_let_through",
    ),
    "A003-8": (
        f"{GUARD}::test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server",
        f"{GUARD}::test_a_guarded_tool_is_guarded_under_another_name",
        f"{GUARD}::test_the_guards_message_tools_and_urls_are_configurable",
    ),
    "A003-9": (f"{BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",),
    "A003-10": (
        f"{BY_SERVER}::test_check_9_a_dead_server_is_listed_with_an_error_and_the_others_in_order",
        f"{SERVED}::test_the_tools_command_lists_by_server",
    ),
    "A003-11": (
        f"{BY_SERVER}::test_check_9_a_dead_server_is_listed_with_an_error_and_the_others_in_order",
        "upstream/supervision/test_status.py::test_status_shows_each_server_with_its_state_last_error_and_stderr",
    ),
    "A003-12": (
        f"{BY_SERVER}::test_duplicate_names_and_invalid_arguments_are_refused",
        "config/test_entries.py::test_an_invalid_value_is_reported_with_its_key",
    ),
    "A003-13": (
        f"{BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        f"{BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",
    ),
    "A003-14": (
        f"{BY_SERVER}::test_check_8_an_unknown_server_gives_exactly_one_error",
        f"{BY_SERVER}::test_an_unknown_tool_name_is_answered_with_names_the_caller_may_use",
    ),
    "A003-15": (
        f"{BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        f"{MANAGER_FALLBACK}::test_fallback_guard_and_call_record_apply_to_a_server_that_never_started",
    ),
    "A003-16": (
        "peers/test_playwright_mcp_keeps_its_session.py::test_the_second_call_sees_the_page_of_the_first",
        "config/test_entries.py::test_a_browser_entry_defaults_to_one_session_per_client",
        f"{PLAYWRIGHT_SESSION}::test_playwright_has_one_session_that_starts_on_first_use",
        f"{BY_SERVER}::test_a_url_defines_a_server_and_the_blacklist_applies_to_it",
    ),
    "A003-17": (
        f"{PLAYWRIGHT_SESSION}::test_a_standalone_playwright_session_connects_on_use_and_can_be_closed_twice",
        f"{PLAYWRIGHT_SESSION}::test_a_call_after_closing_starts_a_new_playwright_session",
    ),
    "A003-18": (
        f"{PLAYWRIGHT_SESSION}::test_a_session_recovers_from_a_failed_start_from_its_death_and_from_another_loop",
        "hub/test_one_bad_upstream_is_one_bad_upstream.py::test_a_killed_upstream_is_replaced_before_its_next_call",
        "peers/test_playwright_mcp_keeps_its_session.py"
        "::test_a_browser_crash_between_calls_is_reported_once_and_a_new_browser_serves",
        "fuzz/test_what_was_found.py::test_a_response_abandoned_before_it_began_leaves_no_state",
    ),
    "A003-19": (
        f"{BY_SERVER}::test_asyncio_run_twice_keeps_the_session",
        f"{BY_SERVER}::test_a_server_may_have_a_process_for_each_call",
        "hub/test_one_bad_upstream_is_one_bad_upstream.py"
        "::test_a_call_times_out_and_the_next_call_uses_the_same_session",
        "hub/test_over_a_network.py::test_with_session_call_every_call_has_a_process_of_its_own",
    ),
    "A003-20": (
        f"{MANAGER_FALLBACK}::test_the_deadline_covers_the_start_of_a_server_retries_and_the_fallback",
        f"{BY_SERVER}::test_the_managers_timeout_applies_to_servers_of_a_file",
        f"{BY_SERVER}::test_check_17_a_timeout_is_raised_and_the_next_call_is_answered",
        f"{BY_SERVER}::test_a_timeout_is_returned_as_an_error_text_if_configured",
        "policy/tries/test_deadlines.py::test_a_call_times_out_and_its_session_continues",
    ),
    "A003-21": (
        f"{BY_SERVER}::test_check_14_all_texts_are_in_the_result_and_nothing_raises",
        f"{BY_SERVER}::test_check_15_empty_content_gives_an_empty_text",
    ),
    "A003-22": (
        f"{ACCESS}::test_a_blacklist_applies_to_lists_and_calls_on_every_transport",
        "policy/access/test_nothing_refused_can_be_reached.py::test_no_spelling_method_or_era_reaches_a_refused_item",
        "policy/access/test_nothing_refused_can_be_reached.py::test_a_refused_name_answers_byte_for_byte_as_an_unknown_one",
        f"{BY_SERVER}::test_a_blacklisted_tool_is_refused_even_if_added_to_the_set_later",
    ),
    "A003-23": (
        f"{ACCESS}::test_a_blacklist_applies_to_lists_and_calls_on_every_transport",
        "config/test_diagnostics.py::test_a_blacklist_by_server_accepts_one_tool_or_a_list",
    ),
    "A003-24": (
        f"{GUARD}::test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server",
        f"{FALLBACK}::test_the_guard_applies_to_redirects_of_the_fallback",
    ),
    "A003-25": (
        f"{URLS}::test_a_guarded_url_is_refused_in_every_spelling",
        f"{URLS}::test_no_disguise_gets_a_guarded_url_through",
        f"{URLS}::test_deny_and_allow_patterns_can_be_configured",
        "policy/guard/test_readings_of_clients.py::test_urls_that_clients_read_as_guarded_are_refused",
    ),
    "A003-26": (
        f"{GUARD}::test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server",
        f"{BY_SERVER}::test_a_guarded_url_is_answered_with_the_sentence_as_the_result",
        f"{MANAGER_FALLBACK}::test_a_page_that_redirects_to_a_guarded_url_is_reported_as_blocked",
    ),
    "A003-27": (
        f"{GUARD}::test_guarded_tools_describe_the_rule_and_guarded_resources_are_hidden",
        f"{GUARD}::test_a_guarded_uri_is_not_readable_through_a_template_either",
        f"{GUARD}::test_guarded_links_are_dropped_from_search_results",
    ),
    "A003-28": (
        f"{MANAGER_FALLBACK}::test_fallback_guard_and_call_record_apply_to_a_server_that_never_started",
        f"{MANAGER_FALLBACK}::test_the_fallback_runs_for_a_url_that_refuses_connections",
        f"{FALLBACK}::test_other_tools_and_calls_without_a_url_have_no_fallback",
        f"{FALLBACK}::test_the_hub_fetches_the_page_itself_if_the_server_dies_and_notes_it",
        f"{FALLBACK}::test_the_first_error_is_reported_if_the_fallback_fails_too",
        f"{FALLBACK}::test_the_failures_that_trigger_the_fallback_are_configurable",
    ),
    "A003-29": (
        "servers/scrape/test_converter.py::test_without_an_endpoint_markitdown_is_created_without_document_intelligence",
        "servers/scrape/test_converter.py::test_a_configured_endpoint_is_passed_to_markitdown",
    ),
    "A003-30": (
        f"{FALLBACK}::test_private_addresses_are_not_fetched_unless_allowed",
        "servers/scrape/test_where_it_may_go.py::test_no_private_address_is_reached_by_any_spelling",
        "servers/scrape/test_where_it_may_go.py::test_an_invalid_page_url_is_refused_as_an_argument",
        "servers/scrape/test_bounds.py::test_an_endless_conversion_is_killed_while_others_continue",
    ),
    "A003-31": (
        f"{ONCE}::test_a_call_succeeds_after_two_503_responses",
        f"{ONCE}::test_the_configuration_decides_which_calls_may_be_retried",
        "policy/tries/test_breaker.py::test_transport_failures_open_the_breaker_and_it_recovers_after_the_cool_down",
        "policy/tries/test_breaker.py::test_error_responses_of_a_server_never_open_the_breaker",
    ),
    "A003-32": (
        f"{PLAYWRIGHT_SESSION}::test_check_29_closing_leaves_no_child_and_may_be_repeated",
        "hub/test_nothing_outlives_the_hub.py::test_a_stdio_hub_leaves_no_process_when_it_ends",
        "hub/test_nothing_outlives_the_hub.py::test_a_network_hub_leaves_no_process_when_it_ends",
    ),
    "A003-33": (
        "cli/test_commands.py::test_check_prints_a_table_with_the_cause_of_every_failure",
        "cli/test_commands.py::test_check_fails_where_a_required_server_does_and_names_it",
        "hub/test_one_bad_upstream_is_one_bad_upstream.py"
        "::test_a_hub_with_a_missing_required_server_reports_it_and_exits_1",
    ),
    "A003-34": (
        "observability/records/test_no_secret_is_written.py::test_no_fault_leaks_a_secret_to_stderr_an_error_or_a_disk",
        "observability/records/test_redaction.py::test_the_value_of_a_secret_key_is_hidden",
        "observability/records/test_redaction.py::test_a_known_secret_is_redacted_at_any_place_and_in_any_form",
    ),
    "A003-35": (
        "observability/records/test_explain.py::test_explain_prints_the_explanation_before_the_result",
        "observability/records/test_explain.py::test_explain_of_a_hidden_name_gives_the_hiding_rule",
    ),
    "A003-37": (
        f"{BY_SERVER}::test_an_unknown_tool_name_is_answered_with_names_the_caller_may_use",
        f"{BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        "cli/test_what_is_printed.py::test_the_error_for_an_unknown_tool_names_similar_tools_and_unavailable_servers",
    ),
    "A003-38": (
        f"{BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        f"{EXAMPLES}::test_the_orchestrator_of_miroflow_runs_unchanged",
    ),
    "A003-39": (f"{BY_SERVER}::test_a_server_without_checks_gets_the_arguments_as_they_are",),
    "A003-40": (
        f"{BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        f"{BY_SERVER}::test_an_unknown_tool_name_is_answered_with_names_the_caller_may_use",
    ),
    "A003-41": (
        f"{BY_SERVER}::test_a_subclass_extends_the_guard_and_the_log",
        f"{BY_SERVER}::test_a_subclass_extends_the_guard_by_what_it_says_of_urls",
    ),
    "A003-42": (
        f"{BY_SERVER}::test_a_blacklisted_tool_is_told_by_an_info_step",
        f"{BY_SERVER}::test_params_of_an_unknown_kind_are_a_step_of_the_log_also_in_a_call",
    ),
    "A003-43": (
        f"{BY_SERVER}::test_servers_that_the_program_adds_changes_and_removes_count_at_once",
        f"{BY_SERVER}::test_calls_at_once_all_wait_for_what_the_program_has_changed",
        f"{BY_SERVER}::test_a_blacklisted_tool_is_refused_even_if_added_to_the_set_later",
    ),
    "A003-44": ("servers/scrape/test_formats.py::test_workbooks_and_presentations_are_read",),
}

OUT: Final[Mapping[str, str]] = {
    "A003-36": "rules about turns belong to the agent; shortening of results is there as `postprocess: truncate`",
}

PARTLY: Final[Mapping[str, str]] = {
    "A003-28": "by the kind of the failure instead of a text in it, which newer SDKs no longer have",
    "A003-37": "a wrong server name is answered with suggestions and never corrected: it might lead past a rule",
}
