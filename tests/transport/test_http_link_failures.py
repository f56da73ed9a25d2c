"""The error that one failed request over streamable HTTP gets, and that the link outlives it."""

import asyncio
import contextlib
import email.utils
import gzip
import json
import time

import pytest

from mcp_hub.transport import FrameTooLarge, LinkError, SignInNeeded, Unauthorized
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.scripted_http import (
    PATIENCE,
    TOKEN,
    Reply,
    Request,
    always,
    answer,
    ask,
    call,
    linked,
    one_failure,
    scripted,
)

pytestmark = pytest.mark.anyio


CHALLENGE = 'Bearer realm="x", error="invalid_token", resource_metadata="https://auth/?a=b"'


@pytest.mark.parametrize(("status", "headers"), [(403, {}), (401, {"Authorization": "Bearer of-the-file"})])
async def test_401_and_403_raise_unauthorized_with_a_short_challenge(status, headers):
    error = await one_failure(always(status, b"secret body", WWW_Authenticate=CHALLENGE), headers=headers)
    assert isinstance(error, Unauthorized)
    assert not isinstance(error, SignInNeeded)
    assert (error.executed, error.status) == (False, status)
    assert 'Bearer, error="invalid_token"' in str(error)
    assert "https://auth" not in str(error)
    assert "secret body" not in str(error)
    assert ("servers.up.headers" in str(error)) is bool(headers)


@pytest.mark.parametrize("challenge", [CHALLENGE, None])
async def test_a_401_without_configured_authorization_names_the_command_that_signs_in(challenge):
    headers = {"WWW_Authenticate": challenge} if challenge is not None else {}
    error = await one_failure(always(401, b"secret body", **headers))
    assert isinstance(error, SignInNeeded)
    assert (error.executed, error.status) == (False, 401)
    assert "run: mcp-hub login up" in str(error)
    assert ("servers.up.headers" in str(error)) is (challenge is None)


async def test_a_401_for_another_scheme_than_bearer_suggests_no_sign_in():
    error = await one_failure(always(401, b"", WWW_Authenticate='Basic realm="x"'))
    assert not isinstance(error, SignInNeeded)
    assert str(error) == "HTTP 401 Unauthorized: Basic"


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_url_without_mcp_suggests_checking_the_path_and_quotes_no_page(status):
    page = b"<!DOCTYPE html><html><head><title>Not\n here</title></head><body><p>long prose</p></body></html>"
    error = await one_failure(always(status, page, Content_Type="text/html"))
    assert "(a web page: Not here); no MCP server answers at this address: check the path" in str(error)
    assert "prose" not in str(error)


@pytest.mark.parametrize(("status", "executed"), [(429, False), (503, True)])
async def test_retry_after_is_passed_on_in_seconds(status, executed):
    error = await one_failure(always(status, b"slow down", Retry_After="7"))
    assert type(error) is LinkError
    assert (error.status, error.retry_after, error.executed) == (status, 7.0, executed)


async def test_retry_after_may_be_a_date():
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    error = await one_failure(always(429, Retry_After=date))
    assert error.retry_after is not None
    assert 60 < error.retry_after <= 101


@pytest.mark.parametrize("value", ["soon", "-1", "1e9", ""])
async def test_an_invalid_retry_after_is_ignored(value):
    assert (await one_failure(always(429, Retry_After=value))).retry_after is None


@pytest.mark.parametrize("id", [1, None, "absent"])
@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_json_rpc_error_in_an_http_error_is_the_answer(status, id):
    error = {"code": -32022, "message": "Unsupported", "data": {"supported": []}}
    body = {"jsonrpc": "2.0", "id": id, "error": error}
    if id == "absent":
        del body["id"]
    async with scripted(always(status, json.dumps(body).encode())) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == {"jsonrpc": "2.0", "id": 1, "error": error}


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":2,"error":{"code":1}}',
        b'{"error":"x"}',
        b'{"id":1,"result":{}}',
        b'{"id":1,"method":"m","error":{}}',
        b"{",
    ],
)
async def test_an_http_error_without_json_rpc_is_a_failure_with_its_status(body):
    error = await one_failure(always(400, body))
    assert type(error) is LinkError
    assert (error.status, error.executed) == (400, True)


@pytest.mark.parametrize(
    ("status", "executed"),
    [
        *((status, True) for status in (303, 400, 404, 408, 409, 410, 422, 500)),
        *((s, False) for s in (405, 413, 415, 421)),
    ],
)
async def test_only_statuses_that_refuse_a_message_unread_say_that_it_was_not_executed(status, executed):
    assert (await one_failure(always(status))).executed is executed


@pytest.mark.parametrize("start", ["", "<html><title>"])
async def test_the_body_of_a_failure_is_shown_short_escaped_and_without_our_credentials(start):
    body = f"{start}\x1b[31m  you sent {TOKEN} and {TOKEN[7:]}\n{'x' * 999}".encode()
    error = await one_failure(always(500, body), headers={"Authorization": TOKEN})
    assert (error.status, error.executed) == (500, True)
    assert "\x1b" not in str(error)
    assert "\\x1b[31m you sent *** and *** xxx" in str(error)
    assert len(str(error)) < 250


async def test_an_error_whose_body_never_ends_is_still_reported(monkeypatch):
    monkeypatch.setattr("mcp_hub.transport.http_client.ERROR_BODY_WAIT", 0.05)

    async def script(request: Request, reply: Reply) -> None:
        await reply.head(500, Content_Length="1000")
        await reply.raw(b"half")
        await reply.gone()

    assert "half" in str(await one_failure(script))


@pytest.mark.parametrize(
    ("kind", "said"),
    [("text/html", "'text/html'"), ("text/html", "no MCP server answers at this address"), ("", "no content type")],
)
async def test_an_answer_of_another_content_type_is_a_failure(kind, said):
    headers = {"Content_Type": kind} if kind else {}
    error = await one_failure(always(200, json.dumps(answer()).encode(), **headers))
    assert type(error) is LinkError
    assert said in str(error)


async def test_a_202_response_to_a_request_is_a_failure():
    assert (await one_failure(always(202))).status == 202


@pytest.mark.parametrize("body", [b"{", b"", b'{"jsonrpc":"2.0","id":1,"result":{"a":', b"nonsense"])
async def test_an_answer_that_is_not_json_is_a_failure(body):
    assert "JSON" in str(await one_failure(always(200, body, Content_Type="application/json")))


async def test_a_response_with_another_id_is_passed_on_and_the_request_fails():
    async def script(request: Request, reply: Reply) -> None:
        await reply.json([answer("x"), answer(2)])

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert [await inbox.next(), await inbox.next()] == [answer("x"), answer(2)]
        assert "does not belong" in str(await inbox.failure(1))


async def test_a_message_that_json_cannot_express_is_refused_before_it_is_sent():
    async with scripted(always(200)) as server, linked(server.url) as (link, _):
        with pytest.raises(LinkError) as caught:
            await ask(link, call(x=object()))
        assert caught.value.executed is False
        assert server.requests == []


@pytest.mark.parametrize("kind", ["length", "chunks", "gzip", "event", "line"])
async def test_an_answer_above_the_limit_fails_its_request_and_closes_its_connection(kind):
    text = b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 200_000 + b'"}}'
    closed = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.message["id"] == 2:
            await reply.result(request)
            return
        with contextlib.suppress(ConnectionError):
            if kind == "length":
                await reply.full(200, text, Content_Type="application/json")
            elif kind == "gzip":
                await reply.full(
                    200, gzip.compress(text * 50), Content_Type="application/json", Content_Encoding="gzip"
                )
            elif kind == "chunks":
                await reply.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
                await reply.chunk(text)
            else:
                await reply.stream()
                await reply.chunk(b"data: " + text + (b"\n\n" if kind == "event" else b""))
            await reply.gone()
        closed.set()

    async with scripted(script) as server, linked(server.url, max_frame=100_000) as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert isinstance(error, FrameTooLarge)
        assert "100,000" in str(error)
        await ask(link, call(2))
        assert await inbox.next() == answer(2)
        if kind != "length":
            async with asyncio.timeout(PATIENCE):
                await closed.wait()
