"""Why weights could not be had, with the cure in the sentence."""

from typing import Final

FAILED: Final = "fetch-failed"
DISK_FULL: Final = "disk-full"
CHECKSUM: Final = "checksum"
MISSING: Final = "model-missing"


class FetchFailed(Exception):
    """The weights are not there, and this is why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
