"""What several tests of the built-in servers start from."""

from pathlib import Path

import pytest

from tests.servers.builtins.file_tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
