"""The page's look: colors, type and sizes. style.css builds on the variables that this sets.

Every text has a contrast of at least 4.5:1 to what is behind it, in light and in dark mode.
"""

from __future__ import annotations

import gradio as gr

# From light to dark: green, for what can be clicked, and gray, for paper and ink.
GREEN = "#eef7f5 #d8eeea #aedbd3 #78c5b8 #52d0bd #178a7c #0b6e63 #0a5a51 #0a4741 #083a35 #062422"
GRAY = "#f8f8f5 #efefeb #dfe1dc #c6cbc6 #a6b1ad #6f7b76 #525d59 #3b4542 #262e2c #1a201f #121716"
QUIET_DARK, LINE_DARK = "#a6b1ad", "#37413e"
WEIGHTS = (400, 700)
BUTTON_DARK = "#0f7d71"  # white on it has 5:1

# Variables of Gradio: their values in light and in dark mode.
COLORS = {
    "body_background_fill": ("*neutral_50", "*neutral_950"),
    "body_text_color": ("*neutral_900", "*neutral_100"),
    "body_text_color_subdued": ("*neutral_600", QUIET_DARK),
    "background_fill_primary": ("white", "*neutral_900"),
    "background_fill_secondary": ("*neutral_100", "*neutral_800"),
    "border_color_primary": ("*neutral_200", LINE_DARK),
    "color_accent_soft": ("*primary_50", "#12312d"),
    "link_text_color": ("*primary_600", "*primary_400"),
    "block_background_fill": ("white", "*neutral_900"),
    "block_info_text_color": ("*neutral_600", QUIET_DARK),
    "block_label_text_color": ("*neutral_700", QUIET_DARK),
    "block_title_text_color": ("*neutral_700", "*neutral_200"),
    "input_background_fill": ("white", "*neutral_900"),
    "input_border_color": ("*neutral_300", "#4a5552"),
    "input_border_color_focus": ("*primary_600", "*primary_400"),
    "input_placeholder_color": ("*neutral_600", QUIET_DARK),
    "checkbox_background_color_selected": ("*primary_600", BUTTON_DARK),
    "checkbox_border_color": ("*neutral_500", "*neutral_500"),
    "checkbox_label_background_fill": ("white", "*neutral_900"),
    "checkbox_label_background_fill_selected": ("*primary_50", "#12312d"),
    "checkbox_label_border_color": ("*neutral_300", "#4a5552"),
    "checkbox_label_text_color_selected": ("*neutral_900", "*neutral_50"),
    "slider_color": ("*primary_600", "*primary_400"),
    "button_primary_background_fill": ("*primary_600", BUTTON_DARK),
    "button_primary_background_fill_hover": ("*primary_700", "*primary_600"),
    "button_primary_text_color": ("white", "white"),
    "button_secondary_background_fill": ("white", "*neutral_800"),
    "button_secondary_background_fill_hover": ("*neutral_100", "*neutral_700"),
    "button_secondary_border_color": ("*neutral_300", "#4a5552"),
    "button_secondary_text_color": ("*neutral_900", "*neutral_100"),
    "button_cancel_background_fill": ("*neutral_900", "*neutral_100"),
    "button_cancel_background_fill_hover": ("*neutral_700", "white"),
    "button_cancel_text_color": ("white", "*neutral_950"),
}


def theme() -> gr.themes.Base:
    """IBM Plex on paper. Gradio's package contains these two weights in full."""
    base = gr.themes.Base(
        primary_hue=_hue("green", GREEN),
        secondary_hue=_hue("green", GREEN),
        neutral_hue=_hue("gray", GRAY),
        radius_size="md",
        font=[gr.themes.LocalFont("IBM Plex Sans", WEIGHTS), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont("IBM Plex Mono", WEIGHTS), "ui-monospace", "monospace"],
    )
    dark = {f"{name}_dark": color for name, (_, color) in COLORS.items()}
    return base.set(
        **{name: color for name, (color, _) in COLORS.items()},
        **dark,
        color_accent="*primary_600",
        block_title_text_weight="600",
        input_border_width="1px",
        checkbox_label_border_width="1px",
        button_border_width="1px",
        button_large_text_weight="600",
        button_small_text_weight="500",
        block_border_color_dark=LINE_DARK,
    )


def _hue(name: str, colors: str) -> gr.themes.Color:
    hue = gr.themes.Color(*colors.split())
    hue.name = name
    return hue
