"""Executing a plan: the run's folder, its journal and ledger, Ansible as a subprocess, the runner."""
