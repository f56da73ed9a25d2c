"""The benchmark runs, prints its figures and failures, and writes its files. No figure is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.client.responses import Events, Response, Responses
from bench.measures import MEASURES, USUAL

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""A bound against hangs, not a figure."""
OWN_PROXY = f"{sys.executable} -m bench.proxies.sdk {{config}} {{transport}} {{port}} {{era}}"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [str(ROOT / "scripts" / "bench"), "--short", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)


def raw(directory: Path, name: str) -> list[dict]:
    return json.loads(directory.joinpath(f"{name}.json").read_text())


def test_the_short_benchmark_shows_every_section_and_writes_its_files(tmp_path: Path) -> None:
    result = bench("--rows", "direct,hub", "--eras", "handshake", "--out", str(tmp_path), "--name", "smoke")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in USUAL:
        assert f"## {MEASURES[name].table.title}\n" in result.stdout
    assert "## Targets" in result.stdout
    assert result.stdout.strip() in tmp_path.joinpath("smoke.md").read_text()
    ElementTree.parse(tmp_path / "smoke.svg")
    figures = raw(tmp_path, "smoke")
    assert [figure for figure in figures if "missing" in figure] == []
    measured = {(figure["measure"], figure["row"]) for figure in figures}
    assert {(measure, "hub") for measure in USUAL} <= measured
    assert all(figure["values"] for figure in figures)


def test_the_benchmark_measures_every_proxy_and_one_named_on_the_command_line(tmp_path: Path) -> None:
    result = bench(
        "--measures", "calls", "--cells", "sse-http", "--eras", "modern", "--peer", f"other={OWN_PROXY}",
        "--rows", "direct,hub,fastmcp,other", "--out", str(tmp_path), "--name", "all",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    figures = raw(tmp_path, "all")
    assert [figure for figure in figures if "missing" in figure] == []
    measured = {figure["row"] for figure in figures if figure["figure"] == "p50"}
    assert measured == {"direct", "hub", "fastmcp", "other"}


def test_the_page_is_measured_in_a_browser(tmp_path: Path) -> None:
    result = bench("--rows", "hub", "--measures", "page", "--out", str(tmp_path), "--name", "page")
    assert result.returncode == 0, result.stdout + result.stderr
    measured = {figure["figure"] for figure in raw(tmp_path, "page")}
    assert {"paint", "bytes", "task", "task cpu", "rate", "p50", "p50 before"} <= measured


def test_a_benchmark_row_that_fails_is_noted_and_the_others_run(tmp_path: Path) -> None:
    result = bench(
        "--rows", "direct,broken", "--peer", "broken=false", "--measures", "calls,start",
        "--cells", "stdio-stdio,http-stdio", "--eras", "handshake", "--out", str(tmp_path), "--name", "noted",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    figures = raw(tmp_path, "noted")
    missing = {(figure["measure"], figure["cell"]) for figure in figures if "missing" in figure}
    assert missing == {("calls", "stdio-stdio"), ("calls", "http-stdio"), ("start", "stdio-stdio")}
    assert {figure["row"] for figure in figures if figure.get("values")} == {"direct"}
    assert "\n- broken: " in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--measures", "speed"),
        ("--cells", "stdio-sse"),
        ("--rows", "direct,absent"),
        ("--peer", "hub=true"),
        ("--name", "../elsewhere"),
        ("--repeat", "0"),
        ("--measures", "clients", "--cells", "stdio-stdio"),
    ],
)
def test_invalid_benchmark_options_are_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = bench(*arguments, "--out", str(tmp_path))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr
    assert list(tmp_path.iterdir()) == []


BODY = b'{"id":1}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nMcp-Session-Id: abc\r\n\r\n" + BODY
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"i\r\n5\r\nd":1}\r\n0\r\n\r\n'
STREAMED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'9\r\n: hello\r\n\r\n2\r\n\r\n\r\n10\r\ndata: {"id":1}\r\n\r\n2\r\n\r\n\r\n0\r\n\r\n'
)
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_benchmark_parses_responses_the_same_in_any_segmentation(size: int) -> None:
    data = PLAIN + CHUNKED + STREAMED + ACCEPTED + PLAIN
    responses = Responses()
    parsed = [response for at in range(0, len(data), size) for response in responses.feed(data[at : at + size])]
    plain = Response(200, b"abc", [BODY])
    assert parsed == [plain, Response(200, None, [BODY]), Response(200, None, [BODY]), Response(202, None, []), plain]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_benchmark_parses_events_the_same_in_any_segmentation(size: int, end: bytes) -> None:
    lines = [b"event: endpoint", b"data: /messages?x", b"", b": alive", b"", b"data: {", b"data: }", b"", b""]
    data = end.join(lines)
    events = Events()
    parsed = [event for at in range(0, len(data), size) for event in events.feed(data[at : at + size])]
    assert parsed == [(b"endpoint", b"/messages?x"), (b"message", b"{\n}")]


PATH_LINE = re.compile(r"^(tools/\w+ over \w+): (\d+) frames in (\d+) files$", re.MULTILINE)
BOUNDS = {
    "tools/call over stdio": (90, 32),
    "tools/call over HTTP": (115, 37),
    "tools/list over HTTP": (47, 20),
}
"""The most frames and files on the path of a request."""


def test_the_path_script_counts_frames_within_bounds_and_as_architecture_shows() -> None:
    output = subprocess.run(
        [str(ROOT / "scripts" / "path"), "--steps"], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    measured = PATH_LINE.findall(output)
    for name, frames, files in measured:
        assert int(frames) <= BOUNDS[name][0]
        assert int(files) <= BOUNDS[name][1]
    assert [name for name, _, _ in measured] == list(BOUNDS)
    # ARCHITECTURE.md shows the figures of today; the path of a request may differ by a frame or two.
    documented = PATH_LINE.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert [name for name, _, _ in documented] == list(BOUNDS)
    for (_, frames, files), (_, now, now_files) in zip(documented, measured, strict=True):
        assert abs(int(frames) - int(now)) <= 2
        assert files == now_files
    for step in ("Chain.run", "Peer.request", "Catalog.resolve"):
        assert step in output


def test_the_benchmark_measures_search_quality_and_token_cost_over_sets_of_queries(tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = ["get_weather", "send_mail", "resize_image", "query_table", "book_flight"]
    texts = {name: f"Does {name.replace('_', ' ')} for somebody." for name in names}
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    described = [{"name": name, "description": text, "inputSchema": schema} for name, text in texts.items()]
    steps = "\n".join(f"{n}. please {name.replace('_', ' ')}" for n, name in enumerate(names, 1))
    tools = "\n".join(f"{n}. {name}" for n, name in enumerate(names, 1))
    task = {"Annotator Metadata": {"Steps": steps, "Tools": tools}}
    search_arguments = json.dumps({"query": "<tool_assistant>tool: send a mail</tool_assistant>"})
    run = {
        "task_id": "1",
        "messages": [{"tool_calls": [{"function": {"name": "route", "arguments": search_arguments}}]}],
    }
    files: dict[str, object] = {
        "MetaTool/dataset/plugin_des.json": texts,
        "mcpproxy-go/specs/065-evaluation-foundation/datasets/corpus_v1.tools.json": {
            "tools": [{"server": "s", "tool": name, "tool_id": name, "description": texts[name]} for name in names]
        },
        "mcpproxy-go/specs/065-evaluation-foundation/datasets/retrieval_golden_v1.json": {
            "queries": [{"query": "mail it", "labels": [{"tool_id": "send_mail", "relevance": 2}]}]
        },
        "LiveMCPBench/tools/LiveMCPTool/tools.json": [
            {"name": "All", "description": "All of it.", "tools": {"all": {"tools": described}}}
        ],
        "LiveMCPBench/annotated_data/all_annotations.json": [{"task_id": str(n), **task} for n in (1, 2)],
        "LiveMCPBench/baseline/annotation/model.json": [run],
        "relabelled_steps.json": {"queries": [{"query": "mail it", "labels": ["send_mail"]}]},
    }
    for name, content in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(json.dumps(content))
    table = data / "MetaTool/dataset/data/all_clean_data.csv"
    table.parent.mkdir()
    table.write_text("Query,Tool\nhow is the weather,get_weather\n")
    result = bench(
        "--rows",
        "hub",
        "--measures",
        "retrieval,context",
        "--data",
        str(data),
        "--out",
        str(tmp_path),
        "--name",
        "sets",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    figures = raw(tmp_path, "sets")
    assert [figure for figure in figures if "missing" in figure] == []
    measured = {(figure["row"], figure["figure"]): figure["values"] for figure in figures}
    sets = ("MetaTool", "golden set", "steps", "steps, relabelled", "recorded")
    assert {
        (f"{query_set}: {method}", "recall@5") for query_set in sets for method in ("hub", "words", "BM25", "meaning")
    } <= measured.keys()
    assert measured["golden set: hub", "recall@1"] == [1.0]
    assert {(mode, "tokens") for mode in ("all", "groups", "search", "code", "code, 10 calls")} <= measured.keys()


def test_the_retrieval_benchmark_without_data_names_the_option_it_needs(tmp_path: Path) -> None:
    result = bench("--rows", "hub", "--measures", "retrieval", "--out", str(tmp_path), "--name", "none")
    assert "it needs --data DIR" in result.stdout
