"""Unit tests of tools/lint/lint.py: one behaviour each, over made-up files."""
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lint"))

import lint  # noqa: E402


def messages(findings):
    return [f.message for f in findings]


class Layers(unittest.TestCase):
    def check(self, path, line):
        return messages(lint.check_layers(path, "/* head */\n" + line + "\n"))

    def test_a_lower_room_may_be_included(self):
        self.assertEqual(self.check("src/engine/step.c", '#include "model/model.h"'), [])

    def test_an_upper_room_may_not(self):
        self.assertEqual(self.check("src/ops/x.c", '#include "engine/engine.h"'), ["ops may not include engine"])

    def test_a_private_header_stays_in_its_room(self):
        self.assertEqual(self.check("src/model/a.c", '#include "model/model_int.h"'), [])
        self.assertEqual(self.check("src/engine/a.c", '#include "model/model_int.h"'), ["model/model_int.h is private to model"])

    def test_only_the_backend_list_names_a_backend(self):
        self.assertEqual(self.check("src/ops/backend_list.c", '#include "cpu/cpu.h"'), [])
        self.assertEqual(self.check("src/model/a.c", '#include "cpu/cpu.h"'), ["only src/ops/backend_list.c may include cpu/"])

    def test_public_headers_belong_to_the_room_of_their_name(self):
        self.assertEqual(self.check("src/core/err.c", "#include <deepinfer/base.h>"), [])
        self.assertEqual(self.check("src/tokenizer/a.c", "#include <deepinfer/tokenizer.h>"), [])
        self.assertEqual(self.check("src/core/err.c", "#include <deepinfer/tokenizer.h>"),
                         ["core may not include the public header of tokenizer"])
        self.assertEqual(self.check("src/server/a.c", "#include <deepinfer/engine.h>"), [])

    def test_the_command_uses_the_public_api_and_core(self):
        self.assertEqual(self.check("tools/main.c", '#include "cli.h"'), [])
        self.assertEqual(self.check("tools/main.c", '#include "core/buf.h"'), [])
        self.assertEqual(self.check("tools/verify/golden.c", '#include "ops/ops.h"'), ["tools may not include ops"])
        self.assertEqual(self.check("tools/cmd_verify.c", '#include "verify/run.h"'), [])
        self.assertEqual(self.check("tools/main.c", '#include "model/model.h"'), ["tools may not include model"])

    def test_every_edge_of_the_table_points_down(self):
        def reach(room, seen):
            for below in lint.LAYERS[room]:
                self.assertNotIn(room, lint.LAYERS[below], f"{room} and {below} include each other")
                if below not in seen:
                    reach(below, seen | {below})
        for room in lint.LAYERS:
            reach(room, {room})

    def test_unknown_rooms_and_bare_names_are_found(self):
        self.assertEqual(self.check("src/extra/a.c", ""), ["room extra is not in the table of layers"])
        self.assertEqual(self.check("src/core/a.c", '#include "err.h"'), ['include "err.h" without its room'])


class Names(unittest.TestCase):
    def test_two_files_of_one_name_are_found(self):
        found = messages(lint.check_names(["src/a/README.md", "src/a/x.c", "src/b/README.md", "src/b/x.c"]))
        self.assertEqual(found, ["same file name as src/a/x.c"])

    def test_a_room_needs_a_readme(self):
        self.assertEqual(messages(lint.check_names(["src/a/x.c"])), ["room without README.md"])


class Text(unittest.TestCase):
    def check(self, path, text):
        return messages(lint.check_text(path, text))

    def test_clean_source_passes(self):
        self.assertEqual(self.check("src/core/a.c", "/* a.c - x. */\nint a; /* see #12, issue (TO" + "DO #12) */\n"), [])

    def test_machine_paths_are_found(self):
        for folder in ("work", "root", "home/someone"):
            self.assertEqual(len(self.check("docs/a.md", f"see /{folder}/x\n")), 1, folder)
        self.assertEqual(self.check("docs/a.md", "see ./work/x and network/root/x\n"), [])

    def test_open_ends_need_an_issue(self):
        self.assertEqual(self.check("src/core/a.c", "/* TO" + "DO later */\n"), ["open end without an issue number"])

    def test_form_of_source_is_checked(self):
        self.assertEqual(self.check("src/core/a.c", "/* a */\n\tint a; \n"), ["blank at the end of the line", "tab"])
        self.assertEqual(self.check("src/core/a.c", "int a;\n"), ["no head comment"])
        self.assertEqual(len(self.check("src/core/a.c", "/* " + "x" * 140 + " */\n")), 1)

    def test_unsafe_functions_are_found(self):
        self.assertEqual(self.check("src/core/a.c", "/* a */\nvoid f(void) { strcpy(a, b); }\n"), ["strcpy is not used here"])
        self.assertEqual(self.check("src/core/a.c", "/* a */\nvoid f(void) { x.gets(a); my_strcpy(a, b); }\n"), [])


class Foreign(unittest.TestCase):
    def test_at_most_two_files_wrap_a_library(self):
        files = {f"src/core/{x}.c": "#include <json-c/json.h>\n" for x in "ab"}
        self.assertEqual(lint.check_foreign(files), [])
        files["src/core/c.c"] = "#include <json-c/json.h>\n"
        self.assertEqual(len(lint.check_foreign(files)), 1)


class Headers(unittest.TestCase):
    def test_a_header_must_stand_alone(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "include/deepinfer"))
            for name, text in (("good.h", "#include <stddef.h>\nsize_t f(void);\n"), ("bad.h", "size_t f(void);\n"),
                               ("c_only.h", "void f(int class);\n")):
                with open(os.path.join(root, "include/deepinfer", name), "w", encoding="utf-8") as file:
                    file.write(text)
            found = lint.check_headers(root, ["include/deepinfer/" + x for x in ("good.h", "bad.h", "c_only.h")])
        paths = [(f.path.rsplit("/", 1)[1], "as C++" in f.message) for f in found]
        self.assertEqual(paths, [("bad.h", False), ("bad.h", True), ("c_only.h", True)])


if __name__ == "__main__":
    unittest.main()
