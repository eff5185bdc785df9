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


@pytest.fixture
def installs(tmp_path):
    """Installs the only package of a folder, which pip is told of; with more settings, as asked."""
    folder, target = tmp_path / "wheels", tmp_path / "installed"
    folder.mkdir()
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            f"{about}/RECORD",
            f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n",
        )

    def run(**settings):
        usual = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
        told = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(folder), **settings}
        of_uv = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}
        ran = subprocess.run(
            [sys.executable, install.__file__, "--target", target, "tiny"],
            env={**usual, **told, **of_uv}, capture_output=True, text=True,
        )  # fmt: skip
        return ran, (target / "tiny.py").exists()

    return run


def test_uv_finds_what_pip_would(installs):
    pytest.importorskip("uv", reason="uv is not installed: `make test` does it")
    ran, there = installs(PIP_QUIET="2")
    assert there
    assert ran.stderr == ""


def test_pip_installs_where_uv_cannot_and_a_line_says_so(installs):
    ran, there = installs(PIP_NO_INDEX="1")
    assert there
    assert ran.stderr == (
        "uv is not told pip's setting no-index: pip installs, which takes longer\n"
    )


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ("config", "pip's settings cannot be read"),
        ("--only-binary=uv", "uv cannot be installed"),
        ("--python", "uv could not install"),
    ],
)
def test_where_a_step_fails_pip_installs(fails, why, monkeypatch, capfd):
    asked = []

    def run(command, **more):
        asked.append(command)
        return subprocess.CompletedProcess(command, int(fails in command), stdout="")

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    assert install.main(["-e", "."]) == 0
    assert asked[-1] == [*install.PIP, "install", "-qq", "--no-compile", "-e", "."]
    assert capfd.readouterr().err == f"{why}: pip installs, which takes longer\n"
