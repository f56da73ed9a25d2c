"""What the hub asks of Windows for each child, in which order, and what it does where Windows refuses."""

from __future__ import annotations

import ctypes
import logging

import pytest

from mcp_hub.transport.job_object import BasicLimits, ExtendedLimits, JobObject, limit_own_memory

PID = 4711


class Recorded:
    """A fake of Windows that records each call, and refuses the functions in `refused`."""

    def __init__(self, *refused: str) -> None:
        self.calls: list[str] = []
        self._refused = refused
        self._handles: set[int] = set()

    def _ask(self, function_name: str) -> None:
        self.calls.append(function_name)
        if function_name in self._refused:
            raise OSError(f"{function_name} is refused")

    def _handle(self, number: int) -> int:
        self._handles.add(number)
        return number

    @property
    def is_closed(self) -> bool:
        """Whether all handles are closed, each of them once."""
        return not self._handles

    def create(self, memory: int | None = None) -> int:
        self._ask("create" if memory is None else f"create for {memory}")
        return self._handle(1)

    def open(self, pid: int) -> int:
        assert pid == PID
        self._ask("open")
        return self._handle(2)

    def assign(self, job: int, process: int) -> None:
        assert (job, process) == (1, 2)
        self._ask("assign")

    def resume(self, process: int) -> None:
        assert process == 2
        self._ask("resume")

    def terminate(self, job: int) -> None:
        assert job == 1
        self._ask("terminate")

    def close(self, handle: int) -> None:
        self._handles.remove(handle)


def test_a_child_is_assigned_to_its_job_before_it_runs() -> None:
    windows = Recorded()
    job = JobObject(PID, windows)
    assert windows.calls == ["open", "create", "assign", "resume"]
    assert job.terminate()
    job.close()
    job.close()
    assert windows.is_closed


def test_a_process_puts_itself_into_a_job_that_limits_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Recorded()
    monkeypatch.setattr("os.getpid", lambda: PID)
    limit_own_memory(1000, windows)
    assert windows.calls == ["open", "create for 1000", "assign"]
    assert not windows.is_closed  # the job stays until the process ends


@pytest.mark.parametrize("refused", ["create", "assign"])
def test_a_child_without_a_job_object_still_runs(refused: str, caplog: pytest.LogCaptureFixture) -> None:
    windows = Recorded(refused)
    with caplog.at_level(logging.WARNING, "mcp_hub.transport"):
        job = JobObject(PID, windows)
    assert windows.calls[-1] == "resume"
    assert "Job Object" in caplog.text
    assert not job.terminate()
    assert windows.is_closed


@pytest.mark.parametrize("refused", ["open", "resume"])
def test_a_child_that_cannot_be_resumed_is_an_error_and_leaks_no_handle(refused: str) -> None:
    windows = Recorded(refused)
    with pytest.raises(OSError, match=refused):
        JobObject(PID, windows)
    assert windows.is_closed


def test_a_job_that_cannot_be_terminated_is_reported() -> None:
    assert not JobObject(PID, Recorded("terminate")).terminate()


def test_the_structures_have_the_sizes_of_windows_with_64_bits() -> None:
    assert (ctypes.sizeof(BasicLimits), ctypes.sizeof(ExtendedLimits)) == (64, 144)
    assert ExtendedLimits.io_counters.offset == 64
    assert BasicLimits.flags.offset == 16
