"""Typed text of the API: durations and percentages.

Both stay the text that people wrote, so that nothing is reformatted on the way through, and carry
their number beside it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from slo_operator.api.rules import Rule, validations

DURATION_MESSAGE: Final = "a duration with a unit, such as 300ms"
POSITIVE_MESSAGE: Final = "a duration above zero, such as 300ms"
PERCENTAGE_MESSAGE: Final = "a percentage from 0% to 100%, such as 99.9%"

#: Go's grammar without signs and nanoseconds, so that CEL's duration() reads every value that passes
DURATION_PATTERN: Final = r"^([0-9]+([.][0-9]+)?(us|ms|s|m|h))+$"
PERCENTAGE_PATTERN: Final = r"^(100([.]0+)?|[0-9]{1,2}([.][0-9]+)?)%$"

_TERM = re.compile(r"([0-9]+(?:[.][0-9]+)?)(us|ms|s|m|h)")
_DURATION = re.compile(DURATION_PATTERN)
_PERCENTAGE = re.compile(PERCENTAGE_PATTERN)
_UNIT_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_MAX_TEXT: Final = 16


class Duration(str):
    """A length of time with a unit, such as 300ms, 1.5s or 1m30s."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Raise ValueError for anything but numbers with units us, ms, s, m, h."""
        if not isinstance(text, str) or len(text) > _MAX_TEXT or not _DURATION.fullmatch(text):
            raise ValueError(DURATION_MESSAGE)
        return super().__new__(cls, text)

    @classmethod
    def of_seconds(cls, seconds: float) -> Self:
        """The shortest text in one unit that says `seconds` to the microsecond."""
        us = round(seconds * 1_000_000)
        if us < 0:
            raise ValueError(f"{seconds} s: a duration is not negative")
        for unit in ("h", "m", "s", "ms"):
            if us and us % _UNIT_US[unit] == 0:
                return cls(f"{us // _UNIT_US[unit]}{unit}")
        return cls("0s" if us == 0 else f"{us}us")

    @property
    def microseconds(self) -> int:
        return int(sum(Decimal(number) * _UNIT_US[unit] for number, unit in _TERM.findall(self)))

    @property
    def seconds(self) -> float:
        return self.microseconds / 1_000_000

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _text_schema(cls, "duration")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # the rule, not `pattern`: a pattern's message would be the regular expression
        rule = Rule(f"self.matches('{DURATION_PATTERN}')", DURATION_MESSAGE)
        return {"type": "string", "minLength": 2, "maxLength": _MAX_TEXT} | validations(rule)


class PositiveDuration(Duration):
    """A length of time above zero."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Raise ValueError for what is no duration, and for zero."""
        duration = super().__new__(cls, text)
        if not duration.microseconds:
            raise ValueError(POSITIVE_MESSAGE)
        return duration

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        out = super().__get_pydantic_json_schema__(schema, handler)
        out["x-kubernetes-validations"].append(Rule("self.matches('[1-9]')", POSITIVE_MESSAGE).schema())
        return out


class Percentage(str):
    """A share of a hundred, such as 99.9%."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Raise ValueError for anything but 0% to 100%."""
        if not isinstance(text, str) or len(text) > _MAX_TEXT or not _PERCENTAGE.fullmatch(text):
            raise ValueError(PERCENTAGE_MESSAGE)
        return super().__new__(cls, text)

    @property
    def share(self) -> float:
        """The value as a share of one: 99.9% is 0.999."""
        return float(Decimal(self[:-1]) / 100)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _text_schema(cls, "percentage")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        rule = Rule(f"self.matches('{PERCENTAGE_PATTERN}')", PERCENTAGE_MESSAGE)
        return {"type": "string", "minLength": 2, "maxLength": _MAX_TEXT} | validations(rule)


def format_latency(seconds: float) -> str:
    """A measured time for people: 262ms, 4.1ms, 1.73s; three digits at most."""
    if seconds >= 1:
        return f"{seconds:.3g}s" if seconds < 1000 else f"{seconds:.0f}s"
    ms = seconds * 1000
    if ms >= 100:
        # 999.6 ms would read 1000ms: the next unit takes over
        return f"{ms:.0f}ms" if round(ms) < 1000 else "1s"
    return f"{ms:.2g}ms" if ms < 10 else f"{ms:.0f}ms"


def format_share(share: float) -> str:
    """A share of one as a percentage with two digits: 0.9921 is 99.21%."""
    return f"{share * 100:.2f}%"


def _text_schema(cls: type[Duration] | type[Percentage], kind: str) -> CoreSchema:
    def parse(value: Any) -> str:
        try:
            return cls(value)
        except ValueError as error:
            text = "{expected} (got {value})"
            raise PydanticCustomError(kind, text, {"expected": str(error), "value": repr(value)}) from None

    to_text = core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema())
    return core_schema.no_info_plain_validator_function(parse, serialization=to_text)
