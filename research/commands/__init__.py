"""Commands of this plug-in, added by its entry points `draftline.commands`."""
