#!/bin/bash
# See compare.py. Peers are installed or built outside this tree.
cd "$(dirname "$0")/.." && exec python3 bench/compare.py "$@"
