"""The texts of a program."""
import ast

PROSE = {"DOCUMENTATION", "EXAMPLES", "RETURN"}


def find_words(node):
    """Yield every name and text (str) of a program, prose apart: docstrings, texts that stand alone, a module's documentation."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Assign) and getattr(child.targets[0], "id", "") in PROSE:
            continue
        for field in ("id", "attr", "arg", "name", "asname", "module", "value"):
            word = getattr(child, field, None)
            if isinstance(word, str):
                yield word
        yield from find_words(child)
