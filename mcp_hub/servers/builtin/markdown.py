"""`python -m mcp_hub.servers.builtin.markdown`: reads documents from stdin and writes their Markdown to stdout.

Conversion runs in a process of its own because it blocks, may never end and may take any amount of memory. The process
gets the bytes of a document, never its address, and may open no connection. A message in either direction is one line
of JSON, whose `length` is the number of bytes that follow it.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import logging
import os
import queue
import re
import sys
import threading
import time
import warnings
from typing import Any, BinaryIO, Final

from mcp_hub.config.extras import DISTRIBUTION
from mcp_hub.servers import bound_memory
from mcp_hub.text import NOT_TEXT_CODECS, printable
from mcp_hub.transport.standard_streams import claim

_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_SUPERSETS: Final = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932", "big5": "big5hkscs",
}  # fmt: skip
"""Encodings that pages declare, and the supersets that browsers read them as (the table of the encoding standard)."""
_LABEL: Final = re.compile(r"^(?:x-)+|^cs(?=euckr|gb2312|unicode|macintosh)|-[ei]$")
"""Matches what some labels have around a name that Python knows, such as `x-sjis` and `iso-8859-8-i`."""
_WINDOWS: Final = re.compile(r"^(?:windows|dos)-(?=\d+$)")
_ISO: Final = re.compile(r"^iso8859(?=\d+$)")
_LABELS: Final = {
    "mac": "mac-roman", "unicodefeff": "utf-16-le", "sun_eu_greek": "iso8859-7",
    "mac-ukrainian": "mac-cyrillic", "logical": "iso8859-8", "visual": "iso8859-8",
    "unicode": "utf-16-le", "ucs-2": "utf-16-le", "iso-10646-ucs-2": "utf-16-le", "utf-16": "utf-16-le",
    "unicodefffe": "utf-16-be", "unicode-1-1-utf-8": "utf-8", "unicode11utf8": "utf-8", "unicode20utf8": "utf-8",
    "windows-31j": "cp932", "koi": "koi8-r", "koi8": "koi8-r", "koi8-ru": "koi8-u", "cn-big5": "big5",
    "gb_2312": "gbk", "gb_2312-80": "gbk", "ksc_5601": "cp949", "ks_c_5601-1989": "cp949", "iso-ir-149": "cp949",
}  # fmt: skip
"""Labels of the encoding standard that Python does not know, or reads differently."""
_REFUSED: Final = NOT_TEXT_CODECS | {"utf-7", "utf-32", "utf-32-le", "utf-32-be", "hz", "iso2022_kr"}
"""Codecs that no browser reads. UTF-7 has been used to hide markup from filters."""
_HEAD: Final = 4096
"""Bytes in which a page declares its encoding; the standard says 1024."""
_DECLARED: Final = re.compile(
    rb"""<(?:meta\b[^>]{0,400}?charset|\?xml\b[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""", re.I
)
_COMMENT: Final = re.compile(rb"<!--.*?-->", re.S)
_XML_ENCODING: Final = re.compile(r"""(\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*["'])[^"'>]*""")
_XML_IN_UTF16: Final = {"<?xml".encode(codec): codec for codec in ("utf-16-le", "utf-16-be")}
_FOREIGN: Final = re.compile(rb"[\x80-\xff]{3,}")
"""Matches a part of a word in another script than the Latin one, where hardly any byte is ASCII."""
_SAMPLE: Final = 64 * 1024


def decode_text(data: bytes, declared: str | None, *, markup: bool) -> str:
    """Decodes `data`; bytes that do not fit become U+FFFD.

    The encoding is that of the byte order mark, else `declared` (from `Content-Type`), else, if `markup` (HTML or XML),
    the one that the document itself declares, else UTF-8 if it fits, else a guess.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    for start, encoding in _XML_IN_UTF16.items():
        if markup and data.startswith(start):
            return data.decode(encoding, "replace")
    codec = _codec_of(declared)
    if codec is None and markup and (match := _DECLARED.search(_COMMENT.sub(b"", data[:_HEAD]))) is not None:
        codec = _codec_of(match[1].decode("ascii", "replace"))
        if codec is not None and codec.startswith("utf-16"):
            codec = "utf-8"  # the declaration was readable as ASCII, so it is not UTF-16
    if codec is not None:
        return data.decode(codec, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode(_guess_codec(data), "replace")


def _codec_of(name: str | None) -> str | None:
    """Returns the codec for a declared name, or None if there is no such text encoding."""
    label = (name or "").strip().strip("\"'").lower()
    label = _LABELS.get(label, _LABEL.sub("", label))
    label = _ISO.sub("iso8859-", _WINDOWS.sub("cp", _LABELS.get(label, label)))
    try:
        codec = codecs.lookup(label)
    except (LookupError, ValueError):
        return None
    if codec.name in _REFUSED or not getattr(codec, "_is_text_encoding", True):
        return None
    return _SUPERSETS.get(codec.name, codec.name)


def _guess_codec(data: bytes) -> str:
    """Returns the likely encoding of text in another script than the Latin one, else windows-1252 as browsers do.

    The bytes of Latin text are too few to tell its encodings apart.
    """
    from charset_normalizer import from_bytes

    foreign = sum(map(len, _FOREIGN.findall(data[:_SAMPLE])))
    if foreign * 4 < sum(byte >= 0x80 for byte in data[:_SAMPLE]):
        return "cp1252"
    best = from_bytes(data[:_SAMPLE]).best()
    return best.encoding if best is not None else "cp1252"


MAX_MARKDOWN: Final = 8 * 1024 * 1024
"""Most bytes of Markdown in an answer; the rest is cut off."""
_CPU_GRACE: Final = 5
"""Seconds of processor time beyond the deadline after which the system kills this process, if nobody else did."""
_TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript",
                   "application/csv", "application/x-ndjson", "application/yaml", "application/rtf")  # fmt: skip
_MARKUP: Final = ("text/html", "application/xhtml", "text/xml", "application/xml")
_OUTWARD: Final = frozenset({
    "socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind",
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile",
})  # fmt: skip
_FILES: Final = (b"%PDF-", b"PK\x03\x04")
"""First bytes of PDF and of ZIP, the container of Office documents."""
_FEATURE: Final = re.compile(r"markitdown\[([\w-]+)\]")
"""Matches what MarkItDown says that a document needs, as in `pip install 'markitdown[xls]'`."""
_OF_WEB: Final = ("docx", "pdf", "pptx", "xlsx")
"""What the extra `web` installs of it."""
_TOO_MUCH: Final = "it needs more memory than a conversion may take"

Json = dict[str, Any]


def main() -> None:
    """Reads the setup, reports that it is ready, then converts until stdin ends."""
    stdin, stdout = claim()  # before anything of a library's can print
    source, target = os.fdopen(stdin, "rb"), os.fdopen(stdout, "wb")
    warnings.simplefilter("ignore")
    logging.disable()  # libraries log what is in documents
    setup = json.loads(source.readline() or b"{}")
    requests: queue.SimpleQueue[tuple[Json, bytes]] = queue.SimpleQueue()
    endpoint = setup.get("docintel_endpoint")
    try:
        converter = _markitdown(endpoint)
    except Exception as error:
        _write(target, {"error": "setup", "message": str(error)})
        return
    names = [type(registered.converter).__name__ for registered in converter._converters]
    bound_memory(setup["memory"])
    if endpoint is None:
        sys.addaudithook(_block_outward_events)
    _write(target, {"converters": names})
    threading.Thread(target=_read_requests, args=(source, requests), daemon=True).start()
    while True:
        request, body = requests.get()
        _write(target, *_convert(converter, request, body))


def _markitdown(endpoint: str | None) -> Any:
    """Makes MarkItDown without plugins. Without an endpoint the argument is left out, as "" would count as one."""
    import markitdown

    options: Json = {} if endpoint is None else {"docintel_endpoint": endpoint}
    return markitdown.MarkItDown(enable_plugins=False, exiftool_path="", **options)


def _block_outward_events(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _OUTWARD:
        raise PermissionError(f"a conversion may not use {event}")


def _bound_time(seconds: float) -> None:
    """Makes the system end a conversion that takes too long, in case the process that would kill it is gone."""
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + _CPU_GRACE, hard))


def _read_requests(source: BinaryIO, requests: queue.SimpleQueue[tuple[Json, bytes]]) -> None:
    """Reads requests on a thread, so that the end of stdin ends the process in the middle of a conversion too."""
    while line := source.readline():
        request = json.loads(line)
        requests.put((request, source.read(request["length"])))
    os._exit(0)


def _write(target: BinaryIO, header: Json, body: bytes = b"") -> None:
    target.write(json.dumps({**header, "length": len(body)}).encode() + b"\n" + body)
    target.flush()


def _convert(converter: Any, request: Json, data: bytes) -> tuple[Json, bytes]:
    """Returns the answer to one request: `{title, cut, scripts}` and the Markdown, or `{error, message}`."""
    _bound_time(request["seconds"])
    from markitdown import UnsupportedFormatException

    try:
        stream, info = _stream(request, data)
        result = converter.convert_stream(stream, stream_info=info)
        markdown = str(result.markdown).encode("utf-8", "replace")
    except MemoryError:
        return {"error": "memory", "message": _TOO_MUCH}, b""
    except UnsupportedFormatException:
        return {"error": "unsupported", "message": "this kind of file has no text that can be read"}, b""
    except Exception as error:
        failure, message = _reason(error)
        return {"error": failure, "message": message}, b""
    if markdown.startswith(_FILES):  # only the converter for plain text accepted it
        return {"error": "failed", "message": "the document is broken"}, b""
    title = result.title if isinstance(result.title, str) else None
    header = {"title": title and title.strip()[:500], "scripts": b"<script" in data.lower(), "cut": False}
    if len(markdown) > MAX_MARKDOWN:
        header["cut"] = True
        markdown = markdown[:MAX_MARKDOWN].decode("utf-8", "ignore").encode()
    return header, markdown


def _stream(request: Json, data: bytes) -> tuple[BinaryIO, Any]:
    """Returns the document and what is known about it.

    Text is re-encoded as UTF-8, so that no converter has to guess.
    """
    from markitdown import StreamInfo

    kind: str | None = request["content_type"] or None
    charset = None
    if kind in (None, "application/octet-stream") and _is_xml(data):
        kind = "application/xml"
    is_text = kind is not None and (kind.startswith(_TEXTUAL) or kind.endswith(("+json", "+xml")))
    if kind is not None and is_text:
        if _is_binary(data, request["charset"]):
            kind = None  # some servers declare every file as text
        else:
            markup = kind.startswith(_MARKUP) or kind.endswith("+xml")
            text = decode_text(data, request["charset"], markup=markup)
            if markup and (declaration := _XML_ENCODING.match(text)) is not None:  # parsers would decode it once more
                text = f"{declaration[1]}utf-8{text[declaration.end() :]}"
            data, charset = text.encode("utf-8", "replace"), "utf-8"
    extension = request["extension"] or None
    if kind is not None and kind.startswith(("text/html", "application/xhtml")):
        extension = None  # the HTML page about report.csv is not a CSV file
    info = StreamInfo(mimetype=kind, extension=extension, charset=charset, url=request["url"])
    return io.BytesIO(data), info


def _is_xml(data: bytes) -> bool:
    return data[:100].lstrip(b"\xef\xbb\xbf\xfe\xff").startswith((b"<?xml", *_XML_IN_UTF16))


def _is_binary(data: bytes, charset: str | None) -> bool:
    is_utf16 = data.startswith((*UTF16_MARKS, *_XML_IN_UTF16)) or (_codec_of(charset) or "").startswith("utf-16")
    return data.startswith(_FILES) or (b"\0" in data[:1024] and not is_utf16)


def _reason(error: Exception) -> tuple[str, str]:
    """Returns the kind of the failure, `memory` or `failed`, and its message."""
    from markitdown import MissingDependencyException

    causes = [attempt.exc_info[1] for attempt in getattr(error, "attempts", None) or [] if attempt.exc_info]
    if any(isinstance(cause, MemoryError) for cause in causes):
        return "memory", _TOO_MUCH
    missing = [cause for cause in causes if isinstance(cause, MissingDependencyException)]
    cause = (missing or causes or [error])[0]
    if missing and (feature := _FEATURE.search(str(cause))) is not None:
        needed = f"{DISTRIBUTION}[web]" if feature[1] in _OF_WEB else f"markitdown[{feature[1]}]"
        return "failed", f"what reads this kind of file is not installed; run: pip install '{needed}'"
    return "failed", printable(f"{type(cause).__name__}: {cause}".strip().split("\n")[0], 400)


if __name__ == "__main__":
    main()
