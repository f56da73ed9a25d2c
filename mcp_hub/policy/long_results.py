"""Results above their size limit: shortened for the client, and stored whole in pages that it can read. No I/O."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import accumulate
from secrets import token_hex
from sys import getsizeof
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.protocol.frames import encode
from mcp_hub.security.callers import Caller, CallerSlot

Json = dict[str, Any]

PREFIX: Final = "mcp-hub://result/"
META_KEY: Final = "mcp-hub/long-result"
KEPT_SECONDS: Final = 900.0
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of memory of all results; the oldest is dropped first. The newest stays even if it alone is larger."""
MAX_RESULTS: Final = 1000
MIN_PAGE: Final = 1024


class ResultPage(msgspec.Struct, frozen=True):
    """One page: a part of a text, or one whole piece of other data (base64)."""

    mime_type: str
    text: str | None = None
    blob: str | None = None

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return getsizeof(self.text) + getsizeof(self.blob)


class ResultPages(msgspec.Struct, frozen=True):
    """A result in pages, and the bytes of memory they take."""

    all: tuple[ResultPage, ...]
    size: int


class _Kept(msgspec.Struct, frozen=True):
    caller: Caller
    pages: tuple[ResultPage, ...]
    until: float
    size: int


class LongResults:
    """Stores long results for a while. Only the caller of a result can read it. `clock()` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._results: OrderedDict[str, _Kept] = OrderedDict()
        self._names = CallerSlot(set[str], end=self._drop_all)
        self._size = 0

    def keep(self, result: Json, caller: Caller, page_size: int) -> tuple[str, int]:
        """Stores a result in pages of about `page_size` bytes; returns (its URI, number of pages)."""
        uri, pages = new_uri(), pages_of(result, page_size)
        self.put(uri, pages, caller)
        return uri, len(pages.all)

    def put(self, uri: str, pages: ResultPages, caller: Caller) -> None:
        """Stores the pages of a result under a URI of `new_uri`."""
        self._drop_old()
        name = uri.removeprefix(PREFIX)
        self._names.of(caller).add(name)
        if caller not in self._names:
            return  # it is gone, and nobody else may read the result
        self._results[name] = _Kept(caller, pages.all, self._clock() + KEPT_SECONDS, pages.size)
        self._size += pages.size
        while len(self._results) > 1 and (self._size > MAX_BYTES or len(self._results) > MAX_RESULTS):
            self._drop(next(iter(self._results)))

    def _drop_old(self) -> None:
        """Drops expired results, which are the first: all are stored for the same time."""
        while self._results and next(iter(self._results.values())).until < self._clock():
            self._drop(next(iter(self._results)))

    def _drop(self, name: str) -> None:
        result = self._results.pop(name)
        self._size -= result.size
        self._names.of(result.caller).discard(name)

    def _drop_all(self, caller: Caller, names: set[str]) -> None:
        """Drops the results of a caller that is gone."""
        for name in names:
            self._size -= self._results.pop(name).size

    @staticmethod
    def owns(uri: str) -> bool:
        """Returns whether a URI has the form of the URI of a long result."""
        return uri.startswith(PREFIX)

    def read(self, uri: str, caller: Caller) -> Json | None:
        """Returns a page as the result of `resources/read`, or None if this caller has no page at that URI."""
        name, slash, number = uri[len(PREFIX) :].partition("/")
        self._drop_old()
        stored = self._results.get(name)
        if stored is None or stored.caller is not caller or (slash and not (number.isascii() and number.isdigit())):
            return None
        index = int(number[:9]) if slash else 1
        if not 1 <= index <= len(stored.pages):
            return None
        page = stored.pages[index - 1]
        content = {"uri": uri, "mimeType": page.mime_type}
        content |= {"text": page.text} if page.text is not None else {"blob": page.blob or ""}
        position: Json = {"page": index, "pages": len(stored.pages)}
        if index < len(stored.pages):
            position["next"] = f"{PREFIX}{name}/{index + 1}"
        return {"contents": [content], "_meta": {META_KEY: position}}


def new_uri() -> str:
    """Returns a new URI for a result."""
    return PREFIX + token_hex(16)


def pages_of(result: Json, size: int) -> ResultPages:
    """Splits a result into pages of about `size` bytes each. The time it takes grows with the result."""
    pages = tuple(_pages_of(result, max(size, MIN_PAGE)))
    return ResultPages(pages, sum(page.size for page in pages))


def _pages_of(result: Json, size: int) -> Iterator[ResultPage]:
    """Yields texts in parts of at most `size` bytes, and everything else whole; at least one page.

    The content blocks come first in their order, then `structuredContent`, then all other members of the result.
    """
    blocks = result.get("content")
    has_pages = False
    for block in blocks if isinstance(blocks, list) else []:
        for page in _pages_of_block(block, size):
            has_pages = True
            yield page
    structured = result.get("structuredContent")
    extra = {key: value for key, value in result.items() if key not in ("content", "structuredContent")}
    for value in ([structured] if structured is not None else []) + ([extra] if extra else []):
        has_pages = True
        yield ResultPage("application/json", text=encode(value).decode())
    if not has_pages:
        yield ResultPage("text/plain", text="")


def _pages_of_block(block: Any, size: int) -> Iterator[ResultPage]:
    fields = block if isinstance(block, dict) else {}
    text, data = fields.get("text"), fields.get("data")
    inner = fields.get("resource")
    if fields.get("type") == "text" and isinstance(text, str):
        yield from _text_pages(text, "text/plain", size)
    elif isinstance(data, str):
        yield ResultPage(str(fields.get("mimeType", "application/octet-stream")), blob=data)
    elif isinstance(inner, dict) and isinstance(inner.get("blob"), str):
        yield ResultPage(str(inner.get("mimeType", "application/octet-stream")), blob=inner["blob"])
    elif isinstance(inner, dict) and isinstance(inner.get("text"), str):
        yield from _text_pages(inner["text"], str(inner.get("mimeType", "text/plain")), size)
    else:
        yield ResultPage("application/json", text=encode(block).decode())


def _text_pages(text: str, mime_type: str, size: int) -> Iterator[ResultPage]:
    if len(text) * 6 <= size:  # no character is longer in JSON
        yield ResultPage(mime_type, text=text)
        return
    start = 0
    while start < len(text):
        part = head(text[start : start + size], size)
        yield ResultPage(mime_type, text=part)
        start += len(part)


def head(text: str, size: int) -> str:
    """Returns the longest beginning of a text with at most `size` bytes as JSON, but at least one character.

    Neither characters outside the first plane nor surrogate pairs are cut in half.
    """
    text = text[: max(size, 1)]  # no character is shorter than a byte
    size_of_all = _json_size(text)
    if len(text) <= 1 or size_of_all <= size:
        return text
    # Most texts have one script, so the average size of a character gives a good first guess.
    guess = max(len(text) * size // size_of_all, 1)
    over = _json_size(text[:guess]) - size
    low, high = (max(guess - over, 1), guess) if over > 0 else (guess, min(guess - over, len(text)))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _json_size(text[:middle]) <= size else (low, middle - 1)
    if low > 1 and "\ud800" <= text[low - 1] <= "\udbff":
        low -= 1
    return text[:low]


def _json_size(text: str) -> int:
    return len(encode(text)) - 2


LEAST_TEXT: Final = 64
LEAST_TOKENS: Final = 8
"""Bytes and tokens below which a part of a text is not worth showing."""
_MAX_DEPTH: Final = 50
_MAX_VALUES: Final = 100_000
"""Values that one pass may read, which takes about 0.1 s."""
_SHARES: Final = (2, 8, 32, 128)
"""The room divided by one of these is the most for each text and list in a value; tried in this order."""


Head = Callable[[str, int], str]
"""`head(text, room)` returns the longest beginning of a text that fits into the room, in bytes or in tokens."""


class Measure(NamedTuple):
    """A measure of blocks of content, in bytes or in tokens."""

    of_block: Callable[[Any], int]
    head: Head
    least: int
    """The room below which a part of a text is not worth showing."""


class ShortContent(NamedTuple):
    """Content that is shortened to fit into a room."""

    blocks: list[Any]
    shown: int
    """Its size."""
    of: str = ""
    """The amount shown of the text that was cut, such as `20 of 1,000 items`."""


def shortened_content(content: Any, room: int, measure: Measure | None = None) -> ShortContent:
    """Returns the content blocks that fit into `room`, in bytes unless another measure is given.

    The first text that is too long is cut so that it stays readable (`cut_text`); later texts are left out. Any other
    block is kept whole, or replaced by a short text that says what it was.
    """
    measure = measure or BYTES
    blocks = content if isinstance(content, list) else []
    sizes = [measure.of_block(block) for block in blocks]
    if sum(sizes) <= room:
        return ShortContent(list(blocks), sum(sizes))
    notes = [None if _text(block) is not None else _note(block) for block in blocks]
    least = [0 if note is None else min(size, measure.of_block(note)) for note, size in zip(notes, sizes, strict=True)]
    needed_after = [*reversed([*accumulate(reversed(least), initial=0)])][1:]  # what the notes behind each block need
    shortened: list[Any] = []
    used, amount = 0, ""
    cut = False
    for block, size, note, needed in zip(blocks, sizes, notes, needed_after, strict=True):
        free = room - used - min(needed, room // 4)
        part = block
        if size > free or (note is None and cut):
            part = note
            if note is None and not cut:
                (part, amount), cut = _cut(block, free, measure), True
            if part is not None and measure.of_block(part) > room - used:
                part = None
        if part is not None:
            shortened.append(part)
            used += size if part is block else measure.of_block(part)
    return ShortContent(shortened, used, amount)


def content_tokens(content: Any) -> int:
    """Returns about how many tokens a model reads of the content of a result. Images and sounds count nothing."""
    return sum(map(_tokens_of, content)) if isinstance(content, list) else 0


def in_tokens() -> Measure:
    """Returns the measure in estimated tokens."""
    from mcp_hub.catalog.token_estimate import cut_to_tokens

    return Measure(_tokens_of, cut_to_tokens, LEAST_TOKENS)


def _tokens_of(block: Any) -> int:
    from mcp_hub.catalog.token_estimate import estimate_tokens

    fields = block if isinstance(block, dict) else {}
    inner = fields.get("resource")
    if isinstance(fields.get("data"), str) or (isinstance(inner, dict) and isinstance(inner.get("blob"), str)):
        return 0
    for text in (fields.get("text"), inner.get("text") if isinstance(inner, dict) else None):
        if isinstance(text, str):
            return estimate_tokens(text)
    return estimate_tokens(encode(block).decode("utf-8", "replace"))


def shortened_values(value: Any, room: int) -> Iterator[Any]:
    """Yields shorter versions of a JSON value, each of at most `room` bytes, the longest first; possibly none.

    Texts and lists are cut; objects keep all their members, and every value keeps its type.
    """
    for share in _SHARES:
        try:
            shorter = _Trim(max(room // share, LEAST_TEXT)).trimmed(value)
        except _TooMany:
            continue
        if len(encode(shorter)) <= room:
            yield shorter


def without_lone_surrogates(value: Any) -> Any:
    """Replaces lone surrogates in a JSON value by question marks, so that it can be encoded as UTF-8."""
    if rb"\ud" not in encode(value):
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


class _TooMany(Exception):
    """The value has more members than one pass may read."""


class _Trim:
    """One pass over a value: texts and lists get at most `longest` bytes each."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._visited = 0

    def trimmed(self, value: Any, depth: int = 0) -> Any:
        """Returns a shorter value. Raises _TooMany."""
        self._visited += 1
        if self._visited > _MAX_VALUES:
            raise _TooMany
        if isinstance(value, str):
            return value if len(value) * 6 <= self._longest else head(value, self._longest)
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            return {name: self.trimmed(member, depth + 1) for name, member in value.items()}
        if not isinstance(value, list) or depth >= _MAX_DEPTH:
            return value
        members: list[Any] = []
        room = self._longest
        for member in value:
            shorter = self.trimmed(member, depth + 1)
            room -= _size(shorter)
            if room < 0:
                break
            members.append(shorter)
        return members


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _note(block: Any) -> Any:
    fields = block if isinstance(block, dict) else {}
    inner = fields.get("resource")
    mime_type = fields.get("mimeType", inner.get("mimeType", "") if isinstance(inner, dict) else "")
    label = f"{str(fields.get('type', 'block'))[:50]} {str(mime_type)[:50]}".strip()
    return {"type": "text", "text": f"({label} of {_size(block) - 1:,} bytes left out)"}


def _size(block: Any) -> int:
    return len(encode(block)) + 1  # and a comma


def _cut(block: Any, room: int, measure: Measure) -> tuple[Any, str]:
    """Returns (a text block cut to the room, or None if too little would be left; the amount of text shown)."""
    from mcp_hub.policy.result_texts import cut_text  # few results are too long, and its patterns take time to compile

    text_room = room - measure.of_block({**block, "text": ""})
    if text_room < measure.least:
        return None, ""
    part = cut_text(block["text"], text_room, measure.head)
    return ({**block, "text": part.text}, part.of) if part.text else (None, "")


BYTES: Final = Measure(_size, head, LEAST_TEXT)
