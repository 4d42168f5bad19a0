"""A Triton pod as the host reaches it: its configuration over HTTP, with the key or without."""

import json
from dataclasses import dataclass
from typing import Any

from slo_operator.api.names import ADMIN_KEY, GRPC_PORT, HTTP_PORT
from slo_operator.render.remote import ENTRY_FILE
from slo_tuner.settings import Batching, ModelSettings
from tests.e2e.web import ask

Json = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A ready pod; `key` opens its model control ("" where it is open)."""

    name: str
    uid: str
    address: str
    key: str

    @property
    def http(self) -> str:
        return f"http://{self.address}:{HTTP_PORT}"

    @property
    def grpc(self) -> str:
        return f"{self.address}:{GRPC_PORT}"

    def config(self, model: str) -> Json:
        """The configuration that the server runs."""
        status, text = ask(f"{self.http}/v2/models/{model}/config", headers={ADMIN_KEY: self.key})
        assert status == 200, f"{self.name}: {model}: {status} {text}"
        found: Json = json.loads(text)
        return found

    def settings(self, model: str) -> ModelSettings:
        """The part of it that levers change. A preferred size that the server filled in counts as none."""
        config = self.config(model)
        batching = config.get("dynamic_batching")
        largest = config["max_batch_size"]
        found = None
        if batching is not None:
            sizes = tuple(size for size in batching["preferred_batch_size"] if size != largest)
            found = Batching(int(batching["max_queue_delay_microseconds"]), sizes)
        count = sum(group["count"] for group in config["instance_group"])
        return ModelSettings(instances=count, max_batch_size=largest, batching=found)

    def forwards(self, model: str) -> bool:
        """Whether a stand-in computes the model, elsewhere."""
        return bool(self.config(model).get("default_model_filename") == ENTRY_FILE)
