"""Which tests show each row, or why there is nothing to show. `test_the_manifest.py` holds it against both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LOCAL = "local/test_local_tools.py"
_SCHEMAS = "local/test_schemas.py"
_ACCESS = "access/test_rules_of_a_file.py"
_SERVED = "access/test_what_is_served.py"
_GUARD = "guard/test_the_guard_in_the_hub.py"
_FALLBACK = "tries/test_fallback.py"
_ONE = "hub/test_one_bad_upstream_is_one_bad_upstream.py"
_END = "hub/test_nothing_outlives_the_hub.py"
_LOST = "hub/test_nothing_is_lost_on_the_way.py"
_PACKAGES = "doors/test_the_packages_are_clients_of_the_hub.py::test_a_package_lists_and_calls_servers_of_both_eras"

SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    # -- 000 ------------------------------------------------------------------------------------------------------
    "A000-3": (f"{_ACCESS}::test_tags_of_the_configuration_filter_tools",),
    # -- 001 ------------------------------------------------------------------------------------------------------
    "A001-3": (f"{_LOCAL}::test_a_tool_that_blocks_in_pure_python_does_not_keep_others_from_being_answered",),
    "A001-4": (
        f"{_SCHEMAS}::test_docstrings_of_the_usual_styles_describe_the_tool_and_its_parameters",
        f"{_SCHEMAS}::test_types_become_schemas",
    ),
    "A001-6": (f"{_SCHEMAS}::test_titles_are_removed_but_never_a_property_of_that_name",),
    "A001-8": (f"{_ACCESS}::test_a_tool_has_the_name_title_and_description_of_the_configuration",),
    "A001-9": (
        f"{_ACCESS}::test_a_preset_argument_is_not_listed_and_always_sent",
        f"{_ACCESS}::test_a_preset_may_come_from_the_environment",
        "validation/test_arguments_are_checked_first.py::test_the_value_of_a_preset_is_checked_and_never_quoted",
    ),
    "A001-11": (
        "results/test_results_are_shaped.py::test_a_function_of_the_user_changes_results_in_a_process_of_its_own",
        "results/test_results_are_shaped.py::test_a_step_that_fails_withholds_the_result_unless_it_is_to_be_kept",
        "results/test_results_are_shaped.py::test_steps_of_the_hub",
    ),
    "A001-28": (
        "tries/test_nothing_is_executed_twice.py::test_over_stdio_a_tool_with_effects_is_executed_at_most_once",
        "tries/test_nothing_is_executed_twice.py::test_over_http_a_tool_with_effects_is_executed_at_most_once",
    ),
    # -- 002 ------------------------------------------------------------------------------------------------------
    "A002-4": (
        f"{_LOCAL}::test_the_functions_of_every_file_are_listed_and_called",
        f"{_LOCAL}::test_a_file_that_does_not_import_is_reported_and_the_rest_load",
    ),
    "A002-8": (
        f"{_SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        "network/test_profiles_of_principals.py::test_its_lists_are_those_of_a_hub_that_serves_the_profile_alone",
    ),
    "A002-13": (
        "validation/test_arguments_are_checked_first.py::test_arguments_that_cannot_fit_are_refused_and_nobody_is_asked",
    ),
    "A002-14": (
        "tries/test_deadlines.py::test_a_call_that_takes_too_long_ends_and_its_session_stays",
        "tries/test_deadlines.py::test_a_tool_may_have_a_deadline_of_its_own",
        "config/test_entries.py::test_timeout_is_the_deadline_of_a_call",
    ),
    "A002-15": (
        "tries/test_keys_of_servers.py::test_an_api_key_is_sent_when_listing_and_when_calling_and_stands_in_no_log",
        "config/test_entries.py::test_an_api_key_becomes_a_header",
    ),
    "A002-16": (
        "faults/test_every_fault.py::test_a_fault_costs_only_the_calls_of_its_own_server",
        "chaos/test_chaos.py::test_every_promise_is_kept_while_servers_die_hang_and_lie",
        "records/test_trace.py::test_an_exception_nobody_expected_costs_one_call_and_leaves_one_traceback",
    ),
    "A002-17": (
        "records/test_calls_are_recorded.py::test_every_call_is_a_record_whatever_came_of_it",
        "records/test_trace.py::test_a_call_is_recorded_with_where_it_went_and_what_came_of_it",
    ),
    "A002-21": ("tries/test_keys_of_servers.py::test_a_wrong_key_is_told_where_the_server_is_missing",),
    # -- 003 ------------------------------------------------------------------------------------------------------
    "A003-7": (
        "guard/test_url_rules.py::test_a_guarded_url_is_refused_however_it_is_written",
        "guard/test_url_rules.py::test_what_only_looks_like_one_is_let_through",
    ),
    "A003-8": (
        f"{_GUARD}::test_a_scrape_of_a_dataset_is_answered_with_the_sentence_and_nobody_is_asked",
        f"{_GUARD}::test_a_guarded_tool_is_guarded_under_another_name",
        f"{_GUARD}::test_words_tools_and_urls_of_the_guard_are_settings",
    ),
    "A003-16": (
        "peers/test_playwright_mcp_keeps_its_session.py::test_the_second_call_sees_what_the_first_has_done",
        "config/test_entries.py::test_a_browser_is_one_for_each_client",
    ),
    "A003-18": (
        f"{_ONE}::test_a_killed_upstream_is_replaced_before_its_next_call",
        "peers/test_playwright_mcp_keeps_its_session.py"
        "::test_a_crash_between_calls_is_told_once_and_a_new_browser_serves",
        "fuzz/test_what_was_found.py::test_an_answer_that_is_given_up_before_it_began_leaves_nothing_behind",
    ),
    "A003-19": (
        f"{_ONE}::test_a_call_ends_at_its_deadline_and_the_same_session_answers_the_next",
        "hub/test_over_a_network.py::test_with_session_call_every_call_has_a_process_of_its_own",
    ),
    "A003-22": (
        f"{_ACCESS}::test_a_blacklist_holds_on_every_transport_at_listing_and_at_the_call",
        "access/test_nothing_refused_can_be_reached.py"
        "::test_no_spelling_by_any_method_of_any_era_reaches_what_is_refused",
        "access/test_nothing_refused_can_be_reached.py::test_a_refused_name_answers_byte_for_byte_as_an_unknown_one",
    ),
    "A003-23": (
        f"{_ACCESS}::test_a_blacklist_holds_on_every_transport_at_listing_and_at_the_call",
        "config/test_diagnostics.py::test_a_blacklist_by_server_takes_one_tool_as_it_takes_a_list",
    ),
    "A003-24": (
        f"{_GUARD}::test_a_scrape_of_a_dataset_is_answered_with_the_sentence_and_nobody_is_asked",
        f"{_FALLBACK}::test_a_redirect_inside_the_fallback_is_guarded",
    ),
    "A003-25": (
        "guard/test_url_rules.py::test_a_guarded_url_is_refused_however_it_is_written",
        "guard/test_url_rules.py::test_no_disguise_gets_a_guarded_url_through",
        "guard/test_url_rules.py::test_more_urls_can_be_denied_and_some_allowed",
        "guard/test_readings_of_clients.py::test_what_a_client_would_take_from_there_is_refused",
    ),
    "A003-26": (f"{_GUARD}::test_a_scrape_of_a_dataset_is_answered_with_the_sentence_and_nobody_is_asked",),
    "A003-27": (
        f"{_GUARD}::test_guarded_tools_say_the_rule_and_guarded_resources_are_not_there",
        f"{_GUARD}::test_a_guarded_uri_is_not_readable_through_a_template_either",
        f"{_GUARD}::test_guarded_links_are_dropped_from_search_results",
    ),
    "A003-28": (
        f"{_FALLBACK}::test_a_page_whose_server_dies_comes_from_the_hub_which_says_so",
        f"{_FALLBACK}::test_where_the_page_cannot_be_fetched_either_the_first_error_is_reported",
        f"{_FALLBACK}::test_which_failures_count_is_a_setting",
    ),
    "A003-29": (
        "scrape/test_converter.py::test_without_an_endpoint_markitdown_is_made_without_the_service",
        "scrape/test_converter.py::test_an_endpoint_is_passed_through",
    ),
    "A003-30": (
        f"{_FALLBACK}::test_private_addresses_are_not_fetched_unless_allowed",
        "scrape/test_where_it_may_go.py::test_no_private_address_is_reached_by_any_spelling",
        "scrape/test_where_it_may_go.py::test_what_is_no_address_of_a_page_is_refused_as_an_argument",
        "scrape/test_bounds.py::test_a_conversion_without_an_end_is_killed_while_others_go_on",
    ),
    "A003-31": (
        "tries/test_nothing_is_executed_twice.py"
        "::test_a_server_that_refuses_twice_and_then_accepts_is_called_with_success",
        "tries/test_nothing_is_executed_twice.py::test_the_configuration_says_what_may_be_repeated_and_what_not",
        "tries/test_breaker.py::test_failures_of_the_transport_open_it_and_it_recovers_after_the_cool_down",
        "tries/test_breaker.py::test_what_a_server_answers_never_opens_it",
    ),
    "A003-33": (
        "cli/test_commands.py::test_check_is_a_table_with_the_cause_of_every_failure",
        "cli/test_commands.py::test_check_fails_where_a_required_server_does_and_names_it",
        f"{_ONE}::test_a_hub_whose_required_server_is_missing_answers_at_once_then_says_so_and_ends",
    ),
    "A003-34": (
        "records/test_no_secret_is_written.py::test_no_fault_brings_a_secret_to_stderr_an_error_or_a_disk",
        "records/test_redaction.py::test_what_stands_under_a_telling_key_is_hidden",
        "records/test_redaction.py::test_a_known_secret_never_comes_out_wherever_it_is_and_in_whatever_form",
    ),
    "A003-35": (
        "records/test_explain.py::test_the_explanation_comes_before_the_result",
        "records/test_explain.py::test_a_hidden_name_is_explained_by_the_rule_that_hides_it",
    ),
    # -- 004 ------------------------------------------------------------------------------------------------------
    "A004-10": (
        f"{_ACCESS}::test_filters_hold_at_listing_and_at_the_call",
        f"{_ACCESS}::test_a_tool_that_appears_after_an_allow_list_was_written_stays_hidden",
        "config/test_entries.py::test_what_does_not_fit_is_named_with_its_key",
    ),
    "A004-16": (
        f"{_LOST}::test_unknown_fields_arrive_untouched",
        "matrix/features.py::test_tools_are_listed_with_everything_they_say_of_themselves",
    ),
    "A004-17": (
        "catalog/test_names.py::test_every_exposed_name_is_legal_and_the_same_every_time",
        "catalog/test_names.py::test_two_long_names_stay_two",
        _PACKAGES,
    ),
}
"""Row -> the tests that show it, as `path below tests/::name`."""

OUT: Final[Mapping[str, str]] = {
    "A000-20": "settings and messages of Agently's own framework; the hub has its configuration and its log",
    "A001-26": "needs an agent and its model; a function with a schema given by hand is what remains (A001-7)",
    "A001-27": "SDKs of vendors; any vendor's MCP server can be listed in the configuration",
    "A003-36": "rules about turns belong to the agent; shortening of results is there as `postprocess: truncate`",
}
"""Row -> why it is not done."""

PARTLY: Final[Mapping[str, str]] = {
    "A000-19": "nobody is asked on stdin, which is the protocol under `serve`: the ImportError says what to install",
    "A001-25": "five tools instead of the eleven of the fork the text names",
    "A002-1": "BaseTool is a class of its own and LangChain no dependency",
    "A002-3": "a plain `/execute` endpoint is a native tool; MCP tools speak MCP",
    "A002-12": "side by side without LangGraph",
    "A003-28": "by the kind of the failure instead of a text in it, which newer SDKs no longer have",
    "A003-37": "a wrong server name is answered with suggestions and never corrected: it might lead past a rule",
    "A004-1": "`rename` counts up instead of drawing five letters, so that a name is the same after a restart",
    "A004-8": "what is wrong changes nothing, where the original has switched everything off by then",
    "A004-21": "output of more than 64 KiB is no timeout, and what the command started is ended with it",
}
"""Row -> where what is there differs from the text of the row, and why."""

PENDING: Final[frozenset[str]] = frozenset(
    {
        "A000-1",
        "A000-2",
        "A000-4",
        "A000-5",
        "A000-6",
        "A000-7",
        "A000-8",
        "A000-9",
        "A000-10",
        "A000-11",
        "A000-12",
        "A000-13",
        "A000-14",
        "A000-15",
        "A000-16",
        "A000-17",
        "A000-18",
        "A000-19",
        "A001-1",
        "A001-2",
        "A001-5",
        "A001-7",
        "A001-10",
        "A001-12",
        "A001-13",
        "A001-14",
        "A001-15",
        "A001-16",
        "A001-17",
        "A001-18",
        "A001-19",
        "A001-20",
        "A001-21",
        "A001-22",
        "A001-23",
        "A001-24",
        "A001-25",
        "A002-1",
        "A002-2",
        "A002-3",
        "A002-5",
        "A002-6",
        "A002-7",
        "A002-9",
        "A002-10",
        "A002-11",
        "A002-12",
        "A002-18",
        "A002-19",
        "A002-20",
        "A003-1",
        "A003-2",
        "A003-3",
        "A003-4",
        "A003-5",
        "A003-6",
        "A003-9",
        "A003-10",
        "A003-11",
        "A003-12",
        "A003-13",
        "A003-14",
        "A003-15",
        "A003-17",
        "A003-20",
        "A003-21",
        "A003-32",
        "A003-37",
        "A004-1",
        "A004-2",
        "A004-3",
        "A004-4",
        "A004-5",
        "A004-6",
        "A004-7",
        "A004-8",
        "A004-9",
        "A004-11",
        "A004-12",
        "A004-13",
        "A004-14",
        "A004-15",
        "A004-18",
        "A004-19",
        "A004-20",
        "A004-21",
        "A004-22",
        "A004-23",
        "A004-24",
        "A004-25",
        "A004-26",
    }
)
"""Rows whose code has not landed yet."""

PENDING_CHECKS: Final[frozenset[int]] = frozenset(
    {8, 9, 10, 15, 17, 28, 30, 31, 32, 34, 37, 38, 40, 41, 42, 44, 48, 49, 50}
)
"""Checks whose code has not landed yet."""
