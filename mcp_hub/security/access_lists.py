"""Reads access control lists of Windows in their text form (SDDL): which users may read or change a file."""

from __future__ import annotations

import re
import sys
from typing import Final

WRITE: Final = 0x2 | 0x4 | 0x40 | 0x10000 | 0x40000 | 0x80000 | 0x10000000 | 0x40000000
"""Rights to write, append (in a directory: add files), delete, delete files inside, or change these rights."""
REPLACE: Final = 0x40 | 0x10000 | 0x40000 | 0x80000 | 0x10000000
"""Rights to replace a directory by another one, or a file inside of it."""
READ: Final = 0x1 | 0x10000000 | 0x80000000

_RIGHTS: Final = {
    "CC": 0x1, "DC": 0x2, "LC": 0x4, "SW": 0x8, "RP": 0x10, "WP": 0x20, "DT": 0x40, "LO": 0x80, "CR": 0x100,
    "SD": 0x10000, "RC": 0x20000, "WD": 0x40000, "WO": 0x80000,
    "GA": 0x10000000, "GX": 0x20000000, "GW": 0x40000000, "GR": 0x80000000,
    "FA": 0x1F01FF, "FR": 0x120089, "FW": 0x120116, "FX": 0x1200A0,
}  # fmt: skip
_OTHER_GROUPS: Final = {
    "WD": "Everyone", "S-1-1-0": "Everyone",
    "AN": "anonymous users", "S-1-5-7": "anonymous users",
    "AU": "every user who has signed in", "S-1-5-11": "every user who has signed in",
    "IU": "every user at the machine", "S-1-5-4": "every user at the machine",
    "NU": "every user of the network", "S-1-5-2": "every user of the network",
    "BU": "every user of this machine", "S-1-5-32-545": "every user of this machine",
    "BG": "guests", "S-1-5-32-546": "guests",
    "DU": "every user of the domain", "DG": "guests of the domain",
    "AC": "every application package", "S-1-15-2-1": "every application package",
}  # fmt: skip
"""Groups with users other than this one, the administrators and the system."""
_GRANTS: Final = {"A", "OA", "XA"}
_ENTRY: Final = re.compile(r"\(([^;()]*);([^;()]*);([^;()]*);[^;()]*;[^;()]*;([^;()]*)[^()]*(?:\([^()]*\)[^()]*)*\)")
_LIST: Final = re.compile(r"D:([A-Z_]*)((?:\(.*?\))*)(?=S:|$)", re.DOTALL)


def others_with(access_list: str, rights: int) -> tuple[str, ...]:
    """Returns the groups of other users to whom a list grants one of the rights. Ignores denials."""
    match = _LIST.search(access_list)
    if match is None:
        return ()  # a file system without access control
    if "NO_ACCESS_CONTROL" in match[1]:
        return ("Everyone",)
    names = [
        _OTHER_GROUPS[trustee]
        for kind, flags, granted, trustee in _ENTRY.findall(match[2])
        if kind in _GRANTS
        and "IO" not in re.findall("..", flags)
        and trustee in _OTHER_GROUPS
        and _mask(granted) & rights
    ]
    return tuple(dict.fromkeys(names))


def _mask(text: str) -> int:
    if text[:1].isdigit():
        return int(text, 0)
    mask = 0
    for name in re.findall("..", text):
        mask |= _RIGHTS.get(name, 0)
    return mask


def access_list(path: str) -> str | None:
    """Returns the access control list of a file or directory; None if it cannot be read, as on other systems."""
    if sys.platform != "win32":
        return None
    import ctypes

    security, kernel = ctypes.WinDLL("advapi32"), ctypes.WinDLL("kernel32")
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    named, as_text = security.GetNamedSecurityInfoW, security.ConvertSecurityDescriptorToStringSecurityDescriptorW
    named.argtypes = (ctypes.c_wchar_p, ctypes.c_int, number, *[ctypes.POINTER(pointer)] * 5)
    as_text.argtypes = (pointer, number, number, ctypes.POINTER(pointer), ctypes.POINTER(number))
    kernel.LocalFree.argtypes, kernel.LocalFree.restype = (pointer,), pointer
    descriptor, text, file, list_only = pointer(), pointer(), 1, 4
    if named(path, file, list_only, None, None, None, None, ctypes.byref(descriptor)) != 0:
        return None
    try:
        if not as_text(descriptor, 1, list_only, ctypes.byref(text), None) or not text.value:
            return None
        try:
            return ctypes.wstring_at(text.value)
        finally:
            kernel.LocalFree(text)
    finally:
        kernel.LocalFree(descriptor)
