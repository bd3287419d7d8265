"""close.py A B LIMIT: fails when the relative root mean square difference of two outputs of lathe-interp exceeds LIMIT."""
import sys

a, b = ([[float(v) for v in line.split(': ')[1].split()] for line in open(path)] for path in sys.argv[1:3])
flat_a, flat_b = ([v for row in rows for v in row] for rows in (a, b))
if len(flat_a) != len(flat_b):
    sys.exit(f'{len(flat_a)} and {len(flat_b)} values')
error = (sum((x - y) ** 2 for x, y in zip(flat_a, flat_b)) / sum(x * x for x in flat_a)) ** 0.5
if not error <= float(sys.argv[3]):
    sys.exit(f'relative difference {error}')
