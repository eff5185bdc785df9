"""A verb's function takes what its command takes: the same names, the same defaults."""

from __future__ import annotations

import argparse
import inspect
from importlib import import_module

import pytest

from tilewright.cli import Parser
from tilewright.errors import TilewrightError
from tilewright.verbs.explain import explain
from tilewright.verbs.explained import ExplainResult
from tilewright.verbs.ladder import LadderResult, ladder
from tilewright.verbs.profile import ProfileResult, profile
from tilewright.verbs.run import RunResult, run
from tilewright.verbs.verify import VerifyResult, verify

# Of the function alone: a command shows its progress always, and what it found at once.
OF_PROGRAMS = {"progress", "each"}
# Of the command alone: how a result is shown or kept. A program has the result's own way instead.
SHOWN = {
    "help": "__doc__",
    "traceback": "__class__",
    "json": "to_json",
    "csv": "to_csv",
    "predictions": "predictions_csv",
    "save_plan": "save_plan",
    "save": "keep",
    "history": "keep",
    "format": "__str__",
    "show": "pictures",
}
VERBS = {
    "run": (run, RunResult),
    "ladder": (ladder, LadderResult),
    "profile": (profile, ProfileResult),
    "explain": (explain, ExplainResult),
    "kernel_check": (verify, VerifyResult),
}
verbs = pytest.mark.parametrize("verb", VERBS)


def options(verb: str) -> dict[str, argparse.Action]:
    parser = Parser(prog=verb)
    import_module(f"tilewright.cli.{verb}").add_arguments(parser)
    return {action.dest: action for action in parser._actions}


@verbs
def test_no_option_of_a_command_is_forgotten(verb):
    function, result = VERBS[verb]
    taken = set(inspect.signature(function).parameters)
    for name in set(options(verb)) - taken:
        assert name in SHOWN, f"tilewright.{verb} has no argument {name!r}, but the command has"
        assert hasattr(result, SHOWN[name])
    assert taken - set(options(verb)) <= OF_PROGRAMS


@verbs
def test_defaults_are_the_same(verb):
    function, _ = VERBS[verb]
    parser = Parser(prog=verb)
    import_module(f"tilewright.cli.{verb}").add_arguments(parser)
    positional = [action.dest for action in parser._actions if action.required]
    read = vars(parser.parse_args(["fused"] * len(positional)))
    for name, parameter in inspect.signature(function).parameters.items():
        if name in OF_PROGRAMS or name in positional:
            continue
        default = parameter.default
        found = read[name]
        assert (tuple(found) if isinstance(found, list) else found) == default or (
            str(found) == default
        ), name


@verbs
def test_all_but_rung_and_network_are_named(verb):
    kinds = inspect.signature(VERBS[verb][0]).parameters
    others = [each for name, each in kinds.items() if name not in ("net", "rung")]
    assert {each.kind for each in others} <= {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "verb, given, words",
    [
        ("run", {"images": 0}, "argument images: 0 is not a whole number from 1 to 1000000000"),
        ("run", {"images": 1.5}, "argument images: 1.5 is not a whole number"),
        ("run", {"batch": True}, "argument batch: True is not a whole number"),
        ("run", {"device": "gpu"}, "unknown device 'gpu'; name cpu, opencl or cuda"),
        ("run", {"device": 3}, "unknown device '3'"),
        ("run", {"memory": "much"}, "argument memory: invalid choice: 'much' .choose from resi"),
        ("run", {"precision": "fp8"}, "argument precision: invalid choice: 'fp8' .choose from fp1"),
        ("run", {"rung": "fussed"}, "unknown rung on cpu 'fussed'; did you mean 'fused'"),
        ("run", {"net": 3}, "a network is given by its name or path"),
        ("run", {"data": 3}, "the given arrays: 'images' is int, not an array"),
        ("run", {"plan": "p.json", "batch": 3}, "--batch is not for --plan: the plan says all"),
        ("run", {"plan": "none.json"}, "No such file"),
        ("run", {"plan": 3}, "argument plan: 3 is not a path"),
        ("run", {"progress": "bar"}, "argument progress: 'bar' is neither True or False nor a fun"),
        ("run", {"on": "dask"}, "argument on: invalid choice: 'dask' .choose from ray"),
        ("run", {"on": "ray", "workers": 0}, "argument workers: 0 is not a whole number"),
        ("run", {"on": "ray", "repeats": 2}, "--repeats is not for --on ray"),
        ("run", {"on": "ray", "data": "no.npz"}, "data 'no.npz' does not exist"),
        ("run", {"workers": 2}, "--workers is for --on ray"),
        ("run", {"address": "auto"}, "--address is for --on ray"),
        (
            "ladder",
            {"rungs": "serial, fussed"},
            "unknown rung on cpu 'fussed'; did you mean 'fused'",
        ),
        ("ladder", {"rungs": 3}, "argument rungs: 3 is neither a name or path nor several"),
        ("ladder", {"rungs": [3]}, r"argument rungs: \[3\] is neither a name or path nor several"),
        ("ladder", {"plan": 3}, "argument plan: 3 is neither a name or path nor several"),
        ("kernel_check", {"rung": None}, "argument rung: None is neither a name or path nor sev"),
        ("kernel_check", {"rung": "im2co"}, r"unknown rung or kernel .*; did you mean 'im2col'\?"),
        ("kernel_check", {"rung": "nosuch"}, r"unknown rung or kernel file .*; known: serial, "),
        ("kernel_check", {"rung": "no.cl"}, "cannot read the kernel file no.cl: there is none"),
        ("ladder", {"images": "many"}, "argument images: 'many' is not a whole number"),
        ("ladder", {"repeats": 0}, "argument repeats: 0 is not a whole number"),
        ("ladder", {"rung": "mine.txt"}, "--rung mine.txt: names a kernel file of your own here"),
        ("explain", {"rung": "fusd"}, "unknown rung 'fusd'; did you mean 'fused'"),
        ("explain", {"rung": "fused", "source": True}, "--source is for GPU rungs"),
        ("explain", {"rung": "direct", "asm": "conv1"}, "--asm is for the rung 'fused'"),
        (
            "explain",
            {"rung": "tensor", "precision": "fp16", "batch": 3},
            "--batch is not for rung 'tensor'",
        ),
        ("explain", {"rung": "direct", "batch": 0}, "argument batch: 0 is not a whole number"),
        ("kernel_check", {"rung": ()}, "name at least one rung or kernel file"),
        ("kernel_check", {"rung": "fused", "seed": -1}, "argument seed: -1 is not a whole number"),
        ("kernel_check", {"rung": "mine.cl", "device": "cpu"}, "opencl or cuda, not on cpu"),
        ("kernel_check", {"rung": "im2col", "sanitize": True}, "--sanitize is for kernel files"),
        ("kernel_check", {"rung": "im2col", "precision": "fp16"}, "it computes in fp32"),
        ("kernel_check", {"rung": "tensor", "device": "cpu"}, "tensor.*cpu|cpu.*tensor"),
        ("profile", {"compare": "ab"}, "argument compare: two are compared, not 'ab'"),
        ("profile", {"compare": 3}, "argument compare: two are compared, not 3"),
        ("profile", {"compare": ("a",)}, "argument compare: two are compared"),
        ("profile", {"compare": ("a", "b"), "rung": "c"}, "--rung is of one run, and --compare"),
    ],
)
def test_what_is_wrong_is_one_line(verb, given, words):
    with pytest.raises(TilewrightError, match=words):
        VERBS[verb][0](**given)
