"""A server of resources over stdio that reads a URI in every way some server does, and answers with the secret
if one of them leads to it. The first argument is the scheme of its templates."""

import json
import posixpath
import re
import sys
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

TEXTS = {"private/s.txt": "SECRET", "public/p.txt": "for everybody", "srv/private/s.txt": "SECRET"}


def variants(uri: str) -> Iterator[str]:
    """The URI decoded several times, with each step that some reader takes."""
    for rounds in range(5):
        text = uri
        for _ in range(rounds):
            text = unquote(text)
        for plain in (text, unicodedata.normalize("NFKC", text)):
            yield plain
            visible = "".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Cc"))
            yield visible.replace("\\", "/").strip()
            yield plain.partition("\0")[0]


def paths(text: str) -> Iterator[str]:
    """The paths below its directory that a URI may mean."""
    without_scheme = re.sub(r"^\s*[A-Za-z][A-Za-z0-9+.-]*:", "", text)
    for candidate in (without_scheme, re.split("[?#]", without_scheme)[0], re.split("[?#;]", without_scheme)[0]):
        is_file = text.strip().casefold().startswith("file:")
        for path in (candidate, re.sub("^//[^/]*", "", candidate) if is_file else candidate):
            yield posixpath.normpath("/" + path).lstrip("/")
            segments: list[str] = []  # as RFC 3986 has it: an empty segment is one, too
            for part in path.lstrip("/").split("/"):
                if part == "..":
                    segments[-1:] = []
                elif part != ".":
                    segments.append(part)
            yield "/".join(segments)


def texts(uri: str) -> set[str]:
    """All texts that some reader comes to."""
    contents = set()
    for text in variants(uri):
        for path in paths(text):
            for name in (path, path.casefold(), "/".join(part.rstrip(". ") for part in path.casefold().split("/"))):
                if (plain := name.split("::")[0].rstrip("/")) in TEXTS:
                    contents.add(TEXTS[plain])
    return contents


def answer(method: str, params: dict, scheme: str) -> dict:
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"resources": {"subscribe": True}, "completions": {}},
            "serverInfo": {"name": "greedy", "version": "1"},
        }
    if method == "resources/list":
        return {"resources": [{"uri": f"{scheme}:///{path}", "name": path} for path in TEXTS]}
    if method == "resources/templates/list":
        templates = [f"{scheme}:///{{+path}}", f"{scheme}:///private/{{name}}", "{+uri}"]
        return {"resourceTemplates": [{"uriTemplate": template, "name": template} for template in templates]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": min(texts(params["uri"]), default="nothing")}]}
    if method == "completion/complete":
        value = params["argument"]["value"]
        return {"completion": {"values": [path for path in TEXTS if path.startswith(value)]}}
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            if message["method"] in ("server/discover", "tools/list", "prompts/list"):
                reply = {"error": {"code": -32601, "message": "Method not found"}}
            else:
                reply = {"result": answer(message["method"], message.get("params") or {}, sys.argv[1])}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
