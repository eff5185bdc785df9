"""Python reads this when a worker starts: its programs are built as those of the tests are."""

from tests import quick_builds

quick_builds.install()
