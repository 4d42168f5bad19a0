"""Numbers and names of the status as people read them: ages, bars, names of stages."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from slo_operator.api.types import Duration

#: the status' names of stages, in the order in which a request passes through them
STAGES = {
    "preprocess": "preprocessing",
    "batching_delay": "waiting for a batch",
    "busy_wait": "waiting for an instance",
    "forward": "forward pass",
    "postprocess": "postprocessing",
    "other": "computing",
    "unexplained": "unexplained",
}

_EIGHTHS = " ▏▎▍▌▋▊▉"
_NUMBER = re.compile(r"^-?[0-9]+(?:\.[0-9]+)?")


def bar(share: float, width: int) -> str:
    """A bar of up to `width` cells for a share of one, drawn to an eighth of a cell.

    A share above zero shows at least the thinnest line, so that nothing looks like nothing.
    """
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def share_of(text: str | None) -> float | None:
    """The share of one that a text such as 68.21% means; None when it says nothing."""
    match = _NUMBER.match(text or "")
    return float(match.group()) / 100 if match else None


def seconds_of(text: str | None) -> float | None:
    """Seconds of a time as the status writes it (262ms, 1.73s); None when it is none."""
    try:
        return Duration(text).seconds if text else None
    except ValueError:
        return None


def parse_time(text: str) -> datetime | None:
    """A time as Kubernetes writes it: RFC 3339, in UTC. None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def age(text: str, now: datetime) -> str:
    """How long ago that was, as kubectl puts it: 8s, 3m20s, 75m, 5h, 3d."""
    moment = parse_time(text)
    if moment is None:
        return "?"
    seconds = max(0, int((now - moment).total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 600:
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h"
    return f"{seconds // 86400}d"


def clock(text: str, now: datetime) -> str:
    """The time of day in UTC, with the date once it is not today's."""
    moment = parse_time(text)
    if moment is None:
        return text
    moment = moment.astimezone(UTC)
    return moment.strftime("%H:%M:%S" if moment.date() == now.astimezone(UTC).date() else "%Y-%m-%d %H:%M:%S")
