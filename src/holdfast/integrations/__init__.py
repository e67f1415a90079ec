"""Other projects' interfaces over Holdfast's handles, each in a module of its own and behind its own extra.

An integration uses the methods of handles and nothing below them, so that it works on every engine and
through every door. Importing `holdfast` imports none of them. Other projects' packages are imported only
here, and a module whose package is missing says which extra to install.
"""
