"""Carriers: how chosen integers become words that a switch can sum. One file each."""
