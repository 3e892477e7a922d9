#!/bin/sh
# Disk usage of the file system that holds a path: {"path": "/", "inodes": false} on stdin, one JSON object on stdout.
# Exit codes: 1 df cannot tell, 2 the args cannot be read.
set -u
LC_ALL=C # bytes, not characters, on every awk
export LC_ALL

# Reads one flat JSON object with the members path (string) and inodes (boolean), and nothing else. Prints the
# value of inodes, a blank, and the path as an argument for printf %b, so that any byte can be in it.
# shellcheck disable=SC2016
read_args='
function fail(why) { print "disk_usage: cannot read args: " why | "cat >&2"; close("cat >&2"); failed = 1; exit 2 }
function blanks() { sub(/^[ \t\r\n]+/, "", text) }
function eat(token) {
    if (substr(text, 1, length(token)) != token) return 0
    text = substr(text, length(token) + 1)
    blanks()
    return 1
}
function octal(byte) { return sprintf("\\0%03o", byte) }
function utf8(c) {
    if (c > 31 && c < 127 && c != 92) return sprintf("%c", c)
    if (c < 128) return octal(c)
    if (c < 2048) return octal(192 + int(c / 64)) octal(128 + c % 64)
    if (c < 65536) return octal(224 + int(c / 4096)) octal(128 + int(c / 64) % 64) octal(128 + c % 64)
    return octal(240 + int(c / 262144)) octal(128 + int(c / 4096) % 64) \
        octal(128 + int(c / 64) % 64) octal(128 + c % 64)
}
function hex4(    i, digit, value) {
    for (i = 1; i <= 4; i++) {
        digit = index("0123456789abcdef", tolower(substr(text, i, 1))) - 1
        if (digit < 0 || length(text) < i) fail("bad \\u escape")
        value = value * 16 + digit
    }
    text = substr(text, 5)
    return value
}
# A string whose opening quote is gone, for printf %b.
function string(    out, c, low) {
    for (;;) {
        if (match(text, /^[^"\\\001-\037]+/)) { out = out substr(text, 1, RLENGTH); text = substr(text, RLENGTH + 1) }
        c = substr(text, 1, 1)
        text = substr(text, 2)
        if (c == "\"") { blanks(); return out }
        if (c == "") fail("a string without an end")
        if (c != "\\") fail("a control character in a string")
        c = substr(text, 1, 1)
        text = substr(text, 2)
        if (c == "\"" || c == "/") out = out c
        else if (c == "\\") out = out "\\\\"
        else if (c != "" && index("bfnrt", c)) out = out "\\" c
        else if (c == "u") {
            c = hex4()
            if (c >= 55296 && c < 56320 && substr(text, 1, 2) == "\\u") {
                text = substr(text, 3)
                low = hex4()
                if (low < 56320 || low > 57343) fail("half a surrogate pair")
                c = 65536 + (c - 55296) * 1024 + low - 56320
            } else if (c >= 55296 && c < 57344) fail("half a surrogate pair")
            if (c == 0) fail("a path cannot hold a null")
            out = out utf8(c)
        } else fail("bad escape")
    }
}
{ text = text $0 "\n"; if (length(text) > 65536) fail("too long") }
END {
    if (failed) exit 2
    path = "/"
    inodes = "false"
    blanks()
    if (text != "") {
        if (!eat("{")) fail("not an object")
        for (first = 1; !eat("}"); first = 0) {
            if (!first && !eat(",")) fail("expected a comma")
            if (!eat("\"")) fail("expected a member")
            name = string()
            if (!eat(":")) fail("expected a colon")
            if (name in seen) fail("a member comes twice")
            seen[name] = 1
            if (name == "path") {
                if (!eat("\"")) fail("path is not a string")
                path = string()
            } else if (name == "inodes") {
                if (eat("true")) inodes = "true"
                else if (!eat("false")) fail("inodes is not true or false")
            } else fail("the only members are path and inodes")
        }
        if (text != "") fail("text after the object")
    }
    if (path !~ /^\//) fail("path is not absolute")
    print inodes " " path
}'

args=$(awk "$read_args") || exit 2
inodes=${args%% *}
path=$(printf '%b.' "${args#* }") # the dot keeps newlines at the end
path=${path%.}

blocks=$(df -Pk -- "$path") || exit 1
counts=
if [ "$inodes" = true ]; then
    counts=$(df -Pi -- "$path") || exit 1
fi

# shellcheck disable=SC2016
DF_PATH=$path DF_BLOCKS=$blocks DF_COUNTS=$counts awk '
# A JSON string; bytes that are not UTF-8 become question marks.
function quoted(s,    out, c) {
    while (s != "") {
        if (match(s, /^[][ !#-Z^-~]+/) ||
            match(s, /^[\302-\337][\200-\277]/) ||
            match(s, /^(\340[\240-\277]|[\341-\354\356\357][\200-\277]|\355[\200-\237])[\200-\277]/) ||
            match(s, /^(\360[\220-\277]|[\361-\363][\200-\277]|\364[\200-\217])[\200-\277][\200-\277]/)) {
            out = out substr(s, 1, RLENGTH)
            s = substr(s, RLENGTH + 1)
            continue
        }
        c = substr(s, 1, 1)
        s = substr(s, 2)
        if (c == "\"" || c == "\\") out = out "\\" c
        else if (c in control) out = out sprintf("\\u%04x", control[c])
        else out = out "?"
    }
    return "\"" out "\""
}
function scaled(n, unit) { return n == "-" ? "null" : sprintf("%.0f", n * unit) }
# Splits the second line of df -P. Blanks may be in its first and its last column.
function columns(output,    lines, line, middle) {
    split(output, lines, "\n")
    if (!match(lines[2], / +(-|[0-9]+) +(-|-?[0-9]+) +(-|-?[0-9]+) +(-|[0-9]+%) +\//)) {
        print "disk_usage: cannot read what df says: " output | "cat >&2"
        exit 1
    }
    line = lines[2]
    filesystem = substr(line, 1, RSTART - 1)
    mount = substr(line, RSTART + RLENGTH - 1)
    middle = substr(line, RSTART, RLENGTH - 1)
    split(middle, column, " ")
}
function numbers(unit,    percent) {
    percent = column[4]
    sub(/%/, "", percent)
    return scaled(column[1], unit) " " scaled(column[2], unit) " " scaled(column[3], unit) " " scaled(percent, 1)
}
BEGIN {
    for (i = 1; i < 32; i++) control[sprintf("%c", i)] = i
    control[sprintf("%c", 127)] = 127
    columns(ENVIRON["DF_BLOCKS"])
    split(numbers(1024), n, " ")
    printf "{\"path\":%s,\"filesystem\":%s,\"mount\":%s", quoted(ENVIRON["DF_PATH"]), quoted(filesystem), quoted(mount)
    printf ",\"size_bytes\":%s,\"used_bytes\":%s,\"available_bytes\":%s,\"used_percent\":%s", n[1], n[2], n[3], n[4]
    if (ENVIRON["DF_COUNTS"] != "") {
        columns(ENVIRON["DF_COUNTS"])
        split(numbers(1), n, " ")
        printf ",\"inodes\":{\"size\":%s,\"used\":%s,\"available\":%s,\"used_percent\":%s}", n[1], n[2], n[3], n[4]
    }
    print "}"
}'
