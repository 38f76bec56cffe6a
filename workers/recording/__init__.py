"""A machine as a folder of files: all that it was asked, disguised, and the machine that such a folder makes."""
