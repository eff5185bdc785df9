"""Scripts for shells: bash's is run, and all know every verb and option."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tilewright.cli import VERBS, main
from tilewright.rungs import NAMES


def script(capsys, shell):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text, *words):
    """What bash offers for the last of some words."""
    given = " ".join(f"'{word}'" for word in ("tilewright", *words))
    program = (
        f"{text}\nCOMP_WORDS=({given}); COMP_CWORD={len(words)}; _tilewright; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    found = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert found.stderr == ""
    return found.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_verbs_options_and_names(capsys):
    text = script(capsys, "bash")
    assert completed(text, "lad") == ["ladder"]
    assert completed(text, "") == list(VERBS)
    assert completed(text, "run", "--form") == ["--format"]
    assert completed(text, "run", "--format", "la") == ["latex"]
    assert completed(text, "run", "--device", "") == ["cpu", "opencl", "cuda"]
    assert completed(text, "explain", "direct-") == ["direct-reduce"]
    assert completed(text, "kernel", "b") == ["bench"]
    assert "--sanitize" in completed(text, "kernel", "check", "--s")
    assert completed(text, "run", "--json", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_is_known_to_every_shell(capsys, shell):
    text = script(capsys, shell)
    assert all(verb in text for verb in VERBS)
    assert all(rung in text for rung in NAMES)


def test_fish_has_each_option_with_what_it_does(capsys):
    lines = script(capsys, "fish").splitlines()
    (device,) = [line for line in lines if "from run'" in line and "-l device" in line]
    assert "-x -a 'cpu opencl cuda'" in device
    assert any("__fish_use_subcommand" in line and "-a ladder" in line for line in lines)


def test_another_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh'" in capsys.readouterr().err
