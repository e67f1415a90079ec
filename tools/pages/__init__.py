"""The generated pages and files of the repository, all written anew by `./dev pages`.

Each module makes the text of one subject from the declarations in the package. Where a page is generated only
in parts, each part is a block between two markers: `<!-- begin NAME: ... -->` and `<!-- end NAME -->`.
"""
