"""The outline of a C++ file, without a compiler: its functions, and what its types declare. For tools/check_limits.py.

Braces, parentheses and semicolons outside comments, strings and macros tell all that is needed. What stands inside a
function (lambdas, local types) belongs to it."""
import bisect
import dataclasses
import re

QUOTED = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
MACRO = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
STRUCTURE = re.compile(r"[{}();]")
# Words with parentheses of their own, before or behind a function's name.
ASIDE = re.compile(r"\b(?:__launch_bounds__|alignas|__attribute__|decltype|noexcept|explicit|requires|target)\s*(?=\()"
                   r"|\[\[[^\]]*\]\]")
SCOPE = re.compile(r"\s*(?:inline\s+)?(?:namespace\b|extern\s*$)")
TYPE = re.compile(r"\s*(?:typedef\s+)?(?:class|struct|union)\b")
ENUM = re.compile(r"\s*enum\b")
ACCESS = re.compile(r"\s*(?:(?:public|private|protected)\s*:(?!:)\s*)+")
MEMBER_LIST = re.compile(r"\)[^():]*(?<!:):(?!:)")  # of a constructor, behind its parameters
BEFORE_BODY = re.compile(r"\b(?:const|noexcept|override|final|mutable|try)\s*$")
TYPE_NAME = re.compile(r"(?:class|struct|union)\s+([\w:]+)")
POINTER = re.compile(r"^[\w:<>,*&\s]*\(\s*\*\s*\w+\s*\)\s*\(")  # to a function
NOT_OF_AN_OBJECT = re.compile(r"(?:inline\s+)?(?:static|constexpr)\b|(?:struct|class|union) \w+$|enum\b")
NAME = re.compile(r"(operator\s*(?:\(\s*\)|[^\s(]+)|~?[\w:]+(?:<[^()]*>)?)\s*$")


@dataclasses.dataclass
class Function:
    name: str
    line: int
    lines: int  # with its signature; 0: declared only
    parameters: int


@dataclasses.dataclass
class Member:
    text: str
    first: int  # lines
    last: int
    public: bool  # and so are the types that it is in


@dataclasses.dataclass
class Type:
    name: str  # with those of the types that it is in: Engine::Entry
    first: int  # lines
    last: int = 0
    members: int = 0  # data of each object


def blanked(pattern, text, keep=lambda found: False):
    """`text` with spaces for what the pattern finds."""
    return pattern.sub(lambda m: m[0] if keep(m[0]) else re.sub(r"[^\n]", " ", m[0]), text)


def code_of(text):
    return blanked(MACRO, blanked(QUOTED, text))


def closing(text, start, pair="()"):
    """Where the bracket that opens at `start` is closed."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i
    return len(text)


def without_asides(head):
    while found := ASIDE.search(head):
        end = closing(head, found.end()) + 1 if found[0][0] != "[" else found.end()
        head = head[:found.start()] + " " * (end - found.start()) + head[end:]
    while found := re.match(r"\s*template\s*(?=<)", head):
        end = closing(head, found.end(), "<>") + 1
        head = " " * end + head[end:]
    return head


def without_arguments(head):
    """Of templates, such as the signature in std::function<void(int)>."""
    while found := re.search(r"\w<(?=[^<>]*>)[^<>]*>", head):
        head = head[:found.start() + 1] + head[found.end():]
    return head


def count_parameters(text):
    """How many a list has: commas outside brackets of any kind, and one."""
    text = re.sub(r"->|<<|>>=|[<>]=", "  ", text).strip()
    if text in ("", "void"):
        return 0
    depth = count = 0
    for found in re.finditer(r"[(){}\[\]<>,]", text):
        depth += (found[0] in "({[<") - (found[0] in ")}]>")
        count += found[0] == "," and depth == 0
    return count + 1


def signature(head):
    """The name and number of parameters of the function that begins with `head`; None where it is none."""
    head = without_asides(head)
    if POINTER.search(head) or "(" not in without_arguments(head):
        return None
    if found := re.search(r"\boperator\s*\(\s*\)\s*\(", head):
        start = found.end() - 1
    else:
        start = head.find("(")
    equals = head.find("=")
    if start < 0 or (0 <= equals < start and "operator" not in head) or re.match(r"\s*(?:using|typedef|friend)\b", head):
        return None
    name = NAME.search(head[:start])
    if not name or name[1] in ("static_assert", "asm"):
        return None
    arguments = head[start + 1:closing(head, start)]
    if name[1].startswith("TEST"):
        return re.sub(r"\s*,\s*", ".", arguments.strip()), 0
    return re.sub(r"\s+", "", name[1]), count_parameters(arguments)


class Outline:
    """`functions`, `types` and `members` (what is declared in types, and is no function) of a file's text."""

    def __init__(self, text):
        self.code = code_of(text)
        self.ends = [found.start() for found in re.finditer("\n", text)]
        self.functions, self.members, self.types = [], [], []
        self.scan()

    def line(self, position):
        return bisect.bisect_left(self.ends, position) + 1

    def scan(self):
        scopes = []  # of open braces: "scope", "type", "body", "list"
        self.public = []  # of each of these: whether what comes now is
        self.open_types = []
        self.start = parentheses = inside = 0  # inside: open braces of a function or a list
        for found in STRUCTURE.finditer(self.code):
            mark, at = found[0], found.start()
            if inside:
                inside += (mark == "{") - (mark == "}")
                if inside == 0 and self.close(scopes) == "body":
                    self.end_function(at)
            elif mark in "()":
                parentheses += 1 if mark == "(" else -1
            elif parentheses:
                continue
            elif mark == ";":
                self.declared(at, scopes)
            elif mark == "{":
                head, begin = self.head(at)
                kind = self.kind_of(head)
                scopes.append(kind)
                self.public.append(not re.match(r"\s*(?:template\b.*)?class\b", head, re.DOTALL))
                if kind == "type":
                    self.begin_type(head, begin)
                if kind in ("scope", "type"):
                    self.start = at + 1
                else:
                    inside = 1
            else:
                if scopes and self.close(scopes) == "type":
                    self.open_types.pop().last = self.line(at)
                self.start = at + 1

    def begin_type(self, head, begin):
        name = TYPE_NAME.search(without_asides(head))
        outer = self.open_types[-1].name + "::" if self.open_types else ""
        self.types.append(Type(outer + (name[1] if name else ""), self.line(begin)))
        self.open_types.append(self.types[-1])

    def close(self, scopes):
        self.public.pop()
        return scopes.pop()

    def kind_of(self, head):
        if SCOPE.match(head):
            return "scope"
        plain = without_asides(head)
        if ENUM.match(plain):
            return "list"
        if TYPE.match(plain) and "(" not in plain:
            return "type"
        if not signature(head) or self.in_member_list(plain):
            return "list"
        return "body"

    @staticmethod
    def in_member_list(head):
        """`: a_` of `Type(int a) : a_{a} {`"""
        return MEMBER_LIST.search(head) and re.search(r"[\w>]\s*$", head) and not BEFORE_BODY.search(head)

    def head(self, end):
        head = self.code[self.start:end]
        access = ACCESS.match(head)
        if access and self.public:
            self.public[-1] = access[0].rstrip(": \n").endswith("public")
        begin = self.start + (access.end() if access else 0)
        head = self.code[begin:end]
        return head, begin + len(head) - len(head.lstrip())

    def end_function(self, at):
        head, begin = self.head(at)
        name, parameters = signature(head)
        self.functions.append(Function(name, self.line(begin), self.line(at) - self.line(begin) + 1, parameters))
        self.start = at + 1

    def declared(self, at, scopes):
        head, begin = self.head(at)
        self.start = at + 1
        if not head.strip():
            return
        if found := signature(head):
            self.functions.append(Function(found[0], self.line(begin), 0, found[1]))
        elif scopes and scopes[-1] == "type" and not re.match(r"\s*(?:using|typedef|friend|template|static_assert)\b", head):
            member = Member(" ".join(head.split()), self.line(begin), self.line(at), all(self.public))
            self.members.append(member)
            if not NOT_OF_AN_OBJECT.match(member.text):
                self.open_types[-1].members += count_parameters(member.text)
