"""The console against `deepinfer serve` with the demo model: answers, reasoning, tools, keys, and what it shows of the server."""
import re

from playwright.sync_api import expect

from console import answers, bodies, say, settings, shown_text
from serve import CAIRO, EGYPT, MODEL, ROOT, Server, until

FRANCE = "Which city is the capital of France?"
PRODUCT = "Use the calculator: 4737 * 9873"


def quiet(page, **more):
    settings(page, Thinking="off", Temperature="0", **more)


def test_a_question_is_answered_and_the_figures_are_shown(visit):
    with Server() as server:
        page = visit(server.url)
        expect(page).to_have_title("deepinfer console")
        expect(page.locator("#model")).to_have_text(MODEL)
        quiet(page)
        say(page, CAIRO)
        expect(shown_text(page)).to_have_text(EGYPT)
        expect(page.get_by_role("status")).to_have_text("The answer is complete.")
        figures = answers(page).locator(".figures")
        expect(figures).to_have_text(re.compile(r"^first token [\d.]+ m?s · [\d.]+ tokens/s · \d+ tokens · prompt \d+, of these \d+ cached$"))
        expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        # The server's own figures arrive with the next look at /metrics.
        expect(page.locator("#running")).to_have_text("0")
        expect(page.locator("#waiting")).to_have_text("0")
        expect(page.locator("#kv-text")).to_have_text(re.compile(r"^[\d.]+ %$"))
        expect(page.locator("#rate")).to_have_text(re.compile(r"^\d+$"))
        assert server.stop() == 0


def test_the_tiers_of_the_cache_are_shown_when_there_are_any(visit, tmp_path):
    with Server() as server:
        expect(visit(server.url).locator("#kv-text")).to_have_text(re.compile("%$"))
        expect(visit(server.url).locator("#cache-box")).to_be_hidden()
    with Server("--cache-dir", tmp_path / "kv", "--cache-bytes", "64M", "--cache-ram", "16M") as server:
        page = visit(server.url)
        expect(page.locator("#cache-box")).to_be_visible()
        page.get_by_text("Prefix cache").click()
        rows = page.locator("#cache-tiers tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.nth(0).locator("td")).to_have_text(["memory", "0 B", "16.0 MiB", "0 B", "0 B", "0", "0", "0"])
        expect(rows.nth(1).locator("td").nth(0)).to_have_text("dir")
        expect(rows.nth(1).locator("td").nth(2)).to_have_text("64.0 MiB")
        quiet(page)
        say(page, CAIRO + " " + "Say it in one word, please. " * 30)
        expect(page.get_by_role("status")).to_have_text("The answer is complete.")
        expect(rows.nth(1).locator("td").nth(4)).not_to_have_text("0 B")  # written


def test_drafts_are_shown_when_there_are_any(visit):
    with Server("--draft", "fixed:3") as server:
        page = visit(server.url)
        expect(page.locator("#kv-text")).to_have_text(re.compile("%$"))
        expect(page.locator("#draft-box")).to_be_hidden()
        quiet(page)
        say(page, CAIRO)
        expect(shown_text(page)).to_have_text(EGYPT)
        expect(page.locator("#draft-box")).to_be_visible()
        page.get_by_text("Drafts", exact=True).click()
        rows = page.locator("#draft-places tbody tr")
        expect(rows).to_have_count(3)
        total = {name: int(server.value(f"deepinfer_draft_tokens_{name}total")) for name in ("", "accepted_", "wasted_", "proposed_")}
        assert total[""] == total["accepted_"] + total["wasted_"] <= total["proposed_"] and total["accepted_"] > 0
        expect(page.locator("#draft-verified")).to_have_text(str(total[""]))
        expect(page.locator("#draft-right")).to_have_text(f"{100 * total['accepted_'] / total['']:.1f} %")
        expect(page.locator("#draft-wasted")).to_have_text(str(total["wasted_"]))
        expect(page.locator("#draft-budget")).to_have_text(re.compile(r"^[0-3]$"))
        expect(page.locator("#draft-calibration")).to_have_text(f"{100 * server.value('deepinfer_draft_calibration_error'):.1f} %")
        expect(rows.nth(0).locator("td").nth(0)).to_have_text("1")
        expect(rows.nth(0).locator("td").nth(2)).to_have_text(re.compile(r"^[\d.]+ %$"))


def test_the_next_question_carries_the_conversation_and_a_new_chat_does_not(visit):
    with Server() as server:
        page = visit(server.url)
        quiet(page, System_prompt="Be brief.")
        with bodies(page) as sent:
            say(page, CAIRO)
            expect(shown_text(page)).to_have_text(EGYPT)
            say(page, FRANCE)
            expect(answers(page)).to_have_count(2)
            expect(page.get_by_role("status")).to_have_text("The answer is complete.")
            page.get_by_role("button", name="New chat").click()
            expect(answers(page)).to_have_count(0)
            say(page, CAIRO)
            expect(shown_text(page)).to_have_text(re.compile("Egypt"))
        assert [[message["role"] for message in body["messages"]] for body in sent] == [
            ["system", "user"], ["system", "user", "assistant", "user"], ["system", "user"]]
        assert sent[1]["messages"][2]["content"] == EGYPT
        assert sent[0]["temperature"] == 0 and sent[0]["thinking"] == {"type": "disabled"} and "max_tokens" not in sent[0]


def test_reasoning_is_folded(visit):
    with Server() as server:
        page = visit(server.url)
        settings(page, Thinking="on", Temperature="0")
        say(page, FRANCE)
        expect(shown_text(page)).to_have_text("The capital of France is Paris.")
        fold = answers(page).locator("details")
        expect(fold.locator("summary")).to_have_text(re.compile(r"^Reasoning, \d+ tokens$"))
        expect(fold.locator(".text")).to_be_hidden()
        fold.locator("summary").press("Enter")
        expect(fold.locator(".text")).to_be_visible()
        expect(fold.locator(".text")).not_to_be_empty()


def test_tools_go_round(visit):
    with Server() as server:
        page = visit(server.url)
        settings(page, Thinking="off", Temperature="0", Tools=(ROOT / "examples/tools/tools.json").read_text(encoding="utf-8"))
        say(page, PRODUCT)
        expect(answers(page).locator("strong")).to_have_text("calculator")
        expect(answers(page).locator("code")).to_have_text('{"expression": "4737 * 9873"}')
        result = page.get_by_role("textbox", name="Result of calculator")
        expect(result).to_be_focused()
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
        result.fill("46768401")
        with bodies(page) as sent:
            page.get_by_role("button", name="Send results").click()
            expect(shown_text(page)).to_have_text("4737 * 9873 = 46768401.")
        call = sent[0]["messages"][1]["tool_calls"][0]
        assert sent[0]["messages"][2] == {"role": "tool", "tool_call_id": call["id"], "content": "46768401"}
        assert call["function"]["arguments"] == '{"expression": "4737 * 9873"}'


def test_an_answer_that_waits_can_be_stopped(visit):
    with Server("--admin-port", "0") as server:
        page = visit(server.url)
        quiet(page)
        server.admin("POST", "/admin/tenants//pause")
        say(page, CAIRO)
        expect(page.locator("#waiting")).to_have_text("1")
        expect(answers(page).locator(".figures")).to_have_text(re.compile(r"^waiting [\d.]+ m?s$"))
        page.keyboard.press("Escape")
        expect(page.get_by_role("status")).to_have_text("The answer is stopped.")
        until(lambda: server.load() == (0, 0, 0), "the request is gone")
        server.admin("POST", "/admin/tenants//resume")
        say(page, CAIRO)
        expect(shown_text(page)).to_have_text(EGYPT)


def test_a_key_is_asked_for_and_kept_for_the_tab(visit):
    with Server("--api-key", "right", key="right") as server:
        page = visit(server.url, http_credentials={"username": "any", "password": "right"})
        quiet(page, API_key="wrong")
        say(page, CAIRO)
        expect(page.get_by_role("alert").filter(has_text="Try again")).to_be_visible()
        key = page.get_by_label("API key")
        expect(key).to_be_focused()
        key.fill("right")
        key.blur()
        page.get_by_role("button", name="Try again").click()
        expect(shown_text(page)).to_have_text(EGYPT)
        expect(page.get_by_role("alert").filter(has_text="Try again")).to_have_count(0)
        assert page.evaluate("sessionStorage.getItem('deepinfer.key')") == "right"
        assert "right" not in page.evaluate("JSON.stringify(localStorage)")


def test_a_server_that_is_gone_is_said_to_be(visit):
    with Server() as server:
        page = visit(server.url)
        expect(page.locator("#model")).to_have_text(MODEL)
        assert server.stop() == 0
        say(page, CAIRO)
        expect(page.get_by_role("alert").filter(has_text="The server can't be reached.")).to_be_visible()
        expect(page.locator("#running")).to_have_text("–")
