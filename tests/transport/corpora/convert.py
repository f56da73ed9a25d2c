"""Makes the files of this directory from checkouts of their projects: `python -m tests.transport.corpora.convert DIR`.

DIR has a git repository for each of h11, llhttp, gunicorn, httptools, smuggler; its HEAD is read and named as origin.
`portswigger.json` is not made here: its lines are those of a switch in Java, written down by hand.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h11

from tests.syntax import parsed

HERE = Path(__file__).parent
Record = dict[str, Any]
"""A case in the shape of its JSON (`Case` in `__init__.py`)."""
IN_CHUNKS = {
    "request": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "response": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
}


def main(checkouts: Path) -> None:
    for name, (repository, licence, read) in CORPORA.items():
        git = ["git", "-C", str(checkouts / name)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, check=True, text=True).stdout.strip()

        def file(path: str, git: list[str] = git) -> bytes:
            return subprocess.run([*git, "show", f"HEAD:{path}"], capture_output=True, check=True).stdout

        listing = subprocess.run([*git, "ls-tree", "-r", "--name-only", "HEAD"], capture_output=True, check=True)
        cases = [record for record in read(file, listing.stdout.decode().split("\n")) if record["bytes"]]
        lines = ",\n".join(json.dumps(case) for case in cases)
        head = json.dumps({"repository": repository, "commit": commit})
        (HERE / f"{name}.json").write_text(f'{{"origin": {head},\n"cases": [\n{lines}\n]}}\n')
        (HERE / f"LICENSE.{name}").write_bytes(file(licence))


def message(start: dict[str, Any], headers: Any, body: bytes, *, whole: bool = True) -> Record:
    fields = [[_text(name).lower(), _text(value).strip()] for name, value in headers]
    return {**start, "headers": fields, "body": _text(body), "whole": whole}


def _text(value: Any) -> str:
    return str(value.decode("latin-1") if isinstance(value, bytes) else value)


# --- llhttp: Markdown, the text of a message and the log of what its parser told ----------------------------------

MODES = ("pause", "skipBody")
"""Modes of the parser's own interface, which have no meaning here: a callback stops it, a response is to HEAD."""


def llhttp(file: Any, names: list[str]) -> Iterator[Record]:
    block = re.compile(r"^#+ ([^\n]+)$|<!-- meta=(\{.*?\}) -->\s*```http\n(.*?)```.*?```log\n(.*?)```", re.S | re.M)
    for path in sorted(name for name in names if re.fullmatch(r"test/(request|response)/\w[\w-]*\.md", name)):
        heading, used = "", set[str]()
        for title, meta, text, log in block.findall(file(path).decode()):
            heading = title or heading
            if not meta or any(mode in meta for mode in MODES) or "pausing" in path:
                continue
            kind = str(json.loads(meta)["type"])
            name = f"{path[5:-3]}: {heading}"
            name += f" ({sum(earlier.startswith(name) for earlier in used) + 1})" if name in used else ""
            used.add(name)
            data = _unescaped(text)
            case: Record = {"name": name, "side": kind.split("-")[0], "bytes": data.decode("latin-1")}
            if "-lenient-" in kind:
                case["lenient"] = kind.partition("-lenient-")[2]
            yield case | _parsed_log(data, log, response=case["side"] == "response")


def _unescaped(text: str) -> bytes:
    """Returns the bytes that `md-test.ts` reads from a block."""
    text = re.sub(r"\\\n", "", re.sub(r"\n\Z", "", text))
    text = re.sub(r"\r\n|\r|\n", "\r\n", text)
    for escape, char in (("\\r", "\r"), ("\\n", "\n"), ("\\t", "\t"), ("\\f", "\f")):
        text = text.replace(escape, char)
    text = re.sub(r"\\x([0-9a-fA-F]+)", lambda match: chr(int(match[1], 16)), text)
    text = re.sub(r"\\([0-7]{1,3})", lambda match: chr(int(match[1], 8)), text)
    return re.sub(r"\$\{'(.)'\.repeat\((\d+)\)\}", lambda match: match[1] * int(match[2]), text).encode()


def _parsed_log(data: bytes, log: str, *, response: bool) -> Record:
    messages: list[Record] = []
    end, closes = "open", False
    for line in log.strip().split("\n"):
        if span := re.match(r"off=(\d+) len=(\d+) span\[(\w+)\]", line):
            part = data[int(span[1]) : int(span[1]) + int(span[2])].decode("latin-1")
            now = messages[-1]
            if span[3] in ("method", "url"):
                now[{"url": "target"}.get(span[3], span[3])] = (
                    now.get({"url": "target"}.get(span[3], span[3]), "") + part
                )
            elif span[3] == "body":
                now["body"] += part
            elif span[3] == "header_field" and "headed" not in now:
                if now["fresh"]:
                    now["headers"].append(["", ""])
                now["headers"][-1][0] += part.lower()
                now["fresh"] = False
            elif span[3] == "header_value" and "headed" not in now:
                now["headers"][-1][1] += part
        elif line.endswith("message begin"):
            messages.append({"headers": [], "body": "", "whole": False, "fresh": True})
        elif line.endswith("header_value complete"):
            messages[-1]["fresh"] = True
        elif head := re.search(r"headers complete (?:method=\d+|status=(\d+)) v=1/(\d) flags=(\w+)", line):
            messages[-1]["headed"] = True
            if response:
                messages[-1]["status"] = int(head[1])
            flags = int(head[3], 16)
            closes = bool(flags & 2) or (head[2] == "0" and not flags & 1)
        elif line.endswith("message complete"):
            messages[-1]["whole"] = True
        elif error := re.search(r"error code=(\d+)", line):
            end = {"5": "closed", "22": "switched"}.get(error[1], "refused")
            if end == "closed":
                closes = True
    if end == "open" and messages:
        end = "pending" if not messages[-1]["whole"] else "closed" if closes else "open"
    complete = [entry for entry in messages if "headed" in entry]
    for entry in complete:
        entry["headers"] = [[name, value.strip()] for name, value in entry["headers"]]
        entry.pop("fresh")
        entry.pop("headed")
    return {"messages": complete, "end": end}


# --- h11: the calls of the helpers of its tests -------------------------------------------------------------------


def h11_tests(file: Any, names: list[str]) -> Iterator[Record]:
    namespace = {**vars(h11), "LocalProtocolError": h11.LocalProtocolError, "IDLE": 0, "SEND_RESPONSE": 1}
    namespace |= {"READERS": {(h11.CLIENT, 0): "request", (h11.SERVER, 1): "response"}, "ChunkedReader": "chunks"}
    with tempfile.TemporaryDirectory() as directory:
        for path in ("h11/tests/test_io.py", "h11/tests/test_headers.py"):
            copy = Path(directory, "source.py")
            copy.write_bytes(file(path))
            for function in parsed(copy).body:
                if isinstance(function, ast.FunctionDef):
                    yield from _h11_calls(function, namespace)


def _h11_calls(function: ast.FunctionDef, namespace: Record) -> Iterator[Record]:
    count = 0
    for call in ast.walk(function):
        callee = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if not isinstance(call, ast.Call) or callee not in ("tr", "t_body_reader", "normalize_and_validate"):
            continue
        raises = [with_ for with_ in ast.walk(function) if isinstance(with_, ast.With) and call in ast.walk(with_)]
        try:
            values = [eval(compile(ast.Expression(arg), "", "eval"), namespace) for arg in call.args]
        except NameError:
            continue  # the call uses a helper of the project
        if callee == "t_body_reader" and values[0] != "chunks":
            continue
        if callee == "normalize_and_validate" and any(_text(value) != _text(value).strip() for _, value in values[0]):
            continue  # h11 refuses this from its users only: on the wire, blanks around a value are not part of it
        count += 1
        name = f"{function.name} {count}"
        if callee == "tr":
            yield {"name": name, "side": values[0], **_h11_message(values[1], None if raises else values[2])}
        elif callee == "t_body_reader":
            body = b"".join(bytes(event.data) for event in values[2] if isinstance(event, h11.Data))
            is_complete = any(isinstance(event, h11.EndOfMessage) for event in values[2])
            for side, head in IN_CHUNKS.items():
                start = {"method": "POST", "target": "/"} if side == "request" else {"status": 200}
                fields = [line.split(": ") for line in head.decode().split("\r\n")[1:-2]]
                accepted = {"messages": [message(start, fields, body)], "end": "open"}
                refused = {"messages": None, "end": "refused"}
                data = (head + values[1]).decode("latin-1")
                yield {"name": f"{name} {side}", "side": side, "bytes": data, **(accepted if is_complete else refused)}
        else:
            lines = "".join(f"{_text(name)}: {_text(value)}\r\n" for name, value in values[0])
            data = f"POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"
            end = {"messages": None, "end": "refused" if raises else None}
            yield {"name": name, "side": "request", "bytes": data, **end}


def _h11_message(data: bytes, event: Any) -> Record:
    case: Record = {"bytes": bytes(data).decode("latin-1")}
    if event is None:
        return case | {"messages": None, "end": "refused"}
    if isinstance(event, h11.Request):
        start: Record = {"method": _text(event.method), "target": _text(event.target)}
    else:
        start = {"status": event.status_code}
    closes = event.http_version == b"1.0" or (b"connection", b"close") in [(n, v.lower()) for n, v in event.headers]
    body = isinstance(event, h11.Response)
    parsed_message = message(start, list(event.headers), b"", whole=not body)
    return case | {"messages": [parsed_message], "end": "pending" if body else "closed" if closes else "open"}


# --- gunicorn: a file of bytes and a file of what they mean ------------------------------------------------------

PERMITS = ("permit_", "strip_", "casefold_", "header_map", "forwarded_allow")


def gunicorn(file: Any, names: list[str]) -> Iterator[Record]:
    for path in sorted(name for name in names if re.fullmatch(r"tests/requests/\w+/\w+\.http", name)):
        source = file(f"{path[:-5]}.py").decode()
        settings = re.findall(r"cfg\.set\([\"'](\w+)", source)
        if any(not setting.startswith(PERMITS) for setting in settings):
            continue  # the case tests a limit of gunicorn, or the PROXY protocol
        data = file(path).replace(b"\n", b"").replace(b"\\r\\n", b"\r\n").replace(b"\\0", b"\0")
        data = data.replace(b"\\n", b"\n").replace(b"\\t", b"\t")
        data = re.sub(rb"\\x([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), data)
        if len(data) > 4000:
            continue
        case: Record = {"name": path[15:-5], "side": "request", "bytes": data.decode("latin-1")}
        if settings:
            case["lenient"] = ",".join(settings)
        if "/invalid/" in path:
            yield case | {"messages": None, "end": "refused"}
            continue
        namespace: Record = {"uri": lambda raw: raw, "cfg": None}
        exec(re.sub(r"^(from|import|cfg).*$", "", source, flags=re.M), namespace)
        expected = namespace["request"] if isinstance(namespace["request"], list) else [namespace["request"]]
        messages = [
            message({"method": request["method"], "target": request["uri"]}, request["headers"], request["body"])
            for request in expected
        ]
        yield case | {"messages": messages, "end": None}


# --- httptools: the constants of its tests ------------------------------------------------------------------------


def httptools(file: Any, names: list[str]) -> Iterator[Record]:
    source = file("tests/test_parser.py").decode()
    namespace: Record = {}
    exec("".join(re.findall(r"^[A-Z]\w+ = b'''.*?'''[^\n]*\n", source, re.S | re.M)), namespace)
    texts: dict[str, bytes] = {name: value for name, value in namespace.items() if name.isupper()}
    texts["CHUNKED_REQUEST1"] = texts.pop("CHUNKED_REQUEST1_1") + texts.pop("CHUNKED_REQUEST1_2")
    body = texts.pop("RESPONSE1_BODY")
    for name, data in texts.items():
        side = "response" if data.startswith(b"HTTP/") else "request"
        end = (
            "refused"
            if "SPACES" in name
            else "switched"
            if "UPGRADE" in name
            else "closed"
            if side == "response"
            else "open"
        )
        data += body if name == "RESPONSE1_HEAD" else b""
        yield {"name": name, "side": side, "bytes": data.decode("latin-1"), "messages": None, "end": end}


# --- smuggler: lines that hide a transfer coding --------------------------------------------------------------------


def smuggler(file: Any, names: list[str]) -> Iterator[Record]:
    namespace: Record = {"mutations": {}, "render_template": str}
    for config in ("default", "exhaustive", "doubles"):
        exec(
            re.sub(r"def render_template.*?return p", "", file(f"configs/{config}.py").decode(), flags=re.S), namespace
        )
    for line in sorted(set(namespace["mutations"].values())):
        yield {"bytes": line}


CORPORA: dict[str, tuple[str, str, Any]] = {
    "h11": ("https://github.com/python-hyper/h11", "LICENSE.txt", h11_tests),
    "llhttp": ("https://github.com/nodejs/llhttp", "LICENSE", llhttp),
    "gunicorn": ("https://github.com/benoitc/gunicorn", "LICENSE", gunicorn),
    "httptools": ("https://github.com/MagicStack/httptools", "LICENSE", httptools),
    "smuggler": ("https://github.com/defparam/smuggler", "LICENSE", smuggler),
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
