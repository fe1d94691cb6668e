"""What a user does with the console, in the words of what is on the screen (roles and names, as a screen reader has them)."""
import contextlib
import json


def settings(page, **values):
    """Sets fields by their labels and closes the settings again."""
    page.get_by_text("Settings", exact=True).click()
    for name, value in values.items():
        field = page.get_by_label(name.replace("_", " "))
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(label=value)
        else:
            field.fill(value)
            field.blur()
    page.get_by_text("Settings", exact=True).click()


def say(page, text):
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("textbox", name="Message").press("Enter")


def answers(page):
    return page.get_by_role("region", name="Assistant")


def shown_text(page):
    """The text of the last answer, without its reasoning and its figures."""
    return answers(page).last.locator("> div > .text")


@contextlib.contextmanager
def bodies(page):
    """The JSON bodies of the chat requests made meanwhile."""
    out = []

    def note(request):
        if request.method == "POST":
            out.append(json.loads(request.post_data))

    page.on("request", note)
    yield out
    page.remove_listener("request", note)
