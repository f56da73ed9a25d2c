"""The blocks of a ToolResponse and of a call, as types for those who check theirs."""

from __future__ import annotations

from typing import Any, Literal, Required

from typing_extensions import TypedDict


class TextBlock(TypedDict, total=False):
    """A text."""

    type: Required[Literal["text"]]
    text: str


class Base64Source(TypedDict, total=False):
    """Data as such."""

    type: Required[Literal["base64"]]
    media_type: Required[str]
    data: Required[str]


class URLSource(TypedDict, total=False):
    """Where data is."""

    type: Required[Literal["url"]]
    url: Required[str]


class ImageBlock(TypedDict, total=False):
    """A picture."""

    type: Required[Literal["image"]]
    source: Required[Base64Source | URLSource]


class AudioBlock(TypedDict, total=False):
    """Sound."""

    type: Required[Literal["audio"]]
    source: Required[Base64Source | URLSource]


class VideoBlock(TypedDict, total=False):
    """Pictures that move."""

    type: Required[Literal["video"]]
    source: Required[Base64Source | URLSource]


class ToolUseBlock(TypedDict, total=False):
    """A call: which tool, with which arguments."""

    type: Required[Literal["tool_use"]]
    id: Required[str]
    name: Required[str]
    input: Required[dict[str, Any]]
