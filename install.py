"""What `make` installs with: `.venv/bin/python install.py -e '.[test]'`.

uv takes a quarter of pip's time (12 s and 50 s for the extra `test`, 2 cores, 2026-11-16), but
reads none of pip's settings: whoever has a mirror would get nothing, and whoever has PyTorch's CPU
build in a folder would get gigabytes. So uv is told them. Where it cannot be had, does not know a
setting or fails, pip installs, and a line says why.

The environment is made without a pip, which takes 5 s: uv puts one in.

Neither makes bytecode, which takes as long as the rest: Python makes what is imported on its way.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec

PIP = ["-m", "pip", "--disable-pip-version-check"]
# That of the Python which the environment was made with does until there is one in it.
LENT_PIP = [os.path.realpath(sys.executable), *PIP, "--python", sys.executable]
OWN_PIP = [sys.executable, *PIP]

# pip's settings, and the variables by which uv takes the same: a command line, which others on the
# machine can read, would show an index's password.
FOR_UV = {
    "cert": "SSL_CERT_FILE",
    "constraint": "UV_CONSTRAINT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-cache-dir": "UV_NO_CACHE",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
# Settings that do not change what is installed, nor from where.
OF_NO_MATTER = {
    "break-system-packages",
    "compile",
    "config-file",
    "disable-pip-version-check",
    "log",
    "no-color",
    "no-compile",
    "no-input",
    "no-python-version-warning",
    "no-warn-script-location",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
    "user-agent-user-data",
    "verbose",
}


class NotWithUv(Exception):
    """Why pip has to install."""


def main(wanted: list[str]) -> int:
    try:
        with_uv(wanted)
    except NotWithUv as why:
        print(f"{why}: pip installs, which takes longer", file=sys.stderr, flush=True)
        make_own_pip()
        return subprocess.run([*OWN_PIP, "install", "-qq", "--no-compile", *wanted]).returncode
    return 0


def with_uv(wanted: list[str]) -> None:
    pip, listed = LENT_PIP, settings_of(LENT_PIP)
    if listed is None:
        make_own_pip()
        pip, listed = OWN_PIP, settings_of(OWN_PIP)
    if listed is None:
        raise NotWithUv("pip's settings cannot be read")
    told = for_uv(listed)
    if find_spec("uv") is None:
        # Without a wheel pip would try to compile it.
        got = subprocess.run([*pip, "install", "-qq", "--no-compile", "--only-binary=uv", "uv"])
        if got.returncode != 0:
            raise NotWithUv("uv cannot be installed")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    besides = ["pip"] if find_spec("pip") is None else []
    if subprocess.run([*uv, *besides, *wanted], env=os.environ | told).returncode != 0:
        raise NotWithUv("uv could not install")


def settings_of(pip: list[str]) -> str | None:
    """Of its files and variables, as it lists them; to a pip that is to be quiet it lists none."""
    heard = os.environ | {"PIP_QUIET": "0", "PIP_VERBOSE": "0"}
    listed = subprocess.run([*pip, "config", "list"], env=heard, capture_output=True, text=True)
    return listed.stdout if listed.returncode == 0 else None


def make_own_pip() -> None:
    if find_spec("pip") is None:
        made = subprocess.run(
            [sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL
        )
        if made.returncode != 0:
            sys.exit("Python has neither pip nor ensurepip (Debian and Ubuntu: python3-venv)")
        invalidate_caches()


def for_uv(listed: str) -> dict[str, str]:
    """The variables that tell uv what pip's settings say, of lines such as global.timeout='60'."""
    by_section: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        try:
            by_section.setdefault(section, {})[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            raise NotWithUv(f"of pip's settings {line!r} is not understood") from None
    # In pip's order: the later ones count.
    settings = {
        name: value.split()
        for section in ("global", "install", ":env:")
        for name, value in by_section.get(section, {}).items()
        if value
    }
    if unknown := sorted(settings.keys() - FOR_UV.keys() - OF_NO_MATTER):
        raise NotWithUv(f"uv is not told pip's setting {', '.join(unknown)}")
    told = {
        FOR_UV[name]: ("," if name == "find-links" else " ").join(values)
        for name, values in settings.items()
        if name in FOR_UV
    }
    if "extra-index-url" in settings:
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # the newest of all indexes, as pip does
    return told


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
