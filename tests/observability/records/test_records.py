"""The thread that writes: nobody waits for it, nothing it writes can be mistaken for something else."""

import contextlib
import errno
import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_hub.observability import records
from mcp_hub.observability.records import RecordFile, RecordWriter
from mcp_hub.security import private_files
from tests.fakes.client import PATIENCE

HOSTILE = "a\nb\r\x1b]8;;x\x07\x1b[2J \x9b \u202e\u2066 \U000e0041 \u2028 \x7f \ud800 grüße 😀"
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@contextlib.contextmanager
def stderr_as_pipe() -> Iterator[int]:
    """Replaces the stderr of this process by a pipe and yields its reading end."""
    read_end, write_end = os.pipe()
    before = sys.stderr
    with os.fdopen(write_end, "w") as sys.stderr:
        try:
            yield read_end
        finally:
            sys.stderr = before
    os.close(read_end)


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_any_record_is_one_json_line_without_data_loss(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with stderr_as_pipe() as pipe, RecordWriter(path, stderr=True) as records:
        records.write({"event": "call", "name": HOSTILE, HOSTILE: [HOSTILE]})
        assert records.flush(PATIENCE)
        for data in (path.read_bytes(), os.read(pipe, 65536)):
            assert data.count(b"\n") == 1
            assert data.endswith(b"\n")
            line = data[:-1].decode()
            assert not {char for char in line if unicodedata.category(char) in HIDDEN}
            assert "grüße 😀" in line or "\\ud83d\\ude00" in line
            assert json.loads(line) == {"event": "call", "name": HOSTILE, HOSTILE: [HOSTILE]}


def test_readable_text_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with RecordWriter(path, stderr=False) as records:
        records.write({"name": "grüße 😀"})
    assert path.read_text() == '{"name":"grüße 😀"}\n'


def test_the_log_file_and_its_directory_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "logs" / "calls.jsonl"
    before = os.umask(0)
    try:
        with RecordWriter(path, stderr=False) as records:
            records.write({"n": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_log_file_readable_by_others_is_made_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text('{"n":0}\n')
    path.chmod(0o644)
    with RecordWriter(path, stderr=False) as records:
        records.write({"n": 1})
    assert read_records(path) == [{"n": 0}, {"n": 1}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_log_file_is_rotated_by_size_and_three_older_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with RecordWriter(path, stderr=False, max_file=1000) as records:
        for n in range(100):
            records.write({"n": n, "x": "." * 80})
            assert n % 3 or records.flush(PATIENCE)  # which waits for the next round of the writer
    files = [path, *(tmp_path / f"calls.jsonl.{n}" for n in (1, 2, 3))]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 and file.stat().st_size <= 1000 for file in files)
    numbers = [record["n"] for file in reversed(files) for record in read_records(file)]
    assert numbers == list(range(100 - len(numbers), 100))
    assert len(numbers) > 30


@pytest.mark.parametrize("obstacle", ["no_locks", "unreadable"])
def test_a_log_file_is_rotated_where_its_directory_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    file = RecordFile(tmp_path / "calls.jsonl", max_size=10)

    def refuse(*_: Any) -> int:
        raise (
            PermissionError(errno.EACCES, "not readable") if obstacle == "unreadable" else OSError(errno.ENOLCK, "none")
        )

    file.write(b"12345678\n")
    with monkeypatch.context() as patch:
        if obstacle == "no_locks":
            patch.setattr("fcntl.flock", refuse)
        else:
            patch.setattr(private_files, "os", SimpleNamespace(**vars(os) | {"open": refuse}))
        file.write(b"abcdefgh\n")
    assert (tmp_path / "calls.jsonl.1").read_bytes() == b"12345678\n"
    file.write(b"last 678\n")
    with private_files.locked_directory(tmp_path):  # another process rotates a file there
        file.write(b"not yet!\n")
    file.close()
    assert (tmp_path / "calls.jsonl").read_bytes() == b"last 678\nnot yet!\n"


WRITER = """
import json, pathlib, sys
from mcp_hub.observability.records import RecordFile
file = RecordFile(pathlib.Path(sys.argv[1]), max_size=2000, kept=1000)
print("ready", flush=True)
sys.stdin.readline()
for n in range(200):
    file.write(json.dumps({"who": int(sys.argv[2]), "n": n}).encode() + b"\\n")
file.close()
"""


def test_several_processes_can_write_to_one_log_file_during_rotation(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)], **pipes) for number in range(4)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:  # all at once
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=PATIENCE)
        assert writer.returncode == 0
    pairs = [(record["who"], record["n"]) for file in tmp_path.iterdir() for record in read_records(file)]
    assert sorted(pairs) == [(number, n) for number in range(4) for n in range(200)]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no file be renamed that this process has open, as Windows does."""
    rename = Path.rename

    def rename_closed(path: Path, target: Path) -> Path:
        if path.exists() and any(file.resolve() == path for file in Path("/proc/self/fd").iterdir()):
            raise PermissionError(13, "The process cannot access the file")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_closed)
    monkeypatch.setattr(Path, "replace", rename_closed)
    monkeypatch.setattr(records, "sys", SimpleNamespace(platform="win32"))


def numbers_in(path: Path, numbers: Iterable[int]) -> list[int]:
    """Returns what the records of these older files (0: of the current one) say, from the oldest on."""
    files = [path.with_name(f"{path.name}.{number}") if number else path for number in numbers]
    return [record["n"] for file in files if file.exists() for record in read_records(file)]


@pytest.mark.usefixtures("windows")
def test_on_windows_two_hubs_rotate_one_log_file_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    hubs = [RecordFile(path, max_size=200, kept=100) for _ in range(2)]
    for n in range(100):
        hubs[n % 2].write(b'{"n":%d}\n' % n)
    assert numbers_in(path, range(100, -1, -1)) == list(range(100))
    assert path.stat().st_size <= 200


@pytest.mark.usefixtures("windows")
def test_on_windows_a_log_file_that_somebody_holds_open_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    file = RecordFile(path, max_size=100, kept=3)
    for n in range(50):
        file.write(b'{"n":%d}\n' % n)
    older = {p: p.read_bytes() for p in tmp_path.iterdir() if p != path}
    assert len(older) == 3
    with path.open("rb"):
        for n in range(50, 80):
            file.write(b'{"n":%d}\n' % n)
        assert {p: p.read_bytes() for p in tmp_path.iterdir() if p != path} == older
    file.write(b'{"n":80}\n')
    numbers = numbers_in(path, (3, 2, 1, 0))
    assert numbers == list(range(numbers[0], 81))
    assert numbers_in(path, (0,)) == [80]


def test_a_moved_log_file_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with RecordWriter(path, stderr=False) as records:
        for n in range(3):
            records.write({"n": n})
            assert records.flush(PATIENCE)
            path.rename(tmp_path / f"moved{n}")
    assert [read_records(tmp_path / f"moved{n}") for n in range(3)] == [[{"n": 0}], [{"n": 1}], [{"n": 2}]]


TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"


def test_an_unwritable_log_file_causes_one_warning_and_missing_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.mkdir()
    with stderr_as_pipe() as pipe, RecordWriter(path, stderr=False) as records:
        for n in range(3):
            records.write({"n": n})
            assert records.flush(PATIENCE)
        output = os.read(pipe, 65536).decode()
        path.rmdir()
        records.write({"n": 3})
    assert re.fullmatch(rf"mcp-hub: {TIME} warning: the call log .*calls\.jsonl cannot be written: .+\n", output)
    gap, record = read_records(path)
    assert (gap["event"], gap["count"]) == ("dropped", 3)
    assert record == {"n": 3}


@pytest.mark.parametrize("stderr", [True, False])
def test_an_unread_stderr_blocks_neither_the_caller_nor_the_file(tmp_path: Path, stderr: bool) -> None:
    path = tmp_path / "calls.jsonl"
    total = 2000
    with stderr_as_pipe() as pipe, RecordWriter(path, stderr=stderr, max_waiting=100_000) as records:
        for n in range(total):
            records.write({"n": n, "x": "." * 100})
            records.line("mcp-hub: warning: " + "." * 100)
            while not n % 500 and not (path.exists() and b'{"n":%d,' % n in path.read_bytes()):
                records.flush(0.01)  # the file keeps up although stderr does not
        assert not records.flush(0)
        data = b""
        while not records.flush(0.01):
            if select.select([pipe], [], [], 0)[0]:
                data += os.read(pipe, 65536)
        records.write({"n": "last"})
        records.line("the last line")
        while b"the last line" not in data:
            data += os.read(pipe, 65536)
    assert [record["n"] for record in read_records(path) if "n" in record] == [*range(total), "last"]
    lines = data.decode().splitlines()
    if stderr:
        gaps = sum(json.loads(line)["count"] for line in lines if '"event":"dropped"' in line)
        assert gaps + sum('"dropped"' not in line for line in lines) == 2 * total + 2
    else:
        gaps = sum(int(line.split()[5].replace(",", "")) for line in lines if "were left out" in line)
        assert gaps + sum("were left out" not in line for line in lines) == total + 1
    assert gaps > 0


def test_a_log_line_is_not_dropped_with_records_while_stderr_is_unread(tmp_path: Path) -> None:
    with stderr_as_pipe() as pipe, RecordWriter(None, stderr=True, max_waiting=100_000) as records:
        for n in range(5000):
            records.write({"n": n, "x": "." * 100})
        records.line("loaded again")
        for n in range(5000):
            records.write({"n": n, "x": "." * 100})
        data = b""
        while not records.flush(0.01):
            if select.select([pipe], [], [], 0)[0]:
                data += os.read(pipe, 65536)
        data += os.read(pipe, 65536)
    assert b'"event":"dropped"' in data
    assert b"\nloaded again\n" in data


PROGRAM = """
import sys
from pathlib import Path
from mcp_hub.observability import records
from mcp_hub.observability.records import RecordFile, RecordWriter
records = RecordWriter(Path(sys.argv[1]), stderr=True)
for n in range(5000):
    records.write({"n": n, "x": "." * 200})
records.close()
print("done", flush=True)
"""


def test_a_process_with_an_unread_stderr_can_exit(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    read_end, write_end = os.pipe()
    try:
        completed = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, stderr=write_end, timeout=PATIENCE
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert (completed.returncode, completed.stdout) == (0, b"done\n")
    assert [record["n"] for record in read_records(path)] == list(range(5000))


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2>/dev/null"])
def test_a_process_with_an_unusable_stderr_still_writes_records_to_the_file(tmp_path: Path, redirection: str) -> None:
    path = tmp_path / "calls.jsonl"
    argv = ["/bin/sh", "-c", f'exec "$0" -c "$1" "$2" {redirection}', sys.executable, PROGRAM, str(path)]
    completed = subprocess.run(argv, stdout=subprocess.PIPE, timeout=PATIENCE)
    assert (completed.returncode, completed.stdout) == (0, b"done\n")
    assert len(read_records(path)) == 5000


def test_a_record_that_json_cannot_express_is_still_recorded(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with RecordWriter(path, stderr=False) as records:
        records.write({"event": "call", "odd": object()})
        records.write({"n": 1})
    assert [record.get("event") for record in read_records(path)] == ["call", None]


def test_a_record_at_a_terminal_is_one_readable_line() -> None:
    ours, theirs = pty.openpty()
    program = (
        "from mcp_hub.observability.records import RecordWriter\n"
        "with RecordWriter(None, stderr=True) as records:\n"
        "    records.write({'event': 'call', 'time': '2026-01-02T03:04:05.678Z', 'method': 'tools/call',"
        " 'name': 'up__echo', 'upstream': 'up', 'tool': 'e\\x1b', 'verdict': 'error', 'code': 'timeout',"
        " 'duration_ms': 12.5})\n"
    )
    environment = {**os.environ, "TZ": "UTC-1"}
    subprocess.run([sys.executable, "-c", program], stderr=theirs, timeout=PATIENCE, check=True, env=environment)
    os.close(theirs)
    line = os.read(ours, 65536).decode()
    os.close(ours)
    assert line == "04:04:05 +0100 tools/call up__echo -> up/e\\x1b error (timeout) 12.5 ms\r\n"
