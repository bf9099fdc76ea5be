"""What data sets consist of and where they come from: files, and objects in buckets. Knows no store and no server."""
