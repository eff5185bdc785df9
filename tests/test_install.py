from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import install
import pytest


def test_uv_is_told_what_pip_was():
    assert install.for_uv(
        "global.index-url='https://mirror.edu/simple'\n"
        "global.extra-index-url='\\nhttps://a.edu/simple\\nhttps://b.edu/simple?of=all'\n"
        "global.find-links='wheels ~/more'\n"
        "global.trusted-host='a.edu b.edu:8080'\n"
        "global.cert='/etc/ca.pem'\n"
        "global.timeout='60'\n"
        "global.no-cache-dir='true'\n"
        "global.disable-pip-version-check='1'\n"
    ) == {
        "UV_DEFAULT_INDEX": "https://mirror.edu/simple",
        "UV_INDEX": "https://a.edu/simple https://b.edu/simple?of=all",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "wheels,~/more",
        "UV_INSECURE_HOST": "a.edu b.edu:8080",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_HTTP_TIMEOUT": "60",
        "UV_NO_CACHE": "true",
    }


def test_without_settings_uv_is_told_nothing():
    assert install.for_uv("") == {}


@pytest.mark.parametrize(
    ("listed", "counts"),
    [
        (":env:.index-url='v'\nglobal.index-url='g'\ninstall.index-url='i'", "v"),
        ("global.index-url='g'\ninstall.index-url='i'", "i"),
        (":env:.index-url=''\nglobal.index-url='g'", "g"),
        ("download.index-url='d'\nglobal.index-url='g'", "g"),
    ],
)
def test_the_setting_counts_that_counts_for_pip(listed, counts):
    assert install.for_uv(listed) == {"UV_DEFAULT_INDEX": counts}


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("global.proxy='http://p.edu'\n:env:.pre='1'", "uv is not told pip's setting pre, proxy"),
        ("a warning", "of pip's settings 'a warning' is not understood"),
    ],
)
def test_what_uv_cannot_be_told_is_left_to_pip(listed, why):
    with pytest.raises(install.NotWithUv) as raised:
        install.for_uv(listed)
    assert str(raised.value) == why


def test_uv_finds_what_pip_would(tmp_path):
    """A package that is nowhere but in a folder of which pip is told."""
    pytest.importorskip("uv", reason="uv is not installed: `make test` does it")
    folder, target, about = tmp_path / "wheels", tmp_path / "installed", "tiny-1.0.dist-info"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "tiny.py,,\n")
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    of_pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(folder), "PIP_QUIET": "2"}
    of_uv = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, install.__file__, "--target", target, "tiny"],
        env={**usual, **of_pip, **of_uv}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.stderr == ""
    assert (target / "tiny.py").exists()


@pytest.fixture
def asked(monkeypatch):
    """The commands that are called: in an environment with what it `has`, whatever has the word
    `fails` in it fails."""

    def environment(has, fails="", listed=""):
        commands = []

        def run(command, **more):
            commands.append(command)
            return subprocess.CompletedProcess(command, int(fails in command), stdout=listed)

        monkeypatch.setattr(install.subprocess, "run", run)
        monkeypatch.setattr(install, "find_spec", lambda name: name in has or None)
        monkeypatch.setattr(install, "LENT_PIP", ["lent", *install.PIP])
        return commands

    return environment


@pytest.mark.parametrize(
    ("fails", "listed", "why"),
    [
        ("config", "", "pip's settings cannot be read"),
        ("", "global.pre='1'", "uv is not told pip's setting pre"),
        ("--only-binary=uv", "", "uv cannot be installed"),
        ("--quiet", "", "uv could not install"),
    ],
)
def test_where_uv_cannot_pip_installs_and_a_line_says_so(fails, listed, why, asked, capfd):
    commands = asked({"pip"}, fails, listed)
    assert install.main(["-e", "."]) == 0
    assert commands[-1] == [*install.OWN_PIP, "install", "-qq", "--no-compile", "-e", "."]
    assert capfd.readouterr().err == f"{why}: pip installs, which takes longer\n"


def test_an_environment_gets_a_pip_from_uv(asked):
    commands = asked(set())
    assert install.main(["-e", "."]) == 0
    *before, last = commands
    assert [command[0] for command in before] == ["lent", "lent"]
    assert last[-3:] == ["pip", "-e", "."]


def test_where_python_has_no_pip_the_environment_gets_one_first(asked):
    commands = asked(set(), "lent")
    assert install.main(["-e", "."]) == 0
    assert commands[1][:3] == [sys.executable, "-m", "ensurepip"]
    assert commands[2] == [*install.OWN_PIP, "config", "list"]


def test_without_any_pip_a_line_says_what_is_missing(asked):
    asked(set(), "-m")
    with pytest.raises(SystemExit) as stopped:
        install.main(["-e", "."])
    assert stopped.value.code == (
        "Python has neither pip nor ensurepip (Debian and Ubuntu: python3-venv)"
    )
