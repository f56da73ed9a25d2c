"""Tools are found by their names before anything else: exact, shortened and misspelled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.frames import finished
from mcp_hub.search import SearchedTool, SearchIndex, is_near

NAMES = [
    "create_issue",
    "create_pull_request",
    "list_issues",
    "search_repositories",
    "getWeather",
    "get_weather_alerts",
]


def index() -> SearchIndex:
    tools = [
        SearchedTool((f"github__{name}", f"github/{name}", name), "github", "Does something with issues.", "", ())
        for name in NAMES
    ]
    return finished(SearchIndex.building([*tools, LONG]))


LONG_NAME = "a_very_long_name_of_a_tool_that_no_client_would_ever_accept_as_it_is_written"
LONG = SearchedTool((f"{LONG_NAME[:55]}_1a2b3c4d", f"github/{LONG_NAME}", LONG_NAME), "github", "", "", ())


def ranked_names(query: str) -> list[str]:
    search_index = index()
    return [
        search_index.tools[number].names[-1]
        for number in finished(search_index.ranking(query, finished(search_index.correcting(query))))
    ]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("github__create_issue", "create_issue"),
        ("create_issue", "create_issue"),
        ("github/create_issue", "create_issue"),
        ("Create Issue", "create_issue"),
        ("createissue", "create_issue"),
        ("get_weather", "getWeather"),
        ("call github__list_issues to see what is open", "list_issues"),
        ("create_pull", "create_pull_request"),
        ("serach_repositories", "search_repositories"),
        ("creat_isue", "create_issue"),
        ("search repositry", "search_repositories"),
        (LONG_NAME, LONG_NAME),
        (LONG.names[0], LONG_NAME),
    ],
)
def test_a_name_is_ranked_first_in_every_notation(query: str, first: str) -> None:
    assert ranked_names(query)[0] == first


def test_a_misspelled_query_word_matches_the_similar_word_of_a_name() -> None:
    search_index = index()
    assert finished(search_index.correcting("find some Repozitories for me")) == "find some repositories for me"
    assert ranked_names("which repozitories are there")[0] == "search_repositories"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("write the text of the document", "append_paragraph"),
        ("then add some text to my document", "append_paragraph"),
        ("get the text of the document", "get_document_text"),
        ("the text of the document", "get_document_text"),
        ("write what get_document_text does", "get_document_text"),
    ],
)
def test_read_only_tools_rank_lower_for_a_query_about_changes(query: str, first: str) -> None:
    texts = {"get_document_text": "The text of a document.", "append_paragraph": "A paragraph of text in a document."}
    tools = [SearchedTool((f"word__{name}", name), "word", text, "", ()) for name, text in texts.items()]
    search_index = finished(SearchIndex.building(tools))
    likeness = [0.5, 0.45]
    ranked = finished(search_index.ranking(query, query, likeness))
    assert search_index.tools[ranked[0]].names[-1] == first


def test_query_words_that_occur_in_tools_are_not_corrected() -> None:
    search_index = index()
    assert finished(search_index.correcting("something issues")) == "something issues"


def _distance(first: str, second: str) -> int:
    rows = {(-1, -1): len(first) + len(second)}
    for i in range(len(first) + 1):
        rows[i, 0] = i
    for j in range(len(second) + 1):
        rows[0, j] = j
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            cost = first[i - 1] != second[j - 1]
            rows[i, j] = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, rows[i - 1, j - 1] + cost)
            if i > 1 and j > 1 and first[i - 1] == second[j - 2] and first[i - 2] == second[j - 1]:
                rows[i, j] = min(rows[i, j], rows[i - 2, j - 2] + 1)
    return rows[len(first), len(second)]


@given(st.text("abc", max_size=7), st.text("abc", max_size=7), st.integers(0, 2))
def test_words_are_near_if_they_share_the_first_letter_and_few_others_differ(one: str, other: str, errors: int) -> None:
    same_start = one[:1] == other[:1]
    assert is_near(one, other, errors) == (same_start and _distance(one, other) <= errors)
