"""What all emulated model instances do alike: join the account, read faults, leave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # part of Triton

from ..account import CPU, Account
from ..calibration import Profile, load_profile
from ..faults import current_faults, delays_batches
from ..host import Host
from ..stage import Stage


class Instance:
    """One instance (process) of a model. Triton calls initialize, execute and finalize."""

    def initialize(self, args: Mapping[str, str]) -> None:
        self.model = args["model_name"]
        self.name = args["model_instance_name"]
        self.host = Host.from_environment()
        self.profile: Profile = load_profile()
        self._delays_batches = delays_batches(json.loads(args["model_config"]))
        current_faults().check_load(self.model)
        self.account: Account = self.host.open_account(self.profile)
        self.account.join()

    def stage(self, resource: int = CPU) -> Stage:
        return Stage(self.account, resource)

    def with_faults(self, seconds: float) -> float:
        """An execution's time with the faults that a test asked for."""
        return current_faults().seconds(self.model, seconds, delays_batches=self._delays_batches)

    def finalize(self) -> None:
        self.account.leave()


def input_array(request: Any, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A request's input tensor, [batch, …]."""
    array: np.ndarray[Any, np.dtype[Any]] = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
    return array


def response(**tensors: np.ndarray[Any, np.dtype[Any]]) -> Any:
    """A response with these output tensors."""
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
