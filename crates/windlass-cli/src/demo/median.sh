#!/usr/bin/env bash
# Prints the median of its arguments (an odd number of them).
sorted=("$@")
echo "${sorted[$((${#sorted[@]} / 2))]}"
