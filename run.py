#!/usr/bin/env python3
"""Sets up everything in .venv, then runs the demo or the tests. Needs Python 3.11 or newer, nothing else.

python3 run.py demo [ARGUMENT ...]           the same as `tenure demo ARGUMENT ...`
python3 run.py test [ARGUMENT ...]           all checks, then `pytest ARGUMENT ...`, but for the slow tests
python3 run.py test -m slow                  these: the protocol's models in all their cases
python3 run.py test --fast [ARGUMENT ...]    without the tests that start members, Spark or Docker, or take minutes

What is installed is pinned with hashes: requirements.lock (tests) or requirements-run.lock (demo). As long as
these stay the same, a second run installs nothing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
LOCKS = {"demo": ROOT / "requirements-run.lock", "test": ROOT / "requirements.lock"}
CHECKS = [["ruff", "check"], ["mypy"], ["lint-imports", "--no-logo"]]
FAST = "not cluster and not spark and not docker and not long and not slow"
FULL = "not slow"
VENV_PACKAGES = ["python{}.{}-venv".format(*sys.version_info), "python3-venv"]
JAVA_PACKAGES = ["openjdk-17-jre-headless", "openjdk-21-jre-headless"]  # Debian 12 has the one, Debian 13 the other


def main(arguments):
    if sys.version_info < (3, 11):
        sys.exit("Tenure needs Python 3.11 or newer; this is {}.{}.".format(*sys.version_info))
    if not arguments or arguments[0] not in LOCKS:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    command, *rest = arguments
    set_up(command)
    os.chdir(ROOT)
    os.environ["PATH"] = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])
    os.environ.pop("PYTHONPATH", None)
    if command == "demo":
        os.execv(VENV / "bin" / "tenure", ["tenure", "demo", *rest])
    sys.exit(test(rest))


def test(arguments):
    """Runs every check, also after one has failed; pytest comes last, so that its closing line is the last."""
    fast = "--fast" in arguments
    arguments = [argument for argument in arguments if argument != "--fast"]
    if not fast:
        find_java()
    pytest = ["pytest", "-m", FAST if fast else FULL, *arguments]
    failed = [command[0] for command in [*CHECKS, pytest] if not succeeds(command)]
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return bool(failed)


def find_java():
    """Spark wants a whole Java, which PyPI does not have: where there is none, Debian's is installed, if that may be
    done here. Otherwise the tests that run Spark are skipped, and say why."""
    look = [VENV / "bin" / "python", "-c", "from tenure.jobs.spark.java import find_java_home; find_java_home()"]
    if not subprocess.run(look, stderr=subprocess.DEVNULL).returncode:
        return
    print("Installing a Java for Spark …", flush=True)
    installed_one_of(JAVA_PACKAGES)


def installed_one_of(packages):
    """Whether Debian's first package that is to be had could be installed: only root may, where apt is."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid():
        return False
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([apt, "update"], **quiet)
    for package in packages:
        install = [apt, "install", "-y", "--no-install-recommends", package]
        if not subprocess.run(install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **quiet).returncode:
            return True
    return False


def succeeds(command):
    """Ctrl-C reaches the command, too, which cleans up and says how far it came; we wait for that, and end."""
    print("$ " + " ".join(command), flush=True)
    process, interrupted = subprocess.Popen([VENV / "bin" / command[0], *command[1:]]), False
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        sys.exit(130)
    return code == 0


def set_up(command):
    """Makes .venv hold what `command` needs, and the project itself in editable form."""
    wanted = stamp(LOCKS[command])
    found = {path.read_text() for path in VENV.glob("installed-*")}
    if wanted in found or command == "demo" and stamp(LOCKS["test"]) in found:
        return
    current = {stamp(lock) for lock in LOCKS.values()}
    if not found or not found <= current:
        print("Setting up .venv …", flush=True)
        make_venv()
    print("Installing what {} pins …".format(LOCKS[command].name), flush=True)
    pip("--require-hashes", "-r", LOCKS[command])
    pip("--no-deps", "--no-build-isolation", "-e", ROOT)
    (VENV / ("installed-" + LOCKS[command].name)).write_text(wanted)


def make_venv():
    """Debian and Ubuntu keep a part of Python's venv module in a package of its own."""
    make = [sys.executable, "-m", "venv", "--clear", VENV]
    said = subprocess.run(make, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if said.returncode == 0 or installed_one_of(VENV_PACKAGES) and subprocess.run(make).returncode == 0:
        return
    print(said.stdout, file=sys.stderr)
    sys.exit("Python's venv module did not work; on Debian and Ubuntu: apt install {}".format(VENV_PACKAGES[0]))


def pip(*arguments):
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    if subprocess.run([VENV / "bin" / "python", "-m", "pip", "install", *quiet, *arguments]).returncode:
        sys.exit("The installation failed; what pip says above tells why. Nothing was left half done: run it again.")


def stamp(lock):
    """What an installation depends on. A moved checkout or another Python needs a new one."""
    parts = [lock.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), str(ROOT).encode(), sys.version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("interrupted")
