"""Changes pages after the site is built: the theme's one download becomes a file of ours (`assets/worker.js`)."""

from __future__ import annotations

from typing import Any

_DOWNLOAD = "https://unpkg.com/iframe-worker/shim"


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Returns the page with nothing that has to be fetched from elsewhere."""
    return output.replace(_DOWNLOAD, "../" * page.url.count("/") + "assets/worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Returns a page that has no source, such as the one for unknown addresses, changed in the same way."""
    return output_content.replace(_DOWNLOAD, "assets/worker.js")
