"""The instrument behind `draftline verify`: does speculation change a server's answers?"""
