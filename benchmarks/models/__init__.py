"""Peers, one small file each: their best sensible settings, two threads, never crippled."""
