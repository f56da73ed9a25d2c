"""Job Objects of Windows: when one is closed, or the process that holds it ends, all processes in it are ended."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from typing import Final, Protocol

log = logging.getLogger("mcp_hub.transport")

CREATE_SUSPENDED: Final = 0x00000004
"""Flag of a new process: it runs nothing until it is resumed."""
_EXTENDED_LIMITS: Final = 9
_KILL_ON_CLOSE: Final = 0x00002000
_PROCESS_MEMORY: Final = 0x00000100
_ACCESS: Final = 0x0001 | 0x0100 | 0x0800
"""PROCESS_TERMINATE, PROCESS_SET_QUOTA, PROCESS_SUSPEND_RESUME."""


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class System(Protocol):
    """The calls to Windows. Every method but `close` raises OSError."""

    def create(self, memory: int | None = None) -> int:
        """Returns a handle of a new job that ends its processes when its last handle is closed.

        `memory` is the most bytes that each of them may take.
        """

    def open(self, pid: int) -> int:
        """Returns a handle of a process."""

    def assign(self, job: int, process: int) -> None:
        """Puts a process in a job, and with it every process that it starts."""

    def resume(self, process: int) -> None:
        """Lets a suspended process run."""

    def terminate(self, job: int) -> None:
        """Ends every process in a job."""

    def close(self, handle: int) -> None:
        """Closes a handle."""


class JobObject:
    """The job of one child, which it resumes. Raises OSError if the child cannot be resumed.

    The child was started suspended, so it cannot have started a process outside of the job. If no job can be made, as
    in some sandboxes, the child runs without one and a warning is logged.
    """

    def __init__(self, pid: int, system: System | None = None) -> None:
        self._system = system or _windows()
        self._handle: int | None = None
        process = self._system.open(pid)
        try:
            try:
                self._handle = self._system.create()
                self._system.assign(self._handle, process)
            except OSError as error:
                self.close()
                log.warning("process %d gets no Job Object (%s); what it starts may outlive it", pid, error)
            self._system.resume(process)
        except OSError:
            self.close()
            raise
        finally:
            self._system.close(process)

    def terminate(self) -> bool:
        """Ends the child and all that it has started; returns False if there is no job to do it with."""
        if self._handle is None:
            return False
        try:
            self._system.terminate(self._handle)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Closes the job, which ends whatever still runs in it. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._system.close(handle)


def limit_own_memory(limit: int, system: System | None = None) -> None:
    """Puts this process into a job, until it ends: it and each process that it starts get at most `limit` bytes.

    Raises OSError.
    """
    system = system or _windows()
    process = system.open(os.getpid())
    try:
        system.assign(system.create(limit), process)
    finally:
        system.close(process)


def _windows() -> System:
    if sys.platform != "win32":
        raise OSError("there are no Job Objects on this system")
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    native = ctypes.WinDLL("ntdll")
    handle, flag = ctypes.c_void_p, ctypes.c_int
    kernel.CreateJobObjectW.argtypes, kernel.CreateJobObjectW.restype = (handle, ctypes.c_wchar_p), handle
    kernel.SetInformationJobObject.argtypes = (handle, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
    kernel.OpenProcess.argtypes, kernel.OpenProcess.restype = (ctypes.c_uint32, flag, ctypes.c_uint32), handle
    kernel.AssignProcessToJobObject.argtypes = (handle, handle)
    kernel.TerminateJobObject.argtypes = (handle, ctypes.c_uint32)
    kernel.CloseHandle.argtypes = (handle,)
    native.NtResumeProcess.argtypes, native.NtResumeProcess.restype = (handle,), ctypes.c_int32

    def checked(result: int | None) -> int:
        if not result:
            raise ctypes.WinError(ctypes.get_last_error())
        return result

    class Windows:
        def create(self, memory: int | None = None) -> int:
            job = checked(kernel.CreateJobObjectW(None, None))
            limits = ExtendedLimits()
            limits.basic.flags = _KILL_ON_CLOSE if memory is None else _KILL_ON_CLOSE | _PROCESS_MEMORY
            limits.process_memory = memory or 0
            try:
                size = ctypes.sizeof(limits)
                checked(kernel.SetInformationJobObject(job, _EXTENDED_LIMITS, ctypes.byref(limits), size))
            except OSError:
                self.close(job)
                raise
            return job

        def open(self, pid: int) -> int:
            return checked(kernel.OpenProcess(_ACCESS, False, pid))

        def assign(self, job: int, process: int) -> None:
            checked(kernel.AssignProcessToJobObject(job, process))

        def resume(self, process: int) -> None:
            if (status := native.NtResumeProcess(process)) < 0:
                raise OSError(f"NtResumeProcess failed with status {status & 0xFFFFFFFF:#010x}")

        def terminate(self, job: int) -> None:
            checked(kernel.TerminateJobObject(job, 1))

        def close(self, handle: int) -> None:
            kernel.CloseHandle(handle)

    return Windows()
