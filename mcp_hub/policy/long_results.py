"""Results that were too long to be passed on whole, kept for a while so that they can be read in pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from secrets import token_hex
from sys import getsizeof
from typing import Any, Final

import msgspec

from mcp_hub.protocol.frames import encode

Json = dict[str, Any]

PREFIX: Final = "mcp-hub://result/"
META_KEY: Final = "mcp-hub/long-result"
KEPT_SECONDS: Final = 900.0
MAX_BYTES: Final = 64 * 1024 * 1024
"""Of memory, all results together; the oldest goes first. The newest stays even where it alone is larger."""
MAX_RESULTS: Final = 1000
MIN_PAGE: Final = 1024


class Page(msgspec.Struct, frozen=True):
    """One page: a part of a text, or one whole piece of other data (base64)."""

    mime_type: str
    text: str | None = None
    blob: str | None = None

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return getsizeof(self.text) + getsizeof(self.blob)


class Pages(msgspec.Struct, frozen=True):
    """A result in pages, and the bytes of memory they take."""

    all: tuple[Page, ...]
    size: int


class _Kept(msgspec.Struct, frozen=True):
    caller: Hashable | None
    pages: tuple[Page, ...]
    until: float
    size: int


class LongResults:
    """Bound to their callers: nobody else can read one, whatever URI he knows. `clock()` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def keep(self, result: Json, caller: Hashable | None, page_size: int) -> tuple[str, int]:
        """(the URI under which the result can be read, how many pages it has of about `page_size` bytes)."""
        uri, pages = new_uri(), pages_of(result, page_size)
        self.put(uri, pages, caller)
        return uri, len(pages.all)

    def put(self, uri: str, pages: Pages, caller: Hashable | None) -> None:
        """Keep the pages of a result under one of `new_uri`."""
        self._drop_old()
        self._kept[uri.removeprefix(PREFIX)] = _Kept(caller, pages.all, self._clock() + KEPT_SECONDS, pages.size)
        self._size += pages.size
        while len(self._kept) > 1 and (self._size > MAX_BYTES or len(self._kept) > MAX_RESULTS):
            self._drop(next(iter(self._kept)))

    def _drop_old(self) -> None:
        """What is too old is at the front: all are kept for the same time."""
        while self._kept and next(iter(self._kept.values())).until < self._clock():
            self._drop(next(iter(self._kept)))

    def _drop(self, name: str) -> None:
        self._size -= self._kept.pop(name).size

    @staticmethod
    def owns(uri: str) -> bool:
        """Whether a URI is one of these, kept or not."""
        return uri.startswith(PREFIX)

    def read(self, uri: str, caller: Hashable | None) -> Json | None:
        """A page as a result of `resources/read`; None if there is none for this caller."""
        name, slash, number = uri[len(PREFIX) :].partition("/")
        self._drop_old()
        kept = self._kept.get(name)
        if kept is None or kept.caller != caller or (slash and not (number.isascii() and number.isdigit())):
            return None
        index = int(number[:9]) if slash else 1
        if not 1 <= index <= len(kept.pages):
            return None
        page = kept.pages[index - 1]
        content = {"uri": uri, "mimeType": page.mime_type}
        content |= {"text": page.text} if page.text is not None else {"blob": page.blob or ""}
        place: Json = {"page": index, "pages": len(kept.pages)}
        if index < len(kept.pages):
            place["next"] = f"{PREFIX}{name}/{index + 1}"
        return {"contents": [content], "_meta": {META_KEY: place}}


def new_uri() -> str:
    """A URI under which a result can be kept."""
    return PREFIX + token_hex(16)


def pages_of(result: Json, size: int) -> Pages:
    """The pages of a result, of about `size` bytes each. Takes as long as the result is large."""
    pages = tuple(_pages_of(result, max(size, MIN_PAGE)))
    return Pages(pages, sum(page.size for page in pages))


def _pages_of(result: Json, size: int) -> Iterator[Page]:
    """Texts in parts of at most `size` bytes, everything else whole; at least one.

    First those of the content blocks in their order, then one with `structuredContent`, then one with what other
    members the result has.
    """
    blocks = result.get("content")
    found = False
    for block in blocks if isinstance(blocks, list) else []:
        for page in _pages_of_block(block, size):
            found = True
            yield page
    structured = result.get("structuredContent")
    others = {key: value for key, value in result.items() if key not in ("content", "structuredContent")}
    for value in ([structured] if structured is not None else []) + ([others] if others else []):
        found = True
        yield Page("application/json", text=encode(value).decode())
    if not found:
        yield Page("text/plain", text="")


def _pages_of_block(block: Any, size: int) -> Iterator[Page]:
    fields = block if isinstance(block, dict) else {}
    text, data = fields.get("text"), fields.get("data")
    inner = fields.get("resource")
    if fields.get("type") == "text" and isinstance(text, str):
        yield from _parts(text, "text/plain", size)
    elif isinstance(data, str):
        yield Page(str(fields.get("mimeType", "application/octet-stream")), blob=data)
    elif isinstance(inner, dict) and isinstance(inner.get("blob"), str):
        yield Page(str(inner.get("mimeType", "application/octet-stream")), blob=inner["blob"])
    elif isinstance(inner, dict) and isinstance(inner.get("text"), str):
        yield from _parts(inner["text"], str(inner.get("mimeType", "text/plain")), size)
    else:
        yield Page("application/json", text=encode(block).decode())


def _parts(text: str, mime_type: str, size: int) -> Iterator[Page]:
    if len(text) * 6 <= size:  # no character is longer in JSON
        yield Page(mime_type, text=text)
        return
    at = 0
    while at < len(text):
        part = head(text[at : at + size], size)
        yield Page(mime_type, text=part)
        at += len(part)


def head(text: str, size: int) -> str:
    """The longest beginning of a text that is at most `size` bytes as JSON, but at least one character of it.

    No character is cut in half, those outside the first plane included, and no pair of surrogates.
    """
    text = text[: max(size, 1)]  # no character is shorter than a byte
    size_of_all = _written(text)
    if len(text) <= 1 or size_of_all <= size:
        return text
    # Texts are mostly of one script, so a guess is nearly right; no character is shorter than a byte, so it bounds.
    guess = max(len(text) * size // size_of_all, 1)
    over = _written(text[:guess]) - size
    low, high = (max(guess - over, 1), guess) if over > 0 else (guess, min(guess - over, len(text)))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _written(text[:middle]) <= size else (low, middle - 1)
    if low > 1 and "\ud800" <= text[low - 1] <= "\udbff":
        low -= 1
    return text[:low]


def _written(text: str) -> int:
    return len(encode(text)) - 2
