"""The switches of the scripted server (upstream.py): one for every way of misbehaving."""

from __future__ import annotations


class Options:
    """The options, by their names with `_` for `-`; those with False take no value."""

    name: str = "fake"
    era: str = "handshake"  # handshake | modern | dual
    tools: int = 0  # so many more tools, t0, t1, ...
    pages: int = 1  # the list of tools in so many pages
    cursor_loop: bool = False
    endless_pages: bool = False
    start_delay: float = 0.0
    one_opening: bool = False  # the first request settles the era of the connection
    silent: bool = False  # never answer anything
    ignore_unknown: bool = False  # never answer unknown methods, as some old servers
    die_on_unknown: bool = False  # exit when asked something before initialize
    die: str | None = None  # exit at once with this on stderr
    gibberish: bool = False  # one more tool, that writes what nobody can read
    burst: bool = False  # one more tool, that writes a text many times
    die_if: str | None = None  # exit at the start, with a word on stderr, while this file exists
    journal: str | None = None  # append a line to this file at the start and after the handshake
    bad_tool: bool = False  # list one invalid tool among the good ones
    noise: int = 0  # so many lines of stdout noise before every answer
    stubborn: bool = False  # ignore SIGTERM and the end of stdin
    grandchild: bool = False  # start a sleeping grandchild in its own session
    hang_if: str | None = None  # never answer anything while this file exists
    more_if: str | None = None  # list one more tool, `late`, while this file exists
    result: str | None = None  # what every call of a tool is answered with, a JSON object
    leak: str | None = None  # say the value of this variable in everything that goes wrong
    resources: str | None = None  # the URIs it lists, a JSON list
    template: str | None = None  # the URI template it lists
    lists: str | None = None  # what it lists and says, read anew each time
    skills: str | None = None  # the URIs of the skills it lists in the modern era, a JSON list
    list_pause: float = 0.0  # so many seconds before its resources are listed
    grow_once_listed: bool = False  # one more tool, `meanwhile`, after the first list
    apps_if_declared: bool = False  # list tools with an app only to a client that declares to show apps
    record: str | None = None  # append every received message to this file

    def __init__(self, argv: list[str]) -> None:
        arguments = iter(argv)
        for flag in arguments:
            name = flag.removeprefix("--").replace("-", "_")
            default = getattr(self, name)  # there are no others
            setattr(
                self,
                name,
                True if default is False else (type(default) if default is not None else str)(next(arguments)),
            )
