"""The rows of the requirements of a tool system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.manifest.paths import (
    DEFAULTS,
    EXAMPLES,
    EXECUTOR,
    FOLDERS,
    LANGCHAIN,
    LOCAL,
    NEW_FILES,
    REQUIREMENTS,
    SERVED,
    TOOL_CLASSES,
    TOOL_SETS,
    TOOL_SYSTEM,
)

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "A002-1": (
        f"{TOOL_SYSTEM}::test_builtin_native_and_mcp_tools_have_their_class_schema_and_settings",
        f"{EXECUTOR}::test_tools_of_every_kind_have_one_type",
        f"{FOLDERS}::test_tools_declare_their_source_and_a_tool_set_of_the_folder_selects_them",
        LANGCHAIN,
    ),
    "A002-2": ("config/discovery/test_native_tools.py::test_native_tools_send_the_requests_their_files_describe",),
    "A002-3": (
        REQUIREMENTS,
        f"{TOOL_SYSTEM}::test_an_execute_endpoint_is_a_native_tool",
        f"{FOLDERS}::test_a_file_of_servers_is_loaded_as_a_whole_or_not_at_all",
    ),
    "A002-4": (
        f"{LOCAL}::test_the_functions_of_every_file_are_listed_and_called",
        f"{LOCAL}::test_a_file_that_does_not_import_is_reported_and_the_rest_load",
    ),
    "A002-5": (
        f"{FOLDERS}::test_added_changed_and_removed_files_take_effect_while_the_hub_runs",
        f"{FOLDERS}::test_check_names_every_broken_file_and_the_others_are_loaded",
        f"{TOOL_CLASSES}::test_a_class_that_implements_base_tool_is_served_as_a_tool",
        f"{TOOL_CLASSES}::test_check_names_the_missing_members_of_a_tool_class",
    ),
    "A002-6": (
        f"{FOLDERS}::test_duplicate_names_are_reported_with_the_one_that_is_kept",
        REQUIREMENTS,
    ),
    "A002-7": (
        f"{FOLDERS}::test_tool_sets_of_the_file_override_the_folders_and_profiles_may_use_both",
        f"{TOOL_SETS}::test_a_tool_set_keeps_its_order_and_reports_missing_tools",
        f"{SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        f"{SERVED}::test_a_member_that_no_server_lists_fails_check_and_is_a_warning_in_serve",
        f"{EXAMPLES}::test_the_tool_system_example_has_the_documented_contents",
    ),
    "A002-8": (
        f"{TOOL_SETS}::test_a_profile_has_the_tools_of_its_sets_then_its_own_without_duplicates",
        f"{TOOL_SETS}::test_a_profile_includes_tools_by_their_tags",
        f"{SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        "downstream/network/test_profiles_of_principals.py::test_a_principal_gets_the_lists_of_a_hub_that_serves_only_its_profile",
    ),
    "A002-9": (
        "library/formats/test_formats.py::test_the_strategy_depends_on_the_model_and_the_configuration",
        f"{TOOL_SYSTEM}::test_an_async_model_client_is_queried_from_coroutines_and_sync_code",
        f"{TOOL_SYSTEM}::test_the_formatter_of_a_manager_follows_the_configuration",
    ),
    "A002-10": (
        "library/formats/test_formats.py::test_a_call_survives_formatting_and_parsing",
        "library/formats/test_formats.py::test_the_prompt_contains_the_schemas_and_the_template_text",
        "library/formats/test_formats.py::test_the_tools_command_prints_each_format",
    ),
    "A002-11": (
        f"{EXECUTOR}::test_results_are_messages_and_errors_begin_with_their_code",
        REQUIREMENTS,
        f"{TOOL_SYSTEM}::test_a_functions_value_has_the_same_type_in_process_and_in_a_server",
        f"{TOOL_SYSTEM}::test_a_value_of_fastmcp_is_not_wrapped",
        f"{TOOL_SYSTEM}::test_a_rest_response_that_is_not_an_object_is_returned_as_a_value",
    ),
    "A002-12": (f"{EXECUTOR}::test_check_48_parallel_calls_take_as_long_as_one_and_keep_their_order",),
    "A002-13": (
        "schema/test_arguments_are_checked_first.py::test_invalid_arguments_are_refused_without_asking_the_server",
    ),
    "A002-14": (
        f"{DEFAULTS}::test_every_kind_of_tool_ends_at_the_default_deadline_with_the_code_timeout",
        f"{DEFAULTS}::test_a_servers_own_settings_override_the_defaults",
        "policy/tries/test_deadlines.py::test_a_call_times_out_and_its_session_continues",
        "policy/tries/test_deadlines.py::test_a_tool_can_have_its_own_deadline",
        "config/test_entries.py::test_the_key_timeout_sets_the_call_deadline",
    ),
    "A002-15": (
        "policy/tries/test_keys_of_servers.py::test_an_api_key_is_sent_when_listing_and_when_calling_and_stands_in_no_log",
        "config/test_entries.py::test_an_api_key_becomes_a_header",
    ),
    "A002-16": (
        f"{TOOL_SYSTEM}::test_an_unavailable_server_is_named_with_its_code_and_no_other_tool_is_suggested",
        f"{TOOL_SYSTEM}::test_a_call_to_a_tool_whose_server_died_reports_the_server_unavailable",
        "faults/test_every_fault.py::test_a_fault_fails_only_calls_to_its_own_server",
        "chaos/test_chaos.py::test_every_guarantee_holds_while_servers_die_hang_and_send_invalid_messages",
        "observability/records/test_trace.py::test_an_unexpected_exception_fails_one_call_and_logs_one_traceback",
    ),
    "A002-17": (
        f"{TOOL_SYSTEM}::test_a_call_is_logged_at_info_with_arguments_result_and_duration",
        f"{EXECUTOR}::test_every_call_is_logged_without_secrets",
        "observability/records/test_calls_are_recorded.py::test_every_call_is_recorded_whatever_its_outcome",
        "observability/records/test_trace.py::test_a_call_is_recorded_with_its_route_and_its_outcome",
    ),
    "A002-18": (
        "observability/spans/test_metrics.py::test_call_outcomes_are_counted_and_shown_to_authorized_callers",
        "observability/spans/test_metrics.py::test_a_hub_in_a_program_reports_to_its_collectors_and_its_tracer",
    ),
    "A002-19": (
        f"{EXECUTOR}::test_an_executor_of_a_tool_set_has_its_tools_and_an_unknown_set_is_an_error",
        REQUIREMENTS,
    ),
    "A002-20": (
        f"{TOOL_SETS}::test_user_objects_for_config_logging_model_and_metrics_are_used",
        "library/formats/test_formats.py::test_a_model_client_without_the_method_is_treated_as_without_function_calling",
    ),
    "A002-21": (
        f"{TOOL_SYSTEM}::test_an_unavailable_server_is_named_with_its_code_and_no_other_tool_is_suggested",
        f"{TOOL_SYSTEM}::test_a_key_refused_during_a_call_is_reported_as_permission_denied",
        "policy/tries/test_keys_of_servers.py::test_an_api_key_is_sent_when_listing_and_when_calling_and_stands_in_no_log",
    ),
    "A002-22": (
        f"{TOOL_SETS}::test_of_equal_names_the_first_in_the_configuration_is_meant_and_the_others_have_full_names",
        f"{TOOL_SETS}::test_loading_tools_tells_once_which_names_several_have",
        f"{TOOL_SETS}::test_a_name_stays_with_the_first_server_while_that_is_unavailable",
        f"{TOOL_SETS}::test_an_exposed_name_means_its_tool_although_an_earlier_server_has_a_tool_of_that_name",
        f"{FOLDERS}::test_duplicate_names_are_reported_with_the_one_that_is_kept",
    ),
    "A002-23": (
        f"{TOOL_SETS}::test_without_namespaces_the_first_tool_of_each_name_is_the_only_one",
        f"{DEFAULTS}::test_an_empty_default_namespace_gives_tools_of_every_folder_and_of_a_program_their_own_names",
    ),
    "A002-24": (f"{TOOL_SETS}::test_the_strategy_of_a_profile_overrides_that_of_the_configuration",),
    "A002-25": (
        f"{TOOL_SYSTEM}::test_a_value_that_the_official_sdk_has_wrapped_is_the_output",
        f"{TOOL_SYSTEM}::test_a_value_of_fastmcp_is_not_wrapped",
        f"{TOOL_SYSTEM}::test_a_functions_value_has_the_same_type_in_process_and_in_a_server",
    ),
    "A002-26": (
        f"{NEW_FILES}::test_tools_and_tool_sets_of_files_that_appear_are_found_and_those_of_removed_ones_are_gone",
        f"{NEW_FILES}::test_clients_of_a_hub_that_serves_another_configuration_are_told_of_new_files",
        f"{NEW_FILES}::test_files_that_a_server_can_write_wait_for_the_program",
    ),
}

OUT: Final[Mapping[str, str]] = {}

PARTLY: Final[Mapping[str, str]] = {
    "A002-1": "BaseTool is a class of its own and LangChain no dependency; `to_langchain` makes one of LangChain",
    "A002-3": "a plain `/execute` endpoint is a native tool; MCP tools speak MCP",
    "A002-12": "side by side without LangGraph",
    "A002-22": "`load_tools` and clients get all of them, as their exposed names differ, unless the namespace is empty",
}
