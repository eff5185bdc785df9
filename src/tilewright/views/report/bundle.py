"""A report as a zip to hand in: page, raw data, kernels, plans, the author's words.

The same records give the same bytes: files have no dates, and stand in the order of their names.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping

from tilewright.files import file_name
from tilewright.results.page import KernelsRecord, PlanRecord
from tilewright.views.formats import csv
from tilewright.views.report.blocks import Page, tables
from tilewright.views.report.html import to_html
from tilewright.views.report.markdown import plain, to_markdown
from tilewright.views.report.material import Material

FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # that a zip can name
README = """Made by Tilewright.

report.html   the page: opens in any browser
report.md     the same as text
report.json   all measurements; tilewright report --from report.json makes the page again
tables/       every table of the page, as CSV with all digits
kernels/      the source of every kernel, as it was compiled
plans/        what was chosen for every layer; tilewright run --plan FILE uses it
words.md      the author's own words
"""


def bundle(page: Page, material: Material, words: str) -> bytes:
    return zipped(dict(_files(page, material, words)))


def zipped(files: Mapping[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, files[name].encode())
    return held.getvalue()


def _files(page: Page, material: Material, words: str) -> Iterator[tuple[str, str]]:
    yield "README.txt", README
    yield "report.html", to_html(page)
    yield "report.md", to_markdown(page)
    yield "report.json", page.data
    yield "words.md", words
    for place, section in enumerate(page.sections, 1):
        for number, table in enumerate(tables(section), 1):
            name = f"tables/{place:02}-{file_name(section.id)}-{number:02}.csv"
            yield name, csv.document([plain(table)])
    for record in material.of(KernelsRecord):
        for kernel in record.kernels:
            folder = "-".join(map(file_name, (record.network, record.device, record.rung)))
            name = f"{file_name(kernel.name)}-{file_name(kernel.layer)}.cl"
            yield f"kernels/{folder}/{name}", kernel.source
    for plan in material.of(PlanRecord):
        name = "-".join(map(file_name, (plan.network, plan.device, plan.rung)))
        yield f"plans/{name}.json", plan.plan
