"""The command line of a process on Windows, where a program gets one text and parses its arguments itself."""

from __future__ import annotations

import errno
import ntpath
import string
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

BATCH: Final = (".bat", ".cmd")
"""Suffixes of files that Windows gives to cmd.exe, such as `npx.cmd`."""
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + r"#$*+-./:?@\_")
"""ASCII characters that neither cmd.exe nor a program reads in another way outside of quotes."""
_CUT: Final = "%%cd:~,%"
"""A percent sign, then a variable that expands to nothing, so that no text between two percent signs is a variable."""
_IMPOSSIBLE: Final = frozenset("\0\r\n")
"""Characters that end a command of cmd.exe and cannot be quoted."""


def command_line(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Returns the program that Windows starts for `argv`, and its command line. `argv[0]` is an absolute path.

    Windows runs a batch file by cmd.exe, which reads `&`, `|`, `%` and quotes in its own way: with the usual quoting
    an argument could run another command. So cmd.exe is started explicitly, and the arguments are quoted for it: with
    extensions (`/e:ON`, which the treatment of `%` needs), without delayed expansion of `!` (`/v:OFF`) and without
    AutoRun (`/d`).

    Raises:
        OSError: an argument of a batch file cannot be passed on.
    """
    if not is_batch_file(argv[0]):
        return argv[0], subprocess.list2cmdline(argv)
    if '"' in argv[0] or any(_IMPOSSIBLE & set(argument) for argument in argv):
        raise OSError(errno.EINVAL, "an argument of a .cmd or .bat file cannot hold a line break or a NUL")
    folder = next((value for name, value in environ.items() if name.upper() == "SYSTEMROOT"), r"C:\Windows")
    arguments = [f'"{argv[0].replace("%", _CUT)}"', *map(_quote, argv[1:])]
    return ntpath.join(folder, "System32", "cmd.exe"), f'cmd.exe /e:ON /v:OFF /d /c "{" ".join(arguments)}"'


def is_batch_file(program: str) -> bool:
    """Returns whether Windows gives a file to cmd.exe. It ignores dots and spaces at the end of a name."""
    return program.rstrip(". ").lower().endswith(BATCH)


def _quote(argument: str) -> str:
    """Quotes an argument so that cmd.exe, and then the program it runs, read exactly this text."""
    text, backslashes = "", 0
    for character in argument:
        if character == '"':
            text += "\\" * backslashes + '""'  # backslashes before a quote must be doubled
        else:
            text += _CUT if character == "%" else character
        backslashes = backslashes + 1 if character == "\\" else 0
    if argument and backslashes == 0 and all(char in _PLAIN or ord(char) > 0x9F for char in argument):
        return text
    return f'"{text}{chr(92) * backslashes}"'
