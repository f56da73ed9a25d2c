from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.dependencies.environments import Maker


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    directory = tmp_path_factory.mktemp("environments")
    yield Maker(directory)
    shutil.rmtree(directory)
