"""`mcp-hub serve`: the hub over stdio, or over a network."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from mcp_hub.cli import FAILED, OK
from mcp_hub.cli.listening import Listening
from mcp_hub.cli.reloading import Reloading
from mcp_hub.cli.selecting import add_group_argument, add_selection_arguments, chosen
from mcp_hub.cli.signals import Signals
from mcp_hub.cli.startup import add_config_arguments, keep_secret, load_with_files, make_hub, recording, run_loop
from mcp_hub.config import Loaded
from mcp_hub.config.checks import ValidationError
from mcp_hub.config.exposure import refuse_over_network
from mcp_hub.config.models import Config, Listen
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.errors import ConfigError
from mcp_hub.hub.engine import Hub
from mcp_hub.hub.status import Status
from mcp_hub.observability.records import Records
from mcp_hub.observability.stalls import Stalls
from mcp_hub.protocol import heap
from mcp_hub.text import printable

if TYPE_CHECKING:
    from mcp_hub.downstream.verifier import Verifier

TOKEN_VARIABLE = "MCP_HUB_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`mcp-hub serve [--config F] [--sse | --http] [--host H] [--port P] [--public-host H]`, and what to serve."""
    add_config_arguments(parser)
    add_selection_arguments(parser)
    add_group_argument(parser, "switch this group of tools on at the start (may be repeated)")
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
    heap.own()
    network = options.sse or options.http
    if network:
        loaded = load_with_files(options)
        config = loaded.config.model_copy(update={"listen": _listen(loaded.config, options)})
        return run_loop(_network(options, loaded, config))
    if options.host is not None or options.port is not None or options.public_host:
        text = "--host, --port and --public-host need --sse or --http; without one of them the hub serves over stdio"
        raise ConfigError(text)
    from mcp_hub.transport.streams import claim

    stdin, stdout = claim()  # before anything can print
    return run_loop(_stdio(options, load_with_files(options), stdin, stdout))


def _listen(config: Config, options: argparse.Namespace) -> Listen:
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
        at, text = error.errors[0]
        raise ConfigError(f"--{'.'.join(map(str, at))}: {text}") from None


def _public_hosts(names: list[str]) -> tuple[str, ...]:
    from mcp_hub.config.listen_fields import public_host

    try:
        return tuple(public_host(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"--public-host: {error}") from None


async def _stdio(options: argparse.Namespace, loaded: Loaded, stdin: int, stdout: int) -> int:
    from mcp_hub.downstream.stdio import serve_stdio

    signals = Signals()
    config = loaded.config
    # Whoever gets both on one pipe would take a record for a message.
    apart = not os.path.samestat(os.fstat(stdout), os.fstat(2))
    with recording(config, on_stderr=apart) as records:
        async with (
            make_hub(config, chosen(options, config), records, groups=options.group, one_client=True) as hub,
            _required(hub, signals.stop, records) as missing,
            _attended(options, loaded, hub, signals, records),
        ):
            await serve_stdio(Dispatcher(hub), stdin, stdout, signals.stop)
    return FAILED if missing else OK


async def _network(options: argparse.Namespace, loaded: Loaded, config: Config) -> int:
    from mcp_hub.downstream.app import App
    from mcp_hub.downstream.network import serve_network
    from mcp_hub.downstream.quotas import Quotas
    from mcp_hub.downstream.security import check_listener
    from mcp_hub.downstream.tls import tls_context

    listen = config.listen
    objection = check_listener(listen)
    if objection is not None:
        raise ConfigError(objection)
    refuse_over_network(config)
    if listen.tls is not None:
        tls_context(listen.tls)  # what is wrong with it is better said before servers are started
    verifier = await _verifier(config)
    signals = Signals()
    announcements: set[asyncio.Task[None]] = set()
    with recording(config, on_stderr=True) as records:
        async with (
            make_hub(config, chosen(options, config), records, groups=options.group) as hub,
            _required(hub, signals.stop, records) as missing,
            _attended(options, loaded, hub, signals, records) as (status, reloading),
        ):
            quotas = Quotas(listen)
            app = App(Dispatcher(hub, quotas), listen, sse=options.sse, verifier=verifier, quotas=quotas)
            status.refusals = app.refusals.facts
            reloading.listening = Listening(app, listen, lambda config: _listen(config, options))

            def ready(bases: list[str]) -> None:
                status.serving = bases
                announcing = _announce(hub, bases, listen, records, sse=options.sse)
                announcements.add(asyncio.get_running_loop().create_task(announcing))

            try:
                await serve_network(app, listen, stop=signals.stop, ready=ready)
            finally:
                if verifier is not None:
                    await verifier.close()
    return FAILED if missing else OK


async def _verifier(config: Config) -> Verifier | None:
    """Made before anybody is let in, by a thread: what it needs takes a second to import. Raises ConfigError."""
    verify = config.listen.verify
    if verify is None:
        return None

    from mcp_hub.downstream.verifier import Verifier

    profiles = [profile.name for profile in config.profiles]
    return await asyncio.to_thread(Verifier, verify, profiles)


@contextlib.asynccontextmanager
async def _attended(
    options: argparse.Namespace, loaded: Loaded, hub: Hub, signals: Signals, records: Records
) -> AsyncIterator[tuple[Status, Reloading]]:
    """While the block runs, the hub follows its file and tells `mcp-hub status` how it is."""
    from mcp_hub.hub.status_socket import telling

    status, stalls = Status(hub), Stalls()
    reloading = Reloading(hub, loaded, lambda config: chosen(options, config), records.line, keep_secret)

    def facts() -> dict[str, Any]:
        stalled = {"longest_stall": round(stalls.longest, 3), "stalls": stalls.count}
        status.more = {"loaded_at": reloading.loaded_at, "refused": reloading.refused, **stalled}
        return status.facts()

    async with reloading.running(signals.again), telling(facts), stalls.watched():
        yield status, reloading


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
