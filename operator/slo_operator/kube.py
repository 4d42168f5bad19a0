"""The Kubernetes API as plain JSON: list, watch, get, server-side apply, create.

The official client brings connection, certificates and credentials; its typed objects do not scale to
thousands of pods, so nothing here builds them. Every call has a deadline and none retries by itself:
the loop is level-based and comes back with the next tick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

FIELD_MANAGER = "inferenceslo-operator"
APPLY_CONTENT_TYPE = "application/apply-patch+yaml"

#: a Kubernetes object as JSON
Json = dict[str, Any]


class KubeError(Exception):
    """The API server refused, or could not be reached (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str, causes: tuple[tuple[str, str], ...] = ()):
        super().__init__(f"{reason or 'error'} ({status}): {message}")
        self.status = status
        self.reason = reason
        self.message = message
        #: (field, message) of each cause, for a conflict the manager that owns the field
        self.causes = causes

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        return self.status == 409

    @property
    def expired(self) -> bool:
        """The watch's resourceVersion is too old: list again."""
        return self.status == 410


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object: where it lives in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of a collection, an object or a sub-resource."""
        root = "/api/" if "/" not in self.api_version else "/apis/"
        parts = [root.rstrip("/"), self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("v1", "Pod", "pods")
NODES = Resource("v1", "Node", "nodes", namespaced=False)
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
SECRETS = Resource("v1", "Secret", "secrets")
SERVICES = Resource("v1", "Service", "services")
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
DISRUPTION_BUDGETS = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
EVENTS = Resource("events.k8s.io/v1", "Event", "events")
INFERENCE_SLOS = Resource("inferenceslo.dev/v1alpha1", "InferenceSLO", "inferenceslos")

#: the kinds that the operator makes for a server
CHILD_RESOURCES = {
    r.kind: r for r in (DEPLOYMENTS, SERVICES, SECRETS, CONFIG_MAPS, DISRUPTION_BUDGETS, NETWORK_POLICIES)
}


class Kube(Protocol):
    """What the operator asks of the API server; tests bring their own."""

    def list_pages(self, resource: Resource, selector: str = "") -> Iterator[Json]: ...

    def watch(
        self, resource: Resource, version: str, seconds: int, selector: str = ""
    ) -> Iterator[tuple[str, Json]]: ...

    def get(self, resource: Resource, namespace: str | None, name: str) -> Json: ...

    def apply(
        self, resource: Resource, body: Mapping[str, Any], *, force: bool = False, subresource: str = ""
    ) -> Json: ...

    def create(self, resource: Resource, body: Mapping[str, Any]) -> Json: ...

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None: ...


class KubeClient:
    """`Kube` over HTTPS with the credentials of the pod, or of KUBECONFIG outside a cluster."""

    def __init__(self, api_client: Any, timeout_s: float = 10.0, page: int = 500):
        self._api = api_client
        self._timeout_s = timeout_s
        self._page = page

    @classmethod
    def connect(cls, timeout_s: float = 10.0) -> KubeClient:
        """From the pod's service account, else from KUBECONFIG; ConfigException if neither is there."""
        from kubernetes import client
        from kubernetes import config as credentials

        config: Any = credentials  # without types
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)
        configuration.retries = False
        configuration.connection_pool_maxsize = 16
        return cls(client.ApiClient(configuration), timeout_s)

    def list_pages(self, resource: Resource, selector: str = "") -> Iterator[Json]:
        """The pages of a consistent list, each with `items` and `metadata`; the last has no `continue`."""
        token = ""
        while True:
            query = {"limit": str(self._page)}
            if selector:
                query["labelSelector"] = selector
            if token:
                query["continue"] = token
            page = self._json("GET", resource.path(), query)
            yield page
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return

    def watch(
        self, resource: Resource, version: str, seconds: int, selector: str = ""
    ) -> Iterator[tuple[str, Json]]:
        """(type, object) as they come, bookmarks included; ends after `seconds`. Raises KubeError 410."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        if selector:
            query["labelSelector"] = selector
        # Bookmarks come about once a minute: silence for longer than that is a dead connection.
        response = self._send("GET", resource.path(), query, None, {}, read_timeout_s=min(seconds, 90) + 5)
        try:
            buffer = b""
            for chunk in response.stream(64 * 1024):
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield self._event(json.loads(line))
        except KubeError:
            raise
        except Exception as error:  # urllib3's many: a broken connection, whatever its name
            raise KubeError(0, "WatchBroken", f"watch of {resource.plural}: {error}") from error
        finally:
            response.close()

    @staticmethod
    def _event(event: Json) -> tuple[str, Json]:
        kind, body = str(event["type"]), event["object"]
        if kind == "ERROR":
            code, reason = int(body.get("code", 0)), str(body.get("reason", ""))
            raise KubeError(code, reason, str(body.get("message", "")))
        return kind, body

    def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """One object; KubeError 404 when it is not there."""
        return self._json("GET", resource.path(namespace, name))

    def apply(
        self, resource: Resource, body: Mapping[str, Any], *, force: bool = False, subresource: str = ""
    ) -> Json:
        """Server-side apply as our field manager; KubeError 409 names fields and owners of a conflict."""
        meta = body["metadata"]
        path = resource.path(meta.get("namespace"), meta["name"], subresource)
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        return self._json("PATCH", path, query, body, {"Content-Type": APPLY_CONTENT_TYPE})

    def create(self, resource: Resource, body: Mapping[str, Any]) -> Json:
        """POST a new object."""
        path = resource.path(body["metadata"].get("namespace"))
        query = {"fieldManager": FIELD_MANAGER}
        return self._json("POST", path, query, body, {"Content-Type": "application/json"})

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete in the background exactly the object with that uid; one that is gone is fine."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            self._json(
                "DELETE", resource.path(namespace, name), {}, body, {"Content-Type": "application/json"}
            )
        except KubeError as error:
            if not (error.not_found or error.conflict):
                raise

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        response = self._send(method, path, query or {}, body, headers or {}, self._timeout_s)
        try:
            parsed = json.loads(response.read())
        except Exception as error:
            raise KubeError(0, "Unreadable", f"{method} {path}: {error}") from error
        finally:
            response.release_conn()
        if not isinstance(parsed, dict):
            raise KubeError(0, "Unreadable", f"{method} {path}: not an object but {type(parsed).__name__}")
        return parsed

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        read_timeout_s: float,
    ) -> Any:
        method_, url, header, body_, _ = self._api.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", **headers},
            body=dict(body) if body is not None else None,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._api.rest_client.request(
                method_, url, headers=header, body=body_, _request_timeout=(5.0, read_timeout_s)
            ).response
        except Exception as error:  # urllib3's many
            raise KubeError(0, "Unreachable", f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise _refusal(response.status, method, path, response.read())
        return response


def _refusal(status: int, method: str, path: str, data: bytes) -> KubeError:
    """A Status object as an error; anything else as its first characters."""
    try:
        parsed = json.loads(data)
        causes = tuple(
            (str(c.get("field", "")), str(c.get("message", "")))
            for c in parsed.get("details", {}).get("causes", [])
        )
        return KubeError(status, str(parsed.get("reason", "")), str(parsed.get("message", "")), causes)
    except (ValueError, AttributeError):
        return KubeError(status, "", f"{method} {path}: {data[:200]!r}")
