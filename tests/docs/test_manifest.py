"""The manifest of the cluster page is YAML that describes a KubeRay cluster."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"


def test_the_manifest_is_a_ray_cluster_whose_pods_are_whole():
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    found = yaml.safe_load(text)
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayCluster")
    assert found["metadata"]["name"] in PAGE.read_text().split("ray://")[1]  # the service is named after it
    groups = [found["spec"]["headGroupSpec"], *found["spec"]["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())  # KubeRay refuses numbers
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name", "image", "resources", "volumeMounts"} <= set(container)
        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
        assert container["image"].endswith(":0.2")
    for group in groups[1:]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
