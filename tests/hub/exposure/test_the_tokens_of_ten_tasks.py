"""Ten tasks over 527 tools, done by a scripted model: what it reads and writes in each way of exposing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bench.scripted_model import WAYS, Task, transcripts
from mcp_hub.catalog.token_estimate import estimate_tool_tokens

pytestmark = pytest.mark.anyio

NUMBER, TOKENS = 527, 103_000
"""The tools of LiveMCPBench, and about how many tokens they are."""
LESS, LESS_IN_CODE = 15, 25
_SERVERS = (
    "calendar", "invoices", "weather", "mailbox", "tickets", "contacts", "warehouse", "flights", "recipes", "patients",
    "lectures", "podcasts", "auctions", "sensors", "contracts", "paintings", "marathons",
)  # fmt: skip
_ACTS = {
    "create": "Creates a new", "delete": "Deletes an existing", "list": "Lists every", "rename": "Renames a",
    "archive": "Moves to the archive a", "restore": "Restores from the archive a", "share": "Shares with others a",
    "export": "Exports to a spreadsheet a", "import": "Imports from a spreadsheet a", "translate": "Translates a",
    "schedule": "Schedules for later a", "cancel": "Cancels a", "approve": "Approves a", "reject": "Rejects a",
    "summarize": "Writes a summary of a", "compare": "Compares with another a", "count": "Counts each",
    "merge": "Merges with another a", "split": "Splits in two a", "print": "Prints on paper a", "lock": "Locks a",
    "unlock": "Unlocks a", "publish": "Publishes on the web a", "watch": "Reports changes of a", "copy": "Copies a",
    "label": "Puts a label on a", "price": "Finds the price of a", "locate": "Finds the place of a",
    "rate": "Gives a rating to a", "backup": "Saves a copy of a", "verify": "Checks the signature of a",
}  # fmt: skip
_NOTE = (
    "It needs the identifier that the list returns and answers with the state afterwards. Use it once for each item "
    "and wait for its answer before you go on, as the service applies changes one after the other and refuses more "
    "than thirty of them in a minute. Nothing is changed when the identifier is unknown, when the item is locked by "
    "somebody else, or when the version that is given is older than the newest one."
)


def _definition(server: str, act: str, text: str) -> dict[str, Any]:
    noun = server.removesuffix("s")
    properties = {
        "id": {"type": "string", "description": f"identifier of the {noun}, as the list returns it"},
        "version": {
            "type": "integer",
            "description": f"the version of the {noun} that is meant, by default the newest",
        },
        "notify": {"type": "boolean", "description": "whether people who follow it hear of this"},
        "note": {"type": "string", "description": "a remark for the journal, at most 200 characters"},
    }
    schema = {"type": "object", "properties": properties, "required": ["id"]}
    return {"name": f"{act}_{noun}", "description": f"{text} {noun}. {_NOTE}", "inputSchema": schema}


SERVERS = {server: [_definition(server, act, text) for act, text in _ACTS.items()] for server in _SERVERS}
TASKS = [
    Task(text, frozenset([tool]))
    for text, tool in {
        "put a new appointment into the calendar": "calendar/create_calendar",
        "save this invoice as a spreadsheet": "invoices/export_invoice",
        "translate a recipe into French": "recipes/translate_recipe",
        "call off my flight": "flights/cancel_flight",
        "how many patients are there": "patients/count_patient",
        "put the podcast on the web": "podcasts/publish_podcast",
        "is the signature on the contract valid": "contracts/verify_contract",
        "find out what a painting costs": "paintings/price_painting",
        "write a short summary of the lecture": "lectures/summarize_lecture",
        "where is the sensor": "sensors/locate_sensor",
    }.items()
]


async def test_ten_tasks_over_527_tools_cost_fewer_tokens_with_search_and_code_mode() -> None:
    tools = list(itertools.chain.from_iterable(SERVERS.values()))
    assert len(tools) == NUMBER
    assert 0.9 * TOKENS < sum(map(estimate_tool_tokens, tools)) < 1.1 * TOKENS
    runs_by_mode = {mode: await transcripts(mode, SERVERS, TASKS) for mode in WAYS}
    tokens = {mode: sum(run.tokens for run in runs) for mode, runs in runs_by_mode.items()}
    assert tokens["all"] > LESS * tokens["search"], tokens
    assert tokens["all"] > LESS_IN_CODE * tokens["code"], tokens
    assert tokens["all"] > tokens["groups"] > tokens["search"], tokens
