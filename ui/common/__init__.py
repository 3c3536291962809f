"""What the command, the page, the tools for agents and the demo share."""
