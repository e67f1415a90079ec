"""Programs written for other stores, on Holdfast."""
