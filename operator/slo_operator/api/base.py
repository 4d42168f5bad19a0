"""What all models of the API share: camelCase outside, unknown fields refused by name, immutability."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StringConstraints
from pydantic.alias_generators import to_camel

from slo_operator.api.rules import Rule, validations


class ApiModel(BaseModel):
    """Base of every object of the API."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
    )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON as the API server stores it: camelCase, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


NAME_MESSAGE = "lower-case letters, digits and '-', beginning with a letter"

MODEL_NAME_MESSAGE = "the name of a folder of the repository: letters, digits, '_', '-' and '.'"

#: a DNS label short enough that <resource>-<server>-headless stays one
Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=20),
    Field(json_schema_extra=validations(Rule("self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", NAME_MESSAGE))),
]

#: a model's name, as a folder of the repository
ModelName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_.]*$", min_length=1, max_length=128),
    Field(
        json_schema_extra=validations(
            Rule("self.matches('^[A-Za-z0-9_][-A-Za-z0-9_.]*$')", MODEL_NAME_MESSAGE)
        )
    ),
]

LabelValue = Annotated[str, StringConstraints(max_length=63)]
LabelKey = Annotated[str, StringConstraints(max_length=316)]

PositiveInt = Annotated[StrictInt, Field(ge=1, le=100_000)]
