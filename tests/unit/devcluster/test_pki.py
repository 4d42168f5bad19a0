"""Certificates: who is vouched for, as what, and that a resumed cluster keeps them."""

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster import pki
from devcluster.ranges import Ranges

pytestmark = pytest.mark.unit


def load(pair: pki.Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def name_parts(certificate: x509.Certificate) -> dict[x509.ObjectIdentifier, str | bytes]:
    return {attribute.oid: attribute.value for attribute in certificate.subject}


def uses(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


@pytest.fixture
def authority(tmp_path: Path) -> pki.Pair:
    return pki.ensure_authority(tmp_path, "ca")


def test_a_certificate_is_signed_by_its_authority_and_by_no_other(
    tmp_path: Path, authority: pki.Pair
) -> None:
    issued = load(
        pki.ensure_certificate(
            tmp_path, authority, pki.Identity("admin", "kubernetes-admin", "system:masters")
        )
    )
    issued.verify_directly_issued_by(load(authority))
    other = load(pki.ensure_authority(tmp_path / "other", "ca"))
    with pytest.raises(Exception, match=r"^$|[Ss]ignature"):
        issued.verify_directly_issued_by(other)


def test_only_an_authority_may_sign(tmp_path: Path, authority: pki.Pair) -> None:
    leaf = load(pki.ensure_certificate(tmp_path, authority, pki.Identity("admin", "kubernetes-admin")))
    for certificate, expected in ((load(authority), True), (leaf, False)):
        assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is expected
        assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is expected


def test_a_kubelet_is_named_as_the_node_authorizer_wants(tmp_path: Path, authority: pki.Pair) -> None:
    client, server = (
        load(pki.ensure_certificate(tmp_path, authority, identity))
        for identity in pki.node_identities("a100-node-1", "10.255.0.3")
    )
    assert name_parts(client) == {
        NameOID.ORGANIZATION_NAME: "system:nodes",
        NameOID.COMMON_NAME: "system:node:a100-node-1",
    }
    assert uses(client) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    assert uses(server) == {ExtendedKeyUsageOID.SERVER_AUTH}
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a100-node-1"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.255.0.3"]


def test_the_api_server_is_known_by_every_name_that_pods_and_the_host_use(
    tmp_path: Path, authority: pki.Pair
) -> None:
    identity = next(i for i in pki.cluster_identities(Ranges(2)) if i.name == "apiserver")
    names = load(pki.ensure_certificate(tmp_path, authority, identity)).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert {"kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"} <= set(
        names.value.get_values_for_type(x509.DNSName)
    )
    addresses = {str(ip) for ip in names.value.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "10.98.0.1", "10.255.2.2"}


def test_only_the_administrator_is_above_the_rules() -> None:
    masters = [i.name for i in pki.cluster_identities(Ranges(0)) if i.organization == "system:masters"]
    assert masters == ["admin"]


def test_what_exists_is_kept_and_keys_are_for_root_alone(tmp_path: Path, authority: pki.Pair) -> None:
    identity = pki.Identity("scheduler", "system:kube-scheduler", addresses=("127.0.0.1",))
    first = pki.ensure_certificate(tmp_path, authority, identity)
    before = (first.certificate.read_bytes(), first.key.read_bytes())
    again = pki.ensure_certificate(tmp_path, pki.ensure_authority(tmp_path, "ca"), identity)
    assert (again.certificate.read_bytes(), again.key.read_bytes()) == before
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600


def test_a_pair_that_was_half_written_is_made_anew(tmp_path: Path, authority: pki.Pair) -> None:
    identity = pki.Identity("admin", "kubernetes-admin")
    pair = pki.ensure_certificate(tmp_path, authority, identity)
    pair.certificate.unlink()
    renewed = pki.ensure_certificate(tmp_path, authority, identity)
    key = serialization.load_pem_private_key(renewed.key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == load(renewed).public_key()
