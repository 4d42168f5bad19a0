"""A Triton pod as the host reaches it: its configuration over HTTP, with the key or without."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slo_operator.api.names import ADMIN_KEY, GRPC_PORT, HTTP_PORT
from slo_tuner.settings import Batching, ModelSettings

#: past any proxy that the host may use for other hosts
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Json = dict[str, Any]


def ask(url: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Status and text; a body (JSON) makes it a POST. OSError when nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with _DIRECT.open(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


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
