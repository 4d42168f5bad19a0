"""Clusters side by side need addresses that never meet."""

from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.ranges import MAX_CLUSTERS, MAX_NODES, Ranges

INDEXES = st.integers(0, MAX_CLUSTERS - 1)
NODES = st.integers(0, MAX_NODES - 1)

pytestmark = pytest.mark.unit


def test_the_first_cluster_has_the_customary_service_addresses() -> None:
    ranges = Ranges(0)
    assert str(ranges.api_service) == "10.96.0.1"
    assert str(ranges.dns) == "10.96.0.10"
    assert str(ranges.host) == "10.255.0.1"
    assert str(ranges.api_server) == str(ranges.node(0)) == "10.255.0.2"
    assert str(ranges.node_pods(0)) == "10.240.1.0/24"
    assert str(ranges.node_pods(1)) == "10.240.2.0/24"


def test_no_range_of_any_cluster_overlaps_with_another() -> None:
    networks = [n for i in range(MAX_CLUSTERS) for n in (Ranges(i).link, Ranges(i).services, Ranges(i).pods)]
    assert not [pair for pair in combinations(networks, 2) if pair[0].overlaps(pair[1])]


@given(index=INDEXES, first=NODES, second=NODES)
def test_nodes_have_addresses_and_pod_ranges_of_their_own(index: int, first: int, second: int) -> None:
    ranges = Ranges(index)
    assert ranges.node(first) in ranges.link
    assert ranges.node_pods(first).subnet_of(ranges.pods)
    assert (ranges.node(first) == ranges.node(second)) == (first == second)
    assert ranges.node_pods(first).overlaps(ranges.node_pods(second)) == (first == second)
    assert ranges.node(first) not in (ranges.host, ranges.link.network_address, ranges.link.broadcast_address)


@pytest.mark.parametrize("index", [-1, MAX_CLUSTERS])
def test_an_index_that_would_leave_the_ranges_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="must be 0 to 7"):
        Ranges(index)


def test_a_node_that_would_leave_the_link_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 0 to 15"):
        Ranges(0).node(MAX_NODES)


def test_the_hosts_networks_are_kept_clear_of_but_not_its_default_route() -> None:
    clear = [IPv4Network("0.0.0.0/0"), IPv4Network("192.0.2.0/24"), IPv4Network("10.97.0.0/16")]
    assert Ranges(0).overlaps(clear) is None
    taken = IPv4Network("10.96.0.0/12")
    assert Ranges(0).overlaps([*clear, taken]) == taken
    assert IPv4Address("10.96.0.10") in taken
