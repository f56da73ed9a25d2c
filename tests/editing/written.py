"""Texts of JSON, TOML and YAML as people and programs write them: hypothesis strategies of files to edit."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "github", "my server", "ключ", "日本", "a.b", "x-1", "on", "1", "null", 'q"t', "#c", "é"])
STRINGS = st.sampled_from(
    ["x", "", "npx", "-y", "ünïcode", "a b", "// no", "# no", "{", "}", "a,b", "\\", "tab\there", "🙂"]
)
SCALARS = st.one_of(
    STRINGS,
    st.booleans(),
    st.integers(-5, 5),
    st.text(st.characters(max_codepoint=0xFFFF, categories=["L", "N", "P", "S", "Zs"]), max_size=6),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
ENTRY = st.dictionaries(NAMES, VALUES, max_size=3)
ROOTS = st.sampled_from(["servers", "mcpServers", "mcp_servers", "amp.mcpServers", "extensions"])
NEW = st.fixed_dictionaries(
    {"command": st.sampled_from(["/opt/hub/mcp-hub", "C:\\Program Files\\hub\\mcp-hub.exe", "/home/ünï code/mcp-hub"])},
    optional={
        "args": st.lists(STRINGS, max_size=3),
        "env": st.dictionaries(st.sampled_from(["PATH", "TOKEN"]), STRINGS, max_size=2),
        "enabled": st.booleans(),
    },
)


@st.composite
def trees(draw: st.DrawFn, root: str, least: int) -> dict[str, Any]:
    """A document with unknown keys in front of and behind its servers, of which there are `least` and up to three.

    With 0 they may be missing altogether.
    """
    tree = draw(st.dictionaries(NAMES, VALUES, max_size=2))
    if least or draw(st.booleans()):
        tree[root] = draw(st.dictionaries(NAMES, ENTRY, min_size=least, max_size=3))
    return tree | draw(st.dictionaries(st.sampled_from(["z", "theme"]), VALUES, max_size=2))


def framed(draw: st.DrawFn, text: str) -> str:
    """Gives a text its line ends, its final newline or none, and its byte order mark or none."""
    text = text.rstrip("\n") + draw(st.sampled_from(["", "\n", "\n\n"]))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "\ufeff"])) + text


@st.composite
def json_texts(draw: st.DrawFn, root: str, least: int = 0) -> str:
    """JSON with comments, trailing commas and blanks in every place where they may stand."""
    loose = draw(st.booleans())
    unit = draw(st.sampled_from(["", "  ", "    ", "\t"]))

    def blank(line: str) -> str:
        if not loose:
            return line
        return draw(st.sampled_from([line, line, " /* c */" + line, " // c\n" + line, line + " ", "\n" + line]))

    five = loose and draw(st.booleans())

    def spelt(key: str) -> str:
        if five and key.isalpha() and key.isascii():
            return draw(st.sampled_from([key, f"'{key}'"]))
        return json.dumps(key, ensure_ascii=False)

    def written(value: Any, depth: int) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        outer, inner = ("\n" + unit * depth, "\n" + unit * (depth + 1)) if unit else ("", "")
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        if not value:
            return opening + blank("") + closing
        pairs = value.items() if isinstance(value, dict) else [(None, item) for item in value]
        members = [
            (f"{spelt(key)}{blank('')}:{blank(' ')}" if key is not None else "") + written(item, depth + 1)
            for key, item in pairs
        ]
        last = "," if loose and draw(st.booleans()) else ""
        return opening + blank(inner) + f"{blank('')},{blank(inner)}".join(members) + last + blank(outer) + closing

    if loose and not least and draw(st.integers(0, 9)) == 0:
        return framed(draw, draw(st.sampled_from(["", "// nothing yet", "/* c */\n"])))
    return framed(draw, blank("") + written(draw(trees(root, least)), 0) + blank(""))


@st.composite
def yaml_texts(draw: st.DrawFn, root: str, least: int = 0) -> str:
    """YAML in block style with comments and blank lines, and in places in flow style."""
    import yaml

    width = draw(st.sampled_from([2, 4, 3]))

    def remark(indent: int) -> list[str]:
        return draw(st.sampled_from([[], [], [""], [" " * indent + "# a remark: {"], ["# at the left"]]))

    def lines(mapping: dict[str, Any], indent: int) -> list[str]:
        output = []
        for key, value in mapping.items():
            name = yaml.safe_dump([key], default_flow_style=True, allow_unicode=True).strip()[1:-1]
            output += remark(indent)
            if isinstance(value, dict) and value and draw(st.booleans()):
                output += [f"{' ' * indent}{name}:{draw(st.sampled_from(['', ' # c']))}", *lines(value, indent + width)]
            elif isinstance(value, dict) and not value and draw(st.booleans()):
                output.append(f"{' ' * indent}{name}:")
            elif isinstance(value, list) and value and draw(st.booleans()):
                dash = " " * (indent + draw(st.sampled_from([0, width])))
                output += [
                    f"{' ' * indent}{name}: # c",
                    *(f"{dash}- {json.dumps(item, ensure_ascii=False)}" for item in value),
                ]
            elif isinstance(value, str) and value.isalnum() and draw(st.booleans()):
                style = draw(st.sampled_from(["|-", ">-", "&anchor", "!!str"]))
                block = style[0] in "|>"
                output.append(f"{' ' * indent}{name}: {style}" + ("" if block else f" '{value}'"))
                output += [f"{' ' * (indent + width)}{value}"] * block + [""] * (block and draw(st.booleans()))
            else:
                text = json.dumps(value, ensure_ascii=False)
                output.append(f"{' ' * indent}{name}: {text}{draw(st.sampled_from(['', ' # c', ' ']))}")
        return output + remark(indent)

    head = draw(st.sampled_from([[], ["# head"], ["---"], ["# head", "---"]]))
    return framed(draw, "\n".join([*head, *lines(draw(trees(root, least)), 0)]))


@st.composite
def toml_texts(draw: st.DrawFn, root: str, least: int = 0) -> str:
    """TOML with tables, dotted keys, texts and lists of several lines, and comments."""

    def name(part: str) -> str:
        return part if part.isascii() and part.replace("-", "").isalnum() else json.dumps(part, ensure_ascii=False)

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name(key)} = {written(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            lead = draw(st.sampled_from(["", "\n  ", "\n  # ]\n"]))
            return "[" + lead + ", ".join(map(written, value)) + lead + "]"
        if isinstance(value, str) and value.isalnum() and draw(st.booleans()):
            return draw(st.sampled_from([f"'{value}'", f'"""\n[{value}]\n"""', f"'''{value}'''"]))
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    tree = draw(trees(root, least))
    lines: list[str] = draw(st.sampled_from([[], ["# head"]]))
    tables = {
        key: item for key, item in tree.items() if isinstance(item, dict) and (key == root or draw(st.booleans()))
    }
    for key, item in tree.items():
        if key not in tables:
            lines.append(f"{name(key)} = {written(item)}{draw(st.sampled_from(['', ' # c', '  ']))}")
    for key, table in tables.items():
        inner = {entry: value for entry, value in table.items() if isinstance(value, dict)}
        plain = [f"{name(entry)} = {written(value)}" for entry, value in table.items() if entry not in inner]
        if plain or not inner or draw(st.booleans()):
            lines += [draw(st.sampled_from(["", "# above"])), f"[{name(key)}]", *plain]
        for entry, value in inner.items():
            head = f"[ {name(key)}.{name(entry)} ]" if draw(st.booleans()) else f"[{name(key)}.{name(entry)}] # c"
            lines += ["", head, *(f"{name(part)} = {written(last)}" for part, last in value.items())]
    return framed(draw, "\n".join(lines))


TEXTS = {"json": json_texts, "yaml": yaml_texts, "toml": toml_texts}
