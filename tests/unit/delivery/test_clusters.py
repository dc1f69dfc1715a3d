"""The files that start Ray on a cluster. There is none here: they are read as Ray and Kubernetes would read them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import __version__ as ray_version
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[3]
VENDORS = ("nvidia", "amd")
IMAGES = {"nvidia": "registry.example/rl-post:0.1.0-cuda", "amd": "registry.example/rl-post:0.1.0-rocm"}
each_vendor = pytest.mark.parametrize("vendor", VENDORS)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "docker" / name).read_text()))


@each_vendor
def test_ray_accepts_its_cluster_file(vendor: str):
    (config,) = documents(f"ray-{vendor}.yaml")
    prepared = prepare_config(config)

    validate_config(prepared)
    assert prepared["max_workers"] == len(config["provider"]["worker_ips"])


@each_vendor
def test_the_containers_of_a_cluster_file_see_the_gpus_and_the_shared_directory(vendor: str):
    (config,) = documents(f"ray-{vendor}.yaml")
    options = config["docker"]["run_options"]
    devices = {"nvidia": {"--gpus=all"}, "amd": {"--device=/dev/kfd", "--device=/dev/dri"}}

    assert config["docker"]["image"] == IMAGES[vendor]
    assert devices[vendor] <= {*options}
    assert "--volume=/shared/rl-post:/shared/rl-post" in options
    assert "--env=RL_POST_HOME=/shared/rl-post" in options


@each_vendor
def test_a_cluster_file_names_the_token_by_its_file_and_listens_where_the_nodes_are(vendor: str):
    (config,) = documents(f"ray-{vendor}.yaml")
    head = config["provider"]["head_ip"]

    assert "--env=RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert "--env=RAY_AUTH_TOKEN_PATH=/shared/rl-post/ray-token" in config["docker"]["run_options"]
    start = config["head_start_ray_commands"][-1]
    assert f"--node-ip-address={head} " in start
    assert "--dashboard-host=127.0.0.1 " in start


def test_the_cluster_files_differ_by_nothing_but_the_vendor():
    (nvidia,), (amd,) = (documents(f"ray-{vendor}.yaml") for vendor in VENDORS)

    def common(config: dict[str, Any]) -> dict[str, Any]:
        options = [option for option in config["docker"]["run_options"] if option.startswith(("--env", "--volume"))]
        return config | {"docker": options, "cluster_name": ""}

    assert common(nvidia) == common(amd)


def pods(vendor: str) -> dict[str, dict[str, Any]]:
    cluster, worker = documents(f"kubernetes-{vendor}.yaml")
    (gpus,) = cluster["spec"]["workerGroupSpecs"]
    return {
        "head": cluster["spec"]["headGroupSpec"]["template"]["spec"],
        "gpus": gpus["template"]["spec"],
        "worker": worker["spec"]["template"]["spec"],
    }


def containers(vendor: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in pods(vendor).items():
        (container,) = pod["containers"]
        yield name, container


@each_vendor
def test_a_manifest_is_a_cluster_of_this_ray_and_a_worker(vendor: str):
    cluster, worker = documents(f"kubernetes-{vendor}.yaml")

    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert (worker["apiVersion"], worker["kind"]) == ("apps/v1", "Deployment")
    assert cluster["spec"]["rayVersion"] == ray_version
    assert worker["spec"]["selector"]["matchLabels"] == worker["spec"]["template"]["metadata"]["labels"]
    assert cluster["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = cluster["spec"]["workerGroupSpecs"]
    assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]


@each_vendor
def test_the_gpus_are_asked_for_by_the_vendors_name_and_only_where_they_are(vendor: str):
    wanted = {name: container["resources"]["limits"].get(f"{vendor}.com/gpu") for name, container in containers(vendor)}

    assert wanted == {"head": None, "gpus": 8, "worker": None}
    for _, container in containers(vendor):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["image"] == IMAGES[vendor]


@each_vendor
def test_no_pod_runs_as_root_or_has_more_rights_than_it_needs(vendor: str):
    for pod in pods(vendor).values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.get("hostNetwork")
    for _, container in containers(vendor):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@each_vendor
def test_every_pod_mounts_the_run_directory_and_shared_memory(vendor: str):
    for pod in pods(vendor).values():
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts == {"runs": "/shared/rl-post", "shm": "/dev/shm"}
        assert volumes == mounts.keys()


@each_vendor
def test_secrets_come_by_reference_and_ray_is_closed_by_a_token(vendor: str):
    cluster, _ = documents(f"kubernetes-{vendor}.yaml")

    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    assert cluster["spec"]["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert cluster["spec"]["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    for _, container in containers(vendor):
        assert container["envFrom"] == [{"secretRef": {"name": "rl-post-services"}}]
        assert all("value" not in variable for variable in container.get("env", []))


@each_vendor
def test_the_worker_joins_ray_as_a_node_that_takes_no_work_and_serves_the_vendors_pool(vendor: str):
    (container,) = pods(vendor)["worker"]["containers"]
    (command,) = container["args"]

    assert command == (
        "ray start --address=rl-post-head-svc:6379 --num-cpus=0 --num-gpus=0 && "
        f"exec prefect worker start --pool rl-post-{vendor} --type process"
    )
    (variable,) = container["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "rl-post", "key": "auth_token"}


@pytest.mark.parametrize("path", sorted((ROOT / "docker").iterdir()), ids=lambda path: path.name)
def test_no_file_pins_nothing_or_opens_a_port_to_everyone(path: Path):
    text = path.read_text()

    assert ":latest" not in text
    assert not re.search(r"\b0\.0\.0\.0\b|privileged: *true|--privileged|--net=host", text)
