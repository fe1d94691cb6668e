#!/bin/sh
# calculator.sh - answers calls of the tool `calculator`: {"expression": "4737 * 9873"} -> 46768401.
# What the model wrote is outside text: only digits, blanks, brackets and + - * get as far as the shell's arithmetic.
read -r arguments
expression=$(printf '%s\n' "$arguments" | sed -n 's/^{"expression": *"\([-+*() 0-9]*\)"}$/\1/p')
if [ -z "$expression" ]; then
    echo "error: expected an expression of whole numbers with + - *"
    exit
fi
echo $(( $expression ))
