"""Parts of a round trip of level L2, one call for each node: the module hook_roundtrip plays pbs_mom."""
import json
import re


def answer(done):
    """Return what a module returned (dict)."""
    return json.loads(re.search(r"=> (\{.*\})", done.out, re.DOTALL).group(1))


class Trip:
    """One job from node to node. Calls are trip(node's name, names of steps, state); they return the module's answer (dict).

    :param options: further options of hook_roundtrip
    """

    def __init__(self, cluster, **options):
        self.cluster, self.options, self.last, self.node = cluster, options, {}, None

    def __call__(self, node, steps, state=()):
        result = answer(self.cluster.module(node, "hook_roundtrip", steps=steps, state=dict(state), user="alice", **self.options))
        self.last.update(result["state"])
        self.node = node
        return result

    def clean(self):
        """Remove what a job that did not come to its end has left."""
        if self.last:
            self.cluster.module(self.node, "hook_roundtrip", steps=["abandon"], state=self.last, user="alice", **self.options)
