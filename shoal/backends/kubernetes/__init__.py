"""Replicas as Jobs on Kubernetes, or through Kubeflow's training operator."""
