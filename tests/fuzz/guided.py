"""The targets, guided by coverage: `scripts/fuzz`. libFuzzer by atheris makes the texts, one process a target.

Texts that reach something new are kept in `CORPUS/TARGET` and are where the next run begins. The exit code is 1 when
a promise was broken.
"""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import targets

MAX_TEXT = 2048
"""Bytes of one text; every bound in the targets is far below."""
SECONDS_A_TEXT = 20
"""Seconds after which a text counts as a hang."""
MAX_MEMORY = 2048
"""Mebibytes of one process, after which it counts as a leak."""
SAFE = re.compile(rb"[\x20\x21\x23-\x5b\x5d-\x7e]")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="for each target")
    parser.add_argument("--target", action="append", choices=targets.NAMES, help="only this one; can be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir(), "mcp-hub-fuzz"))
    parser.add_argument("--reproduce", type=Path, help="run one text without a fuzzer")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen: list[str] = options.target or list(targets.NAMES)
    if options.reproduce is not None:
        for name in chosen:
            targets.load(name).target(options.reproduce.read_bytes())
        return 0
    if options.one:
        fuzz(chosen[0], options)
        return 0
    try:
        import atheris  # noqa: F401
    except ImportError:
        sys.stderr.write("atheris has no package for this system: it needs Linux on x86-64 and Python 3.11 to 3.13\n")
        return 2
    print(
        "| target | texts | per second | places reached | kept | broken promises |\n|---|---|---|---|---|---|",
        flush=True,
    )
    return int(any([not guided(name, options) for name in chosen]))


def guided(name: str, options: argparse.Namespace) -> bool:
    """Runs one target in a process of its own, and returns whether it kept its promises."""
    directory: Path = options.corpus / name
    directory.mkdir(parents=True, exist_ok=True)
    before = set(directory.glob("crash-*")) | set(directory.glob("timeout-*")) | set(directory.glob("oom-*"))
    argv = [sys.executable, "-m", "tests.fuzz.guided", "--one", "--target", name, "--corpus", str(options.corpus)]
    argv += ["--minutes", str(options.minutes), "--seed", str(options.seed)]
    log = directory.with_name(f"{name}.log")
    with log.open("wb") as file:
        code = subprocess.run(
            argv, stdout=file, stderr=file, timeout=options.minutes * 60 + 300, check=False
        ).returncode
    log_text = log.read_text(errors="replace")
    texts = _last(r"stat::number_of_executed_units:\s*(\d+)", log_text)
    rate = _last(r"stat::average_exec_per_sec:\s*(\d+)", log_text)
    reached = _last(r"cov: (\d+)", log_text)
    artifacts = sorted(
        (set(directory.glob("crash-*")) | set(directory.glob("timeout-*")) | set(directory.glob("oom-*"))) - before
    )
    corpus_size = sum(1 for _ in directory.iterdir()) - len(artifacts) - len(before)
    broken = "none" if not artifacts and code == 0 else ", ".join(path.name for path in artifacts) or f"see {log}"
    print(f"| {name} | {texts} | {rate} | {reached} | {corpus_size} | {broken} |", flush=True)
    for path in artifacts:
        sys.stderr.write(f"scripts/fuzz --target {name} --reproduce {path}\n")
    return code == 0 and not artifacts


def _last(pattern: str, text: str) -> str:
    matches = re.findall(pattern, text)
    return f"{int(matches[-1]):,}" if matches else "?"


def fuzz(name: str, options: argparse.Namespace) -> None:
    """Hands one target to libFuzzer, which ends the process."""
    import atheris

    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["mcp_hub"]):
        module = targets.load(name)
    directory = options.corpus / name
    for number, seed in enumerate(module.SEEDS):
        (directory / f"seed-{number}").write_bytes(seed)
        module.target(seed)  # starts now what is started once
    dictionary = options.corpus / f"{name}.dict"
    dictionary.write_bytes(b"".join(b'"%s"\n' % _quoted(token) for token in module.TOKENS if 0 < len(token) <= 64))
    atheris.Setup(
        [
            sys.argv[0],
            str(directory),
            f"-max_total_time={round(options.minutes * 60)}",
            f"-seed={options.seed}",
            f"-dict={dictionary}",
            f"-artifact_prefix={directory}/",
            f"-max_len={MAX_TEXT}",
            f"-timeout={SECONDS_A_TEXT}",
            f"-rss_limit_mb={MAX_MEMORY}",
            "-print_final_stats=1",
        ],
        module.target,
    )
    atheris.Fuzz()


def _quoted(token: bytes) -> bytes:
    return b"".join(bytes([byte]) if SAFE.match(bytes([byte])) else b"\\x%02x" % byte for byte in token)


if __name__ == "__main__":
    sys.exit(main())
