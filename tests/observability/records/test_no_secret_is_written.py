"""A canary in every place of the configuration where secrets are kept, and everything that can go wrong with it."""

import base64
import html
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.fakes.client import HUB, PATIENCE, RpcError, fake, hub, write_config

pytestmark = pytest.mark.anyio

CANARY = 'canary "k/+y" väl-29f1'
PLAIN = "canary-in-a-url-7c31"
FORMS = [
    CANARY,
    PLAIN,
    json.dumps(CANARY)[1:-1],
    json.dumps(CANARY, ensure_ascii=False)[1:-1],
    quote(CANARY),
    quote(CANARY, safe=""),
    base64.b64encode(CANARY.encode()).decode().rstrip("="),
    "canary",
    CANARY.upper(),
    CANARY.encode().hex(),
    CANARY.encode().hex(":").upper(),
    html.escape(CANARY),
    base64.b64encode(base64.b64encode(CANARY.encode())).decode().rstrip("="),
]
ENV = {"env": {"KEY": CANARY}}

FAULTS: dict[str, tuple[list[str], list[tuple[str, dict[str, Any]]]]] = {
    "dies at once": (["--die", "bad key"], [("echo", {})]),
    "crashes": ([], [("crash", {}), ("echo", {"text": "x"})]),
    "answers with an error": ([], [("fail", {}), ("odd_error", {})]),
    "says it on stderr": ([], [("stderr", {"text": f"key: {CANARY}"}), ("crash", {})]),
    "makes noise": (["--noise", "50"], [("echo", {"text": "x"})]),
    "garbles": ([], [("garble", {"password": CANARY}), ("null", {"nested": [{"text": CANARY}]})]),
    "is silent": (["--silent"], [("echo", {"api_key": CANARY})]),
    "is slow": ([], [("sleep", {"seconds": 60, "url": f"https://me:{PLAIN}@e.org/?token={PLAIN}"})]),
    "breaks off": (["--start-delay", "60"], [("echo", {"text": quote(CANARY, safe="")})]),
    "lists badly": (["--bad-tool", "--cursor-loop"], [("echo", {"text": json.dumps(CANARY)})]),
    "lists without end": (["--endless-pages"], [("echo", {"text": CANARY})]),
    "ignores": (["--ignore-unknown"], [("fail", {"text": base64.b64encode(CANARY.encode()).decode()})]),
    "dies of it": (["--die-on-unknown"], [("fail", {"Authorization": f"Bearer {CANARY}"})]),
    "is unknown": ([], [("nothing", {"text": CANARY})]),
    "hears it in other forms": ([], [("echo", {"text": form}) for form in FORMS[-5:]]),
    "fails with other forms": ([], [("fail", {"text": form}) for form in FORMS[-5:]]),
    "answers isError": (
        ["--result", json.dumps({"content": [{"type": "text", "text": f"bad key {CANARY}"}], "isError": True})],
        [("echo", {})],
    ),
}


def config_of(options: list[str], directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    server = fake(
        *options, "--leak", "KEY", **ENV, timeout="2s", deadlines={"connect": 3}, preset={"add": {"a": CANARY}}
    )
    root = {"call_log": {"file": str(directory / "calls.jsonl")}, "listen": {"token": f"{CANARY}-{'t' * 32}"}}
    return {"up": server}, root


def assert_clean(directory: Path, *texts: bytes | str) -> None:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "servers.json"]
    outputs = [text.encode() if isinstance(text, str) else text for text in texts]
    for data in [*(path.read_bytes() for path in files), *outputs]:
        assert not [form for form in FORMS if form.encode() in data], data


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_fault_leaks_a_secret_to_stderr_an_error_or_a_disk(tmp_path: Path, fault: str) -> None:
    options, calls = FAULTS[fault]
    servers, root = config_of(options, tmp_path)
    answers = []
    async with hub(tmp_path, servers, list_wait=1, **root) as client:
        for name, arguments in calls:
            try:
                answer = await client.call(f"up__{name}", arguments)
            except RpcError as error:
                answer = {"error": error.error}
            if "error" in answer or answer.get("isError"):
                answers.append(answer)
    assert_clean(tmp_path, client.stderr, json.dumps(answers), json.dumps(answers, ensure_ascii=False))
    records = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert len(records) == len(calls)


@pytest.mark.parametrize(
    "fault", ["dies at once", "crashes", "answers with an error", "answers isError", "makes noise"]
)
@pytest.mark.parametrize("command", ["check", "tools", "call"])
def test_no_command_prints_a_secret(tmp_path: Path, fault: str, command: str) -> None:
    options, calls = FAULTS[fault]
    servers, root = config_of(options, tmp_path)
    config = write_config(tmp_path, servers, **root)
    name, arguments = calls[0]
    call_argv = ["up", name, "--explain", "--args", json.dumps(arguments)] if command == "call" else []
    argv = [*HUB, command, *call_argv, "-vv", "--config", str(config)]
    completed = subprocess.run(argv, capture_output=True, timeout=PATIENCE)
    assert b"Traceback" not in completed.stderr
    assert_clean(tmp_path, completed.stdout, completed.stderr)


class Echoing(BaseHTTPRequestHandler):
    """Refuses everything and quotes what it was sent, in several forms."""

    def _answer(self) -> None:
        key = self.headers.get("X-Key", "")
        quotes = [key, self.path, self.headers.get("Authorization", ""), json.dumps(key), quote(key)]
        quotes.append(base64.b64encode(f"x{key}".encode()).decode())
        body = "\n".join(quotes).encode()
        self.send_response(401 if "401" in self.path else 500)
        self.send_header("WWW-Authenticate", f'Bearer error_description="{key}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def echoing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echoing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(PATIENCE)
    server.server_close()


KEYS = [
    {"headers": {"X-Key": PLAIN, "Authorization": f"Bearer {PLAIN}"}},
    {"api_key": PLAIN, "api_key_header": "X-Key"},
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("path", [f"/mcp?api_key={PLAIN}", "/401"])
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_api_key_quoted_by_a_server_is_redacted(
    tmp_path: Path, echoing: str, key: dict[str, Any], path: str, transport: str
) -> None:
    entry = {"type": transport, "url": f"http://me:{PLAIN}@{echoing}{path}", "namespace": "up", **key}
    root = {"call_log": {"file": str(tmp_path / "calls.jsonl")}}
    async with hub(tmp_path, {"up": entry}, list_wait=1, **root) as client:
        with pytest.raises(RpcError) as caught:
            await client.call("up__echo", {"text": PLAIN})
    assert_clean(tmp_path, client.stderr, json.dumps(caught.value.error))
    argv = [*HUB, "check", "-vv", "--json", "--config", str(tmp_path / "servers.json")]
    completed = subprocess.run(argv, capture_output=True, timeout=PATIENCE)
    assert b"HTTP" in completed.stdout
    assert_clean(tmp_path, completed.stdout, completed.stderr)


async def test_successful_results_are_not_redacted(tmp_path: Path) -> None:
    servers, root = config_of([], tmp_path)
    async with hub(tmp_path, servers, **root) as client:
        assert json.loads(await client.text("up__environ"))["KEY"] == CANARY
        assert await client.text("up__echo", {"text": CANARY}) == CANARY
    assert_clean(tmp_path, client.stderr)
