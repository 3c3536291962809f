"""The power that this machine runs on."""

from __future__ import annotations


def on_battery() -> bool:
    """Return whether the machine runs on its battery; False where it does not say."""
    import psutil  # type: ignore[import-untyped]

    sensors = getattr(psutil, "sensors_battery", None)  # not on every system
    battery = sensors() if sensors else None
    return battery is not None and battery.power_plugged is False
