"""What every cluster is born with: its name server, and the API server's right to talk to kubelets."""

import json
from ipaddress import IPv4Address
from typing import Any

from devcluster.configs import CLUSTER_DOMAIN

REPOSITORY = "inferenceslo/coredns"
_LABELS = {"k8s-app": "kube-dns"}

# Names outside the cluster do not exist: said at once, because resolvers would try a failing server again and again.
_COREFILE = f"""\
{CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health {{
        lameduck 1s
    }}
    ready
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    cache 5
}}
.:53 {{
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def manifest(dns: IPv4Address, image: str) -> str:
    """The objects of kube-system, as one JSON list for `kubectl apply`."""
    items = [*_rbac(), _config(), _deployment(image), _service(dns), _kubelet_access()]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _meta(name: str, namespaced: bool = True) -> dict[str, Any]:
    return {"name": name, "labels": _LABELS, **({"namespace": "kube-system"} if namespaced else {})}


def _rbac() -> list[dict[str, Any]]:
    rbac = "rbac.authorization.k8s.io"
    reads = ["list", "watch"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta("coredns")},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": _meta("system:coredns", namespaced=False),
            "rules": [
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": reads},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _meta("system:coredns", namespaced=False),
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
    ]


def _kubelet_access() -> dict[str, Any]:
    """logs, exec and port-forward go from the API server to the kubelets, which ask whether it may."""
    rbac = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kube-apiserver-to-kubelets"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "kube-apiserver-kubelet-client"}],
    }


def _config() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta("coredns"),
        "data": {"Corefile": _COREFILE},
    }


def _service(dns: IPv4Address) -> dict[str, Any]:
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    spec = {"clusterIP": str(dns), "selector": _LABELS, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta("kube-dns"), "spec": spec}


def _deployment(image: str) -> dict[str, Any]:
    container = {
        "name": "coredns",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "30Mi"}, "limits": {"memory": "170Mi"}},
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": 8181},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        # Port 53 without a capability: a process that is not root gets none from the container's set.
        "securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta("coredns"), "spec": spec}
