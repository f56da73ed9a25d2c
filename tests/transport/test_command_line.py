"""Command lines of Windows, read back as cmd.exe and as programs there read them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.transport.child_process import command_line, is_batch_file

NPX = r"C:\Program Files\nodejs\npx.cmd"
VARIABLES = {"PATH": r"C:\secret", "USERNAME": "me", "cd": r"C:\here"}
"""The values that cmd.exe would substitute for %PATH%, %USERNAME% and %cd%."""
ARGUMENT_LISTS = st.lists(
    st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=("Cs",)), max_size=30), max_size=5
)


def batch(*args: str) -> str:
    """Returns what cmd.exe reads behind /c."""
    program, line = command_line([NPX, *args], {"SystemRoot": r"D:\Windows"})
    assert program == r"D:\Windows\System32\cmd.exe"
    head = 'cmd.exe /e:ON /v:OFF /d /c "'
    assert line.startswith(head)
    assert line.endswith('"')
    return line[len(head) : -1]


def expanded(text: str) -> str:
    """Expands variables as cmd.exe does on a command line: of an unknown one nothing is changed."""
    result = ""
    while text:
        name = re.match(r"%([^%:]+)(:~[^%]*)?%", text)
        if name is not None and name[1] in VARIABLES:
            result += "" if name[2] == ":~," else VARIABLES[name[1]]
            text = text[name.end() :]
        else:
            result, text = result + text[0], text[1:]
    return result


def bare(text: str) -> str:
    """Returns what cmd.exe sees outside of quotes, where &, |, <, >, ^ and parentheses mean something to it."""
    return "".join(text.split('"')[::2])


def arguments(line: str) -> list[str]:
    """Parses a command line as programs of Microsoft's C runtime do (two quotes in quotes are one)."""
    argv: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
            continue
        argument, quoted = "", False
        while at < len(line) and (quoted or line[at] not in " \t"):
            backslashes = re.match(r"\\*", line[at:])[0]  # type: ignore[index]
            at += len(backslashes)
            if line[at : at + 1] != '"':
                argument += backslashes
                if not backslashes:
                    argument, at = argument + line[at], at + 1
                continue
            argument += "\\" * (len(backslashes) // 2)
            if len(backslashes) % 2:
                argument, at = argument + '"', at + 1
            elif quoted and line[at : at + 2] == '""':
                argument, at = argument + '"', at + 2
            else:
                quoted, at = not quoted, at + 1
        argv.append(argument)
    return argv


@given(ARGUMENT_LISTS)
@example(["%PATH%"])
@example(["%%PATH%%", "%", "a%PATH", "%b"])
@example(['"&calc.exe&"'])
@example(["a\\", '\\"', "\\\\"])
@example([""])
@example(["!PATH!", "^", "(x)", "a&b|c<d>e"])
def test_a_batch_file_gets_its_arguments_unchanged(args: list[str]) -> None:
    read = expanded(batch(*args))
    assert arguments(read) == [NPX, *args]
    assert not set(bare(read)) & set("&|<>^()")


@given(ARGUMENT_LISTS)
def test_a_program_gets_its_arguments_unchanged(args: list[str]) -> None:
    program = r"C:\Program Files\nodejs\node.exe"
    started, line = command_line([program, *args], {})
    assert started == program
    assert arguments(line) == [program, *args]


@pytest.mark.parametrize("name", ["npx.cmd", "NPX.CMD", "run.bat", "run.bat. ", "run.Bat..."])
def test_batch_files_are_recognised_by_every_form_of_their_name(name: str) -> None:
    assert is_batch_file(rf"C:\tools\{name}")


@pytest.mark.parametrize("name", ["node.exe", "cmd.exe", "npx", "a.cmd.exe", "batch"])
def test_programs_are_not_recognised_as_batch_files(name: str) -> None:
    assert not is_batch_file(rf"C:\tools\{name}")


@pytest.mark.parametrize("argv", [[NPX, "a\nb"], [NPX, "a\rb"], [NPX, "a\0b"], ['C:\\a".cmd', "b"]])
def test_arguments_that_a_batch_file_cannot_receive_are_refused(argv: Sequence[str]) -> None:
    with pytest.raises(OSError, match="line break"):
        command_line(argv, {})
