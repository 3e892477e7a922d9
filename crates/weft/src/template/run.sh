#!/bin/sh
# stdin: the args, one JSON object. stdout: the result, one JSON object. stderr: what people see meanwhile.
# Any exit code but 0 means that it failed. Nothing here needs a variable, so env_allow is empty: no PATH either.
set -eu
args=
while IFS= read -r line || [ -n "$line" ]; do
    args="$args$line "
done
echo "{{name}}: asked with $args" >&2
printf '{"greeting":"hello from weft","asked":%s}\n' "$args"
