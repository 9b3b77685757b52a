"""Takes the pictures of the README and the pages: docs/pictures/*.png, small ones.

python -m tests.browser.pictures
"""

import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.large import LargePool
from tests.browser.visitor import OPTIONS, ROOT, Visitor

PICTURES = ROOT / "docs" / "pictures"
#: name -> (path, size, scheme)
TAKEN = {
    "dashboard-overview": ("", "desktop", "light"),
    "dashboard-overview-dark": ("", "desktop", "dark"),
    "dashboard-machines": ("machines", "desktop", "light"),
    "dashboard-shares": ("shares?search=physics", "desktop", "dark"),
    "dashboard-groups": ("groups", "desktop", "light"),
    "dashboard-phone": ("", "phone", "dark"),
}
#: A picture that is larger gets fewer colours, bytes.
LARGEST = 150_000


def smaller(path: Path) -> int:
    """Returns its size, bytes."""
    with Image.open(path) as picture:
        whole = picture.convert("RGB")
    whole.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        whole.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return path.stat().st_size


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory(prefix="roost-pictures-") as place, sync_playwright() as playwright:
        pool = LargePool(Path(place), 20_000, events=4.0, journal=True)
        try:
            pool.start()
            browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
            for name, (path, size, scheme) in TAKEN.items():
                visitor = Visitor(browser, pool.url, pool.token, size, scheme).log_in()
                page = visitor.go(path)
                if path in ("", "shares?search=physics"):
                    expect(page.locator(".u-over").first).to_be_attached()
                if path == "":
                    expect(page.locator("tr[data-event]")).to_have_count(8)
                page.screenshot(path=PICTURES / f"{name}.png")
                visitor.close()
                print(f"{name}: {smaller(PICTURES / f'{name}.png') / 1000:.0f} kB")
        finally:
            pool.close()


if __name__ == "__main__":
    main()
