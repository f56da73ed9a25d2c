"""The rows of AgentScope's Toolkit: its operating procedure and its API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.manifest.paths import (
    ACCESS,
    AGENT,
    CALLING,
    CALLS,
    CLIENTS,
    CLIENTS_OF_TOOLKIT,
    CODE,
    ESCAPES,
    FILES,
    GROUPS,
    GROUPS_IN_PROGRAMS,
    GROUPS_OF_TOOLKIT,
    KINDS,
    MACHINE,
    OFF,
    ON_BOTH,
    ONCE,
    ONE_PROGRAM,
    PROCEDURE,
    PROCESSORS,
    RAW_FILES,
    REGISTERING,
    SCHEMAS,
    SHAPED,
    SIGNATURES,
    SPANS_OF_PROGRAM,
    STREAMS,
)

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    # -- 001 --------------------------------------------------------------------------------------------
    "A001-1": (
        f"{STREAMS}::test_the_fields_of_a_response_have_agentscopes_defaults",
        f"{STREAMS}::test_responses_and_results_convert_to_each_other",
        f"{ONE_PROGRAM}::test_the_hub_accepts_responses_blocks_and_state_modules_of_agentscope_1",
        SIGNATURES,
    ),
    "A001-2": (
        f"{KINDS}::test_every_kind_of_function_streams_chunks_and_the_last_chunk_is_the_result",
        f"{STREAMS}::test_every_kind_of_function_gives_the_same_stream",
        f"{CALLING}::test_every_kind_of_tool_gives_chunks_that_end_in_is_last",
        AGENT,
    ),
    "A001-3": (
        f"{KINDS}::test_a_blocking_sync_tool_does_not_delay_another_call",
        f"{STREAMS}::test_a_sync_function_runs_in_a_thread_with_its_callers_context",
        f"{CALLING}::test_a_blocking_sync_tool_does_not_delay_another_call",
    ),
    "A001-4": (
        f"{SCHEMAS}::test_docstrings_of_the_usual_styles_describe_the_tool_and_its_parameters",
        f"{SCHEMAS}::test_python_types_become_json_schemas",
        f"{SCHEMAS}::test_self_and_variable_parameters_are_left_out_and_awkward_names_stay",
        f"{REGISTERING}::test_function_schemas_equal_those_of_agentscope",
    ),
    "A001-5": (
        f"{SCHEMAS}::test_the_long_description_and_variable_parameters_are_optional",
        f"{REGISTERING}::test_a_function_receives_arguments_unconverted",
        f"{REGISTERING}::test_a_function_with_var_keywords_accepts_what_its_schema_allows",
    ),
    "A001-6": (
        f"{SCHEMAS}::test_titles_are_removed_but_never_a_property_of_that_name",
        f"{SCHEMAS}::test_titles_are_removed_at_every_depth_and_values_are_kept",
    ),
    "A001-7": (
        f"{KINDS}::test_a_handwritten_schema_is_used_and_a_property_named_title_is_kept",
        f"{SCHEMAS}::test_an_invalid_handwritten_schema_is_a_type_error",
        f"{REGISTERING}::test_a_handwritten_schema_is_used_and_loses_titles_but_not_title_properties",
    ),
    "A001-8": (f"{ACCESS}::test_the_configuration_overrides_name_title_and_description_of_a_tool",),
    "A001-9": (
        f"{ACCESS}::test_a_preset_argument_is_not_listed_and_always_sent",
        f"{ACCESS}::test_a_preset_may_come_from_the_environment",
        "schema/test_arguments_are_checked_first.py::test_the_value_of_a_preset_is_checked_and_never_quoted",
        f"{KINDS}::test_presets_are_hidden_and_override_sent_arguments",
        f"{REGISTERING}::test_presets_and_partial_arguments_are_hidden_and_override",
        f"{REGISTERING}::test_a_value_sent_over_mcp_for_a_preset_argument_is_dropped",
    ),
    "A001-10": (
        f"{KINDS}::test_arguments_bound_by_a_partial_are_preset",
        f"{REGISTERING}::test_presets_and_partial_arguments_are_hidden_and_override",
    ),
    "A001-11": (
        f"{SHAPED}::test_a_user_function_changes_results_in_its_own_process",
        f"{SHAPED}::test_a_failing_step_withholds_the_result_unless_configured_to_keep_it",
        f"{SHAPED}::test_the_built_in_post_processing_steps_change_results_as_documented",
        f"{KINDS}::test_a_post_processor_can_change_keep_or_withhold_every_chunk",
        f"{CALLING}::test_a_post_processor_receives_the_original_call_and_every_chunk",
        f"{CLIENTS_OF_TOOLKIT}::test_an_async_post_processor_of_a_client_keeps_or_replaces_what_its_tools_answer",
        f"{PROCESSORS}::test_chunks_and_a_later_error_go_through_the_post_processor",
        f"{PROCESSORS}::test_an_exception_in_a_post_processor_withholds_the_content",
    ),
    "A001-12": (
        f"{GROUPS_IN_PROGRAMS}::test_a_group_can_be_created_filled_switched_and_removed_with_its_tools",
        PROCEDURE,
        f"{GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A001-13": (
        f"{GROUPS}::test_the_command_line_switches_groups_on_and_shows_them",
        PROCEDURE,
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A001-14": (
        f"{GROUPS}::test_notes_of_active_groups_are_in_the_instructions",
        PROCEDURE,
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A001-15": (
        f"{KINDS}::test_fields_of_an_extended_model_and_of_extend_schema_are_arguments",
        f"{SCHEMAS}::test_an_extended_model_must_be_a_model_without_a_parameter_of_the_tool",
        f"{CLIENTS_OF_TOOLKIT}::test_an_extended_model_adds_validated_arguments_and_metadata_has_the_error",
        f"{REGISTERING}::test_the_keyword_names_of_both_documents_are_accepted",
    ),
    "A001-16": (
        PROCEDURE,
        f"{CLIENTS_OF_TOOLKIT}::test_an_extended_model_adds_validated_arguments_and_metadata_has_the_error",
        AGENT,
    ),
    "A001-17": (
        PROCEDURE,
        f"{CALLING}::test_an_exception_of_a_tool_is_returned_as_text_or_raised",
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
        f"{ONE_PROGRAM}::test_the_hub_accepts_chunks_and_calls_of_agentscope_2",
    ),
    "A001-18": (
        f"{CLIENTS}::test_a_tool_function_has_its_schema_and_returns_the_raw_result_on_request",
        ON_BOTH,
        PROCEDURE,
        f"{CLIENTS_OF_TOOLKIT}::test_the_tools_of_a_client_are_registered_filtered_and_preset",
        f"{CLIENTS_OF_TOOLKIT}::test_a_client_can_return_raw_results_and_a_single_function",
        SIGNATURES,
    ),
    "A001-19": (
        "library/test_hub.py::test_servers_can_be_added_and_removed_while_the_hub_runs",
        PROCEDURE,
        f"{CLIENTS_OF_TOOLKIT}::test_the_tools_of_a_client_are_registered_filtered_and_preset",
    ),
    "A001-20": (
        f"{GROUPS_IN_PROGRAMS}::test_group_state_dicts_have_the_format_of_a_toolkit",
        f"{GROUPS}::test_with_hub_scope_the_group_state_survives_a_restart_if_a_state_file_is_set",
        f"{GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
        AGENT,
        f"{ONE_PROGRAM}::test_the_hub_accepts_responses_blocks_and_state_modules_of_agentscope_1",
    ),
    "A001-21": (
        "observability/spans/test_spans_of_calls.py::test_every_call_creates_a_span_with_its_outcome",
        SPANS_OF_PROGRAM,
    ),
    "A001-22": (
        f"{CLIENTS}::test_a_stdio_client_keeps_one_session_and_refuses_calls_before_connect",
        f"{CLIENTS}::test_http_clients_list_and_call",
        f"{CLIENTS}::test_a_stateless_client_opens_a_session_per_call_and_a_stateful_one_keeps_one",
    ),
    "A001-23": (
        f"{RAW_FILES}::test_deny_blocks_warn_logs_and_allow_is_silent",
        f"{RAW_FILES}::test_the_stricter_of_configured_and_environment_policy_applies",
        f"{OFF}::test_no_machine_access_tools_exist_without_an_entry",
        f"{MACHINE}::test_a_toolkit_has_no_machine_tools_unless_they_are_registered",
        f"{MACHINE}::test_text_file_tools_read_the_policy_variable_at_each_call_and_are_annotated",
        f"{MACHINE}::test_the_built_in_text_file_server_reads_the_programs_policy_variable_at_each_call",
    ),
    "A001-24": (
        f"{RAW_FILES}::test_lines_are_numbered_and_ranges_are_inclusive",
        f"{RAW_FILES}::test_invalid_ranges_change_nothing_and_are_reported",
        f"{RAW_FILES}::test_lines_are_inserted_up_to_one_after_the_last",
        f"{RAW_FILES}::test_a_new_file_ignores_ranges_and_a_path_may_begin_at_home",
        ON_BOTH,
    ),
    "A001-25": (
        f"{FILES}::test_files_are_read_written_edited_listed_and_deleted",
        f"{FILES}::test_each_root_mode_allows_only_its_operations",
        f"{ESCAPES}::test_no_path_escapes_the_roots",
        f"{ESCAPES}::test_swapping_a_directory_during_path_resolution_does_not_escape_the_root",
    ),
    "A001-28": (
        f"{ONCE}::test_over_stdio_a_tool_with_effects_is_executed_at_most_once",
        f"{ONCE}::test_over_http_a_tool_with_effects_is_executed_at_most_once",
    ),
    "A001-29": (f"{CALLING}::test_a_registered_tool_is_called_with_its_arguments_also_in_an_inactive_group",),
    "A001-30": (f"{ONE_PROGRAM}::test_the_hub_accepts_responses_blocks_and_state_modules_of_agentscope_1", AGENT),
    # -- 004 --------------------------------------------------------------------------------------------
    "A004-1": (
        f"{SCHEMAS}::test_equal_names_are_refused_replaced_skipped_or_renamed_deterministically",
        "catalog/test_catalog.py::test_equal_names_are_decided_as_configured",
        f"{REGISTERING}::test_equal_function_names_are_refused_skipped_replaced_or_renamed",
    ),
    "A004-2": (
        ON_BOTH,
        f"{GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A004-3": (
        ON_BOTH,
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-4": (
        ON_BOTH,
        f"{CALLING}::test_an_exception_of_a_tool_is_returned_as_text_or_raised",
    ),
    "A004-5": (
        f"{GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        ON_BOTH,
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-6": (
        f"{GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        f"{REGISTERING}::test_the_description_of_the_meta_tool_says_that_it_sets_the_final_state",
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-7": (
        f"{GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        f"{GROUPS}::test_an_invalid_switch_changes_nothing",
        AGENT,
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-8": (
        f"{GROUPS}::test_an_invalid_switch_changes_nothing",
        f"{GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-9": (
        "hub/groups/test_many_clients.py::test_a_switch_by_one_client_affects_and_notifies_only_that_client",
        "hub/groups/test_search_and_call.py::test_hub_call_returns_the_same_result_as_a_direct_call",
        "hub/groups/test_search_and_call.py::test_search_matches_names_and_descriptions_and_marks_inactive_tools",
    ),
    "A004-10": (
        f"{ACCESS}::test_filters_apply_to_lists_and_calls",
        f"{ACCESS}::test_a_tool_added_after_an_allow_list_stays_hidden",
        "config/test_entries.py::test_an_invalid_value_is_reported_with_its_key",
        f"{CLIENTS_OF_TOOLKIT}::test_invalid_registrations_of_a_client_are_errors",
    ),
    "A004-11": (
        ON_BOTH,
        f"{CLIENTS_OF_TOOLKIT}::test_invalid_registrations_of_a_client_are_errors",
    ),
    "A004-12": (
        f"{CLIENTS}::test_a_stdio_client_keeps_one_session_and_refuses_calls_before_connect",
        ON_BOTH,
    ),
    "A004-13": (
        f"{CLIENTS}::test_http_clients_list_and_call",
        f"{CLIENTS}::test_invalid_client_arguments_are_refused_at_construction",
        f"{CLIENTS}::test_command_arguments_and_environment_of_a_stdio_client_reach_its_server",
        f"{CLIENTS}::test_timeouts_of_an_http_client_are_deadlines_of_its_server",
        SIGNATURES,
    ),
    "A004-14": (f"{CLIENTS}::test_stdio_clients_are_closed_in_any_order",),
    "A004-15": (ON_BOTH,),
    "A004-16": (
        "hub/test_nothing_is_lost_on_the_way.py::test_unknown_fields_arrive_untouched",
        "matrix/features.py::test_tools_are_listed_with_all_their_fields",
        f"{CLIENTS}::test_a_tools_schema_is_kept_unchanged",
    ),
    "A004-17": (
        "catalog/test_names.py::test_every_exposed_name_is_legal_and_the_same_every_time",
        "catalog/test_names.py::test_two_long_names_stay_distinct_after_shortening",
        "doors/test_the_packages_are_clients_of_the_hub.py::test_a_package_lists_and_calls_servers_of_both_eras",
    ),
    "A004-18": (
        f"{STREAMS}::test_an_interrupted_call_ends_with_its_last_chunk_and_a_note",
        "library/test_hub.py::test_a_cancelled_call_is_cancelled_at_its_server",
        f"{CALLING}::test_an_interrupted_tool_ends_with_its_last_chunk_and_a_note",
        AGENT,
    ),
    "A004-19": (
        ON_BOTH,
        f"{CALLING}::test_an_exception_of_a_tool_is_returned_as_text_or_raised",
    ),
    "A004-20": (
        f"{CODE}::test_the_result_of_a_program_has_the_documented_format",
        f"{CODE}::test_the_code_file_is_removed_with_its_directory",
        ON_BOTH,
    ),
    "A004-21": (
        f"{CODE}::test_long_output_is_cut_with_a_note_and_does_not_time_out",
        f"{CODE}::test_at_the_time_limit_grandchildren_of_any_group_or_session_are_ended",
        f"{CODE}::test_programs_get_a_small_environment_and_the_entrys_variables",
        f"{OFF}::test_servers_with_machine_access_are_refused_over_a_network_before_any_start",
        f"{MACHINE}::test_child_programs_end_with_their_call_and_inherit_no_secrets",
        f"{MACHINE}::test_a_toolkit_of_a_configuration_lists_and_calls_its_servers",
    ),
    "A004-22": (
        "observability/spans/test_spans_of_calls.py::test_every_call_creates_a_span_with_its_outcome",
        "observability/spans/test_spans_of_calls.py::test_the_trace_context_of_the_client_reaches_the_server",
        "observability/spans/test_spans_of_calls.py::test_without_opentelemetry_check_names_the_package_and_calls_work",
        SPANS_OF_PROGRAM,
    ),
    "A004-23": (
        "config/discovery/test_skills.py::test_skills_are_listed_read_and_described_as_the_access_rules_allow",
        f"{CLIENTS_OF_TOOLKIT}::test_skills_are_read_from_their_directories",
    ),
    "A004-24": (
        f"{GROUPS_IN_PROGRAMS}::test_group_state_dicts_have_the_format_of_a_toolkit",
        f"{GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A004-25": (
        ON_BOTH,
        f"{GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A004-26": (
        f"{GROUPS}::test_a_refused_tool_stays_unknown_in_an_inactive_group",
        f"{GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        f"{ACCESS}::test_a_preset_argument_is_not_listed_and_always_sent",
        f"{REGISTERING}::test_a_value_sent_over_mcp_for_a_preset_argument_is_dropped",
    ),
    "A004-27": (CALLS,),
    "A004-28": (CALLS, SIGNATURES),
    "A004-29": (CALLS, f"{CALLING}::test_an_interruption_inside_a_tool_is_an_interrupted_response"),
    "A004-30": (CALLS, f"{CALLING}::test_tasks_in_the_background_and_their_results_are_bounded"),
}

OUT: Final[Mapping[str, str]] = {
    "A001-26": "needs an agent and its model; a function with a schema given by hand is what remains (A001-7)",
    "A001-27": "SDKs of vendors; any vendor's MCP server can be listed in the configuration",
}

PARTLY: Final[Mapping[str, str]] = {
    "A001-25": "five tools instead of the eleven of the fork the text names",
    "A004-1": "`rename` counts up instead of drawing five letters, so that a name is the same after a restart",
    "A004-8": "what is wrong changes nothing, where the original has switched everything off by then",
    "A004-21": "output of more than 64 KiB is no timeout, and what the command started is ended with it",
}
