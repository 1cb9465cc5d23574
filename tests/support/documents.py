"""The project's documents: their fenced blocks and tables, and a reader who runs the blocks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FOLDERS = ("deploy", "docs", "examples", "schemas", "tests", "worker")
DOCUMENTS = [
    *sorted(file.name for file in ROOT.glob("*.md")),
    *sorted(str(file.relative_to(ROOT)) for folder in _FOLDERS for file in (ROOT / folder).rglob("*.md")),
]

RUN = {"sh", "python", "toml"}
"""Blocks that a test runs."""
SHOWN = {"output", "text"}
"""Blocks that nobody runs: the output of the block before, and pictures."""

# What a test must not do for a reader, such as installing or starting a cluster, is reduced to a check of the
# arguments. `make demo`, the image and the manifests have tests of their own.
_STAND_INS = r"""
make() { command make --dry-run --directory "$ROOT" "$@"; }
pip() { PIP_DRY_RUN=1 PIP_NO_DEPS=1 PIP_NO_INDEX=1 python -m pip "$@" --no-build-isolation --quiet; }
python3() {
    if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; touch "$3/bin/activate"; else python "$@"; fi
}
docker() { [ "$1 $4" = "build --file" ] && [ -f "$5" ] && [ -d "$6" ]; }
kind() { [[ "$*" =~ ^(create\ cluster|load\ docker-image\ [^ ]+)$ ]]; }
kubectl() {
    case "$*" in "apply -k "*) [ -f "$3/kustomization.yaml" ];; *" deployment/kp-worker "*) ;; *) false;; esac
}
"""
QUICKSTART = "as in the [quickstart](../../README.md#quickstart)"
"""Words on a page whose reader has followed the quickstart before."""

_EVENTUALLY = 60.0
_BACKGROUND = re.compile(r"(KP_\w+=\S+ )*kp-worker (run|assemble)\b")
# bfloat16 and float32 differ in the third decimal, which may change the second one that is shown.
_TOLERANCE = 0.015


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: the number of the text's first line, counted from 1.
        tag: the first word after the fence.
        argument: the other words after the fence.
    """

    line: int
    tag: str
    argument: str
    text: str


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> list[Block]:
    found = []
    for fence in re.finditer(r"^```([^\n]*)\n(.*?)^```$", read(document), re.MULTILINE | re.DOTALL):
        tag, _, argument = fence[1].partition(" ")
        found.append(Block(read(document).count("\n", 0, fence.start()) + 2, tag, argument, fence[2]))
    return found


def section(document: str, heading: str) -> list[Block]:
    """Return the blocks under a heading of the second level."""
    text = read(document)
    begin = text.index(f"\n## {heading}\n") + 1
    first, last = (text.count("\n", 0, at) + 1 for at in (begin, text.index("\n## ", begin)))
    return [block for block in blocks(document) if first < block.line <= last]


def table(document: str, heading: str) -> list[str]:
    """Return the rows of the first table under a heading, without the header row."""
    section = re.split(r"^#+ ", read(document).split(f" {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[
        0
    ]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def starts(document: str) -> bool:
    """Tell whether its reader follows the quickstart: that of the README, and of pages that go on from it."""
    return document == "README.md" or QUICKSTART in read(document)


class Reader:
    """A reader who runs a document's blocks in order, in an empty folder or in a checkout.

    Args:
        folder: an empty folder.
        environment: variables that override the tests' environment.
        renamed: replacements for texts in the blocks, such as the test's own addresses, ports and topics.
        prefix: a prefix of printed names that no document shows.
        checkout: whether the folder looks like a checkout.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        renamed: Mapping[str, str],
        prefix: str = "",
        *,
        checkout: bool = False,
    ) -> None:
        self._folder = folder
        self._renamed = renamed
        self._prefix = prefix
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**os.environ, "PATH": path, "ROOT": str(ROOT), "COLUMNS": "200", **environment}
        self._background: list[subprocess.Popen[bytes]] = []
        self._previous: tuple[list[str], str] = ([], "")
        self._has_started = False
        for entry in ROOT.iterdir() if checkout else ():
            if not entry.name.startswith("."):
                (folder / entry.name).symlink_to(entry)

    def read(self, document: str, skip: str | None = None) -> None:
        """Run every block of a document; raise AssertionError if an output differs from the document.

        Of documents that follow the quickstart, the first does it for the others.

        ``skip``: a heading of the second level, whose blocks are not run.
        """
        if QUICKSTART in read(document) and not self._has_started:
            self._follow("README.md", section("README.md", "Quickstart"))
        self._has_started |= starts(document)
        skipped = [] if skip is None else section(document, skip)
        self._follow(document, [block for block in blocks(document) if block not in skipped])

    def shell(self, text: str) -> None:
        """Run shell commands; a worker or an assembler in the last line continues in the background."""
        lines = self._named(text).rstrip().splitlines()
        if not _BACKGROUND.match(lines[-1]):
            self._run(["bash", "-euo", "pipefail", "-c", "\n".join([_STAND_INS, *lines])])
            return
        if lines[:-1]:
            self._run(["bash", "-euo", "pipefail", "-c", "\n".join([_STAND_INS, *lines[:-1]])])
        command = "\n".join([_STAND_INS, f"exec env {lines[-1]}"])
        with self._log.open("ab") as log:
            self._background.append(
                subprocess.Popen(
                    ["bash", "-euo", "pipefail", "-c", command],
                    **self._place,
                    stdout=log,
                    stderr=log,
                )
            )

    def close(self) -> None:
        """End the background processes in the same way as Ctrl-C."""
        for process in self._background:
            process.send_signal(signal.SIGINT)
        statuses = [process.wait(60) for process in self._background]
        assert not any(statuses), self._log.read_text()

    @property
    def _log(self) -> Path:
        return self._folder.with_name(f"{self._folder.name}.log")

    @property
    def _place(self):
        return {"cwd": self._folder, "env": self._environment, "stdin": subprocess.DEVNULL}

    def _follow(self, document: str, steps: Iterable[Block]) -> None:
        for block in steps:
            try:
                self._do(block)
            except AssertionError as error:
                raise AssertionError(f"{document}:{block.line}: {error}") from None

    def _do(self, block: Block) -> None:
        if block.tag == "sh":
            self.shell(block.text)
        elif block.tag == "python":
            self._run([sys.executable, "-W", "error", "-c", self._named(block.text)])
        elif block.tag == "toml":
            (self._folder / "block.toml").write_text(block.text)
            self._run(["kp-worker", "config", "--config", "block.toml"])
        elif block.tag == "output":
            self._compare(block)
        else:
            assert block.tag == "text", f"nothing runs a block that is tagged {block.tag!r}"

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, **self._place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
        self._previous = command, done.stdout

    def _compare(self, block: Block) -> None:
        deadline = time.monotonic() + (_EVENTUALLY if block.argument == "eventually" else 0)
        while problem := difference(block.text, self._previous[1].replace(self._prefix, "")):
            assert time.monotonic() < deadline, problem
            self._run(self._previous[0])

    def _named(self, text: str) -> str:
        for name, here in self._renamed.items():
            text = text.replace(name, here)
        return text


def difference(expected: str, actual: str) -> str | None:
    """Return the difference between an output and a document's text, or None if they match.

    Any white space counts as a single blank, `...` stands for any text, and numbers with decimals may differ
    a little.
    """
    pattern = " ".join(_patterns(expected)).replace(" .*? ", " (?:.* )??").removesuffix(" .*?")
    end = "(?: .*)?$" if expected.rsplit(maxsplit=1)[-1] == "..." else "$"
    found = re.match(pattern + end, " ".join(actual.split()))
    if not found:
        return f"the output is not as shown:\n{actual}"
    shown = re.findall(r"\d+\.\d+", expected)
    apart = [
        f"{number} is shown as {other}"
        for number, other in zip(found.groups(), shown, strict=True)
        if abs(float(number) - float(other)) > _TOLERANCE
    ]
    return "; ".join(apart) or None


def _patterns(text: str) -> Iterator[str]:
    for word in text.split():
        parts = re.split(r"(\.\.\.|\d+\.\d+)", word)
        yield "".join(
            ".*?" if part == "..." else r"(\d+\.\d+)" if n % 2 else re.escape(part)
            for n, part in enumerate(parts)
        )
