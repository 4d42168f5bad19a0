"""What is wrong between an ensemble and its members: names, types, shapes and batch sizes of what is passed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelEnsembling, ModelInput, ModelOutput

from slo_operator.offline.lint import ERROR, Finding, Parsed

_INTO: Final = "ensemble_scheduling.step.input_map"
_OUT_OF: Final = "ensemble_scheduling.step.output_map"
_ANY: Final = -1


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What one side says of a tensor; `dims` without the batch, which a `batching` model has in front of them."""

    type: int
    dims: tuple[int, ...]
    batching: bool

    @staticmethod
    def of(field: ModelInput | ModelOutput, config: ModelConfig) -> _Tensor:
        return _Tensor(field.data_type, tuple(field.dims), config.max_batch_size > 0)

    @property
    def whole(self) -> tuple[int, ...]:
        return (_ANY, *self.dims) if self.batching else self.dims

    def type_fits(self, other: _Tensor) -> bool:
        return self.type == other.type or DataType.TYPE_INVALID in (self.type, other.type)

    def shape_fits(self, other: _Tensor) -> bool:
        """As a server compares them (core, `ensemble_utils.cc`): a dimension of −1 fits any, and one that does not
        batch may have the batch as its first dimension. What nobody said fits."""
        if not (self.dims and other.dims):
            return True
        return _match(self.dims, other.dims) or _match(self.whole, other.whole)

    def __str__(self) -> str:
        return f"[ {', '.join(map(str, self.dims))} ]"


def _match(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or _ANY in (a, b) for a, b in zip(one, other, strict=True))


def lint_ensemble(one: Parsed, models: Mapping[str, ModelConfig], whole: bool) -> Iterator[Finding]:
    """Findings about an ensemble; `models` are those beside it, all of them where `whole`."""
    config = one.config
    made = _made(config, models)
    for step in config.ensemble_scheduling.step:
        member = models.get(step.model_name)
        if member is not None:
            yield from _step(one, step, member, made)
            yield from _batch(one, step.model_name, member)
        elif whole:
            words = f"the step {step.model_name} is no model here; there are {', '.join(sorted(models))}"
            yield one.finding("ensemble_scheduling.step.model_name", ERROR, "unknown-step", words)
    for output in config.output:
        if output.name not in made:
            words = f"no step makes the output {output.name}; there are {', '.join(sorted(made))}"
            yield one.finding("output", ERROR, "output-not-made", words)
        elif (tensor := made[output.name]) is not None:
            yield from _fits(one, "output", output.name, tensor, "the ensemble", _Tensor.of(output, config))


def _made(config: ModelConfig, models: Mapping[str, ModelConfig]) -> dict[str, _Tensor | None]:
    """Every tensor of the ensemble, None where nothing is known of it. Steps may stand in any order."""
    found: dict[str, _Tensor | None] = {i.name: _Tensor.of(i, config) for i in config.input}
    for step in config.ensemble_scheduling.step:
        member = models.get(step.model_name)
        outputs = {o.name: _Tensor.of(o, member) for o in member.output} if member is not None else {}
        found |= {tensor: outputs.get(own) for own, tensor in step.output_map.items()}
    return found


def _batch(one: Parsed, name: str, member: ModelConfig) -> Iterator[Finding]:
    most, its = one.config.max_batch_size, member.max_batch_size
    if its < most:
        words = f"the ensemble takes batches of {most}, its step {name} of {its}: a server refuses that"
        yield one.finding("max_batch_size", ERROR, "member-batch-below", words, f"max_batch_size: {its}")


def _step(
    one: Parsed, step: ModelEnsembling.Step, member: ModelConfig, made: Mapping[str, _Tensor | None]
) -> Iterator[Finding]:
    """One step: what goes in, and what comes out."""
    name = step.model_name
    inputs = {i.name: _Tensor.of(i, member) for i in member.input}
    outputs = {o.name for o in member.output}
    for own, tensor in sorted(step.input_map.items()):
        if inputs and own not in inputs:
            words = f"{name} has no input {own}; it has {', '.join(sorted(inputs))}"
            yield one.finding(_INTO, ERROR, "no-such-tensor", words)
        elif tensor not in made:
            words = f"{tensor}, which {name} takes as {own}, is no input of the ensemble and made by no step"
            yield one.finding(_INTO, ERROR, "tensor-not-made", words)
        elif (there := made[tensor]) is not None and own in inputs:
            yield from _fits(one, _INTO, tensor, there, f"{own} of {name}", inputs[own])
    optional = {i.name for i in member.input if i.optional}
    missing = sorted(inputs.keys() - step.input_map.keys() - optional)
    if missing:
        yield one.finding(_INTO, ERROR, "input-missing", f"nothing goes to {', '.join(missing)} of {name}")
    for own in sorted(step.output_map):
        if outputs and own not in outputs:
            words = f"{name} has no output {own}; it has {', '.join(sorted(outputs))}"
            yield one.finding(_OUT_OF, ERROR, "no-such-tensor", words)


def _fits(
    one: Parsed, field: str, tensor: str, there: _Tensor, who: str, wanted: _Tensor
) -> Iterator[Finding]:
    if not there.type_fits(wanted):
        is_, wants = DataType.Name(there.type), DataType.Name(wanted.type)
        yield one.finding(field, ERROR, "type-differs", f"{tensor} is {is_}, {who} wants {wants}")
    elif not there.shape_fits(wanted):
        words = f"{tensor} has the shape {there}, {who} wants {wanted}"
        yield one.finding(field, ERROR, "shape-differs", words, f"dims: {there}")
