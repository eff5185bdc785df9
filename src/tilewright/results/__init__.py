"""Results as typed records: what is written as JSON, kept in the history and shown by views.

A record is the one description of what a verb writes: its JSON is made from it (`document`), its
schema in docs/ is made from it (`schema`), and what is read back is checked against it. Views show
records; nothing of a device or a network is needed for that, so a record of last year is shown like
one of today.

To add a kind, say of `tilewright bench`:

1. `bench.py` in here: `class BenchRecord(Record, frozen=True, kw_only=True,
   tag="tilewright.bench/1")` with what it has beside the base (`record.Record`: network, device,
   environment). Numbers are of a kind that says their unit and range (`Seconds`, `Count`), others
   carry `about("...")`; both stand in the schema. Its `headline`, `rungs` and `timings` are what
   the history lists, filters by and compares.
2. `catalogue.py`: its name in `KINDS`. The history can keep it from then on: in `cli/bench.py`,
   `keeping.add_no_save(parser)` and `with keeping.keeping(record, arguments):` around the printing.
3. `views/history.py`: what `history show` prints of it, in `report`.
4. `python -m tilewright.results.schema docs`: writes `docs/bench.schema.json`; a test holds the
   committed file to the type.

A field that is new needs a default, so that what was kept before can be read. A field that goes or
changes its meaning is a new number in the tag.
"""
