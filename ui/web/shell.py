"""The page that a browser shows before the real one: its outline, and the current wait.

It is part of the page's HTML, so that it is visible at once: Gradio's scripts take seconds. While
the model loads, ui/api/startup.py serves it alone.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

# Asks how far the model is loaded, and shows the page once it is there.
LOADING_SCRIPT = """
const bar = document.querySelector("progress"), what = document.querySelector("#shell-status");
async function look() {
  try {
    const answer = await fetch("/health");
    if (answer.ok) return location.reload();
    const { loaded } = await answer.json();
    if (typeof loaded === "number") bar.value = loaded;
    else bar.removeAttribute("value");
    what.textContent = typeof loaded === "number"
      ? `Loading the model: ${Math.round(100 * loaded)} %` : "Loading the model\u2026";
  } catch {
    what.textContent = "The server has ended: its terminal says why. Start it, then reload.";
    return bar.remove();
  }
  setTimeout(look, 500);
}
look();
"""
LOADING = "Loading the model\u2026"
ICON = Path(__file__).with_name("icon.svg")
STYLE = """<style>
#shell { position: fixed; inset: 0; z-index: 50; display: flex; flex-direction: column; gap: 1.2rem;
  padding: 0.75rem 1.25rem; box-sizing: border-box; max-width: 1760px; margin: 0 auto;
  font: 16px/1.5 system-ui, sans-serif; background: #f8f8f5; color: #1a201f;
  box-shadow: 0 0 0 100vmax #f8f8f5; --line: #dfe1dc;
  --quiet: #525d59; --fill: #0b6e63; }
#shell header { display: flex; align-items: center; gap: 0.55rem; font-size: 1.3rem;
  font-weight: 700; border-bottom: 1px solid var(--line); padding-bottom: 2.9rem; }
#shell svg { width: 1.7rem; height: 1.7rem; }
#shell main { display: grid; grid-template-columns: minmax(0, 20rem) minmax(0, 1fr); gap: 2rem;
  flex: 1; padding-bottom: 2rem; }
#shell main > div { border: 1px dashed var(--line); border-radius: 8px; height: 5.5rem; }
#shell section { display: flex; flex-direction: column; justify-content: space-between; }
#shell section > div { border: 1px solid var(--line); border-radius: 12px; height: 3.4rem;
  max-width: 52rem; }
#shell p { margin: 0; color: var(--quiet); overflow-wrap: anywhere; }
#shell progress { display: block; width: 100%; max-width: 24rem; height: 0.45rem; border: 0;
  margin-top: 0.6rem; border-radius: 99px; overflow: hidden; background: var(--line);
  appearance: none; }
#shell progress::-webkit-progress-bar { background: var(--line); }
#shell progress::-webkit-progress-value { background: var(--fill); }
#shell progress::-moz-progress-bar { background: var(--fill); }
body:has(:is(#tabs, .gradio-container input)) #shell { display: none; }
@media (max-width: 900px) { #shell main { grid-template-columns: minmax(0, 1fr);
  grid-template-rows: auto 1fr; } }
@media (prefers-color-scheme: dark) { #shell { background: #121716; color: #efefeb;
  box-shadow: 0 0 0 100vmax #121716;
  --line: #37413e; --quiet: #a6b1ad; --fill: #52d0bd; } }
</style>"""


def shell(status: str, extra: str = "") -> str:
    """Write the outline with a status. `extra`: HTML below the status."""
    mark = ICON.read_text("utf-8").replace("<svg ", '<svg aria-hidden="true" ')
    return (
        f'{STYLE}<div id="shell"><header>{mark}Draftline</header><main><div></div><section>'
        f'<p role="status"><span id="shell-status">{escape(status)}</span>{extra}</p><div></div>'
        "</section></main></div>"
    )


def loading_page() -> str:
    """Write a page of its own, with the progress."""
    outline = shell(LOADING, '<progress max="1" aria-label="loaded"></progress>')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Draftline</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<noscript><meta http-equiv="refresh" content="2"></noscript></head>'
        f"<body>{outline}<script>{LOADING_SCRIPT}</script></body></html>"
    )


def with_shell(page: bytes) -> bytes:
    """Put the outline in front of Gradio's page, until its components are there."""
    head, body, rest = page.partition(b"<gradio-app")
    return head + shell("Loading the page\u2026").encode() + body + rest if body else page
