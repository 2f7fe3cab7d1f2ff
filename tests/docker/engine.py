"""A Docker Engine and the two images, or the reason why there can be none."""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

__all__ = ["INSTALL", "PROJECT", "Images", "NoEngine", "build_images", "install", "running_engine"]

PROJECT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("TENURE_DOCKER_DIR", "/var/tmp/tenure-docker"))
INSTALL = "TENURE_DOCKER_INSTALL"
"""Set where a missing engine may be installed from the system's packages (`.ci/run` does)."""
BASE = "tenure-base"
USUAL = "unix:///var/run/docker.sock"
ENGINE_WITHIN_S = 30
BASE_WITHIN_S = 240
BUILD_WITHIN_S = 300


class NoEngine(Exception):
    """No container can be run here; the text says why."""


# -- the engine -----------------------------------------------------------------------------------


@contextmanager
def running_engine() -> Iterator[None]:
    """The engine that is there, or one that ends with this block. Raises `NoEngine`."""
    if _answers(os.environ.get("DOCKER_HOST", USUAL)):
        yield
        return
    _find_dockerd()
    url = f"unix://{FOLDER}/docker.sock"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "engine.log").open("wb") as log:
        engine = subprocess.Popen(
            [PROJECT / "docker" / "engine.sh", FOLDER], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = url
    try:
        _await(engine, url)
        yield
    finally:
        engine.terminate()
        engine.wait(60)
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before


def _answers(url: str) -> bool:
    # The client leaves sockets open that it could not connect.
    if url.startswith("unix://") and not _listens(url.removeprefix("unix://")):
        return False
    try:
        client = docker.DockerClient(url)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(path)
        except OSError:
            return False
        return True


def _find_dockerd() -> None:
    if os.geteuid() != 0:
        raise NoEngine("no Docker Engine answers, and only root can start one")
    if all(map(shutil.which, ("docker", "dockerd", "debootstrap"))):
        return
    if not os.environ.get(INSTALL):
        raise NoEngine(f"no Docker Engine answers or is installed (docker.io, debootstrap; or set {INSTALL})")
    install("the Docker Engine", "docker.io", "debootstrap")
    if not shutil.which("docker"):  # a package of its own since Debian 13
        install("Docker's command line", "docker-cli")


def install(what: str, *packages: str) -> None:
    """From the system's packages. Raises `NoEngine`."""
    commands = ["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    for command in commands:
        _run(command, BASE_WITHIN_S, f"{what} can't be installed")


def _await(engine: "subprocess.Popen[bytes]", url: str) -> None:
    end_s = time.monotonic() + ENGINE_WITHIN_S
    while not _answers(url):
        if engine.poll() is not None or time.monotonic() > end_s:
            last = (FOLDER / "engine.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise NoEngine(f"a Docker Engine does not start here: {' '.join(last)}")
        time.sleep(0.1)


# -- the images -----------------------------------------------------------------------------------


class Images:
    """What is run."""

    def __init__(self, tag: str) -> None:
        self.member, self.node = f"tenure-member:{tag}", f"tenure-node:{tag}"


def build_images() -> Images:
    """The images of the project as it stands; built unless they are there. Raises `NoEngine` if no base can be had."""
    images = Images(_stamp())
    client = docker.from_env()
    try:
        if all(_is_there(client, image) for image in (images.member, images.node)):
            return images
        if not _is_there(client, BASE):
            _run([PROJECT / "docker" / "base.sh", BASE], BASE_WITHIN_S, "no base image can be made")
    finally:
        client.close()
    environment = {"PYTHON": sys.executable, "TAG": _stamp()}
    done = subprocess.run(
        [PROJECT / "docker" / "build.sh", BASE],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return images


def _is_there(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _run(command: list[str | Path], within_s: float, otherwise: str) -> None:
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stdout", None) or b""
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise NoEngine(f"{otherwise}: {error} {' '.join(last)}".strip()) from error


def _stamp() -> str:
    """Names the project's contents, as far as images depend on them."""
    sources = [path for name in ("scheduler", "jobs", "listeners", "src") for path in (PROJECT / name).rglob("*.py")]
    inputs = [PROJECT / "requirements-run.lock", PROJECT / "pyproject.toml"]
    inputs += [PROJECT / "docker" / name for name in ("Dockerfile", "healthy", "build.sh")]
    digest = hashlib.sha256()
    for path in sorted({path.resolve() for path in sources}) + inputs:
        digest.update(f"{path.relative_to(PROJECT.resolve())}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
