"""What the server keeps: the database, logs and blobs."""
