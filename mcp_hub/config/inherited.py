"""The variables of the hub's environment that servers inherit: one table, with a reason for each name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal

import msgspec

from mcp_hub.config.models import Server
from mcp_hub.config.package_specs import unwrap_command
from mcp_hub.security.redaction.heuristics import is_secret_key, likely_secrets

Passing = Literal["always", "windows", "posix", "programs", "never"]
"""To which servers a variable passes: to all, to all on one system, to those of certain programs, to none."""


class Inherited(msgspec.Struct, frozen=True):
    """Variables that pass to the same servers for the same reason."""

    passing: Passing
    names: str
    """Names, and prefixes that end in `*`. A name that stands for a secret must be written out."""
    reason: str
    programs: str = ""
    """The programs that get them, for `programs`."""
    complaint: str = ""
    """A regular expression of what programs print that lack them."""


_CONTAINERS: Final = "docker docker-compose podman podman-compose nerdctl"
_CLOUD: Final = "kubectl helm k9s oc terraform"
INHERITED: Final = (
    Inherited("posix", "PATH SHELL TERM", "where programs are, and what they may print"),
    Inherited("posix", "HOME USER LOGNAME TMPDIR XDG_SESSION_ID XDG_SESSION_TYPE XDG_SESSION_CLASS XDG_SESSION_DESKTOP "
        "XDG_*", "who the user is, in which session, and where files are"),
    Inherited("posix", "LANG LANGUAGE LC_* TZ", "language and time zone"),
    Inherited("windows", "PATH PATHEXT SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC TEMP TMP APPDATA LOCALAPPDATA PROGRAMDATA "
        "PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432 HOMEDRIVE HOMEPATH USERPROFILE USERNAME PROCESSOR_ARCHITECTURE "
        "NUMBER_OF_PROCESSORS", "programs do not start without them, or do not find the user's files"),
    Inherited("always", "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE NIX_SSL_CERT_FILE "
        "NODE_EXTRA_CA_CERTS", "where certificates are, without which nothing connects through a proxy that decrypts"),
    Inherited("always", "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy",
        "the way to the internet, if only a proxy reaches it"),
    Inherited("always", "DISPLAY WAYLAND_DISPLAY XAUTHORITY", "where a program can show a window"),
    Inherited("always", "JAVA_HOME JDK_HOME MAVEN_HOME M2_HOME GRADLE_HOME GRADLE_USER_HOME SDKMAN_DIR ANDROID_HOME "
        "ANDROID_SDK_ROOT DOTNET_ROOT NVM_DIR FNM_DIR VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_INSTALL DENO_DIR GOPATH "
        "GOROOT GOBIN GOCACHE GOMODCACHE CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN PYENV_ROOT PIPX_HOME PIPX_BIN_DIR "
        "RBENV_ROOT GEM_HOME GEM_PATH ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR HOMEBREW_PREFIX HOMEBREW_CELLAR "
        "HOMEBREW_REPOSITORY NIX_PATH NIX_PROFILES PLAYWRIGHT_BROWSERS_PATH PUPPETEER_CACHE_DIR "
        "PUPPETEER_EXECUTABLE_PATH CHROME_PATH MCP_HUB_CHROMIUM", "where tool chains and browsers are installed"),
    Inherited("always", "npm_config_* NPM_CONFIG_* UV_* PIP_* GOPROXY GOPRIVATE GONOPROXY GOSUMDB GONOSUMDB COREPACK_*",
        "which registry packages come from, and how"),
    Inherited("programs", "DOCKER_*", "which Docker answers, such as a rootless one, Colima or another machine",
        _CONTAINERS, r"[Cc]onnect(?:ing)? to the [Dd]ocker|[Dd]ocker daemon|docker\.sock"),
    Inherited("programs", "CONTAINER_HOST CONTAINER_CONNECTION CONTAINER_SSHKEY CONTAINERS_CONF "
        "CONTAINERS_STORAGE_CONF CONTAINERS_REGISTRIES_CONF REGISTRY_AUTH_FILE", "which Podman answers, and as whom",
        _CONTAINERS, r"[Cc]onnect(?:ing)? to Podman|podman\.sock"),
    Inherited("programs", "KUBECONFIG", "the clusters of the user, with the credentials for them",
        f"{_CLOUD} flux istioctl", r"localhost:8080 was refused|[Kk]ubeconfig|kube config"),
    Inherited("programs", "AWS_PROFILE AWS_DEFAULT_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_CONFIG_FILE "
        "AWS_SHARED_CREDENTIALS_FILE", "which account of AWS is used", f"{_CLOUD} aws sam cdk eksctl",
        r"locate credentials|NoCredentials|[Cc]ould not load credentials|specify a region|[Rr]egion is missing"),
    Inherited("programs", "GOOGLE_APPLICATION_CREDENTIALS CLOUDSDK_CONFIG CLOUDSDK_ACTIVE_CONFIG_NAME "
        "GOOGLE_CLOUD_PROJECT", "which account of Google Cloud is used", f"{_CLOUD} gcloud gsutil bq",
        "default credentials"),
    Inherited("programs", "AZURE_CONFIG_DIR", "which account of Azure is used", f"{_CLOUD} az azd func"),
    Inherited("programs", "GH_CONFIG_DIR GH_HOST", "which account of GitHub is used", "gh"),
    Inherited("programs", "SSH_AUTH_SOCK", "the agent that signs with the user's SSH keys",
        f"ssh git rsync {_CONTAINERS}", r"Permission denied \(publickey|authentication agent|ssh-agent"),
    Inherited("programs", "GNUPGHOME", "the user's OpenPGP keys", "gpg git pass gopass"),
    Inherited("programs", "DBUS_SESSION_BUS_ADDRESS", "the keyring, and the programs and notifications of the desktop",
        f"flatpak gdbus busctl systemd-run secret-tool {_CONTAINERS}", "D-?Bus|session bus"),
    Inherited("never", "_ __* PWD OLDPWD SHLVL HOSTNAME HOST MAIL EDITOR VISUAL PAGER LESS* LS_COLORS LSCOLORS PS1 PS2 "
        "PROMPT* HIST* MANPATH INFOPATH COLORTERM COLORFGBG COLUMNS LINES TERM_* TERM_SESSION_ID ITERM_* "
        "ITERM_SESSION_ID VTE_VERSION WINDOWID TMUX* STY SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AGENT_PID XPC_* "
        "SECURITYSESSIONID SESSION_MANAGER DESKTOP_SESSION GDMSESSION GNOME_* GNOME_DESKTOP_SESSION_ID KDE_* "
        "KDE_FULL_SESSION KDE_SESSION_UID KDE_SESSION_VERSION GTK_* GDK_* QT_* XMODIFIERS "
        "INVOCATION_ID JOURNAL_STREAM SYSTEMD_* VSCODE_* CLAUDECODE CLAUDE_CODE_* CODEX_* GEMINI_CLI* OPENCODE* "
        "MCP_HUB_*", "the state of a shell, terminal, desktop or client, which means nothing to a server"),
)  # fmt: skip
"""A name that no row has is not passed on, as it may hold a secret. A row of `programs` grants a capability."""
_SSH_USER: Final = re.compile(r"\bssh://[^\s:@/]*@")
_DIRECTORY: Final = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{2,}")
MAX_NAMES: Final = 3
"""Variables that one error names."""


@cache
def _rows(windows: bool) -> dict[str, Inherited]:
    other_system = "posix" if windows else "windows"
    rows = [row for row in INHERITED if row.passing != other_system]
    return {name.upper() if windows else name: row for row in rows for name in row.names.split()}


def inherited_row(name: str, *, windows: bool = os.name == "nt") -> Inherited | None:
    """Returns the row of a variable; None if the table does not have it. Windows ignores the case of names."""
    name = name.upper() if windows else name
    rows = _rows(windows)
    if name in rows or is_secret_key(name):
        return rows.get(name)
    return next((row for key, row in rows.items() if key.endswith("*") and name.startswith(key[:-1])), None)


_USER: Final = re.compile(r"(?://[^\s/@]*|:[^\s/@][^\s@]*)@")
"""A user or a password before a host: `https://token@host`, `me:password@host`; not `me@example.com`, `/home/a@b`."""


def has_credential(value: str) -> bool:
    """Returns whether a value has a credential in it, such as the password of a URL."""
    value = _SSH_USER.sub("ssh://", value)
    names_user = _USER.search(value) is not None and _DIRECTORY.match(value) is None
    return names_user or bool(likely_secrets(value))


def inherited(server: Server, environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> dict[str, str]:
    """Returns the variables of `environ` that the process of `server` gets without its entry naming them."""
    program = unwrap_command(server.command or "", server.args)[0]
    return {name: value for name, value in environ.items() if _passes(name, value, program, windows)}


def _passes(name: str, value: str, program: str, windows: bool) -> bool:
    row = inherited_row(name, windows=windows)
    if row is None or row.passing == "never" or value.startswith("()"):  # a function of bash is code, not a value
        return False
    if row.passing in ("posix", "windows"):  # a directory or language may have `@` in it
        return row.passing == "windows" or name in row.names.split() or not likely_secrets(value)
    return (row.passing == "always" or program in row.programs.split()) and not has_credential(value)


def capabilities(environ: Mapping[str, str]) -> dict[str, Inherited]:
    """Returns the variables of `environ` that pass to certain programs only, without those that hold a credential."""
    rows = {name: inherited_row(name) for name, value in environ.items() if not has_credential(value)}
    return {name: row for name, row in rows.items() if row is not None and row.passing == "programs"}


def withheld(server: Server, environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the names in `environ` that may mean something to a server, and that the process of `server` lacks."""
    passed = inherited(server, environ)
    for name, value in environ.items():
        row, lacks = inherited_row(name), name not in passed and name not in server.env
        if lacks and not value.startswith("()") and (row is None or row.passing != "never"):
            yield name


def missed_variables(server: Server, text: str, environ: Mapping[str, str]) -> list[str]:
    """Returns variables that are set here, that a server lacks, and that it misses according to what it printed."""
    named = set(_NAME.findall(text))
    missed = []
    for name in withheld(server, environ):
        row = inherited_row(name)
        if name in named or (row is not None and row.complaint and re.search(row.complaint, text)):
            missed.append(name)
    return missed[:MAX_NAMES]
