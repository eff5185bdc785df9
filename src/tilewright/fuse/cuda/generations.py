"""What is known of each generation of GPUs: one table, looked up by compute capability.

Everything else in this folder is arithmetic on shapes. What depends on the GPU stands here, with
where it comes from:

- datasheet: the CUDA programming guide or NVIDIA's data sheet;
- measured: one effect, timed by itself;
- fitted: so that estimated times come near to those of measured plans, and those that are chosen
  are fast; `python -m benchmarks.fit` does it once more from
  `benchmarks/results/2026-11-18-plans-h200.json` and `2026-11-20-plans-as-cut-h200.json`, which
  `benchmarks.plans` made, and needs no GPU (`benchmarks.panels` and `benchmarks.patches` where that
  is said);
- chosen: of a few round values, the one whose plans were the fastest.

Measured, fitted and chosen were all of it on H200s (2026-11-16 to 20). Other generations take these
numbers over until somebody times plans on them; only their shared memory is their own. A number
that is off makes a kernel slower, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.runtime.dialect import DoesNotFit


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Cycles that kernels of sums take. Fitted, but for `distant` of few images and for
    defaults that are not zero, which are chosen.

    A product is a step of 16 rows and a column of filters; a read is 128 bytes of shared memory; a
    result is 16 rows and a column of sums, with what becomes of them.
    """

    product: float  # of a multiprocessor, as are all up to `filled`
    twice: float = 0  # where a lane has two sums of each (fp32)
    together: float = 0  # by four warps together (`warpgroups`), of each of them
    read: float  # of the picture
    weights: float | None = None  # of a column's weights; None: two reads
    result: float
    activation: float = 0  # 128 of them, for each cycle that a vector of them takes on a CPU
    each: float = 1 / 16  # value of a pooling's windows, of two results
    window: float = 1 / 5  # the same where some stick out; measured: 3.2 to 6.8 in a cycle
    channel: float = 1 / 16  # the same of filters that see one channel each
    distant: float  # a word of weights from the second cache
    filled: float = 32 / 5  # 32 values, or words, that come from device memory
    own_product: float  # that a warp takes for its own, as are all that follow
    own_together: float = 0
    own_step: float
    own_unit: float
    own_distant: float = 0  # until it has a step's weights from the second cache
    own_activation: float = 0  # 32 of them
    own_each: float = 0  # 32 values of windows
    fill: float = 0  # until each thread of a group has read once from device memory
    strips: float = 1  # how much longer an image takes in strips than all of them together
    written: float = 1 / 5  # a word that goes to device memory
    late: float = 0  # the same, where parts of 128 bytes are written one after the other
    odd: float = 0  # and where a column of halves has no neighbour to be written with


@dataclass(frozen=True)
class WholeRates:
    """Cycles of a network's only kernel where every block has one image: of few of them. Fitted,
    all but the sums' rates to tensor cores' alone; `python -m benchmarks.whole` does it once more
    from `benchmarks/results/2026-11-18-whole-h200.json`, and needs no GPU. Where all weights lie in
    shared memory, what is chosen takes 0.3 % longer than the fastest on average, and 2.9 % at most;
    1.8 and 5.9 % in fp32."""

    start: float  # until it is under way, and after it ends
    warp: float  # of a block
    word: float  # of the weights that are waited for
    tensor: Rates
    plain: Rates


@dataclass(frozen=True)
class FewRates:
    """Cycles of kernels for few images, of which most is waiting. Of two numbers the first is for
    multiply-adds, the second for tensor cores. Fitted to 100 launches of 1 and 16 images: 13 % off
    on average (H200, 2026-11-16)."""

    processors: int  # that plans are made for
    launch: float  # a kernel, until its blocks begin, and after they end
    block: float  # a block's first words, and its results
    round: float  # to wait for the other warps, and the next words
    ahead: float  # that words are fetched before they are there; chosen
    corner: float  # for each row whose words a thread fetches in a round
    step: float
    product: tuple[float, float]  # that a warp takes for its own, in a step
    more_product: tuple[float, float]  # of each warp beyond the first of a scheduler
    weights_a_cycle: float  # words that come from the second cache
    gather: float  # to add up the parts of several blocks
    part: float  # and for each of them that a warp adds, and product of a step
    # Of kernels that take images one by one: these were fitted with the others.
    tensor: Rates
    plain: Rates
    image_work: float
    image_wait: float
    whole: WholeRates


@dataclass(frozen=True)
class PanelRates:
    """Cycles of fully connected layers in panels: of many images, and a launch of both kinds."""

    work: float  # a turn's sums of 64 x 1
    copy: float  # one of the two of a turn
    copied: float  # bytes that a block's copies move in a cycle
    turn: float
    put: float  # 64 x 1 results
    gather: float  # 64 x 64 sums of a group
    parts: float  # that several blocks gather
    cluster: float  # that shares what it reads
    launch: float
    few_turn: float  # of few images
    few_column: float  # 8 outputs of it, of all blocks of a multiprocessor
    few_product: float  # and for each image of a tile that is computed


@dataclass(frozen=True)
class PatchRates:
    """Cycles of wide convolutions in patches (`patches`); where two are named, the second is what
    kernels without tensor cores take the rate for."""

    product: float  # a step's sums of 64 positions and a filter; a warp's multiply-add
    twice: float  # the same where a thread has two sums of each, without tensor cores
    step: float  # of 64 positions, whatever the filters; a piece that a warp reads
    wait: float  # before four channels of a column of taps are there, without tensor cores
    turn: float  # a stage of weights
    copied: float  # bytes of weights that come in a cycle
    fetched: float  # pieces of pictures that do
    put: float  # results of 64 positions and a filter
    work: float  # a piece of it
    launch: float
    eight_floats: float = 1  # as often that, where results are floats, and a lane has eight filters
    sharing: float = 1  # how much longer a block takes where two are on a multiprocessor
    added: float = 0  # before what is added to two times eight filters of two positions is there
    added_apart: float = 0  # the same of 64 times 64, two filters and one position after the other


@dataclass(frozen=True, eq=False)  # looked up by what it is, in caches
class Generation:
    """The multiprocessor that plans are made for. Cycles are its own."""

    name: str
    # Datasheet: shared memory that a block may have, all that a multiprocessor has less what the
    # system keeps of it.
    shared_bytes: int
    # Datasheet: whether four warps compute sums together (wgmma), which 9.0 alone can.
    warpgroups: bool
    # Fitted: to 1,819 plans of 415 kernels on tensor cores and 1,100 of 259 as multiply-adds, those
    # that 121 networks are cut into. Estimates are 15.2 and 10.3 % off on average, what they
    # choose of a kernel's plans takes 2.7 and 2.1 % longer than the fastest (44 and 22 % at worst);
    # with rates fitted to three networks it was 22.7 and 16.2, 4.6 and 7.0 % of 1,604 plans.
    # Of cifar10, ece408 and lenet5 what is chosen is within 0.2 % of the fastest that was timed, in
    # fp32 within 2.7.
    tensor: Rates
    plain: Rates
    # Chosen: what an image, or a strip of one, costs besides, of the multiprocessor and of the
    # group that works on it.
    image_work: float
    image_wait: float
    # Chosen: values that are added, or put behind each other, in a cycle, of two results.
    joined_a_cycle: float
    # Until a thread has read two values from device memory, of four times two that it reads at
    # once. Measured: pictures that are added or put behind each other, 47 times
    # (`benchmarks/results/2026-11-19-alone-h200.txt`).
    pair_wait: float
    # Measured: what reads of single words cost against reads of two (fp32).
    unaligned: float
    # Measured: registers of a lane besides sums and operands, as the compiler hands them out.
    other_registers: int
    # Chosen: what a launch costs, an image of 10,000.
    launch_cycles: float
    # Datasheet: words that device memory moves in a cycle of each multiprocessor (4.8 TB/s over 132
    # of them at 1.98 GHz are 4.6).
    words_a_cycle: float
    # Chosen: a fully connected layer with more weights is done over the batch, not image by image.
    most_connected: int
    # Chosen: one kernel more must promise to save this much: estimates are not better than that.
    worth_it: float
    # Chosen: how much more what a stack is estimated at counts beside patches. When it was 1, of 44
    # cases in fp32 that were cut otherwise than before 11 took 1.03 times as long and more, most
    # with more layers in stacks (1,000 images, `benchmarks/results/2026-11-20-planned-h200.json`).
    beside_others: float
    # Chosen, for fully connected layers over the batch: registers of a lane that hold sums; blocks
    # that share a sum (more would spend more on adding up than they save).
    dense_sums: int
    most_parts: int
    few: FewRates
    # Datasheet: whether fully connected layers over the batch are kernels of their own, in panels
    # (`panels`): tensor cores that read shared memory, and copies that tell when they are done.
    panels: bool
    # Measured: images up to which the warps of a block may divide the sums of such layers.
    most_few: int

    def rates(self, arithmetic: Arithmetic) -> Rates:
        if arithmetic.products > 1:
            return _several(self.tensor, arithmetic.products)
        return self.tensor if arithmetic.tensor else self.plain


@cache
def _several(one: Rates, products: int) -> Rates:
    """Of so many products for each, as so many times one: nothing is fitted to them yet."""
    names = "product", "own_product", "own_step"
    return replace(one, **{name: products * getattr(one, name) for name in names})


HOPPER = Generation(
    name="Hopper (H100, H200)",
    shared_bytes=227 * 1024,
    warpgroups=True,
    tensor=Rates(
        product=1.33,
        together=0.905,
        read=0.869,
        weights=0.204,
        result=2.02,
        activation=0.588,
        each=0.341,
        channel=0.132,
        distant=0.0439,
        filled=7.07,
        own_product=6.27,
        own_step=117,
        own_unit=966,
        own_distant=60.1,
        own_activation=1.45,
        own_each=13.5,
        fill=89.9,
        strips=1.56,
        written=0.191,
        odd=0.187,
    ),
    plain=Rates(
        product=1.7,
        twice=1.62,
        read=0.406,
        weights=2.7,
        result=6.87,
        activation=1.01,
        each=0.29,
        channel=0.139,
        distant=0.0773,
        filled=6.92,
        own_product=9.13,
        own_step=26.9,
        own_unit=1880,
        own_distant=203,
        own_activation=4.62,
        own_each=5.95,
        fill=137,
        strips=1.16,
        written=0.0877,
        late=0.00798,
    ),
    image_work=0,
    image_wait=250,
    joined_a_cycle=16,
    pair_wait=520,
    unaligned=1.3,
    other_registers=34,
    launch_cycles=130,
    words_a_cycle=5,
    most_connected=8192,
    worth_it=1.03,
    beside_others=1.1,
    dense_sums=100,
    most_parts=16,
    few=FewRates(
        processors=132,
        launch=3500,
        block=1100,
        round=270,
        ahead=1000,
        corner=40,
        step=30,
        product=(12, 17),
        more_product=(2.25, 3.0),
        weights_a_cycle=4.3,
        gather=3000,
        part=70,
        tensor=Rates(
            product=1.1,
            read=0.23,
            result=23,
            own_product=9.9,
            own_step=0,
            own_unit=0,
            distant=0.125,
            together=1.1,
            own_together=9.9,
        ),
        plain=Rates(
            product=2.25,
            twice=2.25,
            read=0.24,
            result=16.5,
            own_product=4.1,
            own_step=343,
            own_unit=637,
            distant=0.25,
        ),
        image_work=510,
        image_wait=5080,
        whole=WholeRates(
            start=3700,
            warp=38,
            word=0.037,
            tensor=Rates(
                product=0.1,
                read=0.955,
                result=26,
                own_product=4.2,
                own_step=160,
                own_unit=181,
                distant=0.125,
                own_together=6.3,
            ),
            plain=Rates(
                product=2.33,
                twice=2.33,
                read=0.43,
                result=0,
                own_product=8,
                own_step=114,
                own_unit=0,
                distant=0.25,
            ),
        ),
    ),
    panels=True,
    most_few=128,
)
# Of Hopper, which alone has kernels in panels: with tensor cores, and without. Fitted to the times
# of all ways of seven layers by 1 to 128 images, and of six by 256 to 10,000 (fp32: seven, of
# 2026-11-18), and rounded (`python -m benchmarks.panels --fit` does it once more from
# `benchmarks/results/2026-11-17-panels-*h200.json`, in fp32 from `2026-11-18-panels-fp32-h200.json`
# and the few of those, and needs no GPU). What they choose is the fastest in 128 of 156 cases and
# 72 of 84; it is 39 % slower at most, and 11 % without tensor cores.
PANELS = {
    True: PanelRates(
        work=2.641,
        copy=47.8,
        copied=79.1,
        turn=1.5,
        put=7.88,
        gather=303,
        parts=4260,
        cluster=1830,
        launch=2064,
        few_turn=653,
        few_column=367,
        few_product=0.8,
    ),
    False: PanelRates(
        work=19.8,
        copy=187,
        copied=44.3,
        turn=310,
        put=24.7,
        gather=516,
        parts=1700,
        cluster=1120,
        launch=4040,
        few_turn=254,
        few_column=0,
        few_product=124.4,
    ),
}
# Of Hopper alone, too. Fitted to times of seven layers in fp16 by 100 and 1,000 images, of eleven
# in fp16 and fourteen in TF32 by 1,000, and rounded (`python -m benchmarks.patches --fit
# benchmarks/results/2026-11-18-patches-h200.json benchmarks/results/2026-11-19-patches-h200.json`
# does it once more, and needs no GPU; in TF32 the first file's results were written otherwise), but
# for the launch, which graphs of ten hide: with it 16 images take what they took. Estimates are
# 18 % off on average; what they choose takes at most 22 % longer than the fastest, and 3 % on
# average.
PATCHES = PatchRates(
    product=0.545,
    twice=0,
    step=12.7,
    wait=0,
    turn=59,
    copied=39,
    fetched=0.5,
    put=3.9,
    work=485,
    launch=4000,
    eight_floats=1.15,
    sharing=1.3,
    added=680,
    added_apart=2900,
)
# The same without tensor cores, to 540 times of twelve layers by 16, 100 and 1,000 images with one
# sum of each (`2026-11-18-patches-plain-h200.json`), and 360 with two
# (`2026-11-18-patches-twice-h200.json`): what they choose takes at most 3.4 % longer than the
# fastest, and 0.5 % on average.
PLAIN_PATCHES = PatchRates(
    product=1.17, twice=1.15, step=0.212, wait=196, turn=77, copied=280, fetched=0.54, put=28.8,
    work=0.4, launch=3620,
)  # fmt: skip
# What other generations take over: their tensor cores read registers.
OTHERS = replace(HOPPER, name="others", warpgroups=False, panels=False)

# By compute capability, 10 * major + minor.
GENERATIONS = {
    80: replace(OTHERS, name="Ampere (A100)", shared_bytes=163 * 1024),
    86: replace(OTHERS, name="Ampere (GeForce RTX 30)", shared_bytes=99 * 1024),
    89: replace(OTHERS, name="Ada", shared_bytes=99 * 1024),
    90: HOPPER,
    100: replace(OTHERS, name="Blackwell (B200)"),
    120: replace(OTHERS, name="Blackwell (GeForce RTX 50)", shared_bytes=99 * 1024),
}


def generation(capability: int) -> Generation:
    """The GPU's own, or the nearest older one that is known."""
    known = [number for number in GENERATIONS if number <= capability]
    if not known:
        raise DoesNotFit(
            f"sm_{capability} has no tensor cores that add in float32: sm_80 is needed"
        )
    return GENERATIONS[max(known)]
