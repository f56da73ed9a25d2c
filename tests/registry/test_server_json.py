"""What a server.json becomes, and what of it is refused."""

from typing import Any

import pytest

from mcp_hub.registry import Listing, Package, RegistryError, inputs_of
from mcp_hub.registry.launch import check_values, entry_of, missing_inputs
from mcp_hub.registry.server_json import read_answer
from tests.registry.loopback import answer, listing, npm


def read(**fields: Any) -> Listing:
    return read_answer(answer(listing("io.github.o/s", **fields)), "a registry")


def entry(package: dict[str, Any], **values: str) -> dict[str, Any]:
    parsed = read(packages=[package])
    assert parsed.refused == ()
    return entry_of(parsed.offers[0], values)


def refusal(package: dict[str, Any]) -> str:
    parsed = read(packages=[package])
    assert parsed.offers == ()
    return parsed.refused[0]


def package(kind: str, identifier: str, version: str | None = "1.2.3", **fields: Any) -> dict[str, Any]:
    base = {"registryType": kind, "identifier": identifier, "transport": {"type": "stdio"}, **fields}
    return base | ({"version": version} if version is not None else {})


def test_each_kind_of_package_is_started_by_its_launcher_at_its_version() -> None:
    assert entry(npm("@scope/name", "1.2.3")) == {"command": "npx", "args": ["-y", "@scope/name@1.2.3"]}
    assert entry(package("pypi", "weather-mcp")) == {"command": "uvx", "args": ["weather-mcp@1.2.3"]}
    assert entry(package("nuget", "Knapcode.Sample")) == {"command": "dnx", "args": ["Knapcode.Sample@1.2.3", "--yes"]}
    run = ["run", "-i", "--rm"]
    assert entry(package("oci", "docker.io/o/s")) == {"command": "docker", "args": [*run, "docker.io/o/s:1.2.3"]}
    assert entry(package("oci", "ghcr.io/o/s:v2", None))["args"] == [*run, "ghcr.io/o/s:v2"]
    digest = f"sha256:{'a' * 64}"
    assert entry(package("oci", f"ghcr.io/o/s:v2@{digest}", None))["args"] == [*run, f"ghcr.io/o/s@{digest}"]
    assert entry(package("oci", "localhost:5000/o/s:v2", None))["args"] == [*run, "localhost:5000/o/s:v2"]


def test_arguments_are_words_and_flags_in_their_order() -> None:
    arguments = [
        {"type": "positional", "value": "start"},
        {"type": "named", "name": "--mode", "default": "local", "choices": ["local", "proxy"]},
        {"type": "named", "name": "--port", "description": "Port", "format": "number"},
        {"type": "named", "name": "--quiet"},
        {"type": "positional", "valueHint": "directory", "isRequired": True, "isRepeated": True},
    ]
    command_line = entry(npm(packageArguments=arguments), directory="/a b\n/c,d")["args"]
    assert command_line == ["-y", "some-server@1.0.0", "start", "--mode", "local", "--quiet", "/a b", "/c,d"]
    command_line = entry(npm(packageArguments=arguments), directory="/a", port="80", mode="proxy")["args"]
    assert command_line[2:] == ["start", "--mode", "proxy", "--port", "80", "--quiet", "/a"]


def test_variables_of_a_value_are_filled_in() -> None:
    mount = {
        "type": "named",
        "name": "--mount",
        "value": "type=bind,src={source_path},dst={target_path}",
        "isRequired": True,
        "variables": {
            "source_path": {"format": "filepath", "isRequired": True},
            "target_path": {"isRequired": True, "default": "/project"},
        },
    }
    raw = package("oci", "mcp/filesystem", runtimeArguments=[mount], packageArguments=[{"value": "/project"}])
    offer = read(packages=[raw]).offers[0]
    assert [field.name for field in missing_inputs(offer, {})] == ["source_path"]
    assert entry_of(offer, {"source_path": "/home/me"})["args"] == [
        *("run", "-i", "--rm", "--mount", "type=bind,src=/home/me,dst=/project", "mcp/filesystem:1.2.3", "/project")
    ]


def test_a_secret_of_a_container_is_passed_outside_its_command_line() -> None:
    variables = [{"name": "API_KEY", "isRequired": True, "isSecret": True}, {"name": "UNUSED"}]
    container = entry(package("oci", "o/s", environmentVariables=variables), API_KEY="k")
    assert container == {
        "command": "docker",
        "args": ["run", "-i", "--rm", "-e", "API_KEY", "o/s:1.2.3"],
        "env": {"API_KEY": "k"},
    }


def test_a_package_is_preferred_to_a_remote_url_and_its_inputs_are_known() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://{tenant}.example.com/mcp",
        "variables": {"tenant": {"isRequired": True}},
    }
    parsed = read(remotes=[{"type": "sse", "url": "https://x.example/sse"}], packages=[npm()])
    assert isinstance(parsed.offers[0], Package)
    parsed = read(remotes=[{**remote, "url": "https://api.example.com/{tenant}/mcp"}])
    assert [field.name for field in inputs_of(parsed.offers[0])] == ["tenant"]
    assert entry_of(parsed.offers[0], {"tenant": "me"})["url"] == "https://api.example.com/me/mcp"
    assert "leaves the host" in read(remotes=[remote]).refused[0]


def test_a_token_within_a_header_is_a_missing_input_and_a_secret() -> None:
    header = {
        "name": "Authorization",
        "value": "Bearer {token}",
        "variables": {"token": {"isRequired": True, "isSecret": True}},
    }
    offer = read(remotes=[{"type": "streamable-http", "url": "https://x.example/mcp", "headers": [header]}]).offers[0]
    assert [(field.name, field.secret) for field in missing_inputs(offer, {})] == [("token", True)]
    assert entry_of(offer, {"token": "${keyring:mcp-hub/x}"}) == {
        "url": "https://x.example/mcp",
        "transport": "http",
        "headers": {"Authorization": "Bearer ${keyring:mcp-hub/x}"},
    }


def test_a_program_with_another_name_than_its_package_is_started_with_from() -> None:
    raw = package(
        "pypi",
        "weather-tools",
        runtimeArguments=[{"type": "named", "name": "--from", "value": "weather-tools==1.2.3"}],
        packageArguments=[{"type": "positional", "value": "weather"}],
    )
    assert entry(raw)["args"] == ["--from", "weather-tools==1.2.3", "weather"]
    raw["runtimeArguments"][0]["value"] = "weather-tools[cli]"
    assert entry(raw)["args"] == ["--from", "weather-tools[cli]==1.2.3", "weather"]
    for other in ("git+https://evil.example/x", "weather-tools==1.2.2", "weather-tools-evil", "weather-tools;evil"):
        raw["runtimeArguments"][0]["value"] = other
        assert "in place of" in refusal(raw)


def test_a_listing_may_add_the_sdk_package_of_its_server() -> None:
    added = [{"type": "named", "name": "--with", "value": "mcp==1.30.0"}]
    assert entry(package("pypi", "old", runtimeArguments=added))["args"] == ["--with", "mcp==1.30.0", "old@1.2.3"]


@pytest.mark.parametrize(
    "identifier",
    [
        "-rf",
        "a;rm -rf /",
        "$(id)",
        "a b",
        "a`id`",
        "../../etc",
        "git+https://x/y",
        "a|b",
        "a&b",
        "a\nb",
        "",
        "@/x",
        "a@latest",
    ],
)
def test_an_identifier_that_no_package_can_have_is_refused(identifier: str) -> None:
    for kind in ("npm", "pypi", "oci", "nuget"):
        if not (kind == "oci" and identifier == "a@latest"):
            assert refusal(package(kind, identifier))


@pytest.mark.parametrize("version", ["latest", "^1.0.0", "~1.2", ">=1", "1.x", "1.*", "", "1;id", "1 || 2", "-1", None])
def test_a_version_that_does_not_name_one_release_is_refused(version: str | None) -> None:
    assert refusal(package("npm", "some-server", version))
    assert refusal(package("oci", "o/s", version))


def test_a_package_index_other_than_the_launchers_is_refused() -> None:
    assert "downloads from" in refusal(npm(registryBaseUrl="https://evil.example"))
    assert entry(npm(registryBaseUrl="https://registry.npmjs.org"))["command"] == "npx"


@pytest.mark.parametrize(
    "text",
    ["${HOME}", "${file:~/.ssh/id_rsa}", "$GITHUB_TOKEN", "{env:AWS_SECRET}", "{file:/etc/passwd}", "os.environ/KEY"],
)
def test_a_listing_cannot_read_this_machine_by_the_hubs_variables(text: str) -> None:
    assert "of this machine" in refusal(npm(packageArguments=[{"type": "positional", "value": text}]))
    assert "of this machine" in refusal(npm(environmentVariables=[{"name": "KEY", "value": text}]))
    header = {"name": "X-Key", "value": text}
    assert read(remotes=[{"type": "sse", "url": "https://x.example/sse", "headers": [header]}]).refused
    # A default of that form is dropped, so that the user is asked.
    offer = read(packages=[npm(environmentVariables=[{"name": "KEY", "isRequired": True, "default": text}])]).offers[0]
    assert [field.name for field in missing_inputs(offer, {})] == ["KEY"]


@pytest.mark.parametrize(
    ("value", "pieces"),
    [
        ("{a}{b}", ("$", "{GITHUB_TOKEN}")),
        ("{a}{b}", ("{en", "v:GITHUB_TOKEN}")),
        ("{a}v:GITHUB_TOKEN}", ("{en", "")),
        ("os.environ{a}GITHUB_TOKEN", ("/", "")),
    ],
)
@pytest.mark.parametrize("how", ["default", "choices"])
def test_a_listing_cannot_make_a_variable_of_the_hub_from_pieces(value: str, pieces: tuple[str, str], how: str) -> None:
    inputs = dict(zip("ab", pieces, strict=True))
    variables = {name: {how: text if how == "default" else [text]} for name, text in inputs.items() if text}
    chosen = inputs if how == "choices" else {}
    fields = {"value": value, "variables": variables}
    for offered in (
        npm(packageArguments=[{"type": "positional", **fields}]),
        npm(environmentVariables=[{"name": "KEY", **fields}]),
    ):
        with pytest.raises(RegistryError):
            entry(offered, **chosen)
    typed = npm(environmentVariables=[{"name": "KEY", "value": "{a}", "variables": {"a": {"isRequired": True}}}])
    assert entry(typed, a="${GITHUB_TOKEN}")["env"] == {"KEY": "${GITHUB_TOKEN}"}  # the user may name a variable


@pytest.mark.parametrize(
    "name",
    ["PATH", "LD_PRELOAD", "NODE_OPTIONS", "npm_config_registry", "UV_INDEX_URL", "PYTHONPATH", "XDG_CONFIG_HOME"],
)
def test_a_listing_cannot_change_how_programs_start(name: str) -> None:
    assert "decides what programs" in refusal(npm(environmentVariables=[{"name": name, "value": "x"}]))
    assert "decides what programs" in refusal(npm(environmentVariables=[{"name": name, "default": "x"}]))
    assert "decides what programs" in refusal(npm(environmentVariables=[{"name": name, "choices": ["x"]}]))
    half = {"name": name, "value": "x{y}", "variables": {"y": {"isRequired": True}}}
    assert "decides what programs" in refusal(npm(environmentVariables=[half]))
    assert entry(npm(environmentVariables=[{"name": name}]), **{name: "y"})["env"] == {name: "y"}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("npm", ["-c", "id"]),
        ("npm", ["--registry=https://evil.example"]),
        ("pypi", ["--index-url", "https://evil.example"]),
        ("pypi", ["--with", "evil"]),
        ("pypi", ["--with", "mcp==1.0,evil"]),
        ("pypi", ["--with=evil"]),
        ("oci", ["-v", "/a=b:/host"]),
        ("oci", ["--mount", "type=bind,SRC=/,dst=/host"]),
        ("oci", ["-v", "~/.ssh:/host"]),
        ("oci", ["--publish", "80:80"]),
        ("oci", ["--privileged"]),
        ("oci", ["--cap-add=ALL"]),
        ("oci", ["-v", "/:/host"]),
        ("oci", ["-v=/:/host"]),
        ("oci", ["--mount", "type=bind,source=/,target=/host"]),
        ("oci", ["--entrypoint", "sh"]),
        ("oci", ["other/image"]),
        ("nuget", ["--source", "https://evil.example"]),
        ("oci", ["--mount", "type=volume,dst=/host,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/"]),
        ("oci", ["--mount", "type=volume,src=data,dst=/data,volume-driver=evil"]),
        ("oci", ["--mount", 'type=bind,"src=/",dst=/host']),
        ("oci", ["--mount", "type=bind,src=data,dst=/host"]),
        ("oci", ["--mount", "src=data,type=bind,dst=/host"]),
        ("oci", ["--network", "host"]),
        ("oci", ["--network=container:db"]),
        ("oci", ["--network", "name=host"]),
        ("oci", ["--add-host", "api.github.com:203.0.113.1"]),
        ("oci", ["-p", "0.0.0.0:80:80"]),
        ("oci", ["-e", "AWS_PROFILE"]),
        ("oci", ["--env-file", "/home/me/.env"]),
        ("oci", ["-itv/:/host"]),
        ("oci", ["-iv", "/:/host"]),
        ("oci", ["--volumes-from", "db"]),
        ("oci", ["--security-opt", "seccomp=unconfined"]),
        ("oci", ["--pull", "always"]),
        ("oci", ["--", "evil/image"]),
        ("oci", ["-"]),
        ("npm", ["evil"]),
        ("npm", ["-p", "evil"]),
        ("npm", ["--yes", "evil"]),
        ("pypi", ["--python", "/tmp/evil"]),
        ("pypi", ["--", "evil"]),
        ("pypi", ["-wevil"]),
        ("nuget", ["--version", "9.9.9"]),
        ("nuget", ["evil"]),
    ],
)
def test_a_listing_cannot_pass_harmful_launcher_options(kind: str, words: list[str]) -> None:
    positional = [{"type": "positional", "value": argument} for argument in words]
    assert "must not set" in refusal(package(kind, "o/s" if kind == "oci" else "name", runtimeArguments=positional))
    if len(words) == 2:
        named = [{"type": "named", "name": words[0], "value": words[1]}]
        assert "must not set" in refusal(package(kind, "o/s" if kind == "oci" else "name", runtimeArguments=named))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("oci", ["--rm", "evil/image"]),
        ("oci", ["-i", "evil/image"]),
        ("oci", ["--init", "evil/image"]),
        ("oci", ["--rm=false"]),
        ("oci", ["-v"]),
        ("oci", ["-e"]),
        ("npm", ["-y", "evil"]),
        ("npm", ["--yes=false"]),
        ("nuget", ["--yes", "evil"]),
        ("pypi", ["--with"]),
        ("pypi", ["--from=evil", "evil"]),
    ],
)
def test_an_option_of_a_launcher_cannot_take_or_lack_a_word_so_that_another_package_runs(
    kind: str, words: list[str]
) -> None:
    positional = [{"type": "positional", "value": argument} for argument in words]
    assert refusal(package(kind, "o/s" if kind == "oci" else "name", runtimeArguments=positional))
    if len(words) == 2:
        named = [{"type": "named", "name": words[0], "value": words[1]}]
        assert refusal(package(kind, "o/s" if kind == "oci" else "name", runtimeArguments=named))


@pytest.mark.parametrize(
    "words",
    [
        ["-e", "LEVEL=high"],
        ["-v", "data:/data:ro"],
        ["-v", "/cache"],
        ["-vdata:/data"],
        ["--mount", "type=volume,src=data,dst=/data,readonly"],
        ["--network", "none"],
        ["--network=bridge"],
        ["--add-host", "host.docker.internal:host-gateway"],
        ["-p", "127.0.0.1:8765:8765"],
        ["--platform", "linux/arm64/v8"],
        ["--name", "mine"],
        ["-w", "/app"],
        ["--init"],
        ["--read-only"],
        ["--cap-drop=ALL"],
        ["--security-opt", "no-new-privileges"],
        ["--user", "1000:1000"],
        ["--memory", "512m"],
        ["--pull=missing"],
        ["-ie", "LEVEL=high"],
        [],
    ],
)
def test_a_listing_may_give_a_container_what_opens_nothing_of_this_machine(words: list[str]) -> None:
    raw = package("oci", "o/s", runtimeArguments=[{"type": "positional", "value": word} for word in words])
    args = entry(raw)["args"]
    assert args[:3] == ["run", "-i", "--rm"]
    assert args[-1] == "o/s:1.2.3"
    assert entry(package("oci", "o/s", runtimeArguments=[{"type": "named", "name": "--rm"}]))["args"] == [
        *("run", "-i", "--rm", "o/s:1.2.3")
    ]


def bind(value: str, **source: Any) -> dict[str, Any]:
    variables = {"source": {"format": "filepath", **source}}
    return package(
        "oci", "o/s", runtimeArguments=[{"type": "named", "name": "-v", "value": value, "variables": variables}]
    )


def test_a_path_of_this_machine_is_mounted_only_if_the_user_types_the_whole_of_it() -> None:
    assert entry(bind("{source}:/data"), source="/home/me/data")["args"][3:5] == ["-v", "/home/me/data:/data"]
    assert entry(bind("{source}:/data"))["args"] == ["run", "-i", "--rm", "o/s:1.2.3"]  # it is optional
    for raw in (
        bind("{source}:/data", default="/"),
        bind("{source}:/data", choices=["/home", "/etc"]),
        bind("/{source}:/data"),
        bind("{source}/../..:/data"),
        bind("{source}{other}:/data"),
        bind("{other}:/data"),
    ):
        assert "must not set" in refusal(raw)


def test_a_value_that_the_user_leaves_out_does_not_let_another_image_run() -> None:
    words = [{"type": "positional", "value": "-v"}, {"type": "positional", "valueHint": "volume"}]
    offer = read(packages=[package("oci", "o/s", runtimeArguments=words, packageArguments=[{"value": "evil/image"}])])
    assert entry_of(offer.offers[0], {"volume": "data:/data"})["args"][3:] == [
        "-v",
        "data:/data",
        "o/s:1.2.3",
        "evil/image",
    ]
    with pytest.raises(RegistryError, match="in place of"):
        entry_of(offer.offers[0], {})


@pytest.mark.parametrize(
    ("kind", "version"),
    [("npm", "beta1"), ("npm", "1.tgz"), ("npm", "1.2"), ("pypi", "1.tgz"), ("pypi", "rc" * 2000), ("nuget", "beta1")],
)
def test_a_tag_a_range_or_a_file_is_not_one_version(kind: str, version: str) -> None:
    assert refusal(package(kind, "name", version))


@pytest.mark.parametrize("version", ["1.0", "2026.10.19", "1!2.0.post1", "1.0rc1", "1.0a1.dev3", "1.0+local.1"])
def test_every_form_of_a_version_of_python_is_one_version(version: str) -> None:
    assert entry(package("pypi", "name", version))["args"] == [f"name@{version}"]


@pytest.mark.parametrize(
    "fields",
    [
        {"packages": [npm(packageArguments=[{"type": "positional", "value": "a\x1b[2Jb"}])]},
        {"packages": [npm(packageArguments=[{"type": "named", "name": "--a\nb", "value": "c"}])]},
        {"packages": [npm(environmentVariables=[{"name": "A B", "value": "c"}])]},
        {"packages": [npm(environmentVariables=[{"name": "A", "value": "c\u202e"}])]},
        {"packages": [npm(packageArguments=[{"type": "other", "value": "c"}])]},
        {"packages": [npm(packageArguments={"a": 1})]},
        {"packages": [npm(environmentVariables=[1])]},
        {"packages": [npm(environmentVariables=[{"name": "A"}] * 65)]},
        {"packages": [npm(transport={"type": "streamable-http", "url": "http://127.0.0.1:1/mcp"})]},
        {"packages": [package("cargo", "x")]},
        {"packages": ["npm"]},
        {"packages": [npm(packageArguments=[{"type": "positional", "value": "x" * 5000}])]},
        {"remotes": [{"type": "streamable-http", "url": "http://example.com/mcp"}]},
        {"remotes": [{"type": "streamable-http", "url": "https://user:pass@example.com/mcp"}]},
        {"remotes": [{"type": "streamable-http", "url": "javascript:alert(1)"}]},
        {"remotes": [{"type": "streamable-http", "url": "https://exa\u0430mple.com/mcp"}]},
        {"remotes": [{"type": "ws", "url": "https://example.com/mcp"}]},
        {"remotes": [{"type": "sse", "url": "https://x.example", "headers": [{"name": "A: b\r\nC", "value": "d"}]}]},
    ],
)
def test_unusable_packages_are_left_out_with_their_reason(fields: dict[str, Any]) -> None:
    parsed = read(**fields)
    assert parsed.offers == ()
    assert len(parsed.refused) == 1
    assert parsed.refused[0].isprintable()


def test_one_bad_package_leaves_the_others() -> None:
    parsed = read(packages=[package("cargo", "x"), npm()])
    assert [offer.identifier for offer in parsed.offers if isinstance(offer, Package)] == ["some-server"]
    assert len(parsed.refused) == 1


@pytest.mark.parametrize(
    "server",
    [
        None,
        [],
        {"name": "no-slash", "version": "1", "description": "d"},
        {"name": "io.github.o/s\x1b[0m", "version": "1.0", "description": "d"},
        {"name": "io.github.o/s", "version": "1\n", "description": "d"},
        {"name": "io.github.o/s", "version": "../1", "description": "d"},
        {"name": "io.github.o/s", "description": "d"},
        {"name": "io.github.o/s", "version": "1.0", "packages": "npm"},
    ],
)
def test_an_invalid_listing_is_refused(server: Any) -> None:
    with pytest.raises(RegistryError) as caught:
        read_answer({"server": server}, "a registry")
    assert str(caught.value).isprintable()


def test_descriptions_of_a_listing_are_escaped() -> None:
    parsed = read_answer(
        {"name": "io.github.o/s", "version": "1.0", "description": "a\x1b]0;title\x07b", "title": "Fine"}, "a registry"
    )
    assert parsed.description == "a\\x1b]0;title\\x07b"


def test_a_status_inside_the_listing_is_ignored() -> None:
    raw = listing("io.github.o/s", _meta={"io.modelcontextprotocol.registry/official": {"status": "active"}})
    assert read_answer(answer(raw, "deleted"), "a registry").status == "deleted"


def test_user_values_are_validated_against_the_input_definition() -> None:
    arguments = [{"type": "named", "name": "--mode", "choices": ["a", "b"], "isRequired": True}]
    offer = read(packages=[npm(packageArguments=arguments)]).offers[0]
    check_values(offer, {"mode": "a"})
    for values in ({"mode": "c"}, {"other": "a"}, {"mode": "a\x00"}):
        with pytest.raises(RegistryError):
            check_values(offer, values)
