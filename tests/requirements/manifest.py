"""Which tests show each row, or why there is nothing to show. `test_the_manifest.py` holds it against both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ACCESS = "policy/access/test_rules_of_a_file.py"
_BY_NAME = "library/test_tools_by_name.py"
_BY_SERVER = "library/test_tools_by_server.py"
_MANAGER_FALLBACK = "library/test_tool_manager_fallback.py"
_PLAYWRIGHT_SESSION = "library/test_playwright_session.py"
_SERVERS_BY_NAME = "library/test_servers_by_name.py"
_CLIENTS = "library/test_clients.py"
_CODE = "servers/builtins/test_code_and_shell.py"
_EXAMPLES = "doors/test_the_examples.py"
_EXECUTOR = "library/test_executor.py"
_DEFAULTS = "config/discovery/test_defaults_reach_everything.py"
_LANGCHAIN = "doors/test_langchain.py::test_tools_convert_to_and_from_langchain_tools"
_TOOL_CLASSES = "servers/local/test_tool_classes.py"
_TOOL_SETS = "library/test_tool_sets.py"
_TOOL_SYSTEM = "library/test_tool_system.py"
_FALLBACK = "policy/tries/test_fallback.py"
_FILES = "servers/builtins/test_files.py"
_ESCAPES = "servers/builtins/test_files_stay_in_their_roots.py"
_FOLDERS = "config/discovery/test_folders.py"
_GROUPS = "hub/groups/test_one_client.py"
_GROUPS_IN_PROGRAMS = "hub/groups/test_library.py"
_GUARD = "policy/guard/test_the_guard_in_the_hub.py"
_KINDS = "servers/local/test_kinds_of_functions.py"
_LOCAL = "servers/local/test_local_tools.py"
_OFF = "servers/builtins/test_off_and_off_the_network.py"
_ONCE = "policy/tries/test_nothing_is_executed_twice.py"
_RAW_FILES = "servers/builtins/test_text_files.py"
_SCHEMAS = "servers/local/test_schemas.py"
_SERVED = "policy/access/test_what_is_served.py"
_SHAPED = "policy/results/test_results_are_shaped.py"
_STREAMS = "servers/local/test_streams.py"
_REGISTERING = "library/test_toolkit_registering.py"
_CALLING = "library/test_toolkit_calling.py"
_GROUPS_OF_TOOLKIT = "library/test_toolkit_groups.py"
_CLIENTS_OF_TOOLKIT = "library/test_toolkit_clients.py"
_MACHINE = "library/test_toolkit_of_this_machine.py"
_ONE_PROGRAM = "doors/test_agentscope_in_one_program.py"
_PROCESSORS = "library/test_postprocessors_see_everything.py"
_URLS = "policy/guard/test_url_rules.py"

_REQUIREMENTS = f"{_EXAMPLES}::test_the_tool_system_example_meets_its_requirements"
_ON_BOTH = f"{_EXAMPLES}::test_an_example_prints_the_same_on_the_original_library_and_on_the_hub"
_CALLS = f"{_EXAMPLES}::test_interruptions_own_clients_middlewares_and_tasks_are_those_of_agentscope"
_AGENT = f"{_EXAMPLES}::test_agentscopes_own_agent_does_the_same_with_the_hubs_toolkit"
_SIGNATURES = f"{_ONE_PROGRAM}::test_every_parameter_of_agentscopes_toolkit_has_the_same_name_position_and_default"
_SPANS_OF_PROGRAM = f"{_ONE_PROGRAM}::test_spans_go_to_the_programs_tracer_provider_with_the_ids_of_its_blocks"
_PROCEDURE = f"{_EXAMPLES}::test_the_toolkit_example_prints_what_its_operating_procedure_describes"

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    # -- 000 -------------------------------------------------------------------------------------------------
    "A000-1": (
        f"{_BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        f"{_SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
    ),
    "A000-2": (
        f"{_BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        _ON_BOTH,
    ),
    "A000-3": (
        f"{_BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        f"{_ACCESS}::test_tags_of_functions_filter_tools",
        f"{_SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        f"{_SERVED}::test_the_tools_command_lists_what_would_be_served",
        f"{_ACCESS}::test_tags_of_the_configuration_filter_tools",
    ),
    "A000-4": (f"{_BY_NAME}::test_a_name_that_is_registered_again_is_replaced_with_its_tags", _ON_BOTH),
    "A000-5": (
        f"{_SCHEMAS}::test_the_decorator_returns_the_function_itself",
        f"{_BY_NAME}::test_check_31_annotated_arguments_and_defaults_are_described",
    ),
    "A000-6": (
        f"{_BY_NAME}::test_check_31_annotated_arguments_and_defaults_are_described",
        f"{_SCHEMAS}::test_annotated_texts_and_the_default_are_joined_into_one_text",
        f"{_SCHEMAS}::test_the_description_of_a_field_overrides_the_docstring_of_a_parameter",
    ),
    "A000-7": (
        f"{_BY_NAME}::test_check_31_annotated_arguments_and_defaults_are_described",
        f"{_SCHEMAS}::test_only_return_types_that_are_always_objects_have_an_output_schema",
        _ON_BOTH,
    ),
    "A000-8": (
        f"{_BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",
        f"{_BY_NAME}::test_configured_tools_are_listed",
        _ON_BOTH,
    ),
    "A000-9": (f"{_BY_NAME}::test_check_32_tags_match_whole_words_and_tools_are_listed_once",),
    "A000-10": (
        f"{_BY_NAME}::test_get_tool_func_returns_the_function_itself_or_a_sync_or_async_wrapper",
        f"{_BY_NAME}::test_configured_tools_are_listed",
        f"{_BY_NAME}::test_a_hundred_nested_calls_do_not_deadlock",
    ),
    "A000-11": (
        f"{_BY_NAME}::test_check_30_unknown_and_failing_tools_return_error_texts",
        f"{_BY_NAME}::test_python_objects_reach_a_function_and_come_back_untouched",
        f"{_BY_NAME}::test_the_check_of_arguments_can_be_switched_off",
        _ON_BOTH,
    ),
    "A000-12": (
        f"{_SERVERS_BY_NAME}::test_every_transport_of_the_document_is_a_server",
        f"{_SERVERS_BY_NAME}::test_a_second_use_of_one_server_replaces_the_first",
        f"{_SERVERS_BY_NAME}::test_if_one_of_several_servers_fails_none_of_them_is_added",
        f"{_SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
        f"{_SERVERS_BY_NAME}::test_an_invalid_transport_is_reported_and_a_missing_server_leaves_no_tools",
        f"{_SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
    ),
    "A000-13": (
        f"{_SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
        _ON_BOTH,
    ),
    "A000-14": (f"{_BY_NAME}::test_a_schema_is_converted_to_kwargs_without_being_changed",),
    "A000-15": (
        f"{_ACCESS}::test_tags_listed_by_a_server_filter_tools_under_every_key_libraries_use",
        f"{_SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
    ),
    "A000-16": (
        f"{_SERVERS_BY_NAME}::test_non_text_blocks_have_all_keys_of_a_dumped_model",
        f"{_SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",
        f"{_SERVERS_BY_NAME}::test_tools_of_a_script_have_their_own_names_and_values_as_results",
        _ON_BOTH,
    ),
    "A000-17": (f"{_SERVERS_BY_NAME}::test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape",),
    "A000-18": (
        f"{_BY_SERVER}::test_a_server_may_have_a_process_for_each_call",
        "hub/test_over_a_network.py::test_with_session_call_every_call_has_a_process_of_its_own",
    ),
    "A000-19": (f"{_BY_NAME}::test_check_34_servers_work_without_fastmcp_and_markitdown_and_stdin_is_never_read",),
    # -- 001 -------------------------------------------------------------------------------------------------
    "A001-1": (
        f"{_STREAMS}::test_the_fields_of_a_response_have_agentscopes_defaults",
        f"{_STREAMS}::test_responses_and_results_convert_to_each_other",
        f"{_ONE_PROGRAM}::test_the_hub_accepts_responses_blocks_and_state_modules_of_agentscope_1",
        _SIGNATURES,
    ),
    "A001-2": (
        f"{_KINDS}::test_every_kind_of_function_streams_chunks_and_the_last_chunk_is_the_result",
        f"{_STREAMS}::test_every_kind_of_function_gives_the_same_stream",
        f"{_CALLING}::test_every_kind_of_tool_gives_chunks_that_end_in_is_last",
        _AGENT,
    ),
    "A001-3": (
        f"{_KINDS}::test_a_blocking_sync_tool_does_not_delay_another_call",
        f"{_STREAMS}::test_a_sync_function_runs_in_a_thread_with_its_callers_context",
        f"{_CALLING}::test_a_blocking_sync_tool_does_not_delay_another_call",
    ),
    "A001-4": (
        f"{_SCHEMAS}::test_docstrings_of_the_usual_styles_describe_the_tool_and_its_parameters",
        f"{_SCHEMAS}::test_python_types_become_json_schemas",
        f"{_SCHEMAS}::test_self_and_variable_parameters_are_left_out_and_awkward_names_stay",
        f"{_REGISTERING}::test_function_schemas_equal_those_of_agentscope",
    ),
    "A001-5": (
        f"{_SCHEMAS}::test_the_long_description_and_variable_parameters_are_optional",
        f"{_REGISTERING}::test_a_function_receives_arguments_unconverted",
        f"{_REGISTERING}::test_a_function_with_var_keywords_accepts_what_its_schema_allows",
    ),
    "A001-6": (
        f"{_SCHEMAS}::test_titles_are_removed_but_never_a_property_of_that_name",
        f"{_SCHEMAS}::test_titles_are_removed_at_every_depth_and_values_are_kept",
    ),
    "A001-7": (
        f"{_KINDS}::test_a_handwritten_schema_is_used_and_a_property_named_title_is_kept",
        f"{_SCHEMAS}::test_an_invalid_handwritten_schema_is_a_type_error",
        f"{_REGISTERING}::test_a_handwritten_schema_is_used_and_loses_titles_but_not_title_properties",
    ),
    "A001-8": (f"{_ACCESS}::test_the_configuration_overrides_name_title_and_description_of_a_tool",),
    "A001-9": (
        f"{_ACCESS}::test_a_preset_argument_is_not_listed_and_always_sent",
        f"{_ACCESS}::test_a_preset_may_come_from_the_environment",
        "schema/test_arguments_are_checked_first.py::test_the_value_of_a_preset_is_checked_and_never_quoted",
        f"{_KINDS}::test_presets_are_hidden_and_override_sent_arguments",
        f"{_REGISTERING}::test_presets_and_partial_arguments_are_hidden_and_override",
        f"{_REGISTERING}::test_a_value_sent_over_mcp_for_a_preset_argument_is_dropped",
    ),
    "A001-10": (
        f"{_KINDS}::test_arguments_bound_by_a_partial_are_preset",
        f"{_REGISTERING}::test_presets_and_partial_arguments_are_hidden_and_override",
    ),
    "A001-11": (
        f"{_SHAPED}::test_a_user_function_changes_results_in_its_own_process",
        f"{_SHAPED}::test_a_failing_step_withholds_the_result_unless_configured_to_keep_it",
        f"{_SHAPED}::test_the_built_in_post_processing_steps_change_results_as_documented",
        f"{_KINDS}::test_a_post_processor_can_change_keep_or_withhold_every_chunk",
        f"{_CALLING}::test_a_post_processor_receives_the_original_call_and_every_chunk",
        f"{_CLIENTS_OF_TOOLKIT}::test_an_async_post_processor_of_a_client_keeps_or_replaces_what_its_tools_answer",
        f"{_PROCESSORS}::test_chunks_and_a_later_error_go_through_the_post_processor",
        f"{_PROCESSORS}::test_an_exception_in_a_post_processor_withholds_the_content",
    ),
    "A001-12": (
        f"{_GROUPS_IN_PROGRAMS}::test_a_group_can_be_created_filled_switched_and_removed_with_its_tools",
        _PROCEDURE,
        f"{_GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A001-13": (
        f"{_GROUPS}::test_the_command_line_switches_groups_on_and_shows_them",
        _PROCEDURE,
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A001-14": (
        f"{_GROUPS}::test_notes_of_active_groups_are_in_the_instructions",
        _PROCEDURE,
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A001-15": (
        f"{_KINDS}::test_fields_of_an_extended_model_and_of_extend_schema_are_arguments",
        f"{_SCHEMAS}::test_an_extended_model_must_be_a_model_without_a_parameter_of_the_tool",
        f"{_CLIENTS_OF_TOOLKIT}::test_an_extended_model_adds_validated_arguments_and_metadata_has_the_error",
        f"{_REGISTERING}::test_the_keyword_names_of_both_documents_are_accepted",
    ),
    "A001-16": (
        _PROCEDURE,
        f"{_CLIENTS_OF_TOOLKIT}::test_an_extended_model_adds_validated_arguments_and_metadata_has_the_error",
        _AGENT,
    ),
    "A001-17": (
        _PROCEDURE,
        f"{_CALLING}::test_an_exception_of_a_tool_is_returned_as_text_or_raised",
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
        f"{_ONE_PROGRAM}::test_the_hub_accepts_chunks_and_calls_of_agentscope_2",
    ),
    "A001-18": (
        f"{_CLIENTS}::test_a_tool_function_has_its_schema_and_returns_the_raw_result_on_request",
        _ON_BOTH,
        _PROCEDURE,
        f"{_CLIENTS_OF_TOOLKIT}::test_the_tools_of_a_client_are_registered_filtered_and_preset",
        f"{_CLIENTS_OF_TOOLKIT}::test_a_client_can_return_raw_results_and_a_single_function",
        _SIGNATURES,
    ),
    "A001-19": (
        "library/test_hub.py::test_servers_can_be_added_and_removed_while_the_hub_runs",
        _PROCEDURE,
        f"{_CLIENTS_OF_TOOLKIT}::test_the_tools_of_a_client_are_registered_filtered_and_preset",
    ),
    "A001-20": (
        f"{_GROUPS_IN_PROGRAMS}::test_group_state_dicts_have_the_format_of_a_toolkit",
        f"{_GROUPS}::test_with_hub_scope_the_group_state_survives_a_restart_if_a_state_file_is_set",
        f"{_GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
        _AGENT,
        f"{_ONE_PROGRAM}::test_the_hub_accepts_responses_blocks_and_state_modules_of_agentscope_1",
    ),
    "A001-21": (
        "observability/spans/test_spans_of_calls.py::test_every_call_creates_a_span_with_its_outcome",
        _SPANS_OF_PROGRAM,
    ),
    "A001-22": (
        f"{_CLIENTS}::test_a_stdio_client_keeps_one_session_and_refuses_calls_before_connect",
        f"{_CLIENTS}::test_http_clients_list_and_call",
        f"{_CLIENTS}::test_a_stateless_client_opens_a_session_per_call_and_a_stateful_one_keeps_one",
    ),
    "A001-23": (
        f"{_RAW_FILES}::test_deny_blocks_warn_logs_and_allow_is_silent",
        f"{_RAW_FILES}::test_the_stricter_of_configured_and_environment_policy_applies",
        f"{_OFF}::test_no_machine_access_tools_exist_without_an_entry",
        f"{_MACHINE}::test_a_toolkit_has_no_machine_tools_unless_they_are_registered",
        f"{_MACHINE}::test_text_file_tools_read_the_policy_variable_at_each_call_and_are_annotated",
        f"{_MACHINE}::test_the_built_in_text_file_server_reads_the_programs_policy_variable_at_each_call",
    ),
    "A001-24": (
        f"{_RAW_FILES}::test_lines_are_numbered_and_ranges_are_inclusive",
        f"{_RAW_FILES}::test_invalid_ranges_change_nothing_and_are_reported",
        f"{_RAW_FILES}::test_lines_are_inserted_up_to_one_after_the_last",
        f"{_RAW_FILES}::test_a_new_file_ignores_ranges_and_a_path_may_begin_at_home",
        _ON_BOTH,
    ),
    "A001-25": (
        f"{_FILES}::test_files_are_read_written_edited_listed_and_deleted",
        f"{_FILES}::test_each_root_mode_allows_only_its_operations",
        f"{_ESCAPES}::test_no_path_escapes_the_roots",
        f"{_ESCAPES}::test_swapping_a_directory_during_path_resolution_does_not_escape_the_root",
    ),
    "A001-28": (
        f"{_ONCE}::test_over_stdio_a_tool_with_effects_is_executed_at_most_once",
        f"{_ONCE}::test_over_http_a_tool_with_effects_is_executed_at_most_once",
    ),
    "A001-29": (f"{_CALLING}::test_a_registered_tool_is_called_with_its_arguments_also_in_an_inactive_group",),
    # -- 002 -------------------------------------------------------------------------------------------------
    "A002-1": (
        f"{_TOOL_SYSTEM}::test_builtin_native_and_mcp_tools_have_their_class_schema_and_settings",
        f"{_EXECUTOR}::test_tools_of_every_kind_have_one_type",
        f"{_FOLDERS}::test_tools_declare_their_source_and_a_tool_set_of_the_folder_selects_them",
        _LANGCHAIN,
    ),
    "A002-2": ("config/discovery/test_native_tools.py::test_native_tools_send_the_requests_their_files_describe",),
    "A002-3": (
        _REQUIREMENTS,
        f"{_TOOL_SYSTEM}::test_an_execute_endpoint_is_a_native_tool",
        f"{_FOLDERS}::test_a_file_of_servers_is_loaded_as_a_whole_or_not_at_all",
    ),
    "A002-4": (
        f"{_LOCAL}::test_the_functions_of_every_file_are_listed_and_called",
        f"{_LOCAL}::test_a_file_that_does_not_import_is_reported_and_the_rest_load",
    ),
    "A002-5": (
        f"{_FOLDERS}::test_added_changed_and_removed_files_take_effect_while_the_hub_runs",
        f"{_FOLDERS}::test_check_names_every_broken_file_and_the_others_are_loaded",
        f"{_TOOL_CLASSES}::test_a_class_that_implements_base_tool_is_served_as_a_tool",
        f"{_TOOL_CLASSES}::test_check_names_the_missing_members_of_a_tool_class",
    ),
    "A002-6": (
        f"{_FOLDERS}::test_duplicate_names_are_reported_with_the_one_that_is_kept",
        _REQUIREMENTS,
    ),
    "A002-7": (
        f"{_FOLDERS}::test_tool_sets_of_the_file_override_the_folders_and_profiles_may_use_both",
        f"{_TOOL_SETS}::test_a_tool_set_keeps_its_order_and_reports_missing_tools",
        f"{_SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        f"{_SERVED}::test_a_member_that_no_server_lists_fails_check_and_is_a_warning_in_serve",
        f"{_EXAMPLES}::test_the_tool_system_example_has_the_documented_contents",
    ),
    "A002-8": (
        f"{_TOOL_SETS}::test_a_profile_has_the_tools_of_its_sets_then_its_own_without_duplicates",
        f"{_TOOL_SETS}::test_a_profile_includes_tools_by_their_tags",
        f"{_SERVED}::test_exactly_the_chosen_tools_are_listed_and_callable",
        "downstream/network/test_profiles_of_principals.py::test_a_principal_gets_the_lists_of_a_hub_that_serves_only_its_profile",
    ),
    "A002-9": (
        "library/formats/test_formats.py::test_the_strategy_depends_on_the_model_and_the_configuration",
        f"{_TOOL_SYSTEM}::test_an_async_model_client_is_queried_from_coroutines_and_sync_code",
        f"{_TOOL_SYSTEM}::test_the_formatter_of_a_manager_follows_the_configuration",
    ),
    "A002-10": (
        "library/formats/test_formats.py::test_a_call_survives_formatting_and_parsing",
        "library/formats/test_formats.py::test_the_prompt_contains_the_schemas_and_the_template_text",
        "library/formats/test_formats.py::test_the_tools_command_prints_each_format",
    ),
    "A002-11": (
        f"{_EXECUTOR}::test_results_are_messages_and_errors_begin_with_their_code",
        _REQUIREMENTS,
        f"{_TOOL_SYSTEM}::test_a_functions_value_has_the_same_type_in_process_and_in_a_server",
        f"{_TOOL_SYSTEM}::test_a_value_of_fastmcp_is_not_wrapped",
        f"{_TOOL_SYSTEM}::test_a_rest_response_that_is_not_an_object_is_returned_as_a_value",
    ),
    "A002-12": (f"{_EXECUTOR}::test_check_48_parallel_calls_take_as_long_as_one_and_keep_their_order",),
    "A002-13": (
        "schema/test_arguments_are_checked_first.py::test_invalid_arguments_are_refused_without_asking_the_server",
    ),
    "A002-14": (
        f"{_DEFAULTS}::test_every_kind_of_tool_ends_at_the_default_deadline_with_the_code_timeout",
        f"{_DEFAULTS}::test_a_servers_own_settings_override_the_defaults",
        "policy/tries/test_deadlines.py::test_a_call_times_out_and_its_session_continues",
        "policy/tries/test_deadlines.py::test_a_tool_can_have_its_own_deadline",
        "config/test_entries.py::test_the_key_timeout_sets_the_call_deadline",
    ),
    "A002-15": (
        "policy/tries/test_keys_of_servers.py::test_an_api_key_is_sent_when_listing_and_when_calling_and_stands_in_no_log",
        "config/test_entries.py::test_an_api_key_becomes_a_header",
    ),
    "A002-16": (
        f"{_TOOL_SYSTEM}::test_an_unavailable_server_is_named_with_its_code_and_no_other_tool_is_suggested",
        f"{_TOOL_SYSTEM}::test_a_call_to_a_tool_whose_server_died_reports_the_server_unavailable",
        "faults/test_every_fault.py::test_a_fault_fails_only_calls_to_its_own_server",
        "chaos/test_chaos.py::test_every_guarantee_holds_while_servers_die_hang_and_send_invalid_messages",
        "observability/records/test_trace.py::test_an_unexpected_exception_fails_one_call_and_logs_one_traceback",
    ),
    "A002-17": (
        f"{_TOOL_SYSTEM}::test_a_call_is_logged_at_info_with_arguments_result_and_duration",
        f"{_EXECUTOR}::test_every_call_is_logged_without_secrets",
        "observability/records/test_calls_are_recorded.py::test_every_call_is_recorded_whatever_its_outcome",
        "observability/records/test_trace.py::test_a_call_is_recorded_with_its_route_and_its_outcome",
    ),
    "A002-18": (
        "observability/spans/test_metrics.py::test_call_outcomes_are_counted_and_shown_to_authorized_callers",
        "observability/spans/test_metrics.py::test_a_hub_in_a_program_reports_to_its_collectors_and_its_tracer",
    ),
    "A002-19": (
        f"{_EXECUTOR}::test_an_executor_of_a_tool_set_has_its_tools_and_an_unknown_set_is_an_error",
        _REQUIREMENTS,
    ),
    "A002-20": (
        f"{_TOOL_SETS}::test_user_objects_for_config_logging_model_and_metrics_are_used",
        "library/formats/test_formats.py::test_a_model_client_without_the_method_is_treated_as_without_function_calling",
    ),
    "A002-21": (
        f"{_TOOL_SYSTEM}::test_an_unavailable_server_is_named_with_its_code_and_no_other_tool_is_suggested",
        f"{_TOOL_SYSTEM}::test_a_key_refused_during_a_call_is_reported_as_permission_denied",
        "policy/tries/test_keys_of_servers.py::test_an_api_key_is_sent_when_listing_and_when_calling_and_stands_in_no_log",
    ),
    # -- 003 -------------------------------------------------------------------------------------------------
    "A003-1": (f"{_BY_SERVER}::test_with_timeout_passes_results_and_raises_at_the_end",),
    "A003-2": (
        f"{_BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",
        f"{_BY_SERVER}::test_check_10_arguments_by_position_and_by_keyword_are_the_same",
    ),
    "A003-3": (
        f"{_BY_SERVER}::test_a_url_defines_a_server_and_the_blacklist_applies_to_it",
        f"{_BY_SERVER}::test_duplicate_names_and_invalid_arguments_are_refused",
        f"{_EXAMPLES}::test_the_orchestrator_of_miroflow_runs_unchanged",
    ),
    "A003-4": (f"{_BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",),
    "A003-5": (f"{_BY_SERVER}::test_check_28_a_task_log_is_written_at_once_and_never_breaks_a_call",),
    "A003-6": (
        f"{_BY_SERVER}::test_check_28_a_task_log_is_written_at_once_and_never_breaks_a_call",
        f"{_MANAGER_FALLBACK}::test_the_task_log_contains_each_step_of_the_fallback",
        f"{_EXAMPLES}::test_the_orchestrator_of_miroflow_runs_unchanged",
    ),
    "A003-7": (
        f"{_URLS}::test_a_guarded_url_is_refused_in_every_spelling",
        f"{_URLS}::test_lookalikes_of_guarded_urls_are_let_through",
    ),
    "A003-8": (
        f"{_GUARD}::test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server",
        f"{_GUARD}::test_a_guarded_tool_is_guarded_under_another_name",
        f"{_GUARD}::test_the_guards_message_tools_and_urls_are_configurable",
    ),
    "A003-9": (f"{_BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",),
    "A003-10": (
        f"{_BY_SERVER}::test_check_9_a_dead_server_is_listed_with_an_error_and_the_others_in_order",
        f"{_SERVED}::test_the_tools_command_lists_by_server",
    ),
    "A003-11": (
        f"{_BY_SERVER}::test_check_9_a_dead_server_is_listed_with_an_error_and_the_others_in_order",
        "upstream/supervision/test_status.py::test_status_shows_each_server_with_its_state_last_error_and_stderr",
    ),
    "A003-12": (
        f"{_BY_SERVER}::test_duplicate_names_and_invalid_arguments_are_refused",
        "config/test_entries.py::test_an_invalid_value_is_reported_with_its_key",
    ),
    "A003-13": (
        f"{_BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        f"{_BY_SERVER}::test_a_tool_manager_satisfies_the_protocol_of_orchestrators",
    ),
    "A003-14": (
        f"{_BY_SERVER}::test_check_8_an_unknown_server_gives_exactly_one_error",
        f"{_BY_SERVER}::test_an_unknown_tool_name_is_answered_with_names_the_caller_may_use",
    ),
    "A003-15": (
        f"{_BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        f"{_MANAGER_FALLBACK}::test_fallback_guard_and_call_record_apply_to_a_server_that_never_started",
    ),
    "A003-16": (
        "peers/test_playwright_mcp_keeps_its_session.py::test_the_second_call_sees_the_page_of_the_first",
        "config/test_entries.py::test_a_browser_entry_defaults_to_one_session_per_client",
        f"{_PLAYWRIGHT_SESSION}::test_playwright_has_one_session_that_starts_on_first_use",
        f"{_BY_SERVER}::test_a_url_defines_a_server_and_the_blacklist_applies_to_it",
    ),
    "A003-17": (
        f"{_PLAYWRIGHT_SESSION}::test_a_standalone_playwright_session_connects_on_use_and_can_be_closed_twice",
        f"{_PLAYWRIGHT_SESSION}::test_a_call_after_closing_starts_a_new_playwright_session",
    ),
    "A003-18": (
        f"{_PLAYWRIGHT_SESSION}::test_a_session_recovers_from_a_failed_start_from_its_death_and_from_another_loop",
        "hub/test_one_bad_upstream_is_one_bad_upstream.py::test_a_killed_upstream_is_replaced_before_its_next_call",
        "peers/test_playwright_mcp_keeps_its_session.py"
        "::test_a_browser_crash_between_calls_is_reported_once_and_a_new_browser_serves",
        "fuzz/test_what_was_found.py::test_a_response_abandoned_before_it_began_leaves_no_state",
    ),
    "A003-19": (
        f"{_BY_SERVER}::test_asyncio_run_twice_keeps_the_session",
        f"{_BY_SERVER}::test_a_server_may_have_a_process_for_each_call",
        "hub/test_one_bad_upstream_is_one_bad_upstream.py"
        "::test_a_call_times_out_and_the_next_call_uses_the_same_session",
        "hub/test_over_a_network.py::test_with_session_call_every_call_has_a_process_of_its_own",
    ),
    "A003-20": (
        f"{_MANAGER_FALLBACK}::test_the_deadline_covers_the_start_of_a_server_retries_and_the_fallback",
        f"{_BY_SERVER}::test_the_managers_timeout_applies_to_servers_of_a_file",
        f"{_BY_SERVER}::test_check_17_a_timeout_is_raised_and_the_next_call_is_answered",
        f"{_BY_SERVER}::test_a_timeout_is_returned_as_an_error_text_if_configured",
        "policy/tries/test_deadlines.py::test_a_call_times_out_and_its_session_continues",
    ),
    "A003-21": (
        f"{_BY_SERVER}::test_check_14_all_texts_are_in_the_result_and_nothing_raises",
        f"{_BY_SERVER}::test_check_15_empty_content_gives_an_empty_text",
    ),
    "A003-22": (
        f"{_ACCESS}::test_a_blacklist_applies_to_lists_and_calls_on_every_transport",
        "policy/access/test_nothing_refused_can_be_reached.py::test_no_spelling_method_or_era_reaches_a_refused_item",
        "policy/access/test_nothing_refused_can_be_reached.py::test_a_refused_name_answers_byte_for_byte_as_an_unknown_one",
        f"{_BY_SERVER}::test_a_blacklisted_tool_is_refused_even_if_added_to_the_set_later",
    ),
    "A003-23": (
        f"{_ACCESS}::test_a_blacklist_applies_to_lists_and_calls_on_every_transport",
        "config/test_diagnostics.py::test_a_blacklist_by_server_accepts_one_tool_or_a_list",
    ),
    "A003-24": (
        f"{_GUARD}::test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server",
        f"{_FALLBACK}::test_the_guard_applies_to_redirects_of_the_fallback",
    ),
    "A003-25": (
        f"{_URLS}::test_a_guarded_url_is_refused_in_every_spelling",
        f"{_URLS}::test_no_disguise_gets_a_guarded_url_through",
        f"{_URLS}::test_deny_and_allow_patterns_can_be_configured",
        "policy/guard/test_readings_of_clients.py::test_urls_that_clients_read_as_guarded_are_refused",
    ),
    "A003-26": (
        f"{_GUARD}::test_scraping_a_dataset_is_refused_with_the_message_and_reaches_no_server",
        f"{_BY_SERVER}::test_a_guarded_url_is_answered_with_the_sentence_as_the_result",
        f"{_MANAGER_FALLBACK}::test_a_page_that_redirects_to_a_guarded_url_is_reported_as_blocked",
    ),
    "A003-27": (
        f"{_GUARD}::test_guarded_tools_describe_the_rule_and_guarded_resources_are_hidden",
        f"{_GUARD}::test_a_guarded_uri_is_not_readable_through_a_template_either",
        f"{_GUARD}::test_guarded_links_are_dropped_from_search_results",
    ),
    "A003-28": (
        f"{_MANAGER_FALLBACK}::test_fallback_guard_and_call_record_apply_to_a_server_that_never_started",
        f"{_MANAGER_FALLBACK}::test_the_fallback_runs_for_a_url_that_refuses_connections",
        f"{_FALLBACK}::test_other_tools_and_calls_without_a_url_have_no_fallback",
        f"{_FALLBACK}::test_the_hub_fetches_the_page_itself_if_the_server_dies_and_notes_it",
        f"{_FALLBACK}::test_the_first_error_is_reported_if_the_fallback_fails_too",
        f"{_FALLBACK}::test_the_failures_that_trigger_the_fallback_are_configurable",
    ),
    "A003-29": (
        "servers/scrape/test_converter.py::test_without_an_endpoint_markitdown_is_created_without_document_intelligence",
        "servers/scrape/test_converter.py::test_a_configured_endpoint_is_passed_to_markitdown",
    ),
    "A003-30": (
        f"{_FALLBACK}::test_private_addresses_are_not_fetched_unless_allowed",
        "servers/scrape/test_where_it_may_go.py::test_no_private_address_is_reached_by_any_spelling",
        "servers/scrape/test_where_it_may_go.py::test_an_invalid_page_url_is_refused_as_an_argument",
        "servers/scrape/test_bounds.py::test_an_endless_conversion_is_killed_while_others_continue",
    ),
    "A003-31": (
        f"{_ONCE}::test_a_call_succeeds_after_two_503_responses",
        f"{_ONCE}::test_the_configuration_decides_which_calls_may_be_retried",
        "policy/tries/test_breaker.py::test_transport_failures_open_the_breaker_and_it_recovers_after_the_cool_down",
        "policy/tries/test_breaker.py::test_error_responses_of_a_server_never_open_the_breaker",
    ),
    "A003-32": (
        f"{_PLAYWRIGHT_SESSION}::test_check_29_closing_leaves_no_child_and_may_be_repeated",
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
        f"{_BY_SERVER}::test_an_unknown_tool_name_is_answered_with_names_the_caller_may_use",
        f"{_BY_SERVER}::test_error_texts_begin_with_the_prefix_that_orchestrators_expect",
        "cli/test_what_is_printed.py::test_the_error_for_an_unknown_tool_names_similar_tools_and_unavailable_servers",
    ),
    # -- 004 -------------------------------------------------------------------------------------------------
    "A004-1": (
        f"{_SCHEMAS}::test_equal_names_are_refused_replaced_skipped_or_renamed_deterministically",
        "catalog/test_catalog.py::test_equal_names_are_decided_as_configured",
        f"{_REGISTERING}::test_equal_function_names_are_refused_skipped_replaced_or_renamed",
    ),
    "A004-2": (
        _ON_BOTH,
        f"{_GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A004-3": (
        _ON_BOTH,
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-4": (
        _ON_BOTH,
        f"{_CALLING}::test_an_exception_of_a_tool_is_returned_as_text_or_raised",
    ),
    "A004-5": (
        f"{_GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        _ON_BOTH,
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-6": (
        f"{_GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        f"{_REGISTERING}::test_the_description_of_the_meta_tool_says_that_it_sets_the_final_state",
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-7": (
        f"{_GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        f"{_GROUPS}::test_an_invalid_switch_changes_nothing",
        _AGENT,
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-8": (
        f"{_GROUPS}::test_an_invalid_switch_changes_nothing",
        f"{_GROUPS_OF_TOOLKIT}::test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch",
    ),
    "A004-9": (
        "hub/groups/test_many_clients.py::test_a_switch_by_one_client_affects_and_notifies_only_that_client",
        "hub/groups/test_search_and_call.py::test_hub_call_returns_the_same_result_as_a_direct_call",
        "hub/groups/test_search_and_call.py::test_search_matches_names_and_descriptions_and_marks_inactive_tools",
    ),
    "A004-10": (
        f"{_ACCESS}::test_filters_apply_to_lists_and_calls",
        f"{_ACCESS}::test_a_tool_added_after_an_allow_list_stays_hidden",
        "config/test_entries.py::test_an_invalid_value_is_reported_with_its_key",
        f"{_CLIENTS_OF_TOOLKIT}::test_invalid_registrations_of_a_client_are_errors",
    ),
    "A004-11": (
        _ON_BOTH,
        f"{_CLIENTS_OF_TOOLKIT}::test_invalid_registrations_of_a_client_are_errors",
    ),
    "A004-12": (
        f"{_CLIENTS}::test_a_stdio_client_keeps_one_session_and_refuses_calls_before_connect",
        _ON_BOTH,
    ),
    "A004-13": (
        f"{_CLIENTS}::test_http_clients_list_and_call",
        f"{_CLIENTS}::test_invalid_client_arguments_are_refused_at_construction",
        f"{_CLIENTS}::test_command_arguments_and_environment_of_a_stdio_client_reach_its_server",
        f"{_CLIENTS}::test_timeouts_of_an_http_client_are_deadlines_of_its_server",
        _SIGNATURES,
    ),
    "A004-14": (f"{_CLIENTS}::test_stdio_clients_are_closed_in_any_order",),
    "A004-15": (_ON_BOTH,),
    "A004-16": (
        "hub/test_nothing_is_lost_on_the_way.py::test_unknown_fields_arrive_untouched",
        "matrix/features.py::test_tools_are_listed_with_all_their_fields",
        f"{_CLIENTS}::test_a_tools_schema_is_kept_unchanged",
    ),
    "A004-17": (
        "catalog/test_names.py::test_every_exposed_name_is_legal_and_the_same_every_time",
        "catalog/test_names.py::test_two_long_names_stay_distinct_after_shortening",
        "doors/test_the_packages_are_clients_of_the_hub.py::test_a_package_lists_and_calls_servers_of_both_eras",
    ),
    "A004-18": (
        f"{_STREAMS}::test_an_interrupted_call_ends_with_its_last_chunk_and_a_note",
        "library/test_hub.py::test_a_cancelled_call_is_cancelled_at_its_server",
        f"{_CALLING}::test_an_interrupted_tool_ends_with_its_last_chunk_and_a_note",
        _AGENT,
    ),
    "A004-19": (
        _ON_BOTH,
        f"{_CALLING}::test_an_exception_of_a_tool_is_returned_as_text_or_raised",
    ),
    "A004-20": (
        f"{_CODE}::test_the_result_of_a_program_has_the_documented_format",
        f"{_CODE}::test_the_code_file_is_removed_with_its_directory",
        _ON_BOTH,
    ),
    "A004-21": (
        f"{_CODE}::test_long_output_is_cut_with_a_note_and_does_not_time_out",
        f"{_CODE}::test_at_the_time_limit_grandchildren_of_any_group_or_session_are_ended",
        f"{_CODE}::test_programs_get_a_small_environment_and_the_entrys_variables",
        f"{_OFF}::test_servers_with_machine_access_are_refused_over_a_network_before_any_start",
        f"{_MACHINE}::test_child_programs_end_with_their_call_and_inherit_no_secrets",
        f"{_MACHINE}::test_a_toolkit_of_a_configuration_lists_and_calls_its_servers",
    ),
    "A004-22": (
        "observability/spans/test_spans_of_calls.py::test_every_call_creates_a_span_with_its_outcome",
        "observability/spans/test_spans_of_calls.py::test_the_trace_context_of_the_client_reaches_the_server",
        "observability/spans/test_spans_of_calls.py::test_without_opentelemetry_check_names_the_package_and_calls_work",
        _SPANS_OF_PROGRAM,
    ),
    "A004-23": (
        "config/discovery/test_skills.py::test_skills_are_listed_read_and_described_as_the_access_rules_allow",
        f"{_CLIENTS_OF_TOOLKIT}::test_skills_are_read_from_their_directories",
    ),
    "A004-24": (
        f"{_GROUPS_IN_PROGRAMS}::test_group_state_dicts_have_the_format_of_a_toolkit",
        f"{_GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A004-25": (
        _ON_BOTH,
        f"{_GROUPS_OF_TOOLKIT}::test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept",
    ),
    "A004-26": (
        f"{_GROUPS}::test_a_refused_tool_stays_unknown_in_an_inactive_group",
        f"{_GROUPS}::test_inactive_tools_are_unlisted_until_their_group_is_activated",
        f"{_ACCESS}::test_a_preset_argument_is_not_listed_and_always_sent",
        f"{_REGISTERING}::test_a_value_sent_over_mcp_for_a_preset_argument_is_dropped",
    ),
    "A004-27": (_CALLS,),
    "A004-28": (_CALLS, _SIGNATURES),
    "A004-29": (_CALLS, f"{_CALLING}::test_an_interruption_inside_a_tool_is_an_interrupted_response"),
    "A004-30": (_CALLS, f"{_CALLING}::test_tasks_in_the_background_and_their_results_are_bounded"),
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
    "A002-1": "BaseTool is a class of its own and LangChain no dependency; `to_langchain` makes one of LangChain",
    "A002-3": "a plain `/execute` endpoint is a native tool; MCP tools speak MCP",
    "A002-12": "side by side without LangGraph",
    "A003-28": "by the kind of the failure instead of a text in it, which newer SDKs no longer have",
    "A003-37": "a wrong server name is answered with suggestions and never corrected: it might lead past a rule",
    "A004-1": "`rename` counts up instead of drawing five letters, so that a name is the same after a restart",
    "A004-8": "what is wrong changes nothing, where the original has switched everything off by then",
    "A004-21": "output of more than 64 KiB is no timeout, and what the command started is ended with it",
}
"""Row -> where what is there differs from the text of the row, and why."""
