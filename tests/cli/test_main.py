from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright import cli
from tilewright.cli import main

COMMAND = [sys.executable, "-m", "tilewright"]


def test_help_names_every_verb_and_imports_nothing_heavy():
    code = """
import sys
from tilewright.cli import main
try:
    main(["--help"])
except SystemExit:
    sys.exit(any(name in sys.modules for name in ("numpy", "rich", "numba", "torch")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for verb in cli.VERBS:
        assert verb in done.stdout


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([verb, "--help"])
    assert leaving.value.code == 0
    said = capsys.readouterr().out
    assert f"tilewright {verb}" in said
    assert "None" not in said  # as a default


def test_no_verb_shows_the_help(capsys):
    assert main([]) == 0
    assert "verbs:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "unknown verb 'rum'; did you mean 'run'?"),
        (["run", "--images", "0"], "'0' is not a whole number from 1 to"),
        (["run", "--images", "ten"], "'ten' is not a whole number"),
        (["run", "--images", "1001"], "--images 1001: fashion-mnist-sample (shipped)"),
        (["run", "--batch", "-3"], "'-3' is not"),
        (["run", "--colour"], "unrecognized arguments: --colour (see"),
        (["tune", "--seconds", "9"], "unrecognized arguments: --seconds (see"),  # not --json
        (
            ["run", "--rungs", "fused"],
            "unrecognized arguments: --rungs fused; did you mean --rung?",
        ),
        (["run", "ece408"], "a value follows its option, as in --net ece408"),
        (["ladder", "--rungs", "fused,", "serial"], "and lists are a,b,c"),
        (["--device", "opencl", "run"], "--device stands before the verb: options follow it"),
        (
            ["ladder", "--rungs", "direct"],
            "does not run on cpu: add --device opencl or --device cuda",
        ),
        (["history", "999"], "`tilewright history show 999`?"),
        (["run", "--net", "cifar"], "unknown network 'cifar'; did you mean 'cifar10'?"),
        (["run", "--rung", "seriel"], "did you mean 'serial'?"),
        (["run", "--device", "gpu"], "unknown device 'gpu'; name cpu, opencl or cuda"),
        (["run", "--data", "fashion"], "unknown data set 'fashion'"),
        (["run", "--net", "ece408-2017"], "tilewright train ece408-2017"),
        (["run", "--json", "/no/such/place.json"], "cannot write /no/such/place.json"),
        (["run", "--predictions", "/"], "cannot write /: it is a folder"),
        (["run", "--weights", "gone.safetensors"], "gone.safetensors"),
        (["ladder", "--json", "/no/such/place.json"], "cannot write"),
        (["ladder", "--repeats", "0"], "'0' is not"),
        (["show"], "the following arguments are required: NET"),
        (["show", "lenet"], "unknown network 'lenet'"),
        (["data", "fech"], "did you mean 'fetch'?"),
        (["data", "fetch"], "name what to fetch"),
        (["data", "fetch", "cifar100"], "unknown data set to fetch 'cifar100'; did you mean"),
        (["data", "check", "nothing"], "unknown data set 'nothing'"),
        (["train", "cifar10", "--device", "cuda"], "cannot train on cuda"),
        (["train", "cifar10"], "tilewright data fetch cifar10"),
        (["train", "cifar10", "--device", "meta"], "unknown device 'meta'"),
        (["train", "cifar10", "--seed", "9" * 30], "is not a whole number from 1"),
        (["train", "cifar10", "--output", "weights"], "must end in .safetensors"),
        (["run", "--device", "cpu:x"], "unknown device 'cpu:x'"),
        (["run", "--device", "cuda:x"], "unknown device 'cuda:x'"),
        (["run", "--device", "opencl:²"], "unknown device 'opencl:²'"),
        (["run", "--predictions", "-"], "--predictions - is not possible"),
        (["run", "--json", "a.out", "--predictions", "a.out"], "a.out is the file of --json"),
        (["run", "--net", "x.json", "--json", "x.json"], "x.json is the file of --net"),
        (["run", "--data", ""], "no images found"),
        (["run", "--net", "x" * 5000], "File name too long"),
        (["run", "--weights", "/dev/zero"], "neither a .safetensors file nor a folder"),
        (["ladder", "--images", "1" + "0" * 18], "is not a whole number from 1"),
        (["ladder", "--device", "cuda"], "no rung can be timed: direct, direct-reduce, padded"),
        (["data", "check", "gone.npz"], "data 'gone.npz' does not exist"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, words, capsys):
    assert main(arguments) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("tilewright: ")
    assert streams.err.count("\n") == 1
    assert words in streams.err


@pytest.mark.parametrize("verb", ["show", "run", "ladder"])
@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"type": "convolution", "filters": 10**12, "kernel": 1}, "filters must be"),
        ({"type": "convolution", "filters": 1, "kernel": 1, "padding": 10**30}, "padding must be"),
        ({"type": "fully_connected", "outputs": 10**300}, "outputs must be"),
        ({"type": "fully_connected", "outputs": 10**6}, "layer 1 (fc): more than"),
    ],
)
def test_monstrous_networks_are_refused(verb, layer, words, tmp_path, capsys):
    net = {"name": "big", "input": {"shape": [1, 1000, 1000]}, "layers": [layer]}
    path = tmp_path / "big.json"
    path.write_text(json.dumps(net))
    assert main([verb, *(["--net"] if verb != "show" else []), str(path)]) == 2
    streams = capsys.readouterr()
    assert words in streams.err
    assert streams.err.count("\n") == 1


def test_names_are_shown_as_they_are_whatever_is_in_them(tmp_path, capsys):
    place = tmp_path / "[red]m["
    place.mkdir(parents=True)
    layers = [{"type": "flatten"}, {"type": "softmax"}]
    net = {"name": "[/] :smile:", "input": {"shape": [1, 2, 2]}, "layers": layers}
    (place / "[bold]n.json").write_text(json.dumps(net))
    np.savez(place / "].npz", images=np.zeros((3, 1, 2, 2), np.uint8))
    given = ["--net", str(place / "[bold]n.json"), "--data", str(place / "].npz")]
    assert main(["run", *given]) == 0
    text = capsys.readouterr().out
    assert "[/] :smile: over 3 images" in text
    assert "[red]m[/].npz" in text.replace("\n", "")
    assert main(["show", str(place / "[bold]n.json")]) == 0
    assert "[/] :smile:" in capsys.readouterr().out


def test_a_terminal_that_knows_only_ascii_gets_escapes(tmp_path):
    net = {"name": "µs", "input": {"shape": [1, 2, 2]}, "layers": [{"type": "flatten"}]}
    (tmp_path / "net.json").write_text(json.dumps(net))
    done = subprocess.run(
        [*COMMAND, "show", tmp_path / "net.json"], capture_output=True, check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"\\xb5s" in done.stdout


def test_a_bug_is_one_line_too_unless_a_traceback_is_asked_for(monkeypatch, capsys):
    def fail(arguments):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("tilewright.cli.show.main", fail)
    assert main(["show", "cifar10"]) == 2
    assert "internal error, ZeroDivisionError: oops" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        main(["show", "cifar10", "--traceback"])


def test_out_of_memory_is_one_line(monkeypatch, capsys):
    def fail(arguments):
        raise MemoryError

    monkeypatch.setattr("tilewright.cli.show.main", fail)
    assert main(["show", "cifar10"]) == 2
    assert "smaller --batch" in capsys.readouterr().err


def wait_until_it_has_computed(process, seconds):
    ticks = 0
    while ticks < seconds * os.sysconf("SC_CLK_TCK"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
        # Behind its name, which may have anything in it: of a user's, and of the system's.
        told = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(told[11]) + int(told[12])


def test_ctrl_c_in_mid_run_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "run", "--rung", "serial", "--json", "out.json", "--predictions", "out.csv"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    wait_until_it_has_computed(process, 2)  # seconds: its start takes about one
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "tilewright: interrupted"
    assert "Traceback" not in err
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_is_no_error():
    process = subprocess.Popen(
        [*COMMAND, "show", "cifar10"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_a_full_standard_output_is_one_line():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*COMMAND, "show", "cifar10"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr
