"""Names that other systems see: the API's coordinates, labels, annotations and our field manager."""

from __future__ import annotations

from typing import Final

GROUP: Final = "inferenceslo.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "InferenceSLO"
PLURAL: Final = "inferenceslos"
SINGULAR: Final = "inferenceslo"
SHORT_NAME: Final = "islo"

FIELD_MANAGER: Final = "inferenceslo-operator"
SYSTEM_NAMESPACE: Final = "inferenceslo-system"

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_RESOURCE: Final = f"{GROUP}/resource"
LABEL_SERVER: Final = f"{GROUP}/server"
LABEL_CLIENT: Final = f"{GROUP}/client"

ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
ANNOTATION_KEPT: Final = f"{GROUP}/kept"
#: of a pool's Deployment: the stages that its pods serve
ANNOTATION_STAGES: Final = f"{GROUP}/stages"

HTTP_PORT: Final = 8000
GRPC_PORT: Final = 8001
METRICS_PORT: Final = 8002

CONTAINER: Final = "triton"
GPU_RESOURCE: Final = "nvidia.com/gpu"

#: of a server's container: where a moved stage finds its pool, `host:port`
POOL_ENV: Final = "INFERENCESLO_POOL"

ADMIN_KEY: Final = "admin-key"
#: header of control calls over gRPC; over HTTP the header is `ADMIN_KEY` itself
GRPC_ADMIN_HEADER: Final = f"triton-grpc-protocol-{ADMIN_KEY}"

SETTINGS_KEY: Final = "settings.json"
MEMORY_KEY: Final = "memory.json"


def pool_of(server: str) -> str:
    """What a server's pool is called where servers are told apart; no server may have that name itself."""
    return f"{server}-pool"
