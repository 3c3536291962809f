"""What the web page (ui/web/app.py) is made of: one file a tab, and what they share."""
