"""Certificates: three authorities as kubeadm makes them (cluster, front proxy, etcd), and one key pair per identity.

Elliptic keys (P-256), because a dozen of them take milliseconds. Files that exist are kept, so that a resumed cluster
goes on trusting what it trusted.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster.ranges import Ranges

_LIFETIME = datetime.timedelta(days=3650)
_BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, folder: Path, name: str) -> "Pair":
        return cls(folder / f"{name}.crt", folder / f"{name}.key")

    def exists(self) -> bool:
        return self.certificate.exists() and self.key.exists()


@dataclass(frozen=True)
class Identity:
    """Whom a certificate names. `addresses` (DNS names and IP addresses) make it a server's as well."""

    name: str
    common_name: str
    organization: str | None = None
    addresses: tuple[str, ...] = ()
    client: bool = True


def ensure_authority(folder: Path, name: str) -> Pair:
    """A self-signed authority at `folder/name.crt` and `.key`."""
    pair = Pair.named(folder, name)
    if pair.exists():
        return pair
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, None)
    builder = _builder(subject, subject, key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    builder = builder.add_extension(_key_usage(authority=True), critical=True)
    _write(pair, key, builder.sign(key, hashes.SHA256()))
    return pair


def ensure_certificate(folder: Path, authority: Pair, identity: Identity) -> Pair:
    """A certificate for `identity`, signed by `authority`, at `folder/<identity.name>.crt` and `.key`."""
    pair = Pair.named(folder, identity.name)
    if pair.exists():
        return pair
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    issuer_key = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{authority.key}: not an elliptic curve key; remove the folder, it is made again")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        _subject(identity.common_name, identity.organization), issuer.subject, key.public_key()
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(authority=False), critical=True)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH] if identity.addresses else []
    uses += [ExtendedKeyUsageOID.CLIENT_AUTH] if identity.client else []
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    if identity.addresses:
        names = [_general_name(address) for address in identity.addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    _write(pair, key, builder.sign(issuer_key, hashes.SHA256()))
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(issuer_name=issuer, subject_name=subject, public_key=public)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _BACKDATED).not_valid_after(now + _LIFETIME)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _subject(common_name: str, organization: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write(pair: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Key first, certificate last and by renaming: a kill in between leaves no pair that does not fit together."""
    pair.certificate.parent.mkdir(parents=True, exist_ok=True)
    _replace(pair.key, _private_pem(key), 0o600)
    _replace(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _replace(path: Path, content: bytes, mode: int) -> None:
    scratch = path.with_suffix(path.suffix + ".new")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
        handle.write(content)
    scratch.rename(path)


def ensure_signing_key(folder: Path) -> Pair:
    """The key pair that signs service account tokens: `sa.key`, and the public key in `sa.crt`'s place, `sa.pub`."""
    pair = Pair(folder / "sa.pub", folder / "sa.key")
    if not pair.exists():
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        _replace(pair.key, _private_pem(key), 0o600)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _replace(pair.certificate, public, 0o644)
    return pair


@dataclass(frozen=True)
class Authorities:
    """Who signs what: clients and servers of the API, the aggregation layer's proxy, and etcd's."""

    cluster: Pair
    front_proxy: Pair
    etcd: Pair
    service_accounts: Pair


def ensure_authorities(folder: Path) -> Authorities:
    """The cluster's authorities and the key of its service account tokens."""
    return Authorities(
        cluster=ensure_authority(folder, "ca"),
        front_proxy=ensure_authority(folder, "front-proxy-ca"),
        etcd=ensure_authority(folder, "etcd-ca"),
        service_accounts=ensure_signing_key(folder),
    )


def api_server_names(ranges: Ranges) -> tuple[str, ...]:
    """Every name and address under which clients reach the API server: pods by Service, the host by the link."""
    service = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    return (*service, "localhost", "127.0.0.1", str(ranges.api_service), str(ranges.api_server))


def cluster_identities(ranges: Ranges) -> Sequence[Identity]:
    """The identities that the cluster's own authority vouches for, nodes left out."""
    local = ("localhost", "127.0.0.1", str(ranges.api_server))
    return (
        Identity("apiserver", "kube-apiserver", addresses=api_server_names(ranges), client=False),
        Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager", addresses=local),
        Identity("scheduler", "system:kube-scheduler", addresses=local),
        Identity("kube-proxy", "system:kube-proxy"),
    )


def etcd_identities() -> Sequence[Identity]:
    """The store itself, and the API server as its only client."""
    return (
        Identity("etcd", "etcd", addresses=("localhost", "127.0.0.1")),
        Identity("apiserver-etcd-client", "apiserver-etcd-client"),
    )


def node_identities(node: str, address: str) -> Sequence[Identity]:
    """A kubelet as a client (known to the Node authorizer by these names) and as a server."""
    return (
        Identity(f"kubelet-client-{node}", f"system:node:{node}", "system:nodes"),
        Identity(f"kubelet-server-{node}", f"system:node:{node}", addresses=(node, address), client=False),
    )
