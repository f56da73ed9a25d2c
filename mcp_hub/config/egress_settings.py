"""How a server on a network is reached, as a frozen model, and its reader: proxy, certificates, cookies."""

from __future__ import annotations

from typing import Annotated, Any, Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.field_types import After, SecretStr
from mcp_hub.config.fields import Fields
from mcp_hub.config.findings import KeyPath
from mcp_hub.config.settings import Frozen, Key, keys_of
from mcp_hub.security.private_files import is_file
from mcp_hub.security.proxies import ForwardProxy
from mcp_hub.text import printable

_FILES: Final = ("ca", "client_cert", "client_key")
_WITH_PROXY: Final = ("web", "browser")
"""Built-in servers that make connections themselves, so that their entry may have a proxy."""


def _check_proxy(value: SecretStr) -> SecretStr:
    ForwardProxy.parse(value.get_secret_value(), "the value")
    return value


ProxyAddress = Annotated[SecretStr, After(_check_proxy)]
"""The address of a proxy, such as `http://proxy.example:3128`, or `direct`."""


class EgressSettings(Frozen):
    """The way to one server, or with only a proxy, to all of them."""

    proxy: Annotated[ProxyAddress | None, Key(effect="reach", keeps_empty=True)] = None
    """The address of a proxy, or `direct`; None: the proxy of the root or of the environment variables."""
    own: bool = False
    """Whether the entry itself names the proxy, which is then used for every host, despite `NO_PROXY`."""
    ca: Annotated[str | None, Key(effect="reach")] = None
    """A PEM file of certificate authorities that are trusted besides those of the system."""
    client_cert: Annotated[str | None, Key(effect="reach")] = None
    """A PEM file with the hub's certificate for this server, and its chain."""
    client_key: Annotated[str | None, Key(effect="reach")] = None
    """The private key of `client_cert`; None: the key is in the same file."""
    cookies: Annotated[bool, Key(effect="reach")] = False
    """Whether cookies of the server are sent back to it, within one session."""


def read_egress(
    fields: Fields, url: str | None, builtin: str | None, unresolved: dict[KeyPath, CodedText]
) -> EgressSettings | None:
    """Reads these keys of one entry; None if it has none. Missing files go to `unresolved`."""
    keys = [key for key in keys_of(EgressSettings) if fields.get(key) is not None]
    allowed = keys_of(EgressSettings) if url is not None else ("proxy",) if builtin in _WITH_PROXY else ()
    for key in keys:
        if key not in allowed:
            fields.warning(fields.values[key].at, "has no effect: it is for an entry with a 'url'")
    values: dict[str, Any] = {}
    if "proxy" in allowed and (proxy := fields.read("proxy", ProxyAddress)) is not None:
        values |= {"proxy": proxy, "own": True}
    for key in _FILES if url is not None else ():
        if (path := fields.path(key)) is None:
            continue
        values[key] = str(path)
        if not is_file(path):
            text = f"there is no file {printable(str(path))}"
            unresolved.setdefault(fields.values[key].at, CodedText(text, codes.CERTIFICATE_FILE_WRONG))
    if "client_key" in values and "client_cert" not in values:
        fields.error(fields.values["client_key"].at, "needs 'client_cert', the certificate that it belongs to")
    if url is not None and (cookies := fields.read("cookies", bool)) is not None:
        values["cookies"] = cookies
    return EgressSettings(**values) if values else None


def with_root_proxy(egress: EgressSettings, proxy: SecretStr | None) -> EgressSettings:
    """Returns `egress` with the proxy of the root, unless it has a proxy already."""
    return egress if proxy is None or egress.proxy is not None else egress.model_copy(update={"proxy": proxy})
