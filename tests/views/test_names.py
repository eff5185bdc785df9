"""Names of kernels as people read them."""

from __future__ import annotations

import pytest

from tilewright.views.names import short


def test_long_template_names_are_cut():
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::F<float>, std::array<x>>(n)"
    )
    assert short(name) == "void at::native::vectorized_elementwise_ker…"


@pytest.mark.parametrize(
    ("mangled", "words"),
    [
        ("_Z23implicit_convolve_sgemmIffLi1024ELi5EEviiPKT_", "implicit_convolve_sgemm"),
        ("_ZN2at6native18elementwise_kernelILi128EEEvi", "elementwise_kernel"),
        ("_ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIffEvi",
         "softmax_warp_forward"),
        ("direct_conv", "direct_conv"),
        ("_Zone", "_Zone"),
    ],
)  # fmt: skip
def test_a_mangled_name_is_its_last_word(mangled, words):
    assert short(mangled) == words
