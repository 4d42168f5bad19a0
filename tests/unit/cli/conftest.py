from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from slo_operator.api.resource import InferenceSLO
from slo_operator.cli.source import Wanted, from_file

SAMPLE = Path(__file__).with_name("assistant.yaml")


@pytest.fixture
def sample() -> Path:
    """The file of an InferenceSLO in trouble: one model missed, one met, a canary in flight."""
    return SAMPLE


@pytest.fixture
def assistant(sample: Path) -> InferenceSLO:
    (resource,) = from_file(str(sample), Wanted(None, None))
    return resource


@pytest.fixture
def shown() -> Callable[[Sequence[RenderableType]], list[str]]:
    """What a terminal of 180 columns shows, line by line, without trailing blanks."""

    def render(renderables: Sequence[RenderableType]) -> list[str]:
        console = Console(
            file=StringIO(), width=180, color_system=None, highlight=False, markup=False, emoji=False
        )
        for renderable in renderables:
            console.print(renderable)
        assert isinstance(console.file, StringIO)
        return [line.rstrip() for line in console.file.getvalue().splitlines()]

    return render
