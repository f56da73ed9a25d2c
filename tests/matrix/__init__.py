"""Every client, every server, and the hub in between."""

import pytest

pytest.register_assert_rewrite("tests.matrix.features", "tests.matrix.cells")
