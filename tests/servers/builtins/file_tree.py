"""A directory with roots for the file tools, and the code of what they refuse."""

from pathlib import Path

import pytest

from mcp_hub.servers.builtin.files import Files, Roots
from mcp_hub.servers.local.tool_results import ToolRefused

SECRET = "what is outside"


class Tree:
    """Three roots of the usual names in one directory, and beside them what nobody may reach."""

    def __init__(self, directory: Path) -> None:
        self.outside = directory / "outside"
        self.user, self.work, self.internal = (directory / name for name in ("user", "work", "internal"))
        for folder in (self.outside, self.user, self.work, self.internal):
            folder.mkdir(parents=True)
        (self.outside / "secret.txt").write_text(SECRET)
        (self.user / "given.txt").write_text("given\n")
        (self.work / "notes.txt").write_text("one\ntwo\nthree\n")
        (self.work / "sub").mkdir()
        (self.work / "sub" / "deep.txt").write_text("deep\n")
        roots = (
            ("/userinput/", self.user, "ro"),
            ("/workspace/", self.work, "rw"),
            ("/internal/", self.internal, "hidden"),
        )
        self.files = Files(Roots([(at, str(path), mode) for at, path, mode in roots]))

    def untouched(self) -> bool:
        """Whether everything outside is as it was."""
        return [path.name for path in self.outside.iterdir()] == ["secret.txt"] and (
            self.outside / "secret.txt"
        ).read_text() == SECRET


def refusal(act: object, *arguments: object, **named: object) -> str:
    """The code of what is refused."""
    with pytest.raises(ToolRefused) as caught:
        act(*arguments, **named)  # type: ignore[operator]
    assert SECRET not in caught.value.message
    return caught.value.code
