"""Which cases `make test` leaves to `make deep`.

A test over many shapes, networks or kernels catches most mistakes with some of them. Here is, for
those that take long, which part of their cases is tried each time: one in so many, in the order in
which they are written, and never none. `make deep` (`pytest --deep`) tries all of them, and with
every trial of the verifier; it is for changes to what a test is about, and before a release.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

# Of these, one case in so many.
ONE_IN = {
    "tests/cli/test_explain.py::test_explain_fused": 2,
    "tests/cli/test_ladder.py::test_the_table_has_every_rung": 2,
    "tests/fuse/cpu/test_arm.py::test_networks_on_arm": 4,
    "tests/fuse/cpu/test_generate.py::test_borders_find_their_taps_in_the_run": 3,
    "tests/fuse/cpu/test_nan.py::test_they_reach_exactly": 4,
    "tests/fuse/cpu/test_run.py::test_branches": 3,
    "tests/fuse/cpu/test_run.py::test_odd_networks": 3,
    "tests/fuse/cpu/test_winograd.py::test_outputs_are_within_the_bound": 3,
    "tests/fuse/cuda/test_branches.py::test_cut_anywhere": 3,
    "tests/fuse/cuda/test_branches.py::test_layers_out_of_the_ordinary": 3,
    "tests/fuse/cuda/test_cubins.py::test_every_benchmark_network": 5,
    "tests/fuse/cuda/test_arriving.py::test_every_word": 3,
    "tests/fuse/cuda/test_patches.py::test_a_network_of_patches": 11,
    "tests/fuse/cuda/test_patches.py::test_a_whole_kernel": 5,
    "tests/fuse/cuda/test_patches.py::test_every_wrong_constant_is_seen": 2,
    "tests/fuse/cuda/test_patches.py::test_kernels_compile_and_keep_sums": 2,
    "tests/fuse/cuda/test_patches.py::test_tensor_cores_add_up": 2,
    "tests/fuse/cuda/test_patches.py::test_what_lanes_write": 7,
    "tests/fuse/cuda/test_pools.py::test_between_other_kernels": 2,
    "tests/fuse/cuda/test_schedule.py::test_what_kernels_hand_to_each_other": 5,
    "tests/fuse/cuda/test_steps.py::test_every_wrong_offset_is_seen": 3,
    "tests/fuse/cuda/test_steps_dense.py::test_every_wrong_offset_is_seen": 3,
    "tests/judge/test_remote.py::test_a_worker_computes_what_the_runtime": 2,
    "tests/model/formats/test_modules.py::test_every_layer_computes": 2,
    "tests/model/formats/test_modules.py::test_exporters_give_the_same_network": 3,
    "tests/model/formats/test_onnx_witnesses.py::test_a_case_of_onnx_on_a_gpu": 3,
    "tests/rungs/gpu/test_design.py::test_candidates_fit": 3,
    "tests/rungs/gpu/test_prepare.py::test_candidates_that_are_not_chosen": 3,
    "tests/rungs/gpu/test_prepare.py::test_what_is_not_finite": 3,
    "tests/rungs/own/test_start.py::test_a_start_compiles_for_cuda": 3,
    "tests/rungs/own/test_start.py::test_a_start_is_proven_as_it_is": 4,
    "tests/rungs/test_rungs.py::test_every_memory_plan_computes_the_same": 3,
    "tests/rungs/test_rungs.py::test_odd_networks_in_odd_batches_on_a_gpu": 4,
    "tests/rungs/test_rungs.py::test_the_thesis_probabilities": 6,
    "tests/runtime/test_dialect.py::test_kernels_of_odd_shapes": 3,
    "tests/runtime/test_strict.py::test_machines_of_other_kinds": 3,
    "tests/runtime/test_strict.py::test_the_ladder": 3,
    "tests/test_graphs.py::test_graphs_on_the_cpu": 3,
    "tests/test_kinds.py::test_a_new_kind_runs_on_the_cpu": 3,
    "tests/truth/test_diagnose.py::test_broken_kernels_are_refused": 2,
    "tests/truth/test_diagnose.py::test_right_kernels_pass_in_their_class": 3,
    "tests/truth/test_isolation.py::test_the_bound_at_the_end_is_tight": 7,
    "tests/truth/test_verify.py::test_a_wrong_network_is_caught_as_a_whole": 4,
    "tests/truth/test_verify.py::test_networks_in_one_function_are_right": 2,
    "tests/truth/test_verify.py::test_right_but_unusual_kernels_pass": 2,
}
# These only when all is tried: what they show, others show in part.
LEFT_OUT = (
    "tests/classroom/test_judging.py::test_marks_are_rungs",
    "tests/cli/test_kernel_check.py::test_other_choices_of_parameters",
    "tests/cli/test_train.py::test_a_stopped_training_goes_on",
    "tests/cli/test_tune.py::test_a_kernel_file_takes_part",
    "tests/cluster/test_ray.py::test_a_ladder_is_proven_by_all",
    "tests/cluster/test_ray.py::test_candidates_are_timed_by_others",
    "tests/cluster/test_ray.py::test_ctrl_c_ends_a_command",
    "tests/fuse/cuda/test_cubins.py::test_strips_through_several_layers_in_words",
    "tests/fuse/cuda/test_schedule.py::test_what_the_verifier_tries_by_kernels_for_few_images",
    "tests/judge/test_remote.py::test_the_proof_works_in_isolation",
    "tests/runtime/test_dialect.py::test_kernels_of_the_zoo",
    "tests/runtime/test_pocl_kernels.py::test_pocl_survives_damage",
    "tests/truth/test_verify.py::test_a_right_network_passes_as_a_whole",
    "tests/views/report/test_browser.py::test_a_long_page_opens",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="every case, with every trial")


@pytest.fixture
def one_in(request: pytest.FixtureRequest) -> int:
    """Of the verifier's trials, one in so many."""
    return 1 if _deep(request.config) else 3


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _deep(config):
        return
    seen: Counter[str] = Counter()
    left = []
    names = tuple(ONE_IN)
    for item in items:
        found = None
        if item.nodeid.startswith(names):
            found = next(name for name in names if item.nodeid.startswith(name))
        if item.nodeid.startswith(LEFT_OUT) or (found and seen[found] % ONE_IN[found]):
            left.append(item)
        if found:
            seen[found] += 1
    config.hook.pytest_deselected(items=left)
    without = set(left)
    items[:] = [item for item in items if item not in without]


def _deep(config: pytest.Config) -> bool:
    """Whoever names a file or a case means all of it."""
    named = any(Path(given.partition("::")[0]).suffix == ".py" for given in config.args)
    return named or bool(config.getoption("--deep"))
