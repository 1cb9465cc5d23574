"""Samples of real inputs, so that every page of the documents can be tried in an empty folder."""
