"""What controller, Ansible modules and engines share about a host. Python 3.9 and its standard library suffice.

Each Ansible module NAME is `hostlib/NAME.py`: its `ARGUMENTS`, and `main(parameters, check)`, which returns its result.
"""
