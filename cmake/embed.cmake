# cmake -DOUTPUT=x.c "-DPAIRS=NAME|FILE|NAME|FILE" -DVERSION=v -P embed.cmake: a C file with `const char NAME_text[]` and
# `const size_t NAME_size` for each file; @VERSION@ in them becomes the version. A file that is not there is an empty text.
string(REPLACE "|" ";" pairs "${PAIRS}")
set(out "/* Made by cmake/embed.cmake. */\n#include <stddef.h>\n\n")
while(pairs)
    list(POP_FRONT pairs name file)
    set(hex "")
    if(EXISTS "${file}")
        file(READ "${file}" hex HEX)
        # In hexadecimal, because CMake's strings would lose semicolons and backslashes.
        string(HEX "@VERSION@" placeholder)
        string(HEX "${VERSION}" version)
        string(REPLACE "${placeholder}" "${version}" hex "${hex}")
    endif()
    string(LENGTH "${hex}" digits)
    math(EXPR size "${digits} / 2")
    # As characters, since bytes above 127 are negative where char is signed.
    string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
    string(REGEX REPLACE "(.............................................................................)" "\\1\n" bytes "${bytes}")
    string(APPEND out "extern const char ${name}_text[];\nextern const size_t ${name}_size;\n"
        "const char ${name}_text[] = {\n${bytes}0};\nconst size_t ${name}_size = ${size};\n\n")
endwhile()
file(WRITE "${OUTPUT}" "${out}")
