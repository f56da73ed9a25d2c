"""Skills in the merged catalog: who is served under which URI, and that their files lead to their server."""

from typing import Any

import pytest

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.protocol.kinds import RESOURCES, SKILLS
from tests.catalog.test_catalog import page

NOTES = "skill://pdf/notes.md"
URI = "skill://pdf/SKILL.md"
PREFIX = "mcp-hub://b/"


def entry(*files: str, uri: str = URI) -> dict[str, Any]:
    frontmatter = {"name": uri.split("/")[-2], "description": "What it is for."}
    listed = [{"uri": file, "digest": f"sha256:{'0' * 64}", "size": 1} for file in (uri, *files)]
    return {"uri": uri, "frontmatter": frontmatter, "resources": listed}


def source(upstream: str, *skills: dict[str, Any], resources: tuple[str, ...] = ()) -> CatalogSource:
    items = [Item(Route(upstream, RESOURCES, uri), uri, {"uri": uri, "name": uri}) for uri in resources]
    items += [Item(Route(upstream, SKILLS, skill["uri"]), skill["uri"], skill) for skill in skills]
    return CatalogSource(upstream, upstream, tuple(items))


def prefixed(skill: dict[str, Any]) -> dict[str, Any]:
    files = [{**file, "uri": PREFIX + file["uri"]} for file in skill["resources"]]
    return {**skill, "uri": PREFIX + skill["uri"], "resources": files}


@pytest.mark.parametrize(
    ("strategy", "served", "severity"),
    [
        ("keep_first", {URI: "a"}, "warning"),
        ("raise", {URI: "a"}, "error"),
        ("override", {URI: "b"}, "warning"),
        ("rename", {URI: "a", PREFIX + URI: "b"}, "warning"),
        ("prefix", {URI: "a", PREFIX + URI: "b"}, "warning"),
    ],
)
def test_on_conflict_decides_which_of_two_equal_skills_is_served(
    strategy: Any, served: dict[str, str], severity: str
) -> None:
    catalog = Catalog.build([source("a", entry(NOTES)), source("b", entry("skill://pdf/own.md"))], strategy)
    assert {uri: catalog.resolve(SKILLS, uri) for uri in catalog.names(SKILLS)} == {
        uri: Route(upstream, SKILLS, URI) for uri, upstream in served.items()
    }
    assert [finding.severity for finding in catalog.findings] == [severity]
    for uri in catalog.names(SKILLS):
        skill = catalog.entry(SKILLS, uri)
        assert skill is not None
        for file in skill["resources"]:
            assert catalog.resolve(RESOURCES, file["uri"]) == Route(
                served[uri], RESOURCES, file["uri"].removeprefix(PREFIX)
            )


@pytest.mark.parametrize("listed", [True, False])
def test_all_files_of_a_skill_are_prefixed_if_one_needs_a_prefix(listed: bool) -> None:
    first = source("a", resources=(NOTES,))
    skill = entry(NOTES, "skill://pdf/own.md")
    catalog = Catalog.build([first, source("b", skill, resources=(URI, NOTES) if listed else ())])
    assert catalog.names(SKILLS) == (PREFIX + URI,)
    assert catalog.entry(SKILLS, PREFIX + URI) == prefixed(skill)
    assert catalog.resolve(RESOURCES, PREFIX + "skill://pdf/own.md") == Route("b", RESOURCES, "skill://pdf/own.md")
    assert catalog.resolve(RESOURCES, NOTES) == Route("a", RESOURCES, NOTES)


def test_a_file_that_only_a_manifest_names_belongs_to_the_first_server_that_has_it() -> None:
    catalog = Catalog.build([source("a", entry(NOTES)), source("b", resources=(NOTES, "skill://pdf/other.md"))])
    assert catalog.resolve(RESOURCES, NOTES) == Route("a", RESOURCES, NOTES)
    assert catalog.names(RESOURCES) == (PREFIX + NOTES, "skill://pdf/other.md")


def test_a_skill_is_listed_unchanged_and_not_as_a_resource() -> None:
    skill = {**entry(NOTES), "_meta": {"x/y": 1}, "unknown": [None]}
    catalog = Catalog.build([source("a", skill)])
    assert page(catalog, SKILLS, modern=True)["skills"] == [skill]
    assert catalog.names(RESOURCES) == ()
    assert catalog.resolve(SKILLS, NOTES) == Route("a", SKILLS, NOTES)  # its server says whether that is one
    assert catalog.resolve(SKILLS, "skill://none/SKILL.md") is None


def test_a_dynamic_skill_has_its_one_file() -> None:
    skill = {**entry(), "resources": "dynamic"}
    catalog = Catalog.build([source("a", resources=(URI,)), source("b", skill)])
    assert catalog.entry(SKILLS, PREFIX + URI) == {**skill, "uri": PREFIX + URI}
    assert catalog.resolve(RESOURCES, PREFIX + URI) == Route("b", RESOURCES, URI)


def test_a_skills_uri_that_looks_like_one_of_the_hubs_is_prefixed() -> None:
    posing = entry(uri="mcp-hub://a/skill://pdf/SKILL.md")
    catalog = Catalog.build([source("b", posing)])
    assert catalog.names(SKILLS) == (PREFIX + posing["uri"],)


def test_an_unchanged_skill_is_not_made_again() -> None:
    sources = [source("a", entry(NOTES))]
    before = Catalog.build(sources)
    after = Catalog.build(sources, like=before)
    assert after.entry(SKILLS, URI) is before.entry(SKILLS, URI)
    assert after.fingerprint == before.fingerprint
