"""See microshard_act: the module of this name, executed without a detour where it can be."""

from ansible.plugins.loader import action_loader

ActionModule = action_loader.get("microshard_act", class_only=True)
