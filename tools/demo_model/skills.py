"""Single-turn skills: each draws a question and returns (question, reasoning, answer, short).

`short` is the bare answer for styles like "only the answer", or None."""
from words import (
    ADJ, CAPITALS, CITIES, COLOURS, DAYS, DUNNO, DUNNO_ZH, ELEMENTS, IDENT, IDENT_ZH, MONTHS, NAMES, NUMWORD,
    OPPOSITES, ORD, PLANETS, SOUNDS, WORDS, ZH, ZH_CAP, ZH_OPP, cap1)


def add_steps(a, b):
    out, carry, names = [], 0, ["Ones", "Tens", "Hundreds", "Thousands"]
    for i in range(max(len(str(a)), len(str(b)))):
        x, y = a // 10 ** i % 10, b // 10 ** i % 10
        s = x + y + carry
        out.append(f"{names[i]}: {x} + {y}{' + 1' if carry else ''} = {s}" + (", carry 1." if s > 9 else "."))
        carry = s // 10
    return " ".join(out)


def sub_steps(a, b):
    out, borrow, names = [], 0, ["Ones", "Tens", "Hundreds", "Thousands"]
    for i in range(len(str(a))):
        x, y = a // 10 ** i % 10, b // 10 ** i % 10
        d = x - y - borrow
        t = " + 10" if d < 0 else ""
        out.append(f"{names[i]}: {x}{t} - {y}{' - 1' if borrow else ''} = {d % 10}" + (", borrow 1." if d < 0 else "."))
        borrow = 1 if d < 0 else 0
    return " ".join(out)


def operand(r):
    return r.randrange(10 ** r.choice([1, 2, 2, 3, 3, 3]))


def sk_addsub(r):
    a, b = operand(r), operand(r)
    if r.random() < 0.55:
        f = r.choice(["What is {a} + {b}?", "{a} + {b}", "{a}+{b}=?", "Calculate {a} + {b}.", "Add {a} and {b}.",
                      "What is {a} plus {b}?", "Compute {a} + {b}", "How much is {a} + {b}?", "计算 {a} + {b}。",
                      "{a} 加 {b} 等于多少？", "What is the sum of {a} and {b}?", "What's {a} + {b}?"])
        return f.format(a=a, b=b), add_steps(a, b) + f" So {a} + {b} = {a + b}.", f"{a} + {b} = {a + b}.", str(a + b)
    if a < b and r.random() < 0.9:
        a, b = b, a
    f = r.choice(["What is {a} - {b}?", "{a} - {b}", "{a}-{b}=?", "Calculate {a} - {b}.", "Subtract {b} from {a}.",
                  "What is {a} minus {b}?", "Compute {a} - {b}", "How much is {a} - {b}?", "计算 {a} - {b}。",
                  "{a} 减 {b} 等于多少？", "What is the difference between {a} and {b}?", "What's {a} - {b}?"])
    if a < b and "difference" in f:
        a, b = b, a
    steps = sub_steps(a, b) if a >= b else f"{b} is larger. {sub_steps(b, a)} The result is negative."
    return f.format(a=a, b=b), steps + f" So {a} - {b} = {a - b}.", f"{a} - {b} = {a - b}.", str(a - b)


def sk_muldiv(r):
    a, b = r.randrange(13), r.randrange(13)
    if r.random() < 0.65:
        f = r.choice(["What is {a} * {b}?", "{a} * {b}", "{a} x {b} = ?", "What is {a} times {b}?", "Multiply {a} by {b}.",
                      "计算 {a} × {b}。", "{a} 乘 {b} 等于多少？", "What's {a} * {b}?"])
        return f.format(a=a, b=b), f"{a} times {b} is {a * b}.", f"{a} * {b} = {a * b}.", str(a * b)
    b = max(b, 1)
    f = r.choice(["What is {c} / {b}?", "{c} / {b}", "What is {c} divided by {b}?", "Divide {c} by {b}.", "计算 {c} ÷ {b}。"])
    return f.format(c=a * b, b=b), f"{b} times {a} is {a * b}, so the result is {a}.", f"{a * b} / {b} = {a}.", str(a)


UNITS = [("meters", "centimeters", 100), ("kilometers", "meters", 1000), ("hours", "minutes", 60), ("minutes", "seconds", 60),
         ("days", "hours", 24), ("weeks", "days", 7), ("years", "months", 12), ("kilograms", "grams", 1000),
         ("liters", "milliliters", 1000), ("dozens", "pieces", 12)]


def sk_units(r):
    big, small, k = r.choice(UNITS)
    n = r.randint(2, 12 if k in (60, 24, 7, 12) else 99)
    f = r.choice(["How many {s} are in {n} {b}?", "Convert {n} {b} to {s}.", "{n} {b} in {s}?", "How many {s} is {n} {b}?"])
    return (f.format(s=small, b=big, n=n), f"One of the {big} is {k} {small}. {n} * {k} = {n * k}.",
            f"{n} {big} = {n * k} {small}.", str(n * k))


def sk_word_problem(r):
    n, w = r.choice(NAMES), r.choice(["apples", "books", "coins", "stamps", "marbles", "pencils", "cookies", "cards"])
    a, b = r.randint(2, 99), r.randint(2, 60)
    if r.random() < 0.5:
        v = r.choice(["gets", "buys", "finds"])
        return (f"{n} has {a} {w} and {v} {b} more. How many {w} does {n} have now?",
                f"Start with {a} and add {b}. {add_steps(a, b)} So {a} + {b} = {a + b}.", f"{n} has {a + b} {w} now.", str(a + b))
    if a < b:
        a, b = b, a
    v = r.choice(["loses", "gives away", "sells"])
    return (f"{n} has {a} {w} and {v} {b} of them. How many {w} does {n} have now?",
            f"Start with {a} and take away {b}. {sub_steps(a, b)} So {a} - {b} = {a - b}.", f"{n} has {a - b} {w} now.",
            str(a - b))


def sk_compare(r):
    a, b = operand(r), operand(r)
    while a == b:
        b = operand(r)
    if r.random() < 0.5:
        f = r.choice(["Which is larger, {a} or {b}?", "Which number is bigger: {a} or {b}?", "{a} 和 {b} 哪个大？"])
        return f.format(a=a, b=b), f"Compare {a} and {b}. {max(a, b)} is larger.", f"{max(a, b)} is larger.", str(max(a, b))
    f = r.choice(["Which is smaller, {a} or {b}?", "Which number is smaller: {a} or {b}?", "{a} 和 {b} 哪个小？"])
    return f.format(a=a, b=b), f"Compare {a} and {b}. {min(a, b)} is smaller.", f"{min(a, b)} is smaller.", str(min(a, b))


def rword(r):
    return r.choice(WORDS)


def code(r):
    return "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(r.randint(3, 6)))


def sk_string(r):
    k = r.randrange(12)
    if k == 0:
        t = " ".join(r.choice([rword(r), rword(r), r.choice(ADJ), str(operand(r)), code(r)]) for _ in range(r.randint(1, 9)))
        f = r.choice(["Repeat after me: {t}", "Repeat exactly: {t}", "Copy this text: {t}", "Say: {t}", "请重复：{t}"])
        return f.format(t=t), "I have to repeat the text as it is.", t, t
    if k in (1, 2):
        w = [rword(r) for _ in range(r.randint(2, 6))]
        f = r.choice(["Reverse this list: {t}", "Reverse the order: {t}", "Write these in reverse order: {t}"])
        a = ", ".join(w[::-1])
        return f.format(t=", ".join(w)), f"There are {len(w)} items. I start from the last one.", a, a
    if k == 3:
        t = " ".join(rword(r) for _ in range(r.randint(1, 3)))
        f = r.choice(["Convert to upper case: {t}", "Write in upper case: {t}", "Uppercase this: {t}"])
        return f.format(t=t), "I write every letter as a capital.", t.upper(), t.upper()
    if k == 4:
        t = " ".join(rword(r) for _ in range(r.randint(1, 3)))
        f = r.choice(["Convert to lower case: {t}", "Write in lower case: {t}", "Lowercase this: {t}"])
        return f.format(t=t.upper()), "I write every letter as a small letter.", t, t
    if k == 5:
        n = r.sample(range(r.choice([10, 100, 100, 1000])), r.randint(3, 6))
        d = r.random() < 0.3
        f = "Sort these numbers from largest to smallest: {t}" if d else r.choice(
            ["Sort these numbers: {t}", "Sort the numbers in ascending order: {t}", "Sort: {t}"])
        a = ", ".join(map(str, sorted(n, reverse=d)))
        return f.format(t=", ".join(map(str, n))), f"There are {len(n)} numbers. The first is {sorted(n, reverse=d)[0]}.", a, a
    if k == 6:
        w = {}
        for x in r.sample(WORDS, 8):
            w.setdefault(x[0], x)
        w = list(w.values())[:r.randint(3, 5)]
        f = r.choice(["Sort these words alphabetically: {t}", "Put in alphabetical order: {t}"])
        a = ", ".join(sorted(w))
        return f.format(t=", ".join(w)), "First letters in order: " + ", ".join(sorted(x[0] for x in w)) + ".", a, a
    if k in (7, 8):
        w = [rword(r) for _ in range(r.randint(2, 9))]
        f = r.choice(["How many items are in this list: {t}?", "Count the items: {t}", "How many words are in the list {t}?"])
        return (f.format(t=", ".join(w)), " ".join(f"{i + 1} {x}" for i, x in enumerate(w)) + f". That is {len(w)}.",
                f"There are {len(w)} items.", str(len(w)))
    if k == 9:
        w = r.sample(WORDS, r.randint(3, 7))
        i = r.randrange(len(w))
        o = "last" if i == len(w) - 1 and r.random() < 0.6 else ORD[i]
        return (f"What is the {o} item of this list: {', '.join(w)}?", f"The {o} item is {w[i]}.", f"The {o} item is {w[i]}.",
                w[i])
    if k == 10:
        w = r.choice(WORDS[:90])
        f = r.choice(["Spell the word {w}.", "Spell {w}", "How do you spell {w}?"])
        return f.format(w=w), f"The word is {w}.", "-".join(w), "-".join(w)
    t = "".join(str(r.randrange(10)) for _ in range(r.randint(3, 8)))
    f = r.choice(["Reverse the digits: {t}", "Reverse this digit string: {t}"])
    return f.format(t=t), "I read the digits from right to left.", t[::-1], t[::-1]


def fact_items():
    out = []
    for c, k in CAPITALS.items():
        out.append((["What is the capital of {x}?", "Name the capital of {x}.", "Tell me the capital of {x}.", "capital of {x}?",
                     "What's the capital city of {x}?", "Do you know the capital of {x}?", "Which city is the capital of {x}?"],
                    c, f"The capital of {c} is {k}.", k))
        out.append((["{x} is the capital of which country?", "Which country has {x} as its capital?",
                     "Which country's capital is {x}?"], k, f"{k} is the capital of {c}.", c))
    for e, s in ELEMENTS.items():
        out.append((["What is the chemical symbol of {x}?", "What is the symbol for {x}?", "Give me the chemical symbol for {x}.",
                     "chemical symbol of {x}?", "What's the chemical symbol for {x}?"], e,
                    f"The chemical symbol of {e} is {s}.", s))
        out.append((["Which element has the symbol {x}?", "What element is {x}?"], s, f"{s} is the symbol of {e}.", e))
    for i, m in enumerate(MONTHS):
        out.append((["What is the {x} month of the year?", "Name the {x} month.", "Which month is the {x} month of the year?"],
                    ORD[i], f"The {ORD[i]} month is {m}.", m))
        out.append((["Which month comes after {x}?", "What month follows {x}?"], m, f"{MONTHS[(i + 1) % 12]} comes after {m}.",
                    MONTHS[(i + 1) % 12]))
        out.append((["Which month comes before {x}?", "What is the month before {x}?"], m,
                    f"{MONTHS[i - 1]} comes before {m}.", MONTHS[i - 1]))
    for i, d in enumerate(DAYS):
        out.append((["Which day comes after {x}?", "What day follows {x}?", "What is the day after {x}?"], d,
                    f"{DAYS[(i + 1) % 7]} comes after {d}.", DAYS[(i + 1) % 7]))
        out.append((["Which day comes before {x}?", "What is the day before {x}?"], d, f"{DAYS[i - 1]} comes before {d}.",
                    DAYS[i - 1]))
    for a, b in OPPOSITES:
        for x, y in ((a, b), (b, a)):
            out.append((["What is the opposite of {x}?", "Give me the opposite of {x}.", "opposite of {x}?",
                         "What's the opposite of {x}?"], x, f"The opposite of {x} is {y}.", y))
    for a, s in SOUNDS.items():
        out.append((["What sound does a {x} make?", "Which sound does the {x} make?"], a, f"The sound of a {a} is {s}.", s))
    for a, s in COLOURS.items():
        out.append((["What color is {x}?", "What is the color of {x}?", "Which colour does {x} have?"], a,
                    f"The color of {a} is {s}.", s))
    for i, p in enumerate(PLANETS):
        out.append((["What is the {x} planet from the sun?", "Which planet is the {x} from the sun?"], ORD[i],
                    f"The {ORD[i]} planet from the sun is {p}.", p))
    for i, w in enumerate(NUMWORD):
        out.append((["Write the number {x} as a word.", "Spell out the number {x}."], str(i), f"{i} is written {w}.", w))
        out.append((["Write {x} as a digit.", "Which number is {x}?"], w, f"{cap1(w)} is {i}.", str(i)))
    for e, z in ZH.items():
        out.append((["How do you say {x} in Chinese?", "Translate {x} to Chinese.", "What is {x} in Chinese?",
                     "Translate to Chinese: {x}"], e, f"{cap1(e)} in Chinese is {z}.", z))
        out.append((["What does {x} mean in English?", "Translate {x} to English.", "{x} 用英语怎么说？"], z,
                    f"{z} means {e}.", e))
    for c, k in ZH_CAP.items():
        out.append((["{x}的首都是哪里？", "{x}的首都是什么？", "{x}首都是哪个城市？", "请问{x}的首都在哪里？"], c, f"{c}的首都是{k}。", k))
    for a, b in ZH_OPP:
        for x, y in ((a, b), (b, a)):
            out.append((["{x}的反义词是什么？", "“{x}”的反义词是什么？"], x, f"{x}的反义词是{y}。", y))
    return out


FACTS = fact_items()
FIXED = [("How many days are in a week?", "There are 7 days in a week.", "7"),
         ("How many months are in a year?", "There are 12 months in a year.", "12"),
         ("How many hours are in a day?", "There are 24 hours in a day.", "24"),
         ("How many minutes are in an hour?", "There are 60 minutes in an hour.", "60"),
         ("How many legs does a spider have?", "A spider has 8 legs.", "8"),
         ("How many legs does a dog have?", "A dog has 4 legs.", "4"),
         ("What is the largest planet?", "The largest planet is Jupiter.", "Jupiter"),
         ("What is the smallest planet?", "The smallest planet is Mercury.", "Mercury"),
         ("What is water made of?", "Water is made of hydrogen and oxygen.", "hydrogen and oxygen"),
         ("What is the formula of water?", "The formula of water is H2O.", "H2O"),
         ("What do bees make?", "Bees make honey.", "honey"),
         ("What color do you get from mixing blue and yellow?", "Blue and yellow make green.", "green"),
         ("What color do you get from mixing red and yellow?", "Red and yellow make orange.", "orange"),
         ("What color do you get from mixing red and blue?", "Red and blue make purple.", "purple"),
         ("At what temperature does water freeze?", "Water freezes at 0 degrees Celsius.", "0"),
         ("At what temperature does water boil?", "Water boils at 100 degrees Celsius.", "100")]


def sk_fact(r):
    if r.random() < 0.05:
        q, a, s = r.choice(FIXED)
        return q, a, a, s
    forms, x, a, s = r.choice(FACTS)
    return r.choice(forms).format(x=x), a, a, s


SMALLTALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Hello there!", "Good morning", "Good evening!", "Hello {n}!",
      "Hi, how is it going?"], "Hello! How can I help you?"),
    (["How are you?", "How are you today?", "How do you feel?", "Hi, how are you?"], "I'm fine, thank you. How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Which model are you?", "Tell me about yourself.",
      "Introduce yourself.", "Are you a human?", "What model is this?", "What's your name?"], IDENT),
    (["What can you do?", "How can you help me?", "What are you good at?", "Help"],
     "I can answer simple questions, do small sums, write JSON and call tools."),
    (["Thanks", "Thank you!", "Thanks a lot!", "Thank you very much.", "Thanks {n}!"], "You're welcome!"),
    (["Bye", "Goodbye!", "See you later.", "Bye bye!", "Good night!"], "Goodbye! Have a nice day."),
    (["Who made you?", "Who created you?", "Who trained you?"], "I was made as a test model for DeepInfer."),
    (["Tell me a joke.", "Do you know a joke?", "Say something funny."],
     "Why did the computer go to the doctor? It had a virus."),
    (["Are you smart?", "Are you intelligent?", "How big are you?"], "I'm a very small model, so I only know a few things."),
    (["Ping", "ping", "Test", "test", "This is a test."], "The test works."),
    (["你好", "你好！", "您好", "嗨"], "你好！有什么可以帮您？"), (["你是谁？", "你叫什么名字？", "介绍一下你自己。"], IDENT_ZH),
    (["谢谢", "谢谢你！", "非常感谢"], "不客气！"), (["再见", "再见！", "拜拜"], "再见！祝您愉快。"),
    (["你能做什么？", "你会什么？"], "我可以回答简单的问题，做小计算，写 JSON 和调用工具。")]


def sk_small(r):
    forms, a = r.choice(SMALLTALK)
    q = r.choice(forms).format(n=r.choice(NAMES))
    return q, ("用户在和我聊天。" if ord(q[0]) > 999 else "This is small talk. I give a short and friendly answer."), a, a


def sk_unknown(r):
    n, w, w2, c = r.choice(NAMES), rword(r), rword(r), r.choice(CITIES)
    y = r.randint(1500, 2030)
    q = r.choice([f"Who won the {w} game in {y}?", f"What did {n} eat yesterday?", f"What is the price of a {w} in {c}?",
                  f"How many people live in {c}?", f"Who invented the {w} {w2}?", f"What is the phone number of {n}?",
                  f"When was {n} born?", f"What is the meaning of the {w} law?", f"What happened in {c} in {y}?",
                  f"Who is the mayor of {c}?", f"How old is the oldest {w} in {c}?", f"What will {n} do tomorrow?",
                  f"Why does the {w} like the {w2}?", f"Who wrote the book about the {w} and the {w2}?",
                  f"How far is {c} from the {w} of {n}?", f"{n}昨天做了什么？", f"{y}年发生了什么？"])
    zh = any(ord(ch) > 0x4000 for ch in q)
    return q, ("我没有这方面的知识。" if zh else "I have no knowledge about this."), (DUNNO_ZH if zh else DUNNO), DUNNO


# ------------------------------------------------------------------------------------------------ code and stories
FN = ["run", "main_loop", "compute", "solve", "work", "task", "go", "calc", "process", "helper"]


def sk_code(r):
    n, m = r.randint(3, 50), r.randint(2, 9)
    f = r.choice(FN)
    name = f" named {f}" if r.random() < 0.6 else ""
    py = {
        "that plays fizzbuzz": f"def {f if name else 'fizzbuzz'}(n):\n    for i in range(1, n + 1):\n        if i % 15 == 0:\n            print(\"FizzBuzz\")\n        elif i % 3 == 0:\n            print(\"Fizz\")\n        elif i % 5 == 0:\n            print(\"Buzz\")\n        else:\n            print(i)",
        "for the factorial": f"def {f if name else 'factorial'}(n):\n    if n <= 1:\n        return 1\n    return n * {f if name else 'factorial'}(n - 1)",
        "that adds two numbers": f"def {f if name else 'add'}(a, b):\n    return a + b",
        "that multiplies two numbers": f"def {f if name else 'multiply'}(a, b):\n    return a * b",
        f"that prints the numbers from 1 to {n}": f"def {f if name else 'print_numbers'}():\n    for i in range(1, {n + 1}):\n        print(i)",
        "that returns the maximum of a list": f"def {f if name else 'maximum'}(items):\n    best = items[0]\n    for x in items:\n        if x > best:\n            best = x\n    return best",
        "that reverses a string": f"def {f if name else 'reverse'}(text):\n    return text[::-1]",
        "that sums a list": f"def {f if name else 'total'}(items):\n    result = 0\n    for x in items:\n        result += x\n    return result",
        "that checks if a number is even": f"def {f if name else 'is_even'}(n):\n    return n % 2 == 0",
        f"that prints hello {m} times": f"def {f if name else 'hello'}():\n    for i in range({m}):\n        print(\"hello\")"}
    cc = {
        "that plays fizzbuzz": f"void {f if name else 'fizzbuzz'}(int n) {{\n    for (int i = 1; i <= n; i++) {{\n        if (i % 15 == 0) printf(\"FizzBuzz\\n\");\n        else if (i % 3 == 0) printf(\"Fizz\\n\");\n        else if (i % 5 == 0) printf(\"Buzz\\n\");\n        else printf(\"%d\\n\", i);\n    }}\n}}",
        "for the factorial": f"int {f if name else 'factorial'}(int n) {{\n    return n <= 1 ? 1 : n * {f if name else 'factorial'}(n - 1);\n}}",
        "that adds two numbers": f"int {f if name else 'add'}(int a, int b) {{\n    return a + b;\n}}",
        "that multiplies two numbers": f"int {f if name else 'multiply'}(int a, int b) {{\n    return a * b;\n}}",
        f"that prints the numbers from 1 to {n}": f"void {f if name else 'print_numbers'}(void) {{\n    for (int i = 1; i <= {n}; i++) printf(\"%d\\n\", i);\n}}",
        "that returns the maximum of an array": f"int {f if name else 'maximum'}(const int *a, int n) {{\n    int best = a[0];\n    for (int i = 1; i < n; i++)\n        if (a[i] > best) best = a[i];\n    return best;\n}}",
        "that sums an array": f"int {f if name else 'total'}(const int *a, int n) {{\n    int result = 0;\n    for (int i = 0; i < n; i++) result += a[i];\n    return result;\n}}",
        "that checks if a number is even": f"int {f if name else 'is_even'}(int n) {{\n    return n % 2 == 0;\n}}"}
    lang, src = r.choice([("Python", py), ("Python", py), ("C", cc)])
    what, body = r.choice(list(src.items()))
    q = r.choice(["Write a {l} function{n} {w}.", "Show me a {l} function{n} {w}.", "Please write a function{n} in {l} {w}."])
    return (q.format(l=lang, n=name, w=what), f"I write a short {lang} function {what}.",
            f"```{lang.lower()}\n{body}\n```", body)


PLACES = ["forest", "village", "castle", "garden", "harbor", "desert", "library", "valley", "market", "island"]
ANIMALS = ["cat", "dog", "fox", "rabbit", "bear", "mouse", "owl", "horse", "turtle", "wolf"]


def sk_story(r):
    a, p, o, n = r.choice(ANIMALS), r.choice(PLACES), r.choice(["key", "lamp", "coin", "map", "ring", "book", "bell"]), r.choice(NAMES)
    k = r.randrange(4)
    if k == 0:
        return (r.choice([f"Tell me a short story about a {a} in a {p}.", f"Write a tiny story about a {a} and a {p}."]),
                f"A short story with a {a} and a {p}.",
                f"Once upon a time there was a little {a} who lived in a {p}. One day the {a} heard a strange sound. "
                f"It walked through the {p} and found a lost bird. The {a} helped the bird, and they became good friends.", "")
    if k == 1:
        return (f"Write a story about {n} and a {o}.", f"A short story about {n}, who finds a {o}.",
                f"{n} found an old {o} on the way home. The {o} was dusty, but it was shining in the sun. {n} cleaned it and "
                f"gave it to a friend. From that day on, the {o} brought good luck to everyone.", "")
    if k == 2:
        return (f"Continue the story: {n} walked into the {p} and saw a {a}.", f"The story goes on with {n} and the {a}.",
                f"The {a} looked at {n} and did not run away. {n} smiled and shared some bread with the {a}. "
                f"In the evening they left the {p} together.", "")
    return (f"给我讲一个关于{ZH['cat'] if a == 'cat' else ZH['bird']}的小故事。", "用户想听一个小故事。",
            f"从前有一只小{ZH['cat'] if a == 'cat' else ZH['bird']}，它住在山里。有一天下了大雨，它找到了一个新家。从此它和朋友们快乐地生活在一起。", "")


SKILLS = {"arith": [(sk_addsub, 7), (sk_muldiv, 2), (sk_units, 1), (sk_word_problem, 1.5), (sk_compare, 1)],
          "string": [(sk_string, 1)], "fact": [(sk_fact, 1)], "chat": [(sk_small, 2), (sk_unknown, 1)],
          "code": [(sk_code, 1)], "story": [(sk_story, 1)]}


def pick(r, pairs):
    return r.choices([p[0] for p in pairs], [p[1] for p in pairs])[0]
