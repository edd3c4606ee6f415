"""Finds the sentences with which hooks and commands fail, in the syntax trees of torque_ckpt; reference_docs.py makes a page of them."""
import ast
import collections
import functools
import itertools
import re

FAILURES = {"HookError": None, "report_restart_failure": None, "Unheard": "NO_SERVER", "NoDirectory": "SYSTEM",
            "RoundTripError": "ROUND_TRIP"}
"""What is called with a sentence, and the code that it stands for; None: the code is its first argument."""
RETURNED = (("hooks.health", "find_complaint", "CONFIG"),)
"""Functions that return a sentence, and its code."""
UNSEEN = (("TEMPORARY", "the hooks cannot be loaded (REASON); image kept; run site.yml for this node if it happens again", "hooks"),)
"""What the trees do not show: what the start of a hook says, a template."""
AROUND = "AROUND"
"""Stands for the code of a sentence that adds words to another one and has its code."""

Sentence = collections.namedtuple("Sentence", "code text room")
"""code: name of a constant of errors.py, or "ROUND_TRIP", or AROUND; text: with placeholders in capitals; room: the file in torque_ckpt."""

HOLE = re.compile("\0([^\0]*)\0")
CONVERSION = re.compile(r"%[-+#0 ]*[0-9.]*([a-zA-Z%])")
WRAPPERS = ("ascii", "repr", "str", "sorted", "list", "join", "map", "getattr", "quote", "format", "strip", "rstrip", "split",
            "splitlines", "decode", "fsdecode")
"""Functions that show what they are given: the placeholder is named by that."""
FOLLOWED = ("format_sentence",)
"""What is no such function, though it is called like one."""
VERBS = ("find", "read", "get", "name", "locate", "describe", "list", "choose", "load", "walk", "format")
NAMES = {"local": "ADDRESS", "entry": "COMMAND", "prog": "COMMAND", "foreign_connection": "CONNECTION",
         "walked": "DIRECTORY", "title": "ENGINE", "f_favail": "FREE", "what": "HOOK", "image_path": "IMAGE",
         "job_id": "JOB", "wanted": "JOB", "name__": "KIND", "args": "NAME", "nodename": "NODE", "count": "NUMBER",
         "counted": "NUMBER", "done": "NUMBER", "len": "NUMBER", "rc": "NUMBER", "si_status": "NUMBER",
         "stem": "PATH", "environ": "PID", "pid": "PID", "root": "PID", "tracer": "PID", "arguments": "PROGRAM",
         "error": "REASON", "error_text": "REASON", "explain": "REASON", "failed": "REASON", "fault": "REASON",
         "lines": "REASON", "problem": "REASON", "problems": "REASON", "carrying": "REASON", "put_back": "REASON",
         "run_as_owner": "REASON", "strerror": "REASON",
         "why": "REASON", "label": "SERVER", "copied_size": "SIZE", "packed_size": "SIZE", "st_size": "SIZE",
         "shown": "SOCKET", "status": "STATUS", "mtime_ns": "TIME", "st_mtime_ns": "TIME", "geteuid": "UID", "getuid": "UID",
         "st_uid": "UID", "uid": "UID", "user_name": "USER", "quoted": "VALUE"}
"""What is called otherwise in the code than in a page."""
OWNERS = ("USER", "ENGINE", "STORE")
"""What has a name of its own, so that the placeholder is not NAME."""
KEPT = ("consequence", "command", "name")
"""Parameters that stay placeholders, whatever the calls give them."""
MOST = 12
"""With more alternatives than this the part of a sentence is a placeholder."""
DEEPEST = 4


def is_text(part):
    """Whether a part of a sentence (str) has words of its own."""
    return bool(re.search("[a-z]{2}", HOLE.sub("", part)))


class Scope:
    """Where an expression stands.

    module   str: dotted name of its file
    function ast.FunctionDef, or None
    given    {parameter (str): (expression, Scope) of one call}
    """

    def __init__(self, module, function=None, given=None):
        self.module, self.function, self.given = module, function, given or {}


class Package:
    """The files of a package, and what their sentences consist of.

    :param top: its directory (pathlib.Path)
    """

    def __init__(self, top):
        self.trees, self.functions, self.constants, self.calls = {}, {}, {}, collections.defaultdict(list)
        for path in sorted(top.rglob("*.py")):
            self._read(".".join(path.relative_to(top).with_suffix("").parts), ast.parse(path.read_text()))

    def _read(self, module, tree):
        self.trees[module] = tree
        self.constants[module] = list_constants(tree)
        self._walk(module, tree, None)

    def _walk(self, module, node, function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                self.functions.setdefault(child.name, []).append(Scope(module, child))
            elif isinstance(child, ast.Call):
                self.calls[name_of(child.func)].append((child, Scope(module, function)))
            self._walk(module, child, child if isinstance(child, ast.FunctionDef) else function)

    # -- functions and their calls -------------------------------------------------------------------------------------

    def find_function(self, name, module):
        """Return the Scope of a function that is called by this name (str) in a module (str), if there is only one; else None."""
        known = self.functions.get(name, ())
        own = [scope for scope in known if scope.module == module]
        known = own or ([] if name.startswith("_") else known)
        return known[0] if len(known) == 1 else None

    def list_scopes(self, scope, depth=0):
        """Return scopes for a function, one for each call that gives it words or a code; or the one it is."""
        function = scope.function
        if function is None or depth > DEEPEST or self.find_function(function.name, scope.module) is None:
            return [scope]
        found = []
        for call, caller in self.calls[function.name]:
            if self.find_function(function.name, caller.module) != self.find_function(function.name, scope.module):
                continue
            for outer in self.list_scopes(caller, depth + 1):
                given = {name: (value, outer) for name, value in bind(function, call).items() if name not in KEPT}
                if any(self.list_codes(*pair) or any(map(is_text, self.list_texts(*pair, depth + 1))) for pair in given.values()):
                    found.append(Scope(scope.module, function, given))
                elif scope not in found:
                    found.append(scope)
        return found or [scope]

    # -- expressions ---------------------------------------------------------------------------------------------------

    def list_codes(self, node, scope):
        """Return the names of the codes that an expression may be."""
        if isinstance(node, ast.IfExp):
            return self.list_codes(node.body, scope) + self.list_codes(node.orelse, scope)
        if isinstance(node, ast.Name) and node.id in scope.given:
            return self.list_codes(*scope.given[node.id])
        if isinstance(node, (ast.Name, ast.Attribute)) and name_of(node) in self.constants["errors"] and name_of(node).isupper():
            return [name_of(node)]
        return []

    def list_texts(self, node, scope, depth=0):
        """Return what an expression may be as a text (list of str), with the names of its variable parts between NULs."""
        texts = self._list_texts(node, scope, depth)
        return texts if 0 < len(texts) <= MOST else [make_hole(node)]

    def _list_texts(self, node, scope, depth):
        if isinstance(node, ast.Constant):
            return [str(node.value)] if node.value is not None else []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            pairs = itertools.product(self.list_texts(node.left, scope, depth), self.list_texts(node.right, scope, depth))
            return [left + right for left, right in pairs]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return self._list_formatted(node, scope, depth)
        if isinstance(node, ast.IfExp):
            return self._list_branches(node, scope, depth)
        if isinstance(node, ast.Call) and is_row(node):
            return ["[%s]" % text for text in self.list_texts(node.args[0].elt, scope, depth)]
        if isinstance(node, ast.BoolOp):
            return [text for value in node.values if not isinstance(value, ast.Constant) for text in self.list_texts(value, scope, depth)]
        if depth <= DEEPEST:
            texts = self._follow(node, scope, depth + 1)
            if any(map(is_text, texts)):
                bare = [text for text in texts if not is_text(text)]
                return list(dict.fromkeys([text for text in texts if is_text(text)] + list(filter(None, bare))[:1]))
        return self._compute(node, scope) or [make_hole(node)]

    def _list_formatted(self, node, scope, depth):
        if isinstance(node.left, ast.IfExp):
            branches = [ast.BinOp(branch, node.op, node.right) for branch in (node.left.body, node.left.orelse)]
            return [text for branch in branches for text in self._list_formatted(branch, scope, depth)]
        if not isinstance(node.left, ast.Constant):
            return []
        values, texts = iter(self._list_values(node.right, scope)), []
        for number, part in enumerate(CONVERSION.split(node.left.value)):
            if not number % 2:
                texts.append([part])
            elif part == "%":
                texts.append(["%"])
            else:
                value = next(values, None)
                unnamed = value is None or part == "d" and isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) \
                    and isinstance(value.slice.value, int)
                texts.append(["\0%s\0" % ("NUMBER" if part == "d" else "TEXT")] if unnamed else self.list_texts(value, scope, depth))
        return ["".join(chosen) for chosen in itertools.islice(itertools.product(*texts), MOST + 1)]

    def _list_values(self, node, scope):
        """Return the values (list) that follow a percent sign."""
        if isinstance(node, ast.Tuple):
            return node.elts
        if isinstance(node, ast.BinOp):  # a tuple that a function adds to
            return self._list_values(node.left, scope) + self._list_values(node.right, scope)
        function = self.find_function(name_of(node.func), scope.module) if isinstance(node, ast.Call) else None
        tuples = [found.value for found in ast.walk(function.function) if isinstance(found, ast.Return)] if function else []
        return tuples[0].elts if len(tuples) == 1 and isinstance(tuples[0], ast.Tuple) else [node]

    def _list_branches(self, node, scope, depth):
        """An empty branch makes the other one optional: that is in brackets."""
        bodies, others = self.list_texts(node.body, scope, depth), self.list_texts(node.orelse, scope, depth)
        if isinstance(node.test, ast.Name) and all(map(is_text, self.list_texts(node.test, scope, depth))):
            return bodies
        if bodies == [""] or others == [""]:
            return ["[%s]" % text if is_text(text) else text for text in (bodies if others == [""] else others)]
        return bodies + others if any(map(is_text, bodies + others)) else bodies

    def _follow(self, node, scope, depth):
        """Return the texts that a name, an attribute or a call leads to; empty if it leads nowhere."""
        if isinstance(node, ast.Name):
            if node.id in scope.given:
                return self.list_texts(*scope.given[node.id], depth)
            values = list_assigned(node.id, scope.function) or [self._find_imported(node.id, scope.module)]
            return [text for value in values if value is not None for text in self.list_texts(value, scope, depth)]
        if isinstance(node, ast.Attribute):
            value = self._find_constant(node)
            values = [value] if value else list_attributes(node.attr, self.trees[scope.module])
            return [text for value in values for text in self.list_texts(value, scope, depth)]
        if isinstance(node, ast.Subscript):
            return [text for text in self._follow(node.value, scope, depth) if isinstance(node.slice, ast.Slice)]
        if isinstance(node, ast.Call):
            return self._follow_call(node, scope, depth)
        return []

    def _follow_call(self, node, scope, depth):
        name = name_of(node.func)
        if name == "join" and isinstance(node.func.value, ast.Constant) and node.args:
            argument = node.args[0]
            if name_of(getattr(argument, "func", None)) == "filter" and isinstance(argument.args[1], ast.Tuple):
                parts = [self.list_texts(part, scope, depth) for part in argument.args[1].elts]
                return [node.func.value.value.join(filter(None, chosen)) for chosen in itertools.product(*parts)]
        if is_wrapper(name):
            return []
        function = self.find_function(name, scope.module)
        if function is None or name in FAILURES:
            return []
        given = {parameter: (value, scope) for parameter, value in bind(function.function, node).items()}
        inner = Scope(function.module, function.function, given)
        return [text for found in ast.walk(function.function) if isinstance(found, ast.Return) and found.value is not None
                for text in self.list_texts(found.value, inner, depth)]

    def _find_imported(self, name, module):
        """Return the value of a constant that a module has or imports by its name; None if there is none."""
        if name in self.constants[module]:
            return self.constants[module][name]
        found = [self.constants[other][name] for other in self.constants if name in self.constants[other]]
        return found[0] if len(found) == 1 else None

    def _find_constant(self, node):
        """Return the value of a constant of another module, as in orphans.NOTHING; None if it is none."""
        modules = [name for name in self.constants if name.split(".")[-1] == name_of(node.value)]
        return self._find_imported(node.attr, modules[0]) if len(modules) == 1 else None

    def _compute(self, node, scope):
        """Return the value of an expression of constants, as a text in a list; empty if it is none."""
        if isinstance(node, ast.Name) and not list_assigned(node.id, scope.function):
            value = self._find_imported(node.id, scope.module)
            return self._compute(value, scope) if value is not None else []
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)):
            return [str(node.value)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.LShift, ast.RShift)):
            numbers = self._compute(node.left, scope) + self._compute(node.right, scope)
            if len(numbers) == 2:
                left, right = map(int, numbers)
                return [str(left << right if isinstance(node.op, ast.LShift) else left >> right)]
        return []

    # -- sentences -----------------------------------------------------------------------------------------------------

    def list_sentences(self, returned=RETURNED, unseen=UNSEEN):
        """Return all Sentences, sorted by their words. One that has only passed-on words is left out."""
        found = set(itertools.starmap(Sentence, unseen))
        for name, fixed in FAILURES.items():
            for call, place in self.calls[name]:
                for scope in self.list_scopes(place):
                    arguments = call.args[:1] if fixed else call.args[1:2]
                    codes = [fixed] if fixed else self.list_codes(call.args[0], scope) or [AROUND]
                    for code, argument in itertools.product(codes, arguments):
                        self._add(found, code, self.list_texts(argument, scope), place.module)
        for module, name, code in returned:
            scope = self.find_function(name, module)
            for node in ast.walk(scope.function):
                if isinstance(node, ast.Return):
                    self._add(found, code, self.list_texts(node.value, scope), module)
        return sorted(found, key=lambda sentence: (re.sub(r"[^a-z ]|\b[A-Z_]{2,}\b", "", sentence.text).strip(), sentence))

    def _add(self, found, code, texts, module):
        room = module.replace(".", "/") + ".py"
        for text in itertools.chain.from_iterable(map(self._list_particulars, texts)):
            shown = re.sub(r"^\[([^\]]*)\]", r"\1", HOLE.sub(r"\1", text))  # a sentence never lacks its beginning
            if is_text(text) and not shown.startswith(";"):
                found.add(Sentence(code, " ".join(shown.split()), room))

    def _list_particulars(self, text):
        """Return one text for each obstacle, and for each reason that ckpt-run gives, if the text is about one; or the text."""
        if "\0RESOURCE\0" in text:
            pairs = self._list_obstacles()
            return [text.replace("\0RESOURCE\0", resource).replace("\0ADVICE\0", advice) for resource, advice in pairs]
        if text.startswith("ckpt-run") and "\0ADVICE\0" in text:
            return [text.replace("\0REASON\0", reason).replace("\0ADVICE\0", advice) for reason, advice in self._list_answers()]
        return [text]

    def _list_obstacles(self):
        """Return what stands in the way and what to do about it (pairs of str), from the calls of _Findings.add()."""
        table = self.constants["files.obstacles"]["KINDS"]
        kinds = {key.value: value for key, value in zip(table.keys, table.values)}
        found, rest = [], []
        for call, scope in self.calls["add"]:
            if scope.module == "files.obstacles" and len(call.args) == 3:
                named = [kind for kind in self.list_texts(call.args[0], scope) if kind in kinds]
                found += [(kind, call.args[2], scope) for kind in named]
                rest += [] if named else [(call.args[2], scope)]
        left = set(kinds) - {kind for kind, _resource, _scope in found}
        found += [(kind, resource, scope) for kind in sorted(left) for resource, scope in rest]
        place = Scope("files.obstacles")
        return [(shown, self.list_texts(kinds[kind], place)[0])
                for kind, resource, scope in found for shown in self.list_texts(resource, scope)]

    def _list_answers(self):
        """Return why ckpt-run cannot have its program checkpointed and what to do about it (pairs of str)."""
        found = []
        for call, place in self.calls["answer"]:
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            for scope in self.list_scopes(place) if "reason" in given else ():
                advices = self.list_texts(given["advice"], scope) if "advice" in given else ["look into its output"]
                found += itertools.product(self.list_texts(given["reason"], scope), advices)
        return found


def list_constants(tree):
    """Return {name (str): expression} of what a file assigns outside of functions."""
    pairs = [(target, node.value) for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))
             for target in getattr(node, "targets", None) or [node.target]]
    for target, value in list(pairs):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs += zip(target.elts, value.elts)
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name)}


def name_of(node):
    """Return the last name (str) of what an expression names; empty if it names nothing."""
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def is_wrapper(name):
    return name.lstrip("_").split("_")[0] in WRAPPERS and name not in FOLLOWED


def is_row(call):
    """Whether a call puts several parts (of the same kind) one after another, or none."""
    joins = name_of(call.func) == "join" and isinstance(call.func.value, ast.Constant) and call.func.value.value == ""
    return joins and isinstance(call.args[0], ast.GeneratorExp)


def bind(function, call):
    """Return {parameter (str): expression} of a call; a default where it gives nothing."""
    arguments = function.args.args[function.args.args[:1] != [] and function.args.args[0].arg in ("self", "cls"):]
    names = [argument.arg for argument in arguments]
    given = dict(zip(names[len(names) - len(function.args.defaults):], function.args.defaults)) if function.args.defaults else {}
    if not any(isinstance(value, ast.Starred) for value in call.args):
        given.update(zip(names, call.args))
    given.update((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg in names)
    return given


@functools.lru_cache(maxsize=None)
def list_assigned(name, function):
    """Return what is assigned (list of expressions) to a name in a function, by itself or from a list that is written there."""
    values = []
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
                    values += [value for inner, value in zip(target.elts, node.value.elts) if name_of(inner) == name]
                elif isinstance(target, ast.Name) and target.id == name:
                    values.append(node.value)
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple) and getattr(node.target, "id", None) == name:
            values += node.iter.elts
    return values


@functools.lru_cache(maxsize=None)
def list_attributes(name, tree):
    """Return what is assigned (list of expressions) to an attribute of that name in a file."""
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(target, ast.Attribute) and target.attr == name]


def make_hole(node):
    """Return the placeholder of an expression, between NULs."""
    return "\0%s\0" % _name_hole(node)


def _name_hole(node):
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        if name == "get" and isinstance(node.args[0], ast.Constant):
            return _rename(node.args[0].value)
        if is_wrapper(name) and (node.args or isinstance(node.func, ast.Attribute)):
            inner = node.args[-1 if name == "map" else 0] if node.args else node.func.value
            return _name_hole(inner)
        verb, _underscore, rest = name.lstrip("_").partition("_")
        if verb in VERBS and not rest and node.args:
            return _name_hole(node.args[0])
        return _rename(rest if verb in VERBS and rest else name)
    if isinstance(node, ast.Subscript) and not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)):
        return _name_hole(node.value)
    if isinstance(node, (ast.Starred, ast.UnaryOp)):
        return _name_hole(getattr(node, "value", None) or node.operand)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        name = node.attr if isinstance(node, ast.Attribute) else node.slice.value
        owner = _name_hole(node.value)
        return owner if name == "name" and owner in OWNERS else _rename(name)
    if isinstance(node, (ast.BinOp, ast.IfExp, ast.BoolOp)):
        return _name_hole(getattr(node, "left", None) or getattr(node, "body", None) or node.values[0])
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        return _name_hole(node.elt)
    return _rename(name_of(node) or "text")


def _rename(name):
    name = name.lstrip("_")
    if name in NAMES:
        return NAMES[name]
    return "PATH" if name.endswith("_path") or name == "path" else name.upper()
