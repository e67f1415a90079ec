"""Programs for developers of Holdfast; `./dev` calls most of them."""
