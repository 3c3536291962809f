"""The parts of the web page (ui/web/app.py): one file a tab, and what they share."""

import os

# Gradio would send what it counts, from threads that a program that ends waits for without a limit.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "100"  # kept in memory, and evaluated after each event
