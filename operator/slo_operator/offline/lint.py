"""What is wrong, or does not do what it seems to, in one config.pbtxt. Nothing is ever changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from tritonclient.grpc.model_config_pb2 import ModelConfig

from slo_operator.render.model_config import ConfigError, from_text

ERROR, WARNING = "error", "warning"
#: a queue delay may take this share of the strictest target
DELAY_SHARE: Final = 0.1
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_COMMENT: Final = re.compile(r"#[^\n]*")
_PLACEHOLDER: Final = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` is None for what concerns the whole file; `suggestion` is what to write instead."""

    file: str
    line: int | None
    field: str | None
    severity: str
    code: str
    message: str
    suggestion: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file that parsed; `text` is what was read."""

    file: str
    text: str
    config: ModelConfig

    def finding(
        self, field: str | None, severity: str, code: str, message: str, suggestion: str | None = None
    ) -> Finding:
        """A finding at the first place where the field's last part stands in the file."""
        line = line_of(self.text, re.split(r"[.\[]", field)[-1] if field else "")
        return Finding(self.file, line, field, severity, code, message, suggestion)


def parse(file: str, text: str) -> Parsed | Finding:
    """The configuration, or why it is none: the parser's line, and its words in people's."""
    try:
        return Parsed(file, text, from_text(text))
    except ConfigError as error:
        line = error.line
        rest = text.splitlines()[line - 1] if line and line <= text.count("\n") + 1 else ""
        left = _PLACEHOLDER.search(_QUOTED.sub("", rest))
        if left is not None:
            words = f"a left-over placeholder, {left[0]}: the template was not filled in"
            return Finding(file, line, None, ERROR, "bare-placeholder", words, "write the value itself")
        return Finding(file, line, None, ERROR, "syntax", error.why)


def lint(parsed: Parsed, target_s: float | None = None) -> Iterator[Finding]:
    """Findings about the file alone; `target_s` is the strictest latency target, None when there is none."""
    yield from _placeholders(parsed)
    config = parsed.config
    if config.HasField("dynamic_batching"):
        yield from _batching(parsed, target_s)
    if _in_flight(config) and config.dynamic_batching.max_queue_delay_microseconds > 0:
        yield parsed.finding(
            "dynamic_batching.max_queue_delay_microseconds", WARNING, "delay-before-inflight-batching",
            "the engine batches in flight: a delay in front of it only adds latency", "remove the queue delay",
        )  # fmt: skip


def line_of(text: str, word: str) -> int | None:
    """The first line on which a word stands outside comments and strings."""
    bare = _COMMENT.sub("", _QUOTED.sub(lambda m: '"' + " " * (len(m[0]) - 2) + '"', text))
    found = re.search(rf"\b{re.escape(word)}\b", bare) if word else None
    return bare.count("\n", 0, found.start()) + 1 if found else None


def _placeholders(parsed: Parsed) -> Iterator[Finding]:
    for key, parameter in parsed.config.parameters.items():
        left = _PLACEHOLDER.search(parameter.string_value)
        if left is not None:
            line = next((n for n, t in enumerate(parsed.text.splitlines(), 1) if left[0] in t), None)
            words = f"{key} is still the placeholder {left[0]}: it counts as unset, and the backend takes its default"
            yield Finding(
                parsed.file,
                line,
                f"parameters[{key}]",
                WARNING,
                "placeholder",
                words,
                "fill it in or remove it",
            )


def _batching(parsed: Parsed, target_s: float | None) -> Iterator[Finding]:
    config = parsed.config
    batching, most = config.dynamic_batching, config.max_batch_size
    preferred, delay_us = list(batching.preferred_batch_size), batching.max_queue_delay_microseconds
    if most == 0:
        yield parsed.finding(
            "dynamic_batching", WARNING, "batching-unsupported",
            "max_batch_size is 0: this model cannot batch. A server loads it, and no two requests ever share a batch",
            "remove dynamic_batching, or give a max_batch_size of what the model can take",
        )  # fmt: skip
        return
    above = [size for size in preferred if size > most]
    if above:
        yield parsed.finding(
            "dynamic_batching.preferred_batch_size", ERROR, "preferred-above-max",
            f"preferred sizes {above} are above max_batch_size {most}: a server refuses them",
            f"preferred_batch_size: [ {most} ]",
        )  # fmt: skip
    elif len(preferred) > 1:
        yield parsed.finding(
            "dynamic_batching.preferred_batch_size", WARNING, "smallest-preferred-wins",
            f"a batch leaves as soon as it has the smallest preferred size, {min(preferred)}: larger ones form only"
            " while no instance is free",
            f"preferred_batch_size: [ {max(preferred)} ]",
        )  # fmt: skip
    if target_s is not None and delay_us / 1e6 > DELAY_SHARE * target_s:
        yield parsed.finding(
            "dynamic_batching.max_queue_delay_microseconds", WARNING, "delay-eats-target",
            f"a request may wait {delay_us / 1e3:g} ms for company, of {1e3 * target_s:g} ms that it has",
            f"max_queue_delay_microseconds: {int(1e6 * DELAY_SHARE * target_s)}",
        )  # fmt: skip
    loose = [i.name for i in config.input if -1 in i.dims and not i.allow_ragged_batch]
    if loose and delay_us > 0:
        yield parsed.finding(
            "dynamic_batching.max_queue_delay_microseconds", WARNING, "delay-for-other-shapes",
            f"{', '.join(loose)} may have any length, and only requests of the same one share a batch: the others wait"
            f" {delay_us / 1e3:g} ms for nobody",
            "pad to one length, or allow_ragged_batch where the backend can",
        )  # fmt: skip


def _in_flight(config: ModelConfig) -> bool:
    kind = config.parameters["gpt_model_type"].string_value if "gpt_model_type" in config.parameters else ""
    return config.backend == "tensorrtllm" and ("inflight" in kind or not kind)
