"""`builtin: code` and `builtin: shell` through the hub: real programs, and what becomes of them."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.servers.builtin.programs import KEPT, OutputCapture
from tests.fakes.client import HUB, PATIENCE, StdioClient, hub, spawned, write_config

pytestmark = pytest.mark.anyio

CODE, SHELL = "py__execute_python_code", "sh__execute_shell_command"
SERVERS: dict[str, Any] = {"py": {"builtin": "code", "env": {"DECLARED": "yes"}}, "sh": {"builtin": "shell"}}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    directory = tmp_path_factory.mktemp("hub")
    config = write_config(directory, SERVERS)
    temporary = directory / "tmp"
    temporary.mkdir()
    env = {"A_SECRET_OF_THE_HUB": "canary-of-the-hub", "TMPDIR": str(temporary)}
    async with spawned([*HUB, "serve", "--config", str(config)], env=env) as client:
        await client.initialize()
        yield client
    assert list(temporary.glob("mcp-hub-code-*")) == []


class Held:
    """A named pipe that programs hold open: it ends once the last of them has closed it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "held"
        os.mkfifo(self.path)

    async def opened(self) -> Callable[[], Any]:
        """Waits for the first line of a program; returns a function that waits until the pipe is closed by all."""
        async with asyncio.timeout(PATIENCE):
            file = await asyncio.to_thread(self.path.open, "rb")
            assert await asyncio.to_thread(file.readline) == b"here\n"

        async def until_closed() -> None:
            async with asyncio.timeout(PATIENCE):
                assert await asyncio.to_thread(file.read) == b""
            file.close()

        return until_closed


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        (CODE, {"code": "print('out')"}, "<returncode>0</returncode><stdout>out\n</stdout><stderr></stderr>"),
        (CODE, {"code": "import os; os._exit(3)"}, "<returncode>3</returncode><stdout></stdout><stderr></stderr>"),
        (
            SHELL,
            {"command": "echo gr\u00fc\u00dfe; echo '<b>' >&2; exit 7"},
            "<returncode>7</returncode><stdout>gr\u00fc\u00dfe\n</stdout><stderr><b>\n</stderr>",
        ),
        (SHELL, {"command": "cat"}, "<returncode>0</returncode><stdout></stdout><stderr></stderr>"),
        (SHELL, {"command": "kill -9 $$"}, "<returncode>-9</returncode><stdout></stdout><stderr></stderr>"),
        (
            CODE,
            {"code": "print('so far'); import time; time.sleep(99)", "timeout": 4.5},
            "<returncode>-1</returncode><stdout>so far\n</stdout>"
            "<stderr>TimeoutError: The code execution exceeded the timeout of 4.5 seconds.</stderr>",
        ),
        (
            SHELL,
            {"command": "echo first >&2; sleep 99", "timeout": 2},
            "<returncode>-1</returncode><stdout></stdout><stderr>first\n\n"
            "TimeoutError: The command execution exceeded the timeout of 2 seconds.</stderr>",
        ),
    ],
)
async def test_the_result_of_a_program_has_the_documented_format(
    client: StdioClient, name: str, arguments: dict[str, Any], text: str
) -> None:
    result = await client.call(name, arguments)
    assert result == {"content": [{"type": "text", "text": text}]}


async def test_long_output_is_cut_with_a_note_and_does_not_time_out(client: StdioClient) -> None:
    full_text = await client.text(
        CODE, {"code": "import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('y' * 300_000)"}
    )
    assert full_text.count("x") == full_text.count("y") == 300_000
    cut = await client.text(SHELL, {"command": "head -c 5000000 /dev/zero | tr '\\0' z; echo; echo the end"})
    assert cut.startswith("<returncode>0</returncode>")
    assert cut.endswith("the end\n</stdout><stderr></stderr>")
    left_out = re.search(r"([\d,]+) bytes are left out", cut)
    assert left_out is not None
    assert cut.count("z") + int(left_out[1].replace(",", "")) == 5_000_000


def test_buffered_output_is_bounded_while_it_is_written() -> None:
    captured = OutputCapture(10)
    for _ in range(1000):
        captured.feed(b"0123456789")
    assert len(captured._head) + len(captured._tail) <= 30
    assert "9,980 bytes" in captured.text()
    assert KEPT >= 64 * 1024


async def test_at_the_time_limit_grandchildren_of_any_group_or_session_are_ended(
    client: StdioClient, tmp_path: Path
) -> None:
    pipe = Held(tmp_path)
    left_the_group = f"setsid sh -c 'echo here > /dev/stderr; sleep 999' 2> {pipe.path} & sleep 999"
    call = asyncio.ensure_future(client.call(SHELL, {"command": f"trap '' TERM; {left_the_group}", "timeout": 4}))
    until_closed = await pipe.opened()
    text = (await call)["content"][0]["text"]
    assert text.startswith("<returncode>-1</returncode>")
    await until_closed()


async def test_processes_a_command_leaves_running_end_with_it_without_delaying_its_answer(
    client: StdioClient, tmp_path: Path
) -> None:
    pipe = Held(tmp_path)
    command = f"exec 3> {pipe.path}; echo here >&3; sleep 999 & echo started"
    call = asyncio.ensure_future(client.text(SHELL, {"command": command}))
    until_closed = await pipe.opened()
    assert await call == "<returncode>0</returncode><stdout>started\n</stdout><stderr></stderr>"
    await until_closed()


async def test_a_cancelled_call_ends_its_program(client: StdioClient, tmp_path: Path) -> None:
    pipe = Held(tmp_path)
    opens_pipe = f"file = open({str(pipe.path)!r}, 'w'); print('here', file=file, flush=True)"
    code = f"import os, time; {opens_pipe}; os.fork(); time.sleep(999)"
    client.start("tools/call", {"name": CODE, "arguments": {"code": code}}, request_id="to be cancelled")
    until_closed = await pipe.opened()
    client.notify("notifications/cancelled", {"requestId": "to be cancelled"})
    await until_closed()
    assert "1\n" in await client.text(CODE, {"code": "print(1)"})


async def test_running_programs_end_with_the_hub(tmp_path: Path) -> None:
    pipe = Held(tmp_path)
    async with hub(tmp_path, {"sh": {"builtin": "shell"}}) as client:
        command = f"exec 3> {pipe.path}; echo here >&3; setsid sleep 999 & sleep 999"
        client.start("tools/call", {"name": SHELL, "arguments": {"command": command}})
        until_closed = await pipe.opened()
    await until_closed()


async def test_programs_get_a_small_environment_and_the_entrys_variables(client: StdioClient) -> None:
    for text in (
        await client.text(CODE, {"code": "import os; print(dict(os.environ))"}),
        await client.text(SHELL, {"command": "env"}),
    ):
        assert "PATH" in text
        assert "canary-of-the-hub" not in text
        assert "MCP_HUB_BUILTIN" not in text
    assert "DECLARED" in await client.text(CODE, {"code": "import os; print(dict(os.environ))"})
    assert "DECLARED" not in text


async def test_the_code_file_is_removed_with_its_directory(client: StdioClient) -> None:
    code = "import pathlib; here = pathlib.Path(__file__).parent; (here / 'more').mkdir(); print(here)"
    text = await client.text(CODE, {"code": code})
    match = re.search(r"<stdout>(.*)\n</stdout>", text)
    assert match is not None
    assert Path(match[1]).parent.is_dir()
    assert not Path(match[1]).exists()


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        (SHELL, {"command": "echo \0"}, "invalid_parameters"),
        (CODE, {"code": "print('\ud800')"}, "invalid_parameters"),
        (CODE, {"code": "print(1)", "timeout": -1}, "invalid_parameters"),
        (SHELL, {"command": "x" * 3_000_000}, "tool_error"),
    ],
)
async def test_a_program_that_cannot_be_run_is_reported(
    client: StdioClient, name: str, arguments: dict[str, Any], code: str
) -> None:
    result = await client.call(name, arguments)
    assert result["isError"]
    assert result["_meta"]["mcp-hub/error"]["code"] == code


async def test_program_calls_run_concurrently(client: StdioClient, tmp_path: Path) -> None:
    pipe = Held(tmp_path)
    reads = asyncio.ensure_future(client.text(SHELL, {"command": f"cat {pipe.path}"}))
    await client.text(CODE, {"code": f"open({str(pipe.path)!r}, 'w').write('from the other')"})
    assert "from the other" in await reads
