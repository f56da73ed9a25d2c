"""`mcp-hub serve`: run the hub over stdio, or over a network."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from mcp_hub import codes
from mcp_hub.cli import FAILED, OK
from mcp_hub.cli.reloader import ListenerSettings, Reloader
from mcp_hub.cli.startup import (
    add_config_arguments,
    add_group_argument,
    add_selection_arguments,
    found_config,
    hide_secrets_of,
    load_with_files,
    make_hub,
    read_selection,
    recording,
    run_loop,
)
from mcp_hub.config import LoadedConfig
from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.config.models import Config, Listen
from mcp_hub.config.settings import Exposed
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.page_access import PageAccess, PageSources
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.hub_status import Status
from mcp_hub.observability.records import RecordWriter, log_line
from mcp_hub.observability.stalls import StallMonitor
from mcp_hub.protocol import frames
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.cli.workers import WorkerPlace
    from mcp_hub.downstream.app import App
    from mcp_hub.downstream.replicas import Replicas
    from mcp_hub.downstream.verifier import Verifier


class Signals:
    """Handles the signals of a running hub.

    The first SIGTERM or SIGINT sets `stop`. The second ends the process at once, and the reaper ends its children.
    SIGHUP sets `again`, so that the configuration is reloaded. If the hub's terminal was closed, SIGHUP sets `stop`.
    """

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Installs the handlers. `say` prints a line for the person who interrupts the hub at a terminal."""
        self._say = say
        self.calls: Callable[[], int] = lambda: 0
        """Returns the number of running calls."""
        self.stop = asyncio.Event()
        self.again = asyncio.Event()
        self._in_terminal = _has_terminal()
        self._catch("SIGTERM", self._end)
        self._catch("SIGINT", self._interrupt)
        self._catch("SIGHUP", self._hang_up)
        self._catch("SIGBREAK", self._end)  # Windows: Ctrl-Break, and the end of the console

    def _catch(self, name: str, handler: Callable[[], None]) -> None:
        signum = getattr(signal, name, None)
        if signum is None:
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signum, handler)
        except NotImplementedError:  # Windows
            signal.signal(signum, lambda *_: loop.call_soon_threadsafe(handler))

    def _end(self) -> None:
        if self.stop.is_set():
            os._exit(130)
        self.stop.set()

    def _interrupt(self) -> None:
        if not self.stop.is_set() and self._in_terminal:
            count = self.calls()
            calls = f"{count} call{'s' * (count != 1)}, then for the servers" if count else "the servers"
            self._say(f"stopping: waits some seconds for {calls} to end; Ctrl-C again ends all at once")
        self._end()

    def _hang_up(self) -> None:
        if self._in_terminal and not _has_terminal():
            self._end()
        else:
            self.again.set()


def _has_terminal() -> bool:
    """Returns whether the process has a controlling terminal. Under a service manager or an editor it has none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | getattr(os, "O_NOCTTY", 0)))
    except OSError:
        return False
    return True


EXAMPLES = """examples:
  mcp-hub serve                                   over stdio: the command for a client
  mcp-hub serve --http                            on http://127.0.0.1:8808/mcp
  mcp-hub serve --http --workers 4                four processes that are one hub
  mcp-hub serve --config team.yaml --config my.json    two files as one configuration"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub serve [--config F] [--sse | --http] [--host H] [--port P] [--public-host H]`.

    Further arguments select what is served.
    """
    add_config_arguments(parser)
    add_selection_arguments(parser)
    text = "do not start, and end, beside any warning, such as a rule whose names match nothing"
    parser.add_argument("--strict", action="store_true", help=text)
    add_group_argument(parser, "switch this group of tools on at the start (may be repeated)")
    text = "list all tools to every client, or a few and a search for others (default: the file's 'expose', else auto)"
    parser.add_argument("--expose", choices=get_args(Exposed), help=text)
    transport = parser.add_mutually_exclusive_group()
    transport.add_argument("--sse", action="store_true", help="over a network: /sse and /mcp on one port")
    transport.add_argument("--http", action="store_true", help="over a network: only /mcp")
    parser.add_argument(
        "--host",
        help="address to listen on (default 127.0.0.1; any other needs a token), or unix:/PATH for a Unix socket",
    )
    parser.add_argument(
        "--public-host",
        metavar="HOST",
        action="append",
        help="name under which clients reach the hub through a reverse proxy (may be repeated; needs a token)",
    )
    parser.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default 8808)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="over a network: run N processes as one hub on one port"
    )


def run(options: argparse.Namespace) -> int:
    """Serves until the client disconnects or a signal arrives. Returns 1 if a required server failed."""
    frames.own_heap()
    network = options.sse or options.http
    if network:
        worker = _worker_place(options)
        loaded = load_with_files(options, told=worker is not None, strict=options.strict)
        config = loaded.config.model_copy(update={"listen": _listen(loaded.config, options)})
        if worker is not None:
            return run_loop(_network(options, loaded, worker.settings(config), worker))
        if options.workers is None:
            return run_loop(_network(options, loaded, config))
        from mcp_hub.cli.workers import serve_workers

        return run_loop(serve_workers(options.workers, options.arguments, config))
    if options.host is not None or options.port is not None or options.public_host or options.workers is not None:
        text = "--host, --port, --public-host and --workers need --sse or --http; else the hub serves over stdio"
        raise ConfigError(text, codes.HTTP_OPTION_MISSING)
    from mcp_hub.transport.standard_streams import claim

    found_config(options)  # at a terminal it asks, by stdin
    stdin, stdout = claim()  # before anything can print to stdout
    return run_loop(_stdio(options, load_with_files(options, strict=options.strict), stdin, stdout))


def _worker_place(options: argparse.Namespace) -> WorkerPlace | None:
    """Returns the settings that a worker gets from its parent; None if this process is not a worker."""
    if options.workers is None:
        return None
    from mcp_hub.cli.workers import WorkerPlace

    return WorkerPlace.taken(os.environ)


def _listen(config: Config, options: argparse.Namespace) -> Listen:
    public_host = options.public_host or None
    try:
        return config.listen.with_options(host=options.host, port=options.port, public_host=public_host)
    except ConfigError as error:
        raise ConfigError(f"--{error}", codes.VALUE_WRONG) from None


def _hub(options: argparse.Namespace, config: Config, records: RecordWriter, *, one_client: bool = False) -> Engine:
    selection, groups, found = read_selection(options, config), options.group, found_config(options)
    frames.freeze_imports()
    return make_hub(
        config, selection, records, groups=groups, one_client=one_client, expose=options.expose, found=found
    )


async def _stdio(options: argparse.Namespace, loaded: LoadedConfig, stdin: int, stdout: int) -> int:
    from mcp_hub.downstream.stdio import serve_stdio

    config = loaded.config
    # If stdout and stderr are one pipe, the client would read records as messages. A terminal shows both.
    is_separate = os.isatty(stdout) or not os.path.samestat(os.fstat(stdout), os.fstat(2))
    with recording(config, on_stderr=is_separate) as records:
        signals = Signals(records.line)
        if os.isatty(stdin):
            from mcp_hub.cli.report import terminal_text

            records.line(terminal_text(config))
        async with _hub(options, config, records, one_client=True) as hub:
            dispatcher = Dispatcher(hub)
            async with (
                _required(hub, signals.stop, records, strict=options.strict) as missing,
                _supervised(options, loaded, dispatcher, signals, records),
            ):
                await serve_stdio(dispatcher, stdin, stdout, signals.stop)
    return FAILED if missing else OK


async def _network(
    options: argparse.Namespace, loaded: LoadedConfig, config: Config, worker: WorkerPlace | None = None
) -> int:
    from mcp_hub.cli.service_manager import ServiceNotifier
    from mcp_hub.downstream.app import App, serve_network
    from mcp_hub.policy.quotas import Quotas

    handed, notifier = _handed(worker), ServiceNotifier(os.environ)
    listen = _checked_listen(config, handed)
    verifier = await _verifier(config)
    announcements: set[asyncio.Task[None]] = set()
    with recording(config, on_stderr=True) as records:
        signals = Signals(records.line)
        async with _hub(options, config, records) as hub:
            quotas = Quotas(listen, sharing=hub.sharing)
            dispatcher = Dispatcher(hub, quotas)
            async with (
                _required(hub, signals.stop, records, strict=options.strict) as missing,
                _supervised(options, loaded, dispatcher, signals, records) as running,
            ):
                app = App(dispatcher, listen, sse=options.sse, verifier=verifier, quotas=quotas)
                app.page = running.page
                running.status.refusals = app.refusals.facts
                replicas = await _join_replicas(config, dispatcher, app, running, alone=worker is None)
                running.reloader.listener = ListenerSettings(app, listen, lambda config: _listen(config, options))
                running.reloader.announced = notifier.reloading

                def ready(bases: list[str]) -> None:
                    if worker is not None:
                        bases = worker.ready(bases)
                    running.status.serving = bases
                    running.page.base = partial(app.page_base, bases)
                    if replicas is not None:
                        replicas.reached_at(bases[0])
                    if worker is None or worker.speaks:
                        announcement = _announce(hub, bases, listen, records, running.page, sse=options.sse)
                        announcements.add(asyncio.get_running_loop().create_task(announcement))
                    notifier.say("READY=1", f"STATUS=listening on {', '.join(bases)}")

                sockets = [sock for _, sock in handed]
                try:
                    async with notifier.watching(signals.stop):
                        await serve_network(app, listen, stop=signals.stop, ready=ready, handed=sockets)
                finally:
                    if replicas is not None:
                        await replicas.close()
                    if verifier is not None:
                        await verifier.close()
    return FAILED if missing else OK


def _checked_listen(config: Config, handed: list[tuple[str, socket.socket]]) -> Listen:
    """Returns what to listen on. Raises ConfigError, before servers are started, if that is not safe or usable."""
    from mcp_hub.downstream.admission import check_listener
    from mcp_hub.transport.http1.listening_sockets import check_handed
    from mcp_hub.transport.http1.tls_server import tls_context

    listen = check_handed(config.listen, handed) if handed else config.listen
    objection = check_listener(listen)
    if objection is not None:
        raise ConfigError(objection, objection.code)
    refuse_over_network(config)
    if listen.tls is not None:
        tls_context(listen.tls)
    return listen


def _handed(worker: WorkerPlace | None) -> list[tuple[str, socket.socket]]:
    """Returns (name, socket) for each socket that the parent of workers or a service manager passed on."""
    from mcp_hub.cli.service_manager import handed_sockets

    return handed_sockets(os.environ) if worker is None else worker.handed()


async def _join_replicas(
    config: Config, dispatcher: Dispatcher, app: App, running: Supervision, *, alone: bool
) -> Replicas | None:
    """Joins the other replicas through the configured store. Returns None without a store. Raises ConfigError.

    `alone` is False for a worker, whose parent passes signals on to all workers.
    """
    if config.store is None:
        return None
    from mcp_hub.downstream.replicas import GIVE_ADDRESS, Replicas

    if alone and config.store.address is None and config.listen.socket_path is not None:
        text = "store.address: the other replicas cannot tell how to reach this one, as listen.host is a Unix socket"
        raise ConfigError(f"{text}; {GIVE_ADDRESS}", codes.VALUE_WRONG)
    replicas = await asyncio.to_thread(Replicas, config.store, dispatcher)
    replicas.changes.reload = running.reloader.load
    await replicas.begin(config.listen.host if alone else "")
    running.status.replicas = replicas.facts
    running.reloader.changing = replicas.changing
    running.reloader.reload_others = replicas.have_others_reload if alone else None
    app.join(replicas)
    return replicas


async def _verifier(config: Config) -> Verifier | None:
    """Makes the token verifier in a thread, as its imports take a second. Raises ConfigError."""
    verify = config.listen.verify
    if verify is None:
        return None

    from mcp_hub.config.egress_settings import EgressSettings
    from mcp_hub.downstream.verifier import Verifier
    from mcp_hub.transport.egress import Egress

    profiles = [profile.name for profile in config.profiles]
    egress = Egress.of(EgressSettings(proxy=config.proxy))
    return await asyncio.to_thread(Verifier, verify, profiles, egress=egress)


def _costs(hub: Engine) -> dict[str, Any]:
    from mcp_hub.diagnosis.token_costs import calls_of, token_costs

    return token_costs(hub, calls_of(hub))


def _cure(code: str) -> str | None:
    from mcp_hub.diagnosis import remedies

    remedy = remedies().get(code)
    return remedy.cure if remedy is not None else None


class Supervision(msgspec.Struct, frozen=True):
    """The objects that observe and control a running hub."""

    status: Status
    reloader: Reloader
    page: PageAccess


@contextlib.asynccontextmanager
async def _supervised(
    options: argparse.Namespace, loaded: LoadedConfig, dispatcher: Dispatcher, signals: Signals, records: RecordWriter
) -> AsyncIterator[Supervision]:
    """Reloads the configuration and serves `mcp-hub status` while the block runs."""
    from mcp_hub.hub.hub_status import status_server

    hub = dispatcher.hub
    status, stalls = Status(hub), StallMonitor()
    signals.calls = lambda: int(status.facts()["calls"])
    reloader = Reloader(
        hub,
        loaded,
        lambda config: read_selection(options, config),
        records.line,
        hide_secrets_of,
        strict=options.strict,
    )
    page = PageAccess(PageSources(dispatcher, status, reloader.facts, reloader.reload_now, _cure, _costs))

    def facts() -> dict[str, Any]:
        stall_facts = {"longest_stall": round(stalls.longest, 3), "stalls": stalls.count}
        status.extra = {
            "loaded_at": reloader.loaded_at,
            "refused": reloader.refusal,
            "waiting": reloader.waiting,
            "untrusted": str(loaded.found.untrusted) if loaded.found.untrusted is not None else None,
            "call_log_problem": records.problem,
            **stall_facts,
        }
        return status.facts()

    async with reloader.running(signals.again), status_server(facts, page.answer), stalls.watched():
        try:
            yield Supervision(status, reloader, page)
        finally:
            await page.close()


_UNMATCHED = "with --strict the hub does not serve while a rule names what no server has"


@contextlib.asynccontextmanager
async def _required(
    hub: Engine, stop: asyncio.Event, records: RecordWriter, *, strict: bool
) -> AsyncIterator[list[str]]:
    """Stops the hub if required servers fail, and yields their ids. Clients are served meanwhile.

    With `strict`, the block begins when the names in rules have been compared with what servers list. Raises
    ConfigError if one matches nothing; if that is found later, the hub stops.
    """
    missing: list[str] = []

    async def watch() -> None:
        for upstream in await hub.missing():
            missing.append(upstream.server.id)
            text = f"the required server {upstream.server.id!r} is not available: {upstream.error}"
            records.line(log_line("error", codes.with_code(printable(text, 4000), codes.REQUIRED_FAILED)))
        if missing:
            stop.set()

    async def watch_names() -> None:
        await hub.name_check.found.wait()
        missing.append("a name in a rule")
        records.line(log_line("error", codes.with_code(_UNMATCHED, codes.MEMBER_UNKNOWN)))
        stop.set()

    tasks: list[asyncio.Task[Any]] = [asyncio.get_running_loop().create_task(watch())]
    try:
        if strict:
            names = hub.name_check
            tasks += [asyncio.ensure_future(names.settled()), asyncio.ensure_future(stop.wait())]
            await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
            if names.found.is_set():
                raise ConfigError(_UNMATCHED, codes.MEMBER_UNKNOWN)
            tasks.append(asyncio.ensure_future(watch_names()))
        yield missing
    finally:
        for task in tasks:
            task.cancel()


async def _announce(
    hub: Engine, bases: list[str], listen: Listen, records: RecordWriter, page: PageAccess, *, sse: bool
) -> None:
    from mcp_hub.cli.report import addresses_text, catalog_text

    records.line(addresses_text(bases, listen, sse=sse))
    await hub.settled_catalog()
    records.line(catalog_text(hub))
    if page.base() is not None and sys.stderr is not None and sys.stderr.isatty():
        # Only at a terminal: a file or a service manager would store the link.
        records.line(f"\nSee it at work, by a link that works once and for 60 s:\n  {await page.link()}")
        records.line("`mcp-hub open` makes another one.")
