"""The manifest of the cluster page against KubeRay's types, and the page's commands against those that there are."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from kway.cli import app

yaml = pytest.importorskip("yaml")
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"

# what KubeRay's raycluster_types.go (v1) and Kubernetes' core/v1 have of what the page uses: name, type, required (!)
TYPES = {
    "RayCluster": "apiVersion:str! kind:str! metadata:Metadata! spec:RayClusterSpec!",
    "Metadata": "name:str! namespace:str labels:Strings annotations:Strings",
    "RayClusterSpec": "headGroupSpec:HeadGroup! workerGroupSpecs:[WorkerGroup] rayVersion:str "
    "enableInTreeAutoscaling:bool suspend:bool headServiceAnnotations:Strings",
    "HeadGroup": "rayStartParams:Strings! template:Template! serviceType:str enableIngress:bool",
    "WorkerGroup": "groupName:str! replicas:int minReplicas:int! maxReplicas:int! numOfHosts:int "
    "rayStartParams:Strings! template:Template!",
    "Template": "metadata:Metadata spec:Pod!",
    "Pod": "containers:[Container]! volumes:[Volume]",
    "Container": "name:str! image:str! ports:[Port] resources:Resources volumeMounts:[Mount] command:[str] args:[str]",
    "Port": "containerPort:int! name:str protocol:str",
    "Resources": "requests:Quantities limits:Quantities",
    "Mount": "name:str! mountPath:str! readOnly:bool subPath:str",
    "Volume": "name:str! persistentVolumeClaim:Claim",
    "Claim": "claimName:str! readOnly:bool",
}
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")


def wrong(value, kind, place="manifest"):
    """Sentences on what a server would refuse: unknown and missing fields, values of another type."""
    if kind.startswith("["):
        assert isinstance(value, list)
        return [s for i, one in enumerate(value) for s in wrong(one, kind[1:-1], f"{place}[{i}]")]
    if kind in ("Strings", "Quantities"):
        good = QUANTITY.fullmatch if kind == "Quantities" else lambda text: True
        return [f"{place}.{k}: {v!r}" for k, v in value.items() if not (isinstance(v, str) and good(v))]
    if kind in ("str", "int", "bool"):
        return [] if type(value).__name__ == kind else [f"{place}: {value!r} is no {kind}"]
    fields = {f.split(":")[0]: f.split(":")[1] for f in TYPES[kind].split()}
    found = [f"{place} has no {name}" for name, of in fields.items() if of.endswith("!") and name not in value]
    found += [f"{place}.{name} is unknown" for name in value if name not in fields]
    return found + [
        s for name in value if name in fields for s in wrong(value[name], fields[name].rstrip("!"), f"{place}.{name}")
    ]


def manifest():
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    return yaml.safe_load(text)


def test_the_manifest_is_a_ray_cluster_whose_pods_are_whole():
    found, page = manifest(), PAGE.read_text()
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayCluster")
    assert wrong(found, "RayCluster") == []
    head, *workers = groups = [found["spec"]["headGroupSpec"], *found["spec"]["workerGroupSpecs"]]
    pods = [group["template"]["spec"] for group in groups]
    for pod in pods:
        (container,) = pod["containers"]
        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1  # the same versions on every node
    for group in workers:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    ports = {port["name"]: port["containerPort"] for port in head["template"]["spec"]["containers"][0]["ports"]}
    assert f"ray://{found['metadata']['name']}-head-svc:{ports['client']}" in page  # how KubeRay names the service


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["spec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}), "num-cpus: 0"),
        (lambda m: m["spec"]["headGroupSpec"].pop("template"), "has no template"),
        (lambda m: m["spec"].update(workers=3), "workers is unknown"),
        (lambda m: m["spec"]["workerGroupSpecs"][0].update(replicas="8"), "'8' is no int"),
    ],
)
def test_what_a_server_would_refuse_is_seen(change, said):
    found = manifest()
    change(found)
    (sentence,) = wrong(found, "RayCluster")
    assert said in sentence


def test_the_commands_of_the_page_exist():
    page, commands = PAGE.read_text(), typer.main.get_command(app)
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]*)`", page)
    asked = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("kway ")]
    assert len(asked) >= 6
    for words in asked:
        command = commands
        while words and hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        known = {name for option in command.params for name in option.opts}
        assert {word for word in words if word.startswith("-")} <= known, words
