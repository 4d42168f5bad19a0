"""Checks the documentation: every relative link leads to a file, and every #anchor to a heading of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*$")
FENCE = re.compile(r"^\s*(```|~~~)")


def prose(path: Path) -> list[tuple[int, str]]:
    """The numbered lines of a page outside its code blocks."""
    inside = False
    lines = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            lines.append((number, line))
    return lines


def anchor(title: str) -> str:
    """A heading's address, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    return {anchor(match["title"]) for _, line in prose(path) if (match := HEADING.match(line))}


def check(page: Path) -> list[str]:
    """What is wrong with the links of one page."""
    problems = []
    for number, line in prose(page):
        for match in LINK.finditer(line):
            target, _, fragment = match["target"].partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            where = f"{page.relative_to(ROOT)}:{number}"
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                problems.append(f"{where}: {target} does not exist")
            elif fragment and file.suffix == ".md" and fragment not in anchors(file):
                problems.append(f"{where}: {file.name} has no heading #{fragment}")
    return problems


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    problems = [line for name in sorted(set(listed.stdout.splitlines())) for line in check(ROOT / name)]
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
