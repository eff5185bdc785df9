"""What MkDocs is told beside mkdocs.yml: pages from elsewhere in the repository, and their links.

README.md, CONTRIBUTING.md and others are pages of the site where they lie, and the reference is
made from the code. Links in documents are those of the repository, so that they work on a code
host; here they become the site's. A file that is linked and is no page goes along as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from reference import PAGES as REFERENCE  # noqa: E402 - MkDocs has this folder on the path

# Where a page of the site lies in the repository, if not in docs/.
ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/README.md",
    "fuse.md": "src/tilewright/fuse/README.md",
}
ON_THE_SITE = {there: here for here, there in ELSEWHERE.items()}
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
OPTION = re.compile(r"(?<=[\s>])--?[a-z][a-z-]*(?=[\s<=])")


def on_files(files: Files, config: Any) -> Files:
    for page, source in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, make in REFERENCE.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri
    if here in REFERENCE:
        return markdown

    def moved(link: re.Match[str]) -> str:
        uri = site_path(ELSEWHERE.get(here, f"docs/{here}"), link[1])
        if files.get_file_from_path(uri) is None and (ROOT / repository_path(uri)).is_file():
            source = str(ROOT / repository_path(uri))
            files.append(File.generated(config, uri, abs_src_path=source))
        return f"]({relpath(uri, PurePosixPath(here).parent)}{link[2] or ''})"

    parts = FENCE.split(markdown)
    return "".join(part if i % 2 else LINK.sub(moved, part) for i, part in enumerate(parts))


def on_page_content(html: str, **_: Any) -> str:
    """Options in tables, marked: browsers would break `--images` after its dashes."""

    def marked(cell: re.Match[str]) -> str:
        return OPTION.sub(r'<span class="option">\g<0></span>', cell[0])

    return CELL.sub(marked, html)


def site_path(source: str, link: str) -> str:
    """Where a link in a file of the repository leads on the site."""
    target = normpath(str(PurePosixPath(source).parent / link))
    if target in ON_THE_SITE:
        return ON_THE_SITE[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target}"


def repository_path(uri: str) -> str:
    return uri.removeprefix("source/")
