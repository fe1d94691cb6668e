"""The console against a stand-in that says what no good server would, and says it slowly, in pieces, or not to the end."""
import json
import re
import threading

import pytest
from playwright.sync_api import expect

from console import answers, say, settings, shown_text
from stand_in import DONE, PATIENCE, Answer, StandIn, event

HOSTILE = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script><b>猫</b>&amp;\u202e"


def error_line(page):
    return page.get_by_role("alert").filter(has_text="Try again")


def assert_harmless(page):
    assert page.evaluate("window.hit") is None
    assert page.locator("main img, main script, main b").count() == 0


def test_whatever_the_model_writes_stays_text(visit):
    call = {"index": 0, "id": "call_0", "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    answer = Answer(event(reasoning_content=HOSTILE), event(content=HOSTILE), event(tool_calls=[call]),
                    event(finish_reason="tool_calls"), DONE)
    with StandIn(answer) as server:
        page = visit(server.url)
        say(page, HOSTILE)
        expect(shown_text(page)).to_have_text(HOSTILE)
        expect(page.get_by_role("region", name="You").locator(".text")).to_have_text(HOSTILE)
        expect(answers(page).locator("details .text")).to_have_text(HOSTILE)
        expect(answers(page).locator("strong")).to_have_text(HOSTILE)
        expect(answers(page).locator("code")).to_have_text(HOSTILE)
        expect(page.get_by_role("button", name="Send results")).to_be_visible()
        assert_harmless(page)


def test_the_policy_forbids_html_out_of_strings(visit):
    with StandIn() as server:
        page = visit(server.url)
        made = page.evaluate("""() => {
            try { document.getElementById("log").innerHTML = "<b>no</b>"; return "made"; } catch (error) { return error.name; }
        }""")
        assert made == "TypeError"


def test_what_the_server_says_of_errors_stays_text(visit):
    failed = Answer(json.dumps({"error": {"message": HOSTILE}}).encode(), status=429, headers={"Retry-After": "7"})
    broken = Answer(event(content="half"), b'data: {"error": {"message": "' + b"<b>worse</b>" + b'"}}\n\n')
    with StandIn(failed, broken, Answer(event(content="good"), event(finish_reason="stop"), DONE)) as server:
        page = visit(server.url)
        say(page, "one")
        expect(error_line(page)).to_contain_text(f"{HOSTILE} Try again in 7 s.")
        page.get_by_role("button", name="Try again").click()
        expect(error_line(page)).to_contain_text("<b>worse</b>")
        expect(shown_text(page)).to_have_text("half")
        page.get_by_role("button", name="Try again").click()
        expect(shown_text(page)).to_have_text("good")
        expect(error_line(page)).to_have_count(0)
        assert_harmless(page)
        assert [body["messages"] for body in server.bodies] == [[{"role": "user", "content": "one"}]] * 3


@pytest.mark.parametrize("end, reason", [
    (b"", "The answer broke off."),
    (b"data: {no JSON\n\n", "JSON"),
])
def test_a_stream_without_its_end_is_an_error(visit, end, reason):
    with StandIn(Answer(event(content="half"), end)) as server:
        page = visit(server.url)
        say(page, "go on")
        expect(error_line(page)).to_contain_text(reason)
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()


def test_events_are_read_wherever_they_are_cut(visit):
    text = "Grüße, 猫 😀."
    stream = (b": keep-alive\r\n\r\n" + event(content=text[:8]).replace(b"\n", b"\r\n") + b"event: x\ndata:" +
              event(content=text[8:])[6:] + event(finish_reason="stop") + DONE)
    with StandIn(Answer(*(stream[i:i + 1] for i in range(len(stream))))) as server:
        page = visit(server.url)
        say(page, "cut")
        expect(page.get_by_role("status")).to_have_text("The answer is complete.")
        expect(shown_text(page)).to_have_text(text)


def test_a_stopped_answer_is_kept_and_the_server_sees_the_client_leave(visit):
    gate = threading.Event()
    first = Answer(event(reasoning_content="hm"), event(content="so far"), gate, *[event(content=" more")] * 100_000)
    with StandIn(first, Answer(event(content="second"), event(finish_reason="stop"), DONE)) as server:
        page = visit(server.url)
        say(page, "one")
        expect(shown_text(page)).to_have_text("so far")
        expect(page.get_by_role("status")).to_have_text("The answer is being written.")
        page.get_by_role("button", name="Stop").click()
        expect(answers(page).locator(".figures")).to_have_text(re.compile("stopped$"))
        gate.set()
        assert first.left.wait(PATIENCE)
        say(page, "two")
        expect(shown_text(page)).to_have_text("second")
        assert server.bodies[1]["messages"] == [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "so far", "reasoning_content": "hm"},
            {"role": "user", "content": "two"}]


def test_a_new_chat_ends_the_answer_that_comes(visit):
    gate = threading.Event()
    with StandIn(Answer(event(content="old"), gate), Answer(event(content="new"), event(finish_reason="stop"), DONE)) as server:
        page = visit(server.url)
        say(page, "one")
        expect(shown_text(page)).to_have_text("old")
        page.get_by_role("button", name="New chat").click()
        say(page, "two")
        expect(shown_text(page)).to_have_text("new")
        expect(answers(page)).to_have_count(1)
        assert server.bodies[1]["messages"] == [{"role": "user", "content": "two"}]
        gate.set()


def test_settings_are_sent_and_remembered(visit):
    ok = Answer(event(content="ok"), event(finish_reason="stop"), DONE)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with StandIn(ok, ok) as server:
        page = visit(server.url)
        settings(page, Temperature="0.5", Most_tokens="7", Thinking="on", System_prompt="Be kind.", Tools=json.dumps(tools), API_key="secret")
        page.reload()
        say(page, "one")
        expect(shown_text(page)).to_have_text("ok")
        body = server.bodies[0]
        assert body == {"model": "stand-in", "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.5, "max_tokens": 7,
                        "thinking": {"type": "enabled"}, "tools": tools,
                        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "one"}]}
        settings(page, Temperature="", Most_tokens="", Thinking="server's choice", System_prompt="", Tools="")
        say(page, "two")
        expect(answers(page)).to_have_count(2)
        expect(page.get_by_role("status")).to_have_text("The answer is complete.")
        assert sorted(server.bodies[1]) == ["messages", "model", "stream", "stream_options"]
        assert [message["role"] for message in server.bodies[1]["messages"]] == ["user", "assistant", "user"]


def test_wrong_settings_are_shown_and_not_sent(visit):
    with StandIn() as server:
        page = visit(server.url)
        settings(page, Tools="[{")
        say(page, "one")
        expect(page.get_by_label("Tools")).to_be_focused()
        expect(page.get_by_role("alert").filter(has_text="Tools:")).to_be_visible()
        page.get_by_label("Tools").fill("")
        page.get_by_label("Temperature").fill("9")
        page.get_by_role("textbox", name="Message").press("Enter")
        expect(page.get_by_label("Temperature")).to_be_focused()
        expect(page.get_by_role("textbox", name="Message")).to_have_value("one")
        assert server.bodies == []


def test_metrics_are_summed_and_nonsense_is_passed_over(visit):
    metrics = ("# HELP vllm:num_requests_running x\nvllm:num_requests_running{a=\"} 5\"} 2\nvllm:num_requests_running{a=\"b\"} 1\n"
               "vllm:num_requests_waiting 10000\nvllm:kv_cache_usage_perc 0.25\nvllm:generation_tokens_total 5\n<b>nonsense</b> {{{\n")
    with StandIn(metrics=metrics) as server:
        page = visit(server.url)
        expect(page.locator("#running")).to_have_text("3")
        expect(page.locator("#waiting")).to_have_text("10,000")
        expect(page.locator("#kv-text")).to_have_text("25.0 %")
        expect(page.get_by_label("KV memory")).to_have_js_property("value", 0.25)
        expect(page.locator("#rate")).to_have_text("0")
        server.metrics = ""
        expect(page.locator("#running")).to_have_text("–")
        expect(page.locator("#kv-text")).to_have_text("–")


def test_keys_alone_are_enough(visit):
    answer = Answer(event(content="fine"), event(finish_reason="stop"), DONE)
    with StandIn(answer) as server:
        page = visit(server.url)
        message = page.get_by_role("textbox", name="Message")
        expect(message).to_be_focused()
        page.keyboard.type("one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        page.keyboard.press("Shift+Tab")  # back through the conversation, the settings and "New chat"
        reached = []
        while (name := page.evaluate("document.activeElement.textContent.trim()")) != "New chat":
            assert len(reached) < 10, reached
            reached.append(name)
            page.keyboard.press("Shift+Tab")
        assert "Settings" in reached
        message.focus()
        page.keyboard.press("Enter")
        expect(shown_text(page)).to_have_text("fine")
        assert server.bodies[0]["messages"][0]["content"] == "one\ntwo"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_in_both_schemes(visit, scheme):
    wide = Answer(event(content="x" * 2000), event(finish_reason="stop"), DONE)
    with StandIn(wide) as server:
        page = visit(server.url, viewport={"width": 320, "height": 560}, color_scheme=scheme)
        settings(page, Temperature="0")
        page.get_by_text("Settings", exact=True).click()
        say(page, "x" * 500)
        expect(shown_text(page)).to_have_text("x" * 2000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.evaluate("document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth")
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_in_viewport()
        assert contrast(page, "main .text") > 7 and contrast(page, ".figures") > 4.5 and contrast(page, "#send") > 4.5


def contrast(page, selector):
    """WCAG 2 contrast of an element's text and what is behind it."""
    text, ground = page.evaluate("""(selector) => {
        const found = document.querySelector(selector);
        let behind = found;
        while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") { behind = behind.parentElement; }
        return [getComputedStyle(found).color, getComputedStyle(behind).backgroundColor];
    }""", selector)

    def luminance(color):
        parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(text), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)
