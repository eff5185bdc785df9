"""Files out of a form: read no further than they may be long. What they may be called and hold is
for `tilewright.classroom.handed_in` to say."""

from __future__ import annotations

from starlette.datastructures import FormData, UploadFile

from tilewright.classroom.handed_in import LONGEST_NAME, MOST_BYTES, NotTaken, kernel_of

LARGEST_BODY = MOST_BYTES + 2**16  # with what stands around files


def files_of(form: FormData) -> dict[str, bytes]:
    """The files of the field `files`, by their names; an error unless all can be taken."""
    files: dict[str, bytes] = {}
    for upload in form.getlist("files"):
        if not isinstance(upload, UploadFile) or not upload.filename:
            continue  # a field without a file: browsers send those, too
        if upload.filename in files:
            raise NotTaken(f"{upload.filename[:LONGEST_NAME]!r} is there twice")
        files[upload.filename] = upload.file.read(MOST_BYTES + 1)
    kernel_of(files)
    return files
