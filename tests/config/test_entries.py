"""The keys of an entry and of the top of a file, as the hub's own documentation has them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mcp_hub.config.models import Server
from mcp_hub.library.server_entries import with_server
from mcp_hub.policy.presentation import DESCRIPTIONS, SCHEMAS
from tests.config.written import only, plain, read, refused, servers, switched_off, write

UNREADABLE = f"/{'x' * 300}"
"""A path that is too long to be looked at, also for root; one in the directory of another user fails likewise."""


def test_every_key_of_an_entry_is_read(tmp_path: Path) -> None:
    text = """\
    servers:
      files:
        transport: stdio
        command: ~/bin/files
        args: [--port, 8080, --fast, true, --version, 1.10]
        env: {PORT: 8080, DEBUG: true, VERSION: 1.10, COUNTRY: no, EMPTY: "", MODE: 0755, DAY: 2026-01-02}
        cwd: work
        namespace: ""
        enabled: true
        required: true
        lazy: true
        deadlines: {connect: 1m, list: 500ms, write: 2, call: 1h}
        session: call
        era: modern
        keep_catalog: false
        max_frame: 1MiB
    """
    server = only(tmp_path, text)
    assert server.command == str(tmp_path / "home/bin/files")
    assert server.args == ("--port", "8080", "--fast", "true", "--version", "1.10")
    assert plain(server.env) == {
        "PORT": "8080",
        "DEBUG": "true",
        "VERSION": "1.10",
        "COUNTRY": "no",
        "EMPTY": "",
        "MODE": "0755",
        "DAY": "2026-01-02",
    }
    assert (server.cwd, server.namespace) == (tmp_path / "work", "")
    assert (server.enabled, server.required, server.lazy, server.keep_catalog) == (True, True, True, False)
    assert msgspec.structs.asdict(server.deadlines) == {
        "connect": 60,
        "list": 0.5,
        "write": 2,
        "call": 3600,
        "idle": None,
    }
    assert (server.session, server.era, server.max_frame) == ("call", "modern", 2**20)


def test_missing_keys_of_an_entry_have_their_defaults(tmp_path: Path) -> None:
    server = only(tmp_path, "servers: {a: {command: x}}")
    assert (server.namespace, server.session, server.era, server.enabled) == ("a", "shared", "auto", True)
    assert msgspec.structs.asdict(server.deadlines) == {
        "connect": 30,
        "list": 10,
        "write": 5,
        "call": 1200,
        "idle": None,
    }


@pytest.mark.parametrize(
    "command",
    ["npx", "/usr/bin/uvx", "C:\\\\Program Files\\\\nodejs\\\\npx.cmd", "docker", "cmd, args: [/c, npx, x]"],
)
def test_a_launcher_command_has_a_longer_connect_timeout(tmp_path: Path, command: str) -> None:
    quoted = command if "," in command else f'"{command}"'
    assert only(tmp_path, f"servers: {{a: {{command: {quoted}}}}}").deadlines.connect == 120


def test_an_explicit_connect_deadline_overrides_that_of_installers(tmp_path: Path) -> None:
    assert only(tmp_path, "servers: {a: {command: npx, deadlines: {connect: 5}}}").deadlines.connect == 5


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("30", 30), ('"30s"', 30), ("20m", 1200), ("1.5", 1.5), ("7200", 7200)]
)
def test_the_key_timeout_sets_the_call_deadline(tmp_path: Path, timeout: str, seconds: float) -> None:
    assert only(tmp_path, f"servers: {{a: {{command: x, timeout: {timeout}}}}}").deadlines.call == seconds


def test_defaults_apply_to_every_entry(tmp_path: Path) -> None:
    text = """\
    defaults: {lazy: true, timeout: 60, deadlines: {list: 3}}
    servers:
      a: {command: a}
      b: {command: b, lazy: false, deadlines: {call: 5}}
    """
    entries = servers(tmp_path, text)
    assert (entries["a"].lazy, entries["a"].deadlines.call, entries["a"].deadlines.list) == (True, 60, 3)
    assert (entries["b"].lazy, entries["b"].deadlines.call, entries["b"].deadlines.list) == (False, 5, 3)


def test_servers_may_send_every_kind_of_request_unless_allow_restricts_it(tmp_path: Path) -> None:
    text = """\
    defaults: {allow: [elicitation], max_questions: 1}
    servers:
      a: {command: a}
      b: {command: b, allow: [], max_questions: 20}
    """
    entries = servers(tmp_path, text)
    assert [(entries[name].allow, entries[name].max_questions) for name in "ab"] == [(("elicitation",), 1), ((), 20)]
    server = only(tmp_path, "servers: {a: {command: x}}")
    assert (set(server.allow), server.max_questions) == ({"sampling", "elicitation", "roots"}, 3)
    wrong = "servers: {a: {command: x, allow: [all, some], max_questions: 0}}"
    (line,) = switched_off(tmp_path, wrong)
    assert sorted(line.partition("switched off: ")[2].split("; ")) == [
        "allow[0]: must be one of sampling, elicitation, roots",
        "allow[1]: must be one of sampling, elicitation, roots",
        "max_questions: must be 1 or more",
    ]


@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ("api_key: k", {"Authorization": "Bearer k"}),
        ("mcp_api_key: k", {"Authorization": "Bearer k"}),
        ("api_key: k, api_key_header: X-Api-Key", {"X-Api-Key": "k"}),
        ("api_key: k, api_key_header: 'Authorization: Token'", {"Authorization": "Token k"}),
        ("api_key: k, headers: {X-Other: o}", {"X-Other": "o", "Authorization": "Bearer k"}),
    ],
)
def test_an_api_key_becomes_a_header(tmp_path: Path, more: str, headers: dict[str, str]) -> None:
    server = only(tmp_path, f"servers: {{a: {{url: 'https://x.example/mcp', {more}}}}}")
    assert plain(server.headers) == headers
    assert "k" not in str(server.headers).replace("Key", "")


@pytest.mark.parametrize(
    ("entry", "place", "text"),
    [
        ("command: x, api_key: k", "api_key", "is for an entry with a 'url'"),
        ("url: 'http://x', api_key: k, headers: {authorization: b}", "api_key", "the header is already given by"),
        ("url: 'http://x', headers: {A: 1, a: 2}", "headers.a", "already given by servers.a.headers.A"),
        ("url: 'http://x', headers: {'A B': c}", "headers.'A B'", "is not a valid name of a header"),
        ('url: "http://x", headers: {A: "b\\nc"}', "headers.A", "holds a line break"),
        ("url: 'http://x', api_key_header: A", "api_key_header", "there is none"),
        ("command: x, env: {A: null}", "env.A", "has no value"),
        ("command: x, env: {'A=B': c}", "env.A=B", "is not a valid name"),
        ("command: x, env: [1]", "env[0]", "must be a text NAME=value"),
        ("command: x, env: {A: [b]}", "env.A", "must be a text"),
        ("command: x, args: y", "args", "must be a list of texts"),
        ("command: x, args: [y, {z: 1}]", "args[1]", "must be a text"),
        ("command: 7", "command", "must be a text"),
        ("command: ''", "", "has none of them"),
        ('command: "a\\0b"', "command", "holds a NUL"),
        ("command: x, url: 'http://x'", "", "has 'command' and 'url'"),
        ("{}", "", "has none of them"),
        ("url: 'file:///etc/passwd'", "url", "must be a URL"),
        ("url: 'http://x:99999'", "url", "must be a URL"),
        ("url: 'http://x', type: stdio", "type", "says 'stdio', which needs a 'command'"),
        ("command: x, type: http", "type", "says 'http', which needs a 'url'"),
        ("command: x, type: pigeon", "type", "must be one of stdio, http, sse, auto"),
        ("command: x, timeout: soon", "timeout", "not a duration"),
        ("command: x, timeout: -1", "timeout", "greater than zero"),
        ("command: x, timeout: 1, deadlines: {call: 2}", "deadlines.call", "the same thing as 'timeout'"),
        ("command: x, max_frame: lots", "max_frame", "not a size"),
        ("command: x, session: mine", "session", "must be one of shared, client, call"),
        ("command: x, era: stone", "era", "must be one of auto, handshake, modern"),
        ("command: x, required: maybe", "required", "must be true or false"),
        ("url: 'http://x', serverUrl: 'http://y'", "serverUrl", "the same thing as 'url'"),
    ],
)
def test_an_invalid_value_is_reported_with_its_key(tmp_path: Path, entry: str, place: str, text: str) -> None:
    body = entry if entry == "{}" else f"{{{entry}}}"
    (line,) = switched_off(tmp_path, f"servers:\n  a: {body}\n")
    where = f"{place}: " if place else ""
    assert line.startswith(f"servers.yaml:2: servers.a: is switched off: {where}")
    assert text in line


def test_a_fault_of_a_rule_is_an_error_of_the_whole(tmp_path: Path) -> None:
    """A server that is switched off keeps its rules; those of a hub that starts must all hold."""
    for rule in ("enable_tools: [a, b], disable_tools: [b]", "disable_tools: delete", "tools: {x: 5}", "preset: 5"):
        (line, *_) = refused(tmp_path, f"servers: {{a: {{command: x, {rule}}}, b: {{command: y}}}}")
        assert line.startswith("servers.yaml:1: servers.a.")


@pytest.mark.parametrize(
    "bad", ["{command: x, args: y}", "{timeout: 9}", "7", "{url: ' ', headers: {}}", "{comand: x}"]
)
def test_one_bad_entry_switches_one_server_off(tmp_path: Path, bad: str) -> None:
    text = f"servers:\n  a: {bad}\n  b: {{command: y}}\nprofiles: {{p: {{servers: [a, b]}}}}\n"
    entries = servers(tmp_path, text)
    assert [(server.enabled, server.disabled_reason is None) for server in entries.values()] == [
        (False, False),
        (True, True),
    ]


def test_a_required_server_stays_required_when_a_fault_switches_it_off(tmp_path: Path) -> None:
    assert only(tmp_path, "servers: {a: {command: 7, required: true}}").required


def test_an_entry_without_a_name_leaves_the_others(tmp_path: Path) -> None:
    for text in ("[{command: x}, {name: b, command: y}]", "{'': {command: x}, b: {command: y}}"):
        loaded = read(tmp_path, f"servers: {text}")
        assert [server.id for server in loaded.config.servers] == ["b"]
        assert len(loaded.warnings) == 1


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ("{command: x, args: [], env: {}, url: '', headers: {}, cwd: '', transport: ''}", "stdio"),
        ("{command: '', args: [], url: 'http://x/mcp', api_key: '', auth: '', tools_dir: ''}", "auto"),
        ("{command: [], url: 'http://x/mcp', type: auto}", "auto"),
        ("{command: x, transport: auto}", "stdio"),
        ("{command: x, protocol: AUTO}", "stdio"),
    ],
)
def test_empty_values_are_absent(tmp_path: Path, entry: str, transport: str) -> None:
    server = only(tmp_path, f"servers: {{a: {entry}}}")
    assert (server.enabled, server.transport, server.headers) == (True, transport, {})


@pytest.mark.parametrize("written", ["allow: []", "allow:", "allow: null"])
def test_a_list_that_restricts_allows_nothing_if_it_is_empty(tmp_path: Path, written: str) -> None:
    assert only(tmp_path, f"servers:\n  a:\n    command: x\n    {written}\n").allow == ()
    assert only(tmp_path, f"servers: {{a: {{command: x}}}}\ndefaults:\n  {written}\n").allow == ()


@pytest.mark.parametrize("written", ["disabled: ''", "enabled: ''", "enabled: []"])
def test_an_entry_that_does_not_say_whether_it_is_on_is_off(tmp_path: Path, written: str) -> None:
    assert not only(tmp_path, f"servers: {{a: {{command: x, {written}}}}}").enabled


def test_an_empty_list_of_a_rule_is_not_absent(tmp_path: Path) -> None:
    server = only(tmp_path, "servers: {a: {command: x, enable_tools: [], allow: []}}")
    assert (server.filters["tools"].allow, server.allow) == ((), ())


def test_a_disabled_entry_never_causes_an_error(tmp_path: Path) -> None:
    loaded = read(tmp_path, "servers: {a: {enabled: false, args: x}, b: {command: '${UNSET}', disabled: true}}")
    assert [(server.enabled, server.disabled_reason) for server in loaded.config.servers] == [(False, None)] * 2
    assert [line.split(": ", 2)[1] for line in loaded.warnings] == ["servers.a.args", "servers.a"]


def test_disabled_wins_over_enabled(tmp_path: Path) -> None:
    assert not only(tmp_path, "servers: {a: {command: x, enabled: true, disabled: true}}").enabled


@pytest.mark.parametrize(
    "entry",
    [
        "playwright: {command: browse}",
        "a: {command: npx, args: ['@playwright/mcp@latest']}",
        "a: {command: docker, args: [run, mcr.microsoft.com/playwright/mcp]}",
        "a: {command: npx, args: [-y, chrome-devtools-mcp]}",
        "a: {command: npx, args: ['@modelcontextprotocol/server-puppeteer']}",
        "a: {url: 'http://localhost/puppeteer/mcp'}",
    ],
)
def test_a_browser_entry_defaults_to_one_session_per_client(tmp_path: Path, entry: str) -> None:
    text = "servers: {" + entry + "}"
    assert only(tmp_path, text).session == "client"
    assert only(tmp_path, text.replace("}}", ", session: shared}}")).session == "shared"
    (line,) = switched_off(tmp_path, text.replace("}}", ", session: call}}"))
    assert "cannot be 'call' for a browser" in line


@pytest.mark.parametrize(("written", "meant"), [("persistent", "shared"), ("per_call", "call"), ("client", "client")])
def test_older_names_of_session_modes_are_accepted(tmp_path: Path, written: str, meant: str) -> None:
    assert only(tmp_path, f"servers: {{a: {{command: x, session: {written}}}}}").session == meant


def test_every_root_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    text = """\
    tools_dir: mine
    on_conflict: skip
    list_wait: 1.5
    cache_dir: ~/cache
    listen:
      host: 0.0.0.0
      port: "${PORT}"
      token: ${TOKEN}
      allowed_hosts: [hub.example]
      allowed_origins: ["https://hub.example"]
      max_body: 1MiB
    servers:
      a: {command: x}
    """
    config = read(tmp_path, text, environ={"PORT": "9000", "TOKEN": "t" * 32}).config
    assert config.path == tmp_path / "servers.yaml"
    assert [server.id for server in config.servers] == ["a", "local"]
    assert (config.servers[1].tools_dir, config.servers[1].enabled) == (tmp_path / "mine", True)
    assert (config.on_conflict, config.list_wait, config.cache_dir) == ("keep_first", 1.5, tmp_path / "home/cache")
    assert (config.listen.host, config.listen.port, config.listen.max_body) == ("0.0.0.0", 9000, 2**20)
    assert config.listen.token is not None
    assert config.listen.token.get_secret_value() == "t" * 32
    assert (config.listen.allowed_hosts, config.listen.allowed_origins) == (("hub.example",), ("https://hub.example",))


def test_tools_dir_alone_is_a_valid_configuration(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    assert only(tmp_path, "tools_dir: tools").tools_dir == tmp_path / "tools"


def test_a_missing_tools_dir_disables_only_its_own_server(tmp_path: Path) -> None:
    entries = servers(tmp_path, "tools_dir: nope\nservers: {a: {command: x}, b: {tools_dir: nope}}")
    assert [server.enabled for server in entries.values()] == [True, False, False]
    assert "there is no directory" in (entries["local"].disabled_reason or "")


@pytest.mark.parametrize(
    "entry", ["url: http://a, client_cert: {}", "tools_dir: {}", "builtin: files, roots: {{/w/: {}}}"]
)
def test_a_path_that_cannot_be_looked_at_disables_only_its_own_server(tmp_path: Path, entry: str) -> None:
    entries = servers(tmp_path, f"servers: {{a: {{{entry.format(UNREADABLE)}}}, b: {{command: b}}}}")
    assert [entries[id].enabled for id in "ab"] == [False, True]


def test_directories_of_the_root_that_cannot_be_looked_at_disable_nothing_else(tmp_path: Path) -> None:
    text = f"servers: {{b: {{command: b}}}}\ntools_dir: {UNREADABLE}\nskills: [{UNREADABLE}]"
    assert [id for id, server in servers(tmp_path, text).items() if server.enabled] == ["b"]


def test_a_directory_named_tools_is_not_loaded_without_tools_dir(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a.py").write_text("")
    assert [*servers(tmp_path, "servers: {a: {command: x}}")] == ["a"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("on_conflict: fight", "on_conflict: must be one of keep_first, raise, override, rename, prefix"),
        ("list_wait: never", "list_wait: not a duration; write 30, '30s', '20m' or '500ms'"),
        ("listen: {port: 70000}", "listen.port: must be a port, a whole number from 0 to 65535"),
        ("listen: {shutdown_delay: 2h}", "listen.shutdown_delay: must be 600 or less"),
        ("listen: {port: true}", "listen.port: must be a port, a whole number from 0 to 65535"),
        ("listen: {token: ''}", "listen.token: must not be empty"),
        ("listen: {token: '${UNSET}'}", "listen.token: the environment variable UNSET is not set"),
        (
            "listen: 7",
            "listen: must be a mapping with host, port, token, principals, verify, tls, public_host, allowed_hosts, "
            "allowed_origins, trusted_proxies, max_body, shutdown_delay, limits, ui",
        ),
        (
            "listen: {public_host: 'https://hub.example'}",
            "listen.public_host: must be the name of the hub for its clients, such as `hub.example` or "
            "`hub.example:8443`, not a URL",
        ),
        ("defaults: 7", "defaults: must be a mapping of keys to values"),
    ],
)
def test_an_invalid_value_of_the_root_is_an_error_of_the_file(tmp_path: Path, text: str, line: str) -> None:
    assert refused(tmp_path, f"servers: {{}}\n{text}\n") == [f"servers.yaml:2: {line}"]


def test_tools_dir_and_an_entry_of_its_name_are_refused(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "tools_dir: .\nservers: {local: {command: x}}")
    assert line.startswith("servers.yaml:1: tools_dir: stands for an entry 'local'")


def test_extend_schema_must_be_properties(tmp_path: Path) -> None:
    tool = "servers: {a: {command: x, tools: {t: {strip_titles: true, extend_schema: "
    rules = only(tmp_path, tool + "{properties: {b: {type: string}}, required: [b]}}}}}").tools["t"]
    assert rules.extend_schema == {"properties": {"b": {"type": "string"}}, "required": ["b"]}
    assert rules.strip_titles
    for wrong in (
        "{}",
        "{properties: []}",
        "{properties: {b: 1}}",
        "{properties: {}, required: [b]}",
        "{type: object}",
    ):
        (line,) = refused(tmp_path, tool + wrong + "}}}}")
        assert line.startswith("servers.yaml:1: servers.a.tools.t.extend_schema")


@pytest.mark.parametrize(("written", "meant"), [("first_sentence", "first_sentence"), ("40", 40), ("full", "full")])
def test_description_and_schema_limits_can_be_set_per_entry_and_per_tool(
    tmp_path: Path, written: str, meant: str | int
) -> None:
    server = only(
        tmp_path,
        f"servers: {{a: {{command: x, descriptions: {written}, schemas: compact, "
        f"tools: {{t: {{descriptions: {written}, schemas: full}}}}}}}}",
    )
    assert (DESCRIPTIONS.of(server), SCHEMAS.of(server)) == (meant, "compact")
    assert (server.tools["t"].descriptions, server.tools["t"].schemas) == (meant, "full")


@pytest.mark.parametrize(
    ("key", "text"),
    [("descriptions: short", "a number of tokens"), ("descriptions: 0", "a number"), ("schemas: x", "full, compact")],
)
def test_an_invalid_list_size_setting_is_an_error_with_the_valid_values(tmp_path: Path, key: str, text: str) -> None:
    for entry in (f"{{command: x, {key}}}", f"{{command: x, tools: {{t: {{{key}}}}}}}"):
        (line,) = refused(tmp_path, f"servers: {{a: {entry}}}")
        assert key.partition(":")[0] in line
        assert text in line


@pytest.mark.parametrize(("word", "meant"), [("' YES '", True), ("y", True), ("'1'", True), ("1", True), ("N", False)])
def test_a_boolean_is_read_in_the_same_words_wherever_it_stands(tmp_path: Path, word: str, meant: bool) -> None:
    text = f"""
    servers:
      a: {{command: x, lazy: {word}, tools: {{t: {{retry: {word}}}}}}}
    groups: {{g: {{tools: [a/t], active: {word}}}}}
    watch: {word}
    listen: {{ui: {word}}}
    tracing: {{arguments: {word}}}
    """
    config = read(tmp_path, text).config
    (server,) = config.servers
    values = [server.lazy, server.tools["t"].retry, config.groups[0].active, config.watch]
    assert [*values, config.listen.ui, config.tracing.arguments] == [meant] * 6


@pytest.mark.parametrize("word", ["no", "${OFF}", " Off ", "0"])
def test_what_a_word_switches_off_stays_off(tmp_path: Path, word: str) -> None:
    text = f"servers: {{a: {{command: x, health: '{word}', tools: {{t: {{enabled: '{word}'}}}}}}}}"
    server = only(tmp_path, text, environ={"OFF": "false"})
    assert server.health.ping is None
    assert server.filters["tools"].deny == ("t",)


@pytest.mark.parametrize(
    "word", ["true", "'yes'", "'on'", "{enabled: '1'}", "'${ON}'", "{enabled: '${ON}'}", "'${UNSET}'", "perhaps"]
)
def test_a_restriction_of_another_host_that_is_on_in_any_word_disables_its_entry(tmp_path: Path, word: str) -> None:
    text = f"servers: {{a: {{command: x, quarantined: {word}}}}}"
    assert not only(tmp_path, text, environ={"ON": "yes"}).enabled


@pytest.mark.parametrize("word", ["false", "'no'", "''", "{image: x}", "{enabled: 0}", "'${OFF}'"])
def test_a_restriction_of_another_host_that_is_off_leaves_its_entry_on(tmp_path: Path, word: str) -> None:
    text = f"servers: {{a: {{command: x, isolation: {word}}}}}"
    assert only(tmp_path, text, environ={"OFF": "off"}).enabled


@pytest.mark.parametrize("key", ["enabled", "disabled"])
@pytest.mark.parametrize("word", ["perhaps", "''", "[]", "2"])
def test_a_tool_is_not_served_by_an_unclear_word_for_switched_off(tmp_path: Path, word: str, key: str) -> None:
    (line,) = refused(tmp_path, f"servers: {{a: {{command: x, tools: {{t: {{{key}: {word}}}}}}}}}")
    assert line.startswith(f"servers.yaml:1: servers.a.tools.t.{key}: ")


@pytest.mark.parametrize(
    "rule", ["tools: {t: {timeout: '${UNSET}'}}", "tools: {t: {enabled: '${UNSET}'}}", "health: '${UNSET}'",
             "postprocess: ['${UNSET}']"]
)  # fmt: skip
def test_a_rule_with_an_unset_variable_switches_off_its_entry_alone(tmp_path: Path, rule: str) -> None:
    found = servers(tmp_path, f"servers: {{a: {{command: x, {rule}}}, b: {{command: x}}}}")
    assert [found["a"].enabled, found["b"].enabled] == [False, True]
    assert "UNSET is not set" in (found["a"].disabled_reason or "")


def test_an_unset_variable_in_defaults_switches_off_servers_of_folders_and_programs_that_need_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, "command: x", "tools/mcp/plain.yaml")
    write(tmp_path, "{command: x, allow: [roots], timeout: 2, limits: 1}", "tools/mcp/own.yaml")
    text = "{defaults: {allow: ['${A}'], timeout: '${T}', limits: '${L}'}, servers: {a: {command: x}}}"
    config = read(tmp_path, text).config
    added = with_server(Server(id="added", transport="stdio", command="x", namespace="added"), config)
    found = {server.id: server for server in added.servers}
    assert {id: server.enabled for id, server in found.items()} == {
        "a": False, "plain": False, "own": True, "added": False,
    }  # fmt: skip
    assert "defaults.allow" in (found["a"].disabled_reason or "")
    assert "defaults.allow" in (found["added"].disabled_reason or "")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("web: {timeout: BIG}", "web.timeout"),
        ("list_wait: BIG", "list_wait"),
        ("list_wait: 'off'", "list_wait"),
        ("call_log: {file: ''}", "call_log.file"),
        ("pins: {file: '${EMPTY}'}", "pins.file"),
        ("listen: {tls: {cert: c.pem, key: ''}}", "listen.tls.key"),
    ],
)
def test_a_value_that_can_mean_nothing_is_refused_with_its_key(tmp_path: Path, text: str, key: str) -> None:
    text = text.replace("BIG", "1" + "0" * 400)
    (line,) = refused(tmp_path, f"{text}\nservers: {{a: {{command: x}}}}", environ={"EMPTY": ""})
    assert line.startswith(f"servers.yaml:1: {key}: ")


def test_a_wrong_address_of_a_proxy_is_not_quoted_as_it_may_come_from_a_variable(tmp_path: Path) -> None:
    text = "listen: {trusted_proxies: [unix, '${TOKEN}']}\nservers: {a: {command: x}}"
    (line,) = refused(tmp_path, text, environ={"TOKEN": "a-secret-in-the-wrong-place"})
    assert line.startswith("servers.yaml:1: listen.trusted_proxies[1]: ")
    assert "a-secret" not in line
