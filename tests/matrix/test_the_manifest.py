"""Each feature of the manifest is shown by a test in every cell, and no test shows one that is not there."""

from __future__ import annotations

import inspect
from itertools import product

import pytest

from tests.matrix import (
    features,
    test_every_feature_over_http,
    test_every_feature_over_sse,
    test_every_feature_over_stdio,
)
from tests.matrix.cells import ERAS, SERVERS, TRANSPORTS

MODULES = {
    "http": test_every_feature_over_http,
    "sse": test_every_feature_over_sse,
    "stdio": test_every_feature_over_stdio,
}


def feature_tests() -> dict[str, list[str]]:
    """Feature -> the tests that show it."""
    tests_by_feature: dict[str, list[str]] = {}
    for name, test in inspect.getmembers(features, inspect.isfunction):
        for mark in getattr(test, "pytestmark", []):
            if mark.name == "shows":
                for feature in mark.args:
                    tests_by_feature.setdefault(feature, []).append(name)
    return tests_by_feature


@pytest.mark.parametrize("feature", features.FEATURES)
def test_every_feature_is_shown_by_a_test(feature: str) -> None:
    assert feature_tests().get(feature), f"no test shows that {features.FEATURES[feature]}"


def test_every_test_shows_a_feature_of_the_manifest() -> None:
    tests = {name for name, _ in inspect.getmembers(features, inspect.isfunction) if name.startswith("test_")}
    assert {name for names in feature_tests().values() for name in names} == tests
    assert set(feature_tests()) <= set(features.FEATURES)


def test_every_test_runs_in_every_cell() -> None:
    assert set(MODULES) == set(TRANSPORTS)
    assert set(SERVERS) == set(product(TRANSPORTS, ERAS))
    for module in MODULES.values():
        tests = {name for name in vars(features) if name.startswith("test_")}
        assert tests <= set(vars(module))
        assert all("cell" in inspect.signature(getattr(module, name)).parameters for name in tests)
