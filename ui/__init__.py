"""The clients that are not an editor: the command, the HTTP API and the web page."""
