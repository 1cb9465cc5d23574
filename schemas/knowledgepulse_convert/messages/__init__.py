"""The vendors' messages, and rows of data sets that hold them."""
