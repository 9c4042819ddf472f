"""The page of a scene: one HTML text with its data and its script, which needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from typing import Any

import numpy as np

from genalpha.view.scene import Item, Scene

# A browser runs no script in the page but this one, and loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'"
_SCRIPTS = ("geometry.js", "renderer.js", "viewer.js")
_TRACKS = {"at": ("x", "p"), "start": ("x",), "end": ("x",), "vector": ("x",), "point": ("x",)}


def page(scene: Scene) -> str:
    """The HTML text."""
    script = "".join(_read(name) for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": html.escape(_POLICY.format(digest)),
        "title": html.escape(scene.title or "genalpha"),
        "style": _read("viewer.css"),
        "data": _safe(data(scene)),
        "script": script,
    }
    text = _read("viewer.html")
    pieces = text.split("@@")  # texts and the names of the parts between them
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def data(scene: Scene) -> dict[str, Any]:
    """The scene in a form that JSON can write. Arrays are little-endian numbers in base64."""
    return {
        "format": 1,
        "title": scene.title,
        "notice": scene.notice,
        "up": scene.up,
        "times": _encoded(scene.times, "<f8"),
        "bounds": scene.bounds.tolist(),
        "size": scene.size,
        "ground": scene.ground,
        "rate": scene.rate,
        "items": [_item(item) for item in scene.items],
    }


def embedded(text: str, height: int) -> str:
    """A page in a frame of its own, for notebooks."""
    return (
        f'<iframe srcdoc="{html.escape(text)}" sandbox="allow-scripts" '
        f'style="width:100%;height:{height}px;border:0" title="genalpha"></iframe>'
    )


def _item(item: Item) -> dict[str, Any]:
    sizes = dict(item.sizes)
    if item.shape.kind == "mesh":
        sizes |= {
            "vertices": _encoded(sizes["vertices"], "<f4"),
            "triangles": _encoded(sizes["triangles"], "<u4"),
        }
    tracks = {
        name: {part: _encoded(getattr(path, part), "<f4") for part in _TRACKS[name]}
        for name, path in item.tracks.items()
    }
    about = {"kind": item.shape.kind, "group": item.shape.group, "name": item.name, "color": item.color}
    return about | sizes | tracks


def _encoded(values: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _safe(tree: Any) -> str:
    """JSON that ends no script element and begins no comment, whatever the names in it are."""
    text = json.dumps(tree, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _read(name: str) -> str:
    return resources.files("genalpha.view").joinpath(name).read_text(encoding="utf-8")
