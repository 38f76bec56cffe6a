"""Links between our own pages lead somewhere."""

import re

from tests.architecture.tree import ROOT, our_files

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_links_between_pages_hold():
    broken = [
        f"{page} → {target}"
        for page in our_files()
        if page.suffix == ".md"
        for target in LINK.findall((ROOT / page).read_text("utf-8"))
        if "://" not in target and not (ROOT / page.parent / target).exists()
    ]
    assert not broken, f"A reader who follows these finds nothing: {broken}"
