"""A model that runs elsewhere: which part of its configuration says so, and the files it then needs.

Triton's Python backend takes its code from the file that `default_model_filename` names. A stage is moved by naming
the stand-in's file instead of the stage's own: name, inputs and outputs stay, so do the ensembles that use it, and the
way back is the same load with the old name.
"""

from __future__ import annotations

from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig

from slo_tuner.settings import LongLane, Remote

#: beside the stage's own file
ENTRY_FILE: Final = "inferenceslo_stand_in.py"
OWN_FILE: Final = "model.py"
_TIMEOUT: Final = "inferenceslo_timeout_ms"
_LOCAL: Final = "inferenceslo_local_instances"
_LOCAL_FILE: Final = "inferenceslo_local_file"
_LONG_BYTES: Final = "inferenceslo_long_bytes"
_LONG_MEMBERS: Final = "inferenceslo_long_members"
_KEYS: Final = (_TIMEOUT, _LOCAL, _LOCAL_FILE, _LONG_BYTES, _LONG_MEMBERS)


def set_remote(config: ModelConfig, wanted: Remote | None) -> None:
    """Move the model out of the server, or back. Raises ValueError where it has no Python file to stand in for."""
    present = remote_of(config)
    if present == wanted:
        return
    if config.backend != "python":
        raise ValueError(
            f"{config.name}.remote = {wanted}: only models of the python backend can be moved, not {config.backend!r}"
        )
    own = config.default_model_filename or OWN_FILE
    if present is not None:
        own = config.parameters[_LOCAL_FILE].string_value or OWN_FILE
    for key in _KEYS:
        config.parameters.pop(key, None)
    if wanted is None:
        config.default_model_filename = "" if own == OWN_FILE else own
        return
    config.default_model_filename = ENTRY_FILE
    config.parameters[_TIMEOUT].string_value = str(wanted.timeout_ms)
    config.parameters[_LOCAL].string_value = str(wanted.local_instances)
    config.parameters[_LOCAL_FILE].string_value = own
    if wanted.lane is not None:
        config.parameters[_LONG_BYTES].string_value = str(wanted.lane.from_bytes)
        config.parameters[_LONG_MEMBERS].string_value = str(wanted.lane.members)


def remote_of(config: ModelConfig) -> Remote | None:
    """How the model runs elsewhere; None when it runs here."""
    if config.default_model_filename != ENTRY_FILE:
        return None
    values = {key: config.parameters[key].string_value for key in _KEYS if key in config.parameters}
    try:
        lane = (
            LongLane(int(values[_LONG_BYTES]), int(values[_LONG_MEMBERS])) if _LONG_BYTES in values else None
        )
        return Remote(int(values[_TIMEOUT]), int(values[_LOCAL]), lane)
    except (KeyError, ValueError):
        return None  # somebody else's file of that name
