"""The stdio link against real child processes: what they say, how they die, and what is left of them."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcp_hub.errors import UpstreamAnswered
from mcp_hub.transport import FrameTooLarge, LinkError, LinkLost, reaper
from mcp_hub.transport.children import Children
from mcp_hub.transport.peer import Peer
from mcp_hub.transport.stdio_link import LAST_WORDS_GRACE, STDIN_GRACE, TERM_GRACE, StdioLink
from tests.fakes.client import FAKE, PATIENCE
from tests.fakes.offers import nothing_offered

pytestmark = pytest.mark.anyio

ANSWERS = "import sys; sys.stdin.readline(); sys.stdout.buffer.write({!r}); sys.stdout.flush(); sys.stdin.read()"
"""A server program that answers its first line with the bytes of the placeholder."""


class Talk:
    """A peer on a link to one child, which keeps everything that it receives."""

    def __init__(self, *argv: str, max_frame: int = 2**20, write_deadline: float = 5.0) -> None:
        self.children = Children()
        self.lost = asyncio.Event()
        self.loss: LinkLost | None = None
        self.noticed: list[str] = []
        self.link = StdioLink(
            "child", argv, env=dict(os.environ), cwd=None, children=self.children,
            max_frame=max_frame, write_deadline=write_deadline,
        )  # fmt: skip
        self.peer = Peer(
            self.link, notified=lambda m, p, cause: self.noticed.append(m), requested=nothing_offered, lost=self._lost
        )

    def _lost(self, error: LinkLost) -> None:
        self.loss = error
        self.lost.set()

    async def call(self, name: str, **arguments: object) -> dict[str, object]:
        async with asyncio.timeout(PATIENCE):
            result: dict[str, object] = await self.peer.request("tools/call", {"name": name, "arguments": arguments})
        return result


@asynccontextmanager
async def talking(*argv: str, **options: float) -> AsyncIterator[Talk]:
    talk = Talk(*argv, **options)  # type: ignore[arg-type]
    await talk.link.open(talk.peer)
    try:
        yield talk
    finally:
        async with asyncio.timeout(PATIENCE):
            await talk.peer.close()
            await talk.children.close()


def fake(*options: str) -> tuple[str, ...]:
    return (sys.executable, FAKE, *options)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_requests_are_answered_each_with_its_own_result() -> None:
    async with talking(*fake()) as talk:
        answers = await asyncio.gather(*(talk.call("echo", text=str(n)) for n in range(200)))
    assert [answer["content"][0]["text"] for answer in answers] == [str(n) for n in range(200)]  # type: ignore[index]


async def test_an_error_response_is_raised_with_all_its_fields() -> None:
    async with talking(*fake()) as talk:
        with pytest.raises(UpstreamAnswered) as caught:
            await talk.call("fail")
    assert caught.value.error == {"code": -32050, "message": "no", "data": {"why": [1, 2]}, "extra": True}


async def test_an_answer_above_the_limit_ends_only_its_own_call() -> None:
    async with talking(*fake()) as talk:
        with pytest.raises(FrameTooLarge):
            await talk.call("big", bytes=2**21)
        assert (await talk.call("echo", text="still here"))["content"][0]["text"] == "still here"  # type: ignore[index]


async def test_an_answer_that_is_not_json_ends_its_call_at_once() -> None:
    async with talking(*python(ANSWERS.format(b'{"jsonrpc":"2.0","id":1,"result":oops}\n'))) as talk:
        with pytest.raises(LinkError):
            await talk.call("anything")


ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}\n'


async def test_an_error_without_an_id_ends_the_one_request_in_flight() -> None:
    program = ANSWERS.format(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n')
    async with talking(*python("import sys; sys.stdin.readline();" + program)) as talk:
        listening = asyncio.ensure_future(talk.peer.request("subscriptions/listen", open_ended=True))
        with pytest.raises(UpstreamAnswered) as caught:
            await talk.call("anything")
        assert caught.value.code == -32700
        assert not listening.done()
        listening.cancel()


async def test_an_error_without_an_id_that_may_be_about_a_notification_ends_no_call() -> None:
    program = (
        "import sys,json\n"
        "ids=[json.loads(sys.stdin.readline())['id'] for _ in range(2)]\n"
        "assert 'id' not in json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'jsonrpc':'2.0','id':None,'error':{'code':-32600,'message':'no id'}}))\n"
        "print(json.dumps({'jsonrpc':'2.0','id':ids[0],'result':{'n':1}}),flush=True)\n"
        "sys.stdin.read()"
    )
    async with talking(*python(program)) as talk:
        kept, given_up = (asyncio.ensure_future(talk.call(name)) for name in ("kept", "given up"))
        while talk.peer.in_flight < 2:
            await asyncio.sleep(0)
        given_up.cancel()
        assert await kept == {"n": 1}


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s"}}\n',
        b'{"jsonrpc":"2.0","params":{"data":"%s"},"method":"notifications/message"}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"data":"%s"}}\n',
    ],
)
@pytest.mark.parametrize("data", [b"x" * 20_000, rb"\x"], ids=["oversized", "invalid"])
async def test_an_unreadable_notification_or_request_of_a_server_ends_no_call(message: bytes, data: bytes) -> None:
    async with talking(*python(ANSWERS.format(message % data + ANSWER)), max_frame=10_000) as talk:
        assert await talk.call("anything") == {"n": 1}


@pytest.mark.parametrize(
    "line",
    [
        b"[INFO] the server has started\n",
        b'[DEBUG] got {"jsonrpc":"2.0","id":1,"method":"tools/call"}\n',
        b'[DEBUG] sending {"jsonrpc":"2.0","id":1,"result":{}}\n',
        b'{ sent: {"jsonrpc":"2.0","id":1} }\n',
        b"{'a': 1}\n",
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"unknown notification"}}\n',
        b'{"level":"error","error":"ECONNREFUSED","message":"trying again"}\n',
        b'{"level":"info","id":1,"event":"cache filled"}\n',
    ],
)
async def test_a_line_that_is_certainly_no_answer_ends_no_call(line: bytes) -> None:
    async with talking(*python(ANSWERS.format(30 * line + ANSWER))) as talk:
        assert await talk.call("anything") == {"n": 1}


async def test_the_last_answer_of_a_process_that_exits_while_reading_is_paused_is_read() -> None:
    program = f"import os, sys; sys.stdin.readline(); os.write(1, {ANSWER!r}); os._exit(0)"
    async with talking(*python(program)) as talk:
        call = asyncio.ensure_future(talk.call("anything"))
        await asyncio.sleep(0)
        talk.children.pause_reading()
        async with asyncio.timeout(PATIENCE):
            while alive(talk.link.pid or 0):
                await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):  # the loss that must not come before the answer
            async with asyncio.timeout(5 * LAST_WORDS_GRACE):
                await talk.lost.wait()
        talk.children.resume_reading()
        assert await call == {"n": 1}
        async with asyncio.timeout(PATIENCE):
            await talk.lost.wait()


async def test_the_last_answer_behind_a_flood_of_lines_is_read_after_the_exit() -> None:
    program = (
        "import os, sys; sys.stdin.readline(); data = b'{}\\n' * 300_000 + " + repr(ANSWER) + "\n"
        "while data: data = data[os.write(1, data):]\n"
        "os._exit(0)"
    )
    async with talking(*python(program)) as talk:
        assert await talk.call("anything") == {"n": 1}
        assert talk.peer.received_count > 300_000


async def test_invalid_utf8_in_an_answer_is_replaced_not_fatal() -> None:
    async with talking(*python(ANSWERS.format(b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}\n'))) as talk:
        assert await talk.call("anything") == {"a": "\ufffd"}


async def test_noise_on_stdout_is_ignored() -> None:
    async with talking(*fake("--noise", "2000")) as talk:
        assert (await talk.call("echo", text="x"))["content"][0]["text"] == "x"  # type: ignore[index]


@pytest.mark.parametrize("resumed", [True, False])
async def test_a_flood_of_short_lines_is_read_no_faster_than_it_is_handled(tmp_path: Path, resumed: bool) -> None:
    """Also after reading from all children was paused and resumed, as for a client that does not read."""
    written = tmp_path / "written"
    flood = f"""
import os
file = os.open({str(written)!r}, os.O_CREAT | os.O_WRONLY)
size = 0
while True:
    size += os.write(1, b"{{}}\\n" * 20000)
    os.pwrite(file, b"%20d" % size, 0)
"""
    async with talking(*python(flood)) as talk, asyncio.timeout(PATIENCE):
        while talk.peer.received_count < 100_000:
            await asyncio.sleep(0)
        if resumed:
            talk.children.pause_reading()
            talk.children.resume_reading()
        while talk.peer.received_count < 600_000:
            await asyncio.sleep(0)
        assert int(written.read_text()) - 3 * talk.peer.received_count < 4 * 1024 * 1024


async def test_reading_stays_paused_after_the_lines_that_were_read_are_handled() -> None:
    flood = "import os\nwhile True: os.write(1, b'{}\\n' * 20000)"
    async with talking(*python(flood)) as talk, asyncio.timeout(PATIENCE):
        while talk.peer.received_count < 100_000:
            await asyncio.sleep(0)
        talk.children.pause_reading()
        before = -1
        while before != talk.peer.received_count:  # lines that were read already are still handled
            before = talk.peer.received_count
            for _ in range(100):
                await asyncio.sleep(0)
        talk.children.resume_reading()
        while talk.peer.received_count == before:
            await asyncio.sleep(0)


async def test_a_crash_fails_requests_in_flight_and_reports_the_exit_status() -> None:
    async with talking(*fake()) as talk:
        sleeping = asyncio.ensure_future(talk.call("sleep"))
        with pytest.raises(LinkLost):
            await talk.call("crash")
        with pytest.raises(LinkLost):
            await sleeping
        assert str(talk.loss) == "the process exited with status 7"
        assert any("about to crash" in line for line in talk.link.last_words)
        assert not any("\x1b" in line for line in talk.link.last_words)


async def test_sending_to_an_ended_process_fails() -> None:
    async with talking(*fake("--die", "no key")) as talk:
        async with asyncio.timeout(PATIENCE):
            await talk.lost.wait()
        with pytest.raises(LinkLost):
            await talk.call("echo")
        assert talk.link.last_words == ("no key",)


async def test_a_command_that_cannot_be_started_is_reported() -> None:
    talk = Talk("/nonexistent/server")
    with pytest.raises(LinkError) as caught:
        await talk.link.open(talk.peer)
    assert caught.value.executed is False
    assert "/nonexistent/server" in str(caught.value)
    await talk.children.close()


@pytest.mark.parametrize("turns", range(8))
async def test_a_start_that_is_cancelled_leaves_no_process_behind(turns: int) -> None:
    before = {child.pid for child in psutil.Process().children()}
    talk = Talk(*python("import time; time.sleep(600)"))
    opening = asyncio.create_task(talk.link.open(talk.peer))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({opening})
        if not opening.cancelled():  # it was quicker
            await talk.link.close()
    assert {child.pid for child in psutil.Process().children()} <= before


async def test_a_process_that_stops_reading_fails_at_the_write_deadline() -> None:
    async with talking(*python("import time; time.sleep(600)"), write_deadline=0.2) as talk:
        with pytest.raises(LinkLost):
            await asyncio.gather(*(talk.call("echo", text="x" * 100_000) for _ in range(20)))
        assert talk.loss is not None
        assert "stopped reading" in str(talk.loss)


async def test_a_cancelled_request_is_cancelled_upstream(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with talking(*fake("--record", str(record))) as talk:
        sleeping = asyncio.ensure_future(talk.call("sleep"))
        await talk.call("echo")
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        await talk.call("echo")
        assert talk.peer.in_flight == 0
    assert '"notifications/cancelled","params":{"requestId":2' in record.read_text()


async def test_a_ping_before_all_pipes_are_connected_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys,json\n"
        "print(json.dumps({'jsonrpc':'2.0','id':'p','method':'ping'}),flush=True)\n"
        "sys.stdin.readline()\n"
        "print(json.dumps({'jsonrpc':'2.0','method':'answered'}),flush=True)\n"
        "sys.stdin.read()"
    )
    loop = asyncio.get_running_loop()
    connect = loop.connect_read_pipe
    connected: list[object] = []
    talk = Talk(*python(program))

    async def slowly(*args: Any) -> Any:
        connected.append(args)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while len(connected) == 2 and not talk.noticed:  # stderr
                    await asyncio.sleep(0)
        return await connect(*args)

    monkeypatch.setattr(loop, "connect_read_pipe", slowly)
    async with asyncio.timeout(2 * PATIENCE):
        await talk.link.open(talk.peer)
        await talk.peer.close()
        await talk.children.close()
    assert talk.noticed == ["answered"]


async def test_a_ping_of_the_upstream_is_answered_and_anything_else_refused() -> None:
    program = (
        "import sys,json\n"
        "print(json.dumps({'jsonrpc':'2.0','id':'p','method':'ping'}))\n"
        "print(json.dumps({'jsonrpc':'2.0','id':'r','method':'roots/list'}),flush=True)\n"
        "got=[json.loads(sys.stdin.readline()) for _ in range(3)]\n"
        "call=[m for m in got if m.get('method')][0]\n"
        "rest={m['id']: m for m in got if 'method' not in m}\n"
        "print(json.dumps({'jsonrpc':'2.0','id':call['id'],'result':rest}),flush=True)\n"
        "sys.stdin.read()"
    )
    async with talking(*python(program)) as talk:
        answers = await talk.call("anything")
    assert answers["p"]["result"] == {}  # type: ignore[index,call-overload]
    assert answers["r"]["error"]["code"] == -32601  # type: ignore[index,call-overload]


async def test_a_request_of_the_upstream_that_fails_inside_the_hub_is_answered_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(method: str, params: dict[str, Any], cause: object) -> dict[str, Any]:
        return {"action": params["requestedSchema"]["properties"]}

    program = (
        "import sys,json\n"
        "print(json.dumps({'jsonrpc':'2.0','id':'q','method':'elicitation/create','params':{'requestedSchema':'x'}}),"
        "flush=True)\n"
        "got=[json.loads(sys.stdin.readline()) for _ in range(2)]\n"
        "rest={m['id']: m for m in got if 'method' not in m}\n"
        "call=[m for m in got if m.get('method')][0]\n"
        "print(json.dumps({'jsonrpc':'2.0','id':call['id'],'result':rest}),flush=True)\n"
        "sys.stdin.read()"
    )
    async with talking(*python(program)) as talk:
        talk.peer._requested = failing
        answers = await talk.call("anything")
    assert answers["q"]["error"]["code"] == -32019  # type: ignore[index,call-overload]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_stray_and_repeated_answers_are_counted_and_dropped() -> None:
    program = (
        "import sys,json\n"
        "sys.stdin.readline()\n"
        "for i in (77, 1, 1, None, [1]): print(json.dumps({'jsonrpc':'2.0','id':i,'result':{'i':i}}),flush=True)\n"
        "sys.stdin.readline(); print(json.dumps({'jsonrpc':'2.0','id':2,'result':{'i':2}}),flush=True)\n"
        "sys.stdin.read()"
    )
    async with talking(*python(program)) as talk:
        assert await talk.call("one") == {"i": 1}
        assert await talk.call("two") == {"i": 2}
        assert talk.peer.stray == 4


async def test_close_ends_a_stubborn_process_its_group_and_processes_that_left_the_group() -> None:
    async with talking(*fake("--stubborn", "--grandchild")) as talk:
        await talk.call("echo")
        pid = talk.link.pid
        grandchild = int(next(line for line in talk.link.last_words if "grandchild" in line).split()[1])
        assert pid is not None
        assert alive(pid)
        assert alive(grandchild)
    assert not alive(pid)
    async with asyncio.timeout(PATIENCE):  # it is killed, but not waited for: on a busy machine it may still be exiting
        while alive(grandchild):
            await asyncio.sleep(0.01)


async def test_closing_the_event_loop_first_leaves_no_process_behind() -> None:
    pids = []

    async def open_and_begin_to_close() -> None:
        talk = Talk(*fake("--stubborn"))
        await talk.link.open(talk.peer)
        await talk.call("echo")
        pids.append(talk.link.pid)
        closing = asyncio.create_task(talk.link.close())
        await asyncio.wait({closing}, timeout=0)

    await asyncio.to_thread(asyncio.run, open_and_begin_to_close())
    async with asyncio.timeout(PATIENCE):
        while alive(pids[0]):
            await asyncio.sleep(0.02)


async def test_forty_stubborn_processes_close_concurrently() -> None:
    conversations = [Talk(*fake("--stubborn")) for _ in range(40)]
    for talk in conversations:
        await talk.link.open(talk.peer)
    await asyncio.gather(*(talk.call("echo") for talk in conversations))
    async with asyncio.timeout(20 * (STDIN_GRACE + TERM_GRACE)):  # one after the other would take twice as long
        await asyncio.gather(*(talk.peer.close() for talk in conversations))
        await asyncio.gather(*(talk.children.close() for talk in conversations))
    assert not any(alive(talk.link.pid or 0) for talk in conversations)


async def test_the_reaper_ends_every_child_when_its_hub_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from tests.transport.test_stdio_link import Talk, fake\n"
        "async def main():\n"
        "    talk = Talk(*fake('--stubborn', '--grandchild'))\n"
        "    await talk.link.open(talk.peer)\n"
        "    await talk.call('echo')\n"
        "    print(talk.link.pid, talk.link.last_words[0].split()[1], talk.children.run, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]
    hub = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, cwd=root)
    assert hub.stdout is not None
    async with asyncio.timeout(PATIENCE):
        child, grandchild, run = (await hub.stdout.readline()).decode().split()
    assert alive(int(child))
    assert alive(int(grandchild))
    hub.kill()
    async with asyncio.timeout(PATIENCE):
        await hub.wait()
        while alive(int(child)) or alive(int(grandchild)) or reaper.marked(run):
            await asyncio.sleep(0.02)
