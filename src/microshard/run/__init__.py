"""Executing a plan: the run's folder, its journal and ledger, Ansible in its process, the runner."""
