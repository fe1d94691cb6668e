"""Tools of the tool-call examples: each maker draws a schema and a function that asks for one call of it.

The question function gives (question, short name, arguments, result, sentence that reports the result)."""
from chatfmt import pyjson
from skills import code, operand, rword
from words import ADJ, CITIES, DAYS, NAMES, WORDS, ZH_CITY, cap1


def S(desc, **kw):
    return dict({"type": "string", "description": desc}, **kw)


def tool(name, desc, props, required=None):
    return {"name": name, "description": desc,
            "parameters": {"type": "object", "properties": props, "required": required or list(props)}}


def t_weather(r):
    p = r.choice(["location", "location", "city"])
    unit = r.random() < 0.3
    props = {p: S(r.choice(["City name", "The city", "City", "Name of the city"]))}
    if unit:
        props["unit"] = S("Temperature unit", enum=["celsius", "fahrenheit"])
    t = tool("get_weather", r.choice(["Get the current weather", "Get weather", "Get the weather of a city",
                                      "Returns the current weather for a city"]), props, [p])

    def ask(r, again=None):
        zh = r.random() < 0.15 and not unit
        c = r.choice(list(ZH_CITY)) if zh else r.choice(CITIES)
        u = r.choice(["celsius", "fahrenheit"]) if unit else None
        q = f"{c}的天气怎么样？" if zh else r.choice([f"What is the weather in {c}?", f"How is the weather in {c}?",
                                                f"Weather in {c}?", f"What's the weather like in {c}?", f"Tell me the weather in {c}.",
                                                f"Is it raining in {c}?", f"How warm is it in {c}?"])
        if u:
            q += f" Use {u}."
        args = {p: c}
        if u:
            args["unit"] = u
        temp, cond = r.randint(-10, 39), r.choice(["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"])
        res = {"temperature": temp, "condition": cond} if r.random() < 0.7 else {"temp": temp, "condition": cond}
        return q, f"weather in {c}", args, pyjson(res), f"The weather in {c} is {cond} at {temp} degrees."
    return t, ask


def t_calc(r):
    p = r.choice(["expression", "expression", "expr"])
    t = tool("calculator", r.choice(["Evaluate an arithmetic expression", "Calculate", "Do a calculation"]),
             {p: S("Expression to evaluate")})

    def ask(r, again=None):
        a, b, o = r.randint(2, 9999), r.randint(2, 9999), r.choice("+-*")
        e = f"{a} {o} {b}"
        q = r.choice([f"Calculate {e} with the calculator.", f"Use the calculator for {e}.", f"Use the calculator: {e}",
                      f"What is {e}? Use the calculator."])
        v = str(eval(e))
        return q, f"value of {e}", {p: e}, v, f"{e} = {v}."
    return t, ask


def t_search(r):
    name = r.choice(["web_search", "search"])
    t = tool(name, r.choice(["Search the web", "Search for information", "Find pages on the web"]), {"query": S("Search query")})

    def ask(r, again=None):
        k = r.choice([f"{rword(r)} {rword(r)}", f"{r.choice(ADJ)} {rword(r)}", f"{rword(r)} in {r.choice(CITIES)}"])
        q = r.choice([f"Search for {k}.", f"Search the web for {k}.", f"Look up {k}.", f"Find information about {k}."])
        v = f"{cap1(rword(r))} {rword(r)} {r.choice(['opens', 'costs', 'has'])} {operand(r)}"
        return q, k, {"query": k}, pyjson({"result": v}), f"I found this: {v}."
    return t, ask


def t_event(r):
    t = tool("create_event", r.choice(["Create a calendar event", "Add an event to the calendar"]),
             {"title": S("Title"), "day": S("Day of the week"), "time": S("Time, HH:MM")})

    def ask(r, again=None):
        w, d, h = r.choice(["meeting", "lunch", "dinner", "call", "party", "lesson", "review"]), r.choice(DAYS), \
            f"{r.randint(7, 21):02d}:{r.choice(['00', '15', '30', '45'])}"
        n = r.choice(NAMES)
        ti = f"{w} with {n}"
        q = r.choice([f"Add {ti} on {d} at {h}.", f"Create an event: {ti} on {d} at {h}.", f"Schedule {ti} for {d} at {h}."])
        return q, ti, {"title": ti, "day": d, "time": h}, '{"ok": true}', f"I added {ti} on {d} at {h}."
    return t, ask


def t_message(r):
    p = r.choice(["to", "recipient"])
    t = tool("send_message", "Send a message to a person", {p: S("Name of the person"), "text": S("Text of the message")})

    def ask(r, again=None):
        n, x = r.choice(NAMES), " ".join([r.choice(["bring", "buy", "find", "take", "send"]), "the", r.choice(ADJ), rword(r)])
        q = r.choice([f"Send {n} this message: {x}", f"Tell {n}: {x}", f"Write a message to {n}: {x}"])
        return q, f"message to {n}", {p: n, "text": x}, '{"status": "sent"}', f"I sent the message to {n}."
    return t, ask


def t_timer(r):
    t = tool("set_timer", r.choice(["Set a timer", "Start a timer"]), {"minutes": {"type": "integer", "description": "Minutes"}})

    def ask(r, again=None):
        n = r.randint(1, 120)
        q = r.choice([f"Set a timer for {n} minutes.", f"Start a {n} minute timer.", f"Timer: {n} minutes"])
        return q, f"timer of {n} minutes", {"minutes": n}, '{"ok": true}', f"The timer is set for {n} minutes."
    return t, ask


def t_convert(r):
    t = tool("convert_currency", "Convert an amount of money", {"amount": {"type": "number", "description": "Amount"},
                                                              "from": S("Source currency"), "to": S("Target currency")})

    def ask(r, again=None):
        a, b = r.sample(["USD", "EUR", "GBP", "JPY", "CNY", "CHF"], 2)
        n = r.choice([r.randint(1, 999), r.randint(1, 99) + 0.5])
        q = r.choice([f"Convert {n} {a} to {b}.", f"How much is {n} {a} in {b}?"])
        v = r.randint(1, 2000)
        return q, f"{n} {a} in {b}", {"amount": n, "from": a, "to": b}, pyjson({"result": v}), f"{n} {a} is {v} {b}."
    return t, ask


def t_time(r):
    t = tool("get_time", r.choice(["Get the current time in a city", "Get the time"]), {"city": S("City")})

    def ask(r, again=None):
        c, h = r.choice(CITIES), f"{r.randrange(24):02d}:{r.randrange(60):02d}"
        q = r.choice([f"What time is it in {c}?", f"Tell me the time in {c}.", f"Current time in {c}?"])
        return q, f"time in {c}", {"city": c}, pyjson({"time": h}), f"It is {h} in {c}."
    return t, ask


def t_stock(r):
    t = tool("get_stock_price", "Get the price of a stock", {"symbol": S("Stock symbol")})

    def ask(r, again=None):
        s, v = "".join(r.choice("ABCDEFGHKLMNPRST") for _ in range(r.randint(3, 4))), r.randint(1, 900)
        q = r.choice([f"What is the stock price of {s}?", f"Get the price of {s}.", f"How much is the {s} stock?"])
        return q, f"price of {s}", {"symbol": s}, pyjson({"price": v}), f"The price of {s} is {v}."
    return t, ask


VERBS = "find get delete update open close start stop check list order book move print count save load reset".split()


def t_random(r):
    verb, noun = r.choice(VERBS), r.choice(WORDS)
    name = f"{verb}_{noun}"
    props, n = {}, r.randint(1, 3)
    keys = r.sample(["id", "name", "size", "color", "count", "level", "place", "mode", "active", "label", "owner", "items"], n)
    for k in keys:
        props[k] = {"type": {"id": "integer", "count": "integer", "level": "number", "size": "integer", "active": "boolean",
                             "items": "array"}.get(k, "string"), "description": cap1(k)}
        if k == "items":
            props[k]["items"] = {"type": "string"}
    t = tool(name, r.choice([f"{cap1(verb)} a {noun}", f"{cap1(verb)} the {noun}", ""]), props)

    def ask(r, again=None):
        args = {}
        for k, p in props.items():
            args[k] = {"integer": r.randint(1, 9999), "number": r.choice([r.randint(1, 99), r.randint(1, 99) + 0.5]),
                       "boolean": r.random() < 0.5, "array": r.sample(WORDS, r.randint(1, 3)),
                       "string": r.choice([rword(r), code(r), r.choice(NAMES)])}[p["type"]]
        show = ", ".join(f"{k} {pyjson(v) if not isinstance(v, str) else v}" for k, v in args.items())
        q = r.choice([f"{cap1(verb)} the {noun} with {show}.", f"Please {verb} a {noun}: {show}",
                      f"Call {name} with {show}."])
        v = r.choice([rword(r), str(operand(r))])
        return q, f"{verb} {noun}", args, pyjson({"result": v}), f"The result is {v}."
    return t, ask


TOOLS = [t_weather, t_weather, t_calc, t_search, t_event, t_message, t_timer, t_convert, t_time, t_stock, t_random, t_random]
