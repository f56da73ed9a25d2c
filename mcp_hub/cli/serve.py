"""`mcp-hub serve`: the hub over stdio, or over a network."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mcp_hub.cli import FAILED, OK
from mcp_hub.cli.selecting import add_selection_arguments, chosen
from mcp_hub.cli.startup import add_config_arguments, load, make_hub, recording, run_loop
from mcp_hub.config.models import Config, Listen
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Hub
from mcp_hub.policy.selection import Selection
from mcp_hub.records import Records
from mcp_hub.serve.dispatcher import Dispatcher
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.serve.verifier import Verifier

TOKEN_VARIABLE = "MCP_HUB_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`mcp-hub serve [--config F] [--sse | --http] [--host H] [--port P] [--public-host H]`, and what to serve."""
    add_config_arguments(parser)
    add_selection_arguments(parser)
    over = parser.add_mutually_exclusive_group()
    over.add_argument("--sse", action="store_true", help="over a network: /sse and /mcp on one port")
    over.add_argument("--http", action="store_true", help="over a network: /mcp alone")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1; any other needs a token)")
    parser.add_argument(
        "--public-host",
        metavar="HOST",
        action="append",
        help="name under which a reverse proxy makes it known (may be repeated; needs a token)",
    )
    parser.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default 8808)")


def run(options: argparse.Namespace) -> int:
    """Serve until the client leaves or a signal comes."""
    network = options.sse or options.http
    if network:
        config = load(options)
        config = config.model_copy(update={"listen": _listen(config, options)})
        return run_loop(_network(config, chosen(options, config), sse=options.sse))
    if options.host is not None or options.port is not None or options.public_host:
        text = "--host, --port and --public-host need --sse or --http; without one of them the hub serves over stdio"
        raise ConfigError(text)
    from mcp_hub.wire.streams import claim

    stdin, stdout = claim()  # before anything can print
    config = load(options)
    return run_loop(_stdio(config, chosen(options, config), stdin, stdout))


def _listen(config: Config, options: argparse.Namespace) -> Listen:
    from pydantic import ValidationError

    changes: dict[str, object] = {}
    if options.host is not None:
        changes["host"] = options.host
    if options.port is not None:
        changes["port"] = options.port
    if options.public_host:
        changes["public_host"] = _public_hosts(options.public_host)
    if token := os.environ.get(TOKEN_VARIABLE):
        changes["token"] = token
    try:
        return Listen.model_validate({**config.listen.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _public_hosts(names: list[str]) -> tuple[str, ...]:
    from mcp_hub.config.listen_fields import public_host

    try:
        return tuple(public_host(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"--public-host: {error}") from None


async def _stdio(config: Config, selection: Selection, stdin: int, stdout: int) -> int:
    from mcp_hub.serve.stdio import serve_stdio

    stop = _stop_on_signals()
    # Whoever gets both on one pipe would take a record for a message.
    apart = not os.path.samestat(os.fstat(stdout), os.fstat(2))
    with recording(config, on_stderr=apart) as records:
        async with (
            make_hub(config, selection, records, one_client=True) as hub,
            _required(hub, stop, records) as missing,
        ):
            await serve_stdio(Dispatcher(hub), stdin, stdout, stop)
    return FAILED if missing else OK


async def _network(config: Config, selection: Selection, *, sse: bool) -> int:
    from mcp_hub.serve.app import App
    from mcp_hub.serve.network import serve_network
    from mcp_hub.serve.quotas import Quotas
    from mcp_hub.serve.security import check_listener
    from mcp_hub.serve.tls import tls_context

    listen = config.listen
    objection = check_listener(listen)
    if objection is not None:
        raise ConfigError(objection)
    if listen.tls is not None:
        tls_context(listen.tls)  # what is wrong with it is better said before servers are started
    verifier = await _verifier(config)
    stop = _stop_on_signals()
    announcements: set[asyncio.Task[None]] = set()
    with recording(config, on_stderr=True) as records:
        async with make_hub(config, selection, records) as hub, _required(hub, stop, records) as missing:
            quotas = Quotas(listen)
            app = App(Dispatcher(hub, quotas), listen, sse=sse, verifier=verifier, quotas=quotas)

            def ready(bases: list[str]) -> None:
                announcing = _announce(hub, bases, listen, records, sse=sse)
                announcements.add(asyncio.get_running_loop().create_task(announcing))

            try:
                await serve_network(app, listen, stop=stop, ready=ready)
            finally:
                if verifier is not None:
                    await verifier.close()
    return FAILED if missing else OK


async def _verifier(config: Config) -> Verifier | None:
    """Made before anybody is let in, by a thread: what it needs takes a second to import. Raises ConfigError."""
    verify = config.listen.verify
    if verify is None:
        return None

    from mcp_hub.serve.verifier import Verifier

    profiles = [profile.name for profile in config.profiles]
    return await asyncio.to_thread(Verifier, verify, profiles)


@contextlib.asynccontextmanager
async def _required(hub: Hub, stop: asyncio.Event, records: Records) -> AsyncIterator[list[str]]:
    """Clients are answered at once, but a hub whose required servers turn out to be missing says so and ends."""
    missing: list[str] = []

    async def watch() -> None:
        for upstream in await hub.missing():
            missing.append(upstream.server.id)
            text = f"mcp-hub: the required server {upstream.server.id!r} is not available: {upstream.error}"
            records.line(printable(text, 4000))
        if missing:
            stop.set()

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield missing
    finally:
        watching.cancel()


async def _announce(hub: Hub, bases: list[str], listen: Listen, records: Records, *, sse: bool) -> None:
    from mcp_hub.cli.announce import addresses_text, catalog_text

    records.line(addresses_text(bases, sse=sse, with_token=listen.authenticates))
    await hub.settled_catalog()
    records.line(catalog_text(hub))


def _stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM, SIGINT or SIGHUP; the second ends the process at once, the reaper its children."""
    stop = asyncio.Event()

    def caught() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, caught)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(caught))
    return stop
