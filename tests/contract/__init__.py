"""What every backend must do, whatever the cluster. One suite; each cluster brings a `Place` to run it on."""
