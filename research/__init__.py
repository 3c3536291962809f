"""A plug-in of Draftline: published methods, experiments with two models, trainers, commands."""
