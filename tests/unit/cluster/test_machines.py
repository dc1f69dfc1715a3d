from math import inf

import pytest

from configs.errors import UserError
from tasks.cluster.machines import GPUS, USUAL_MEMORY, Cluster, parse_cluster
from tasks.cluster.placement import Node


def test_nodes_gpus_and_kind_are_read():
    assert parse_cluster("4x8:MI300X") == Cluster(4, Node(inf, 8, USUAL_MEMORY), GPUS["MI300X"])
    assert parse_cluster("4x8:MI300X").gpus == 32
    assert parse_cluster("2x8:h100").accelerator == "nvidia"
    assert parse_cluster("1x1:mi355x").accelerator == "amd"
    assert parse_cluster("cpu") == Cluster(1, Node(inf, 0), None)
    assert parse_cluster("cpu").accelerator == "cpu"


@pytest.mark.parametrize("text", ["", "8", "4x8", "0x8:H100", "4x8:H100x", "gpu"])
def test_anything_else_is_refused_with_the_form(text: str):
    with pytest.raises(UserError, match=r"--cluster"):
        parse_cluster(text)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"A100 is not one of H100, H200, B200, MI300X, MI325X, MI355X"):
        parse_cluster("1x8:A100")
