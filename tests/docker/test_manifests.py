"""The manifests and the compose file say what Kubernetes and Compose take, and name commands that there are."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.cli.app import build_app

DOCKER = Path(__file__).parents[2] / "docker"
MANIFESTS = sorted((DOCKER / "kubernetes").glob("*.yaml"))
KINDS = {
    "Service": "v1",
    "StatefulSet": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}
VALUES = {"POD_IP": "10.0.0.7", "POD_NAME": "tenure-node-abc"}


def objects() -> list[dict[str, Any]]:
    return [found for path in MANIFESTS for found in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in objects() if found["kind"] == kind]


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What runs pods: the whole, and the pod's own specification."""
    for found in of_kind("StatefulSet"):
        yield found, found["spec"]["template"]["spec"]


def parse(command: list[str]) -> None:
    """Raises if `tenure` does not take this."""
    assert command[0] == "tenure"
    build_app().parse_args(command[1:], exit_on_error=False, print_error=False)


def started_by(image: str) -> list[str]:
    """An image's own command, by the Dockerfile."""
    target = re.search(rf"^FROM \S+ AS {image}$(.*?)(?=^FROM|\Z)", (DOCKER / "Dockerfile").read_text(), re.M | re.S)
    assert target is not None
    return [str(part) for part in yaml.safe_load(re.search(r"^ENTRYPOINT (.*)$", target[1], re.M)[1])]  # type: ignore[index]


def filled_in(arguments: list[str]) -> list[str]:
    return [re.sub(r"\$\((\w+)\)", lambda found: VALUES[found[1]], argument) for argument in arguments]


def test_every_object_is_of_a_known_kind_and_has_a_name() -> None:
    assert {found["kind"] for found in objects()} == set(KINDS)
    assert all(found["apiVersion"] == KINDS[found["kind"]] for found in objects())
    names = [(found["kind"], found["metadata"]["name"]) for found in objects()]
    assert len(set(names)) == len(names)


def test_all_services_of_the_compose_file_keep_bounded_logs() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    assert len(services) == 6
    for service in services.values():
        assert service["logging"]["driver"] == "json-file"
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}


def test_the_label_that_publishers_need_is_told() -> None:
    [policy] = of_kind("NetworkPolicy")
    [label] = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"].items()
    assert f"pods with the label `{label[0]}: {label[1]}`" in (DOCKER / "README.md").read_text()


def test_selectors_find_what_they_are_for() -> None:
    labels = [found["spec"]["template"]["metadata"]["labels"] for found, _ in pods()]
    for found, _ in pods():
        wanted = found["spec"]["selector"]["matchLabels"].items()
        assert wanted <= found["spec"]["template"]["metadata"]["labels"].items()
    for found in (*of_kind("PodDisruptionBudget"), *of_kind("NetworkPolicy"), *of_kind("Service")):
        selector = found["spec"].get("podSelector", found["spec"].get("selector"))
        wanted = selector.get("matchLabels", selector).items()
        assert sum(wanted <= some.items() for some in labels) == 1


def test_images_are_run_with_arguments_that_they_take() -> None:
    for _, pod in pods():
        for container in pod["containers"]:
            image = container["image"].partition(":")[0].removeprefix("tenure-")
            known = {one["name"] for one in container["env"]}
            used = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
            assert used <= known
            parse([*started_by(image), *filled_in(container["args"])])


def test_probes_and_hooks_run_what_is_in_the_images() -> None:
    for _, pod in pods():
        for container in pod["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                command, file, seconds = container[probe]["exec"]["command"]
                assert (command, file) == ("healthy", "/run/tenure/health")
                assert int(seconds) >= 15
                assert file in started_by(container["image"].partition(":")[0].removeprefix("tenure-"))
    (hook,) = [
        container["lifecycle"]["preStop"]["exec"]["command"]
        for _, pod in pods()
        for container in pod["containers"]
        if "lifecycle" in container
    ]
    assert hook[:2] == ["sh", "-c"]
    parse([part.replace("$POD_NAME", VALUES["POD_NAME"]) for part in shlex.split(hook[2])])


def test_pods_are_humble_and_get_time_to_hand_over() -> None:
    for found, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["terminationGracePeriodSeconds"] >= 120
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
        assert found["spec"]["replicas"] == 3
        if found["metadata"]["name"] == "tenure-member":
            assert found["spec"]["podManagementPolicy"] == "OrderedReady"
    budgets = {found["metadata"]["name"]: found["spec"] for found in of_kind("PodDisruptionBudget")}
    assert budgets["tenure-members"]["maxUnavailable"] == 1
    assert budgets["tenure-nodes"]["minAvailable"] == 1


def test_members_and_nodes_agree_where_members_are() -> None:
    (members, nodes), (service,) = of_kind("StatefulSet"), of_kind("Service")
    name, domain = members["metadata"]["name"], members["spec"]["serviceName"]
    assert domain == service["metadata"]["name"]
    port = service["spec"]["ports"][0]["port"]
    addresses = ",".join(f"{name}-{n}.{domain}:{port}" for n in range(members["spec"]["replicas"]))
    (member,) = members["spec"]["template"]["spec"]["containers"]
    assert f"--join={addresses}" in member["args"]
    (node,) = nodes["spec"]["template"]["spec"]["containers"]
    assert {"name": "TENURE_CLUSTER", "value": f"tenure@{addresses}"} in node["env"]


def test_what_nodes_note_down_outlives_them() -> None:
    """Which cluster it was is nowhere else when all was restarted at once."""
    (folder,) = re.findall(r"TENURE_NODE_STATE=(\S+)", (DOCKER / "Dockerfile").read_text())
    nodes = next(found for found in of_kind("StatefulSet") if found["metadata"]["name"] == "tenure-node")
    (node,) = nodes["spec"]["template"]["spec"]["containers"]
    (mount,) = node["volumeMounts"]
    (claim,) = nodes["spec"]["volumeClaimTemplates"]
    assert (mount["name"], mount["mountPath"]) == (claim["metadata"]["name"], folder)
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    (volume,) = compose["volumes"]
    for name, service in compose["services"].items():
        if name.startswith("node"):
            assert f"{volume}:{folder}" in service["volumes"]
    made = re.search(r"install -d -o tenure -g tenure (.*)", (DOCKER / "Dockerfile").read_text())
    assert made is not None
    assert folder in made[1].split(), "a volume that is made from it belongs to the user that writes to it"


def test_the_compose_file_starts_three_members_one_by_one_and_three_nodes() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    services = compose["services"]
    assert sorted(services) == ["member-1", "member-2", "member-3", "node-1", "node-2", "node-3"]
    for name, service in services.items():
        kind = name.partition("-")[0]
        parse([*started_by(kind), *service["command"]])
        assert service["network_mode"] == "host"
        assert service["stop_grace_period"] == "2m"
    assert set(services["member-3"]["depends_on"]) == {"member-2"}
    (join,) = {service["command"][-1] for name, service in services.items() if name.startswith("member")}
    nodes = [service for name, service in services.items() if name.startswith("node")]
    assert {service["environment"]["TENURE_CLUSTER"] for service in nodes} == {f"tenure@{join}"}
    default = re.search(r"\$\{APP:-(\S+?)\}", services["node-1"]["volumes"][0])
    assert default is not None
    assert (DOCKER / default[1]).is_file()


@pytest.mark.parametrize("script", ["base.sh", "build.sh", "engine.sh", "healthy"])
def test_scripts_can_be_run(script: str) -> None:
    assert (DOCKER / script).stat().st_mode & 0o111
