"""Snapshots: a consistent cut of all jobs, kept outside the grid.

    coordinator ──request──► every partition cuts (see `cutting`) ──► its part goes to the store, in packs of buckets
         ▲                                                                 │
         └── all parts are there: the manifest, last of all ◄──────────────┘     restore: parts ──► images, definitions

What is stored is described in `form`; where, in `stores`.
"""
