#!/bin/sh
# get_time.sh - answers calls of the tool `get_time`: {"city": "Tokyo"} -> {"time": "14:05"}.
read -r arguments
case $arguments in
*'"Tokyo"'*) zone=JST-9 ;;
*'"Beijing"'*) zone=CST-8 ;;
*'"Mumbai"'*) zone=IST-5:30 ;;
*'"Nairobi"'*) zone=EAT-3 ;;
*'"Paris"'* | *'"Berlin"'* | *'"Madrid"'*) zone=CET-1CEST,M3.5.0,M10.5.0/3 ;;
*'"London"'*) zone=GMT0BST,M3.5.0/1,M10.5.0 ;;
*)
    echo '{"error": "unknown city"}'
    exit
    ;;
esac
printf '{"time": "%s"}\n' "$(TZ=$zone date +%H:%M)"
