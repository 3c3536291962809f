"""Small SVG line plots for training reports: losses and reliability diagrams."""

from __future__ import annotations

from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 320, 60, 130, 34, 34
COLOURS = ("#888888", "#1f6feb", "#d1242f", "#2da44e", "#9a6700")
Line = list[tuple[float, float]]


def draw(title: str, lines: dict[str, Line]) -> str:
    """Draw named lines over common axes, as SVG."""
    points = [point for line in lines.values() for point in line] or [(0.0, 0.0)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)

    def pixel(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / ((right - left) or 1) * (WIDTH - LEFT - RIGHT)
        up = (y - low) / ((high - low) or 1) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for x, y, anchor in ((left, low, "start"), (right, low, "end")):
        pixel_x = pixel(x, y)[0]
        parts.append(f'<text x="{pixel_x}" y="{HEIGHT - 14}" text-anchor="{anchor}">{x:g}</text>')
    for y in (low, high):
        parts.append(
            f'<text x="{LEFT - 8}" y="{pixel(left, y)[1]}" text-anchor="end">{y:.3g}</text>'
        )
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        path = " ".join("{},{}".format(*pixel(x, y)) for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        for x, y in line:
            parts.append('<circle cx="{}" cy="{}" r="2.5" fill="{}"/>'.format(*pixel(x, y), colour))
        if line:
            x, y = pixel(*line[-1])
            label = f'<text x="{x + 8}" y="{y + 4}" fill="{colour}">{escape(name)}</text>'
            parts.append(label)
    return "\n".join([*parts, "</svg>\n"])


def losses(training: list[float], held_out: list[float]) -> str:
    """Draw training loss and held-out score by epoch."""
    lines = {"training": training, "held out": held_out}
    epochs = {name: [(n + 1.0, y) for n, y in enumerate(line)] for name, line in lines.items()}
    return draw("loss by epoch", epochs)
