"""Every engine under the suite that certifies engines."""
