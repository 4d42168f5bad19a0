"""Where the command reads InferenceSLO resources: the Kubernetes API, or a file that kubectl wrote."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slo_operator.api.names import GROUP, KIND, PLURAL, VERSION
from slo_operator.api.resource import InferenceSLO, SpecError

_TIMEOUT_S = 10


class SourceError(Exception):
    """Nothing could be read; the message says what, where, and what would be right."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read: one resource by name, or all of a namespace (None: of every namespace)."""

    namespace: str | None
    name: str | None


def wanted(resource: str | None, namespace: str | None, *, all_namespaces: bool) -> Wanted:
    """What the command line asks for. Raise SourceError when it contradicts itself."""
    if resource is None:
        return Wanted(None if all_namespaces else namespace, None)
    before, slash, name = resource.rpartition("/")
    if not name or (slash and not before) or "/" in before:
        raise SourceError(f"{resource!r}: write NAME or NAMESPACE/NAME")
    if all_namespaces:
        raise SourceError(f"--all-namespaces lists resources; leave out the name {resource!r} or the option")
    if before and namespace and before != namespace:
        raise SourceError(f"{resource!r} names another namespace than --namespace {namespace}")
    return Wanted(before or namespace, name)


def from_file(path: str, wish: Wanted) -> list[InferenceSLO]:
    """The resources of a file of YAML or JSON: objects, lists as kubectl writes them, or several documents."""
    import yaml

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise SourceError(f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}") from None
    bodies = [body for document in documents for body in _bodies(document)]
    resources = _parse(bodies, path)
    chosen = [
        resource
        for resource in resources
        if wish.namespace in {None, resource.namespace} and wish.name in {None, resource.name}
    ]
    if not chosen:
        found = ", ".join(f"{r.namespace}/{r.name}" for r in resources) or f"no {KIND} at all"
        asked = wish.name or f"namespace {wish.namespace}" if wish.name or wish.namespace else KIND
        raise SourceError(f"{path} has no {asked}; it has {found}")
    return chosen


def _bodies(document: Any) -> list[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        return []
    if str(document.get("kind", "")).endswith("List"):
        items = document.get("items") or []
        return [body for item in items for body in _bodies(item)]
    return [document] if document.get("kind") == KIND else []


def from_cluster(
    wish: Wanted, *, kubeconfig: str | None, context: str | None, all_namespaces: bool
) -> list[InferenceSLO]:
    """The resources as the API server has them. Raise SourceError with one clear line."""
    from kubernetes import client

    namespace = wish.namespace
    default = _connect(kubeconfig, context)
    if namespace is None and not all_namespaces:
        namespace = default
    api: Any = client.CustomObjectsApi()
    where = f"namespace {namespace}" if namespace else "the cluster"
    try:
        if wish.name is not None:
            body = api.get_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, wish.name, _request_timeout=_TIMEOUT_S
            )
            return _parse([body], where)
        if namespace is not None:
            answer = api.list_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, _request_timeout=_TIMEOUT_S
            )
        else:
            answer = api.list_cluster_custom_object(GROUP, VERSION, PLURAL, _request_timeout=_TIMEOUT_S)
    except client.ApiException as error:
        raise SourceError(_refusal(error.status, wish, namespace)) from None
    except Exception as error:
        # urllib3 raises a family of its own for refused connections, time-outs and certificates
        raise SourceError(f"the Kubernetes API does not answer: {_innermost(error)}") from None
    resources = _parse(answer["items"], where)
    if not resources:
        hint = "" if all_namespaces else "; -A looks in every namespace"
        raise SourceError(f"no {KIND} in {where}{hint}")
    return resources


def _connect(kubeconfig: str | None, context: str | None) -> str:
    """Configures the client; returns the namespace that the context (or the pod's account) stands in."""
    from kubernetes import config

    try:
        config.load_kube_config(config_file=kubeconfig, context=context)
        _, current = config.list_kube_config_contexts(config_file=kubeconfig)
        if context:
            contexts, _ = config.list_kube_config_contexts(config_file=kubeconfig)
            current = next(entry for entry in contexts if entry["name"] == context)
        return str(current["context"].get("namespace") or "default")
    except config.ConfigException as error:
        if kubeconfig or context:
            raise SourceError(f"kubeconfig: {error}") from None
    try:
        config.load_incluster_config()
    except config.ConfigException:
        raise SourceError(
            "no cluster is configured: set KUBECONFIG, pass --kubeconfig, or read a saved resource with --file"
        ) from None
    account = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return account.read_text(encoding="utf-8").strip() if account.exists() else "default"


def _refusal(status: int | None, wish: Wanted, namespace: str | None) -> str:
    place = f"in namespace {namespace}" if namespace else "in the cluster"
    if status == 404 and wish.name:
        return (
            f"no {KIND} {wish.name!r} {place}, or its CRD is not installed; `slo top -A` lists what there is"
        )
    if status == 404:
        return (
            f"the cluster does not know {PLURAL}.{GROUP}: install the CRD (kubectl apply -k manifests/base)"
        )
    if status in {401, 403}:
        return f"not allowed to read {PLURAL}.{GROUP} {place}: ask for get and list on it"
    return f"the Kubernetes API answered {status} for {PLURAL}.{GROUP} {place}"


def _innermost(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    while isinstance(reason, BaseException):
        error, reason = reason, getattr(reason, "reason", None)
    return str(error).rpartition(": ")[2] or type(error).__name__


def _parse(bodies: Sequence[Mapping[str, Any]], where: str) -> list[InferenceSLO]:
    resources = []
    for body in bodies:
        try:
            resources.append(InferenceSLO.parse(body))
        except SpecError as error:
            name = body.get("metadata", {}).get("name", "?")
            raise SourceError(f"{name} ({where}): {error.problems[0]}") from None
        except KeyError as error:
            raise SourceError(f"a resource in {where} has no metadata.{error.args[0]}") from None
    return resources
