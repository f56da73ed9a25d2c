"""The rows of Agently's ToolManager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.manifest.paths import (
    ACCESS,
    AS_AGENTLY_4_0,
    BY_NAME,
    BY_SERVER,
    ON_BOTH,
    SCHEMAS,
    SERVED,
    SERVERS_BY_NAME,
)

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "A000-1": (
        f"{BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        f"{SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
    ),
    "A000-2": (
        f"{BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        ON_BOTH,
    ),
    "A000-3": (
        f"{BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        f"{ACCESS}::test_tags_of_functions_filter_tools",
        f"{SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        f"{SERVED}::test_the_tools_command_lists_what_would_be_served",
        f"{ACCESS}::test_tags_of_the_configuration_filter_tools",
    ),
    "A000-4": (f"{BY_NAME}::test_a_name_that_is_registered_again_is_replaced_with_its_tags", ON_BOTH),
    "A000-5": (
        f"{SCHEMAS}::test_the_decorator_returns_the_function_itself",
        f"{BY_NAME}::test_check_31_annotated_arguments_and_defaults_are_described",
    ),
    "A000-6": (
        f"{BY_NAME}::test_check_31_annotated_arguments_and_defaults_are_described",
        f"{SCHEMAS}::test_annotated_texts_and_the_default_are_joined_into_one_text",
        f"{SCHEMAS}::test_the_description_of_a_field_overrides_the_docstring_of_a_parameter",
    ),
    "A000-7": (
        f"{BY_NAME}::test_check_31_annotated_arguments_and_defaults_are_described",
        f"{SCHEMAS}::test_only_return_types_that_are_always_objects_have_an_output_schema",
        ON_BOTH,
    ),
    "A000-8": (
        f"{BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        f"{BY_NAME}::test_configured_tools_are_listed",
        ON_BOTH,
    ),
    "A000-9": (f"{BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",),
    "A000-10": (
        f"{BY_NAME}::test_get_tool_func_returns_the_function_itself_or_a_sync_or_async_wrapper",
        f"{BY_NAME}::test_configured_tools_are_listed",
        f"{BY_NAME}::test_a_hundred_nested_calls_do_not_deadlock",
    ),
    "A000-11": (
        f"{BY_NAME}::test_check_30_unknown_and_failing_tools_return_error_texts",
        f"{BY_NAME}::test_python_objects_reach_a_function_and_come_back_untouched",
        f"{BY_NAME}::test_the_check_of_arguments_can_be_switched_off",
        ON_BOTH,
    ),
    "A000-12": (
        f"{SERVERS_BY_NAME}::test_every_transport_of_the_document_is_a_server",
        f"{SERVERS_BY_NAME}::test_a_second_use_of_one_server_replaces_the_first",
        f"{SERVERS_BY_NAME}::test_if_one_of_several_servers_fails_none_of_them_is_added",
        f"{SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
        f"{SERVERS_BY_NAME}::test_an_invalid_transport_is_reported_and_a_missing_server_leaves_no_tools",
        f"{SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
    ),
    "A000-13": (
        f"{SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
        ON_BOTH,
    ),
    "A000-14": (f"{BY_NAME}::test_a_schema_is_converted_to_kwargs_without_being_changed",),
    "A000-15": (
        f"{ACCESS}::test_tags_listed_by_a_server_filter_tools_under_every_key_libraries_use",
        f"{SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
    ),
    "A000-16": (
        f"{SERVERS_BY_NAME}::test_non_text_blocks_have_all_keys_of_a_dumped_model",
        f"{SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
        f"{SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
        ON_BOTH,
    ),
    "A000-17": (f"{SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",),
    "A000-18": (
        f"{BY_SERVER}::test_a_server_may_have_a_process_for_each_call",
        "hub/test_over_a_network.py::test_with_session_call_every_call_has_a_process_of_its_own",
    ),
    "A000-19": (f"{BY_NAME}::test_check_34_servers_work_without_fastmcp_and_markitdown_and_stdin_is_never_read",),
    "A000-21": (
        AS_AGENTLY_4_0,
        f"{SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
    ),
    "A000-22": (
        AS_AGENTLY_4_0,
        f"{BY_NAME}::test_an_exception_without_a_message_is_an_error_without_text",
        f"{BY_NAME}::test_a_call_returns_the_generator_of_a_function_which_the_caller_runs",
    ),
    "A000-23": (AS_AGENTLY_4_0, f"{SERVERS_BY_NAME}::test_every_transport_of_the_document_is_a_server"),
}

OUT: Final[Mapping[str, str]] = {
    "A000-20": "settings and messages of Agently's own framework; the hub has its configuration and its log",
}

PARTLY: Final[Mapping[str, str]] = {
    "A000-19": "nobody is asked on stdin, which is the protocol under `serve`: the ImportError says what to install",
}
