"""Codes of problems that the user can solve. `check`, `doctor` and a refused start print them.

`diagnosis/codes.toml` explains each code. There is one code for each distinct remedy. A code never changes its meaning,
and a retired code is never reused. Errors that are sent to clients have other codes (`errors.py`).
"""

from __future__ import annotations

from typing import Final, Self

# The configuration
NO_CONFIGURATION: Final = "HUB-101"
FILE_MISSING: Final = "HUB-102"
FILE_UNREADABLE: Final = "HUB-103"
OPEN_TO_OTHERS: Final = "HUB-104"
WRONG_OWNER: Final = "HUB-105"
FILE_BROKEN: Final = "HUB-106"
FILE_EMPTY: Final = "HUB-107"
FILE_ENCODING: Final = "HUB-108"
FILE_TOO_LARGE: Final = "HUB-109"
VALUE_WRONG: Final = "HUB-110"
KEY_UNKNOWN: Final = "HUB-111"
NAME_UNKNOWN: Final = "HUB-112"
VARIABLE_UNSET: Final = "HUB-113"
VARIABLE_MALFORMED: Final = "HUB-114"
VALUE_FILE_UNREADABLE: Final = "HUB-115"
KEYRING_UNUSABLE: Final = "HUB-116"
KEYRING_ENTRY_MISSING: Final = "HUB-117"
EXTRA_MISSING: Final = "HUB-118"
RESTRICTION_FOREIGN: Final = "HUB-119"
TRANSPORT_FOREIGN: Final = "HUB-120"
DIRECTORY_MISSING: Final = "HUB-121"
FILE_LEFT_OUT: Final = "HUB-122"
LOCAL_TOOLS_BROKEN: Final = "HUB-123"
MEMBER_UNKNOWN: Final = "HUB-124"
SECRET_IN_PLAIN: Final = "HUB-125"
PACKAGE_UNPINNED: Final = "HUB-126"
PINS_UNREADABLE: Final = "HUB-127"
SERVES_ITSELF: Final = "HUB-128"
TOO_MANY_HUBS: Final = "HUB-129"
MACHINE_OVER_NETWORK: Final = "HUB-130"
DUPLICATE: Final = "HUB-131"
FILE_OVERLAID: Final = "HUB-132"
NOT_TRUSTED: Final = "HUB-133"
OWN_FILE_WRITABLE: Final = "HUB-134"

# Servers that are processes
PROGRAM_MISSING: Final = "HUB-201"
PROGRAM_NOT_EXECUTABLE: Final = "HUB-202"
COMMAND_WITH_SPACES: Final = "HUB-203"
PROGRAM_NOT_STARTED: Final = "HUB-204"
PROCESS_EXITED: Final = "HUB-205"
PROCESS_KILLED: Final = "HUB-206"
HANDSHAKE_LATE: Final = "HUB-207"
STDOUT_NOISY: Final = "HUB-208"
HANDSHAKE_REFUSED: Final = "HUB-209"
NO_COMMON_REVISION: Final = "HUB-210"
LIST_LATE: Final = "HUB-211"
MESSAGE_TOO_LARGE: Final = "HUB-212"
LISTS_INCOMPLETE: Final = "HUB-213"
NODE_TOO_OLD: Final = "HUB-214"
DOCKER_UNAVAILABLE: Final = "HUB-215"
PACKAGE_UNKNOWN: Final = "HUB-216"
PACKAGES_UNREACHABLE: Final = "HUB-217"
PING_UNANSWERED: Final = "HUB-218"
VARIABLE_NOT_PASSED: Final = "HUB-219"

# Servers on a network
HOST_UNKNOWN: Final = "HUB-301"
CONNECTION_REFUSED: Final = "HUB-302"
CONNECT_LATE: Final = "HUB-303"
CERTIFICATE_REFUSED: Final = "HUB-304"
TLS_UNKNOWN: Final = "HUB-305"
TLS_WANTED: Final = "HUB-306"
NO_MCP_HERE: Final = "HUB-307"
SERVER_FAILED: Final = "HUB-308"
RATE_LIMITED: Final = "HUB-309"
REDIRECTED: Final = "HUB-310"
NOT_HTTP: Final = "HUB-311"
PROXY_UNREACHABLE: Final = "HUB-313"
PROXY_CREDENTIALS: Final = "HUB-314"
PROXY_REFUSED: Final = "HUB-315"
CERTIFICATE_FILE_WRONG: Final = "HUB-316"
CERTIFICATE_WANTED: Final = "HUB-317"

# Sign-ins and credentials
SIGN_IN_NEEDED: Final = "HUB-401"
CREDENTIALS_REFUSED: Final = "HUB-402"
ACCESS_REFUSED: Final = "HUB-403"
CLIENT_REFUSED: Final = "HUB-404"
ISSUER_AWAY: Final = "HUB-405"
TOKENS_UNREADABLE: Final = "HUB-406"

# Listening
PORT_TAKEN: Final = "HUB-501"
PORT_FORBIDDEN: Final = "HUB-502"
ADDRESS_FOREIGN: Final = "HUB-503"
TOKEN_MISSING: Final = "HUB-504"
TOKEN_WEAK: Final = "HUB-505"
RESOURCE_MISSING: Final = "HUB-506"
TLS_FILE_UNREADABLE: Final = "HUB-507"
TLS_FILE_WRONG: Final = "HUB-508"
TLS_KEY_ENCRYPTED: Final = "HUB-509"
TLS_EXPIRED: Final = "HUB-510"
HTTP_OPTION_MISSING: Final = "HUB-511"
REQUIRED_FAILED: Final = "HUB-512"
FEW_DESCRIPTORS: Final = "HUB-513"
SOCKET_UNUSABLE: Final = "HUB-514"
SOCKET_HANDED: Final = "HUB-515"

# The hub's own files, and hubs that run
STATE_NOT_PRIVATE: Final = "HUB-601"
STATE_NOT_WRITABLE: Final = "HUB-602"
HUB_SILENT: Final = "HUB-603"
HUB_OUTDATED: Final = "HUB-604"
FILE_NOT_IN_FORCE: Final = "HUB-605"
SOCKET_LEFT_OVER: Final = "HUB-606"

# This machine
NOT_ON_PATH: Final = "HUB-701"
OTHER_ON_PATH: Final = "HUB-702"
SHORT_PATH: Final = "HUB-703"
BROWSER_MISSING: Final = "HUB-704"
BROWSER_WITHOUT_SANDBOX: Final = "HUB-705"
CLOCK_WRONG: Final = "HUB-706"

# Client programs
CLIENT_FILE_BROKEN: Final = "HUB-801"
CLIENT_WITHOUT_HUB: Final = "HUB-802"
CLIENT_COMMAND_MISSING: Final = "HUB-803"
CLIENT_CONFIGURATION: Final = "HUB-804"
CLIENT_HUB_OFF: Final = "HUB-805"
CLIENT_START_FAILED: Final = "HUB-806"
CLIENT_START_SLOW: Final = "HUB-807"
CLIENT_DUPLICATES: Final = "HUB-808"

# Tools and other items that servers list
PIN_DIFFERS: Final = "HUB-901"
SCREEN_FLAGGED: Final = "HUB-902"
ITEM_LEFT_OUT: Final = "HUB-903"
NAME_TAKEN: Final = "HUB-904"
NAME_CONFUSABLE: Final = "HUB-905"


class CodedText(str):
    """A message for the user, with its code of this module in `code`."""

    __slots__ = ("code",)

    def __new__(cls, text: str, code: str) -> Self:
        """Makes the message `text` with a code of this module."""
        coded_text = super().__new__(cls, text)
        coded_text.code = code
        return coded_text

    code: str


def code_of(text: str | None) -> str | None:
    """Returns the code of a text that is a CodedText; None for any other."""
    return text.code if isinstance(text, CodedText) else None


def with_code(text: str, code: str | None = None) -> str:
    """Returns `text` with `code`, or else with the code of a CodedText, in brackets after its first line."""
    shown_code = code or code_of(text)
    first, newline, rest = text.partition("\n")
    return f"{first} [{shown_code}]{newline}{rest}" if shown_code else str(text)
